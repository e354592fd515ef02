# torch_ocl_compile/lowering/__init__.py: imports every family of lowerings, so that the table of lowerings is complete.
"""Lowering translates aten ops into the IR. There is one file per family of ops, and one lowering per overload."""

# ruff: noqa: F401  (importing a module adds its rows)

import torch._inductor.inductor_prims  # defines prims that rows refer to

from torch_ocl_compile.fx import ops  # defines torch.ops.ocl
from torch_ocl_compile.lowering.complex_numbers import (
    complex_contraction,
    complex_pointwise,
    complex_reduction,
    fft,
    jacobi,
)
from torch_ocl_compile.lowering.elementwise import activation, factory, pointwise, random, special
from torch_ocl_compile.lowering.graphs import collectives
from torch_ocl_compile.lowering.layers import adaptive_pooling, embedding, folding, loss, padding, pooling
from torch_ocl_compile.lowering.movement import index_put, indexing, scatter, sort, view
from torch_ocl_compile.lowering.products import attention, contraction, convolution, quantized
from torch_ocl_compile.lowering.reductions import normalization, reduction, scan

from torch_ocl_compile.lowering.complex_numbers import complex_parts  # isort: skip  (its rows refer to those above)
from torch_ocl_compile.lowering.elementwise import foreach  # isort: skip  (its rows, too)
