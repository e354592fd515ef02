# torch_ocl_compile/compile/blocks_of.py: which blocks of MASK_BLOCK x MASK_BLOCK scores an attention mask does not hide.
"""Kernels skip the others; csrc/ir/graph.h. A BlockMask lists blocks of another size, usually 128 x 128. So its lists skip less than
what its mask_mod itself says, but cost nothing, where asking mask_mod takes all scores of each head that it tells apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_ocl_compile._C import ir

MASK_BLOCK: int = ir.MASK_BLOCK
MOST_ASKED = 1 << 26  # Scores of which mask_mod is asked.


def seen(mask: Tensor) -> Tensor:
    """Returns the blocks of a mask of which something is seen. An index of one element has one block."""
    for dim in (2, 3):
        if mask.shape[dim] == 1:
            continue
        size: Any = mask.shape[dim]
        count = (size + MASK_BLOCK - 1) // MASK_BLOCK
        # Under fake tensors, padding takes no symbolic numbers.
        padding = count * MASK_BLOCK - size if isinstance(size, int) else MASK_BLOCK - 1
        mask = F.pad(mask, [0, 0] * (3 - dim) + [0, padding])
        if not isinstance(size, int):
            mask = mask.narrow(dim, 0, count * MASK_BLOCK)
        mask = mask.unflatten(dim, (count, MASK_BLOCK)).any(dim + 1)
    return mask


def use_lists(sizes: Sequence[Any], queries: Any, keys: Any, for_each_head: bool) -> bool:
    """True if the lists of a BlockMask with blocks of `sizes` are better than its mask_mod, and can be used."""
    whole = all(isinstance(size, int) and size % MASK_BLOCK == 0 for size in sizes)
    return whole and (for_each_head or not statically_known_true(queries * keys <= MOST_ASKED))


def listed(lists: Sequence[Tensor], sizes: Sequence[int], queries: Any, keys: Any) -> Tensor:
    """Returns the blocks that a BlockMask lists. lists: kv_num_blocks and kv_indices, and perhaps the same of full blocks."""
    dense = _dense(lists[0], lists[1], keys, sizes[1])
    if len(lists) > 2:
        dense = dense | _dense(lists[2], lists[3], keys, sizes[1])
    for dim, size, length in ((2, sizes[0], queries), (3, sizes[1], keys)):
        count = (length + MASK_BLOCK - 1) // MASK_BLOCK
        ours = torch.arange(count, device=dense.device) * MASK_BLOCK // size
        dense = dense.index_select(dim, ours)
    return dense


def _dense(counts: Tensor, indices: Tensor, keys: Any, size: int) -> Tensor:
    """Returns true for the first counts[b, h, i] columns in indices[b, h, i], [b, h, blocks of queries, blocks of keys]."""
    columns = (keys + size - 1) // size
    slots = torch.arange(indices.shape[-1], device=indices.device)
    # Slots that are not used may have any index. They go to a column of their own.
    at = torch.where(slots < counts.unsqueeze(-1), indices, columns).to(torch.int64)
    empty = torch.zeros([*counts.shape, columns + 1], dtype=torch.bool, device=counts.device)
    return empty.scatter(-1, at, True).narrow(-1, 0, columns)
