# torch_ocl_compile/lowering/__init__.py: imports every family of lowerings, so that the table of lowerings is complete.
"""Lowering translates aten ops into the IR. There is one file per family of ops, and one lowering per overload."""

import torch._inductor.inductor_prims  # noqa: F401  defines prims that rows refer to

from torch_ocl_compile.fx import ops  # noqa: F401  (defines torch.ops.ocl)
from torch_ocl_compile.lowering import (
    activation,
    adaptive_pooling,
    attention,
    collectives,
    complex_pointwise,
    contraction,
    convolution,
    embedding,
    factory,
    fft,
    folding,
    index_put,
    indexing,
    jacobi,
    loss,
    normalization,
    padding,
    pointwise,
    pooling,
    random,
    reduction,
    scan,
    scatter,
    sort,
    special,
    view,
)

from torch_ocl_compile.lowering import complex_parts, foreach  # isort: skip  (their rows refer to those above)

__all__ = [
    "activation",
    "adaptive_pooling",
    "attention",
    "collectives",
    "complex_parts",
    "complex_pointwise",
    "contraction",
    "convolution",
    "embedding",
    "factory",
    "fft",
    "folding",
    "foreach",
    "index_put",
    "indexing",
    "jacobi",
    "loss",
    "normalization",
    "padding",
    "pointwise",
    "pooling",
    "random",
    "reduction",
    "scan",
    "scatter",
    "sort",
    "special",
    "view",
]
