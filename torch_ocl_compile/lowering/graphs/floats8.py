# torch_ocl_compile/lowering/graphs/floats8.py: which ops take 8-bit floats.
# ruff: noqa: SIM905  (a list of words)
"""PyTorch moves, converts and compares 8-bit floats, and computes with them in `_scaled_mm` alone. Other ops run on the CPU, which
refuses most of them: so a program that is wrong in PyTorch is wrong here, too."""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from torch_ocl_compile.dtypes import FLOATS8
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.fx.host_part import tensors_of
from torch_ocl_compile.fx.split import CHECKED_BY_GUARDS, is_view

# Ops that move or convert elements, and comparisons.
TAKEN = set(
    "_to_copy convert_element_type device_put clone copy copy_ cat stack where full full_like fill zeros zeros_like ones ones_like"
    " empty empty_like empty_strided empty_permuted new_empty new_full new_zeros new_ones scalar_tensor lift_fresh_copy"
    " index_select index _unsafe_index embedding gather take index_put _unsafe_index_put index_copy scatter select_scatter"
    " slice_scatter as_strided_scatter diagonal_scatter masked_fill constant_pad_nd flip roll repeat expand_copy view_copy"
    " permute_copy eq ne isnan abs _scaled_mm split_with_sizes_copy unfold_copy inductor_lookup".split()
)


def refuse_arithmetic(node: torch.fx.Node) -> None:
    """UnsupportedError if the node reads or makes 8-bit floats, and PyTorch defines no arithmetic for them."""
    if not isinstance(node.target, OpOverload) or str(node.target) in CHECKED_BY_GUARDS:
        return
    if node.target._schema.name.split("::")[1] in TAKEN or is_view(node):
        return
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    found = next((t.dtype for value in values for t in tensors_of(value) if t.dtype in FLOATS8), None)
    if found is not None:
        raise UnsupportedError(
            f"{node.target} of {found} has no kernel: PyTorch computes with this dtype in _scaled_mm alone"
        )
