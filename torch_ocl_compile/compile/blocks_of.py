# torch_ocl_compile/compile/blocks_of.py: what an attention mask hides of the blocks of scores.
"""Kernels skip blocks that are hidden, and apply no mask where a block has nothing hidden; csrc/ir/graph.h. A BlockMask lists blocks,
usually of 128 x 128. So its lists skip less than what its mask_mod itself says of MASK_BLOCK x MASK_BLOCK, but cost nothing, where
asking mask_mod takes all scores of each head that it tells apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_ocl_compile._C import ir

MASK_BLOCK: int = ir.MASK_BLOCK
MOST_ASKED = 1 << 26  # Scores of which mask_mod is asked.
MOST_COMPARED = 1 << 22  # Comparisons of listed columns with columns.


def seen(mask: Tensor, whole: bool = True) -> Tensor:
    """Returns 0 for the blocks of which a mask hides all scores, otherwise 1, or 2 if it hides none and `whole` is true.

    An index of one element has one block."""
    some = _any(mask).to(torch.uint8)
    return some + (~_any(~mask)).to(torch.uint8) if whole else some


def _any(mask: Tensor) -> Tensor:
    """Returns the blocks in which an element is true."""
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


def listed(lists: Sequence[Tensor], sizes: Sequence[int], queries: Any, keys: Any, whole: bool = True) -> Tensor:
    """Returns the blocks that a BlockMask lists, of gcd(*sizes) queries and keys: 0 where all is hidden, otherwise 1, or at least
    2 if it is in the list of full blocks and `whole` is true.

    lists: kv_num_blocks and kv_indices, and perhaps the same of full blocks."""
    dense = _dense(lists[0], lists[1], keys, sizes[1], 1)
    if len(lists) > 2:
        dense = dense | _dense(lists[2], lists[3], keys, sizes[1], 2 if whole else 1)
    least = math.gcd(*sizes)
    for dim, size, length in ((2, sizes[0], queries), (3, sizes[1], keys)):
        count = (length + least - 1) // least
        if size != least or not statically_known_true(dense.shape[dim] == count):
            dense = dense.index_select(dim, torch.arange(count, device=dense.device) * least // size)
    return dense


def _dense(counts: Tensor, indices: Tensor, keys: Any, size: int, value: int) -> Tensor:
    """Returns `value` for the first counts[b, h, i] columns in indices[b, h, i], [b, h, blocks of queries, blocks of keys]."""
    columns = (keys + size - 1) // size
    slots = torch.arange(indices.shape[-1], device=indices.device)
    # Slots that are not used may have any index. They go to a column of their own.
    at = torch.where(slots < counts.unsqueeze(-1), indices, columns).to(torch.int64)
    if statically_known_true(counts.shape[-1] * indices.shape[-1] * columns <= MOST_COMPARED):  # one kernel
        return (at.unsqueeze(-1) == torch.arange(columns, device=at.device)).any(-2).to(torch.uint8) * value
    empty = torch.zeros([*counts.shape, columns + 1], dtype=torch.uint8, device=counts.device)
    return empty.scatter(-1, at, value).narrow(-1, 0, columns)
