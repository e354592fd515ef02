# tests/conformance/positions.py: compares results that are positions of elements, such as those of sort.
"""PyTorch does not promise which of several equal elements a position names. Its CPU kernels differ between processors:
the sort for AVX-512 is not stable."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tests.conformance.judge import closeness, tensors

# Entry of op_db -> the number of the result that holds positions.
RESULTS = {"argsort": 0, "kthvalue": 1, "mode": 1, "sort": 1, "topk": 1}


def agree(entry: str, args: Any, results: tuple[Any, Any], reference: tuple[Any, Any]) -> bool:
    """Returns whether results and gradients agree, except that positions may name other elements of equal value."""
    got, expected = ([tensors(part) for part in pair] for pair in (results, reference))
    which = RESULTS.get(entry)
    x = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)), None)
    if which is None or x is None or len(got[0]) != len(expected[0]) or len(got[1]) != len(expected[1]):
        return False
    for k, (ours, theirs) in enumerate(zip(got[0], expected[0], strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return False
        if k == which and not any(same_elements(x.detach(), ours, theirs, dim) for dim in range(x.dim())):
            return False
        if k != which and closeness(ours, theirs):
            return False
    # The gradient may belong to another of several equal elements, so the sorted gradients are compared.
    pairs = zip(got[1], expected[1], strict=True)
    return all(a is b or not closeness(a.flatten().sort()[0], b.flatten().sort()[0]) for a, b in pairs)


def same_elements(x: torch.Tensor, ours: torch.Tensor, theirs: torch.Tensor, dim: int) -> bool:
    """Returns whether both tensors of positions name equal elements along `dim`, each of them once."""
    if ours.dim() < x.dim():
        ours, theirs = ours.unsqueeze(dim), theirs.unsqueeze(dim)
    size = x.shape[dim]
    fits = all(a == b for d, (a, b) in enumerate(zip(x.shape, ours.shape, strict=True)) if d != dim)
    if not fits or not bool(((ours >= 0) & (ours < size) & (theirs >= 0) & (theirs < size)).all()):
        return False
    once = torch.zeros_like(x, dtype=torch.int64).scatter_add(dim, ours, torch.ones_like(ours))
    return bool(once.max() <= 1) and not closeness(x.gather(dim, ours), x.gather(dim, theirs))
