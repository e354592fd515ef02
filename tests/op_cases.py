# tests/op_cases.py: rows of op_table as parameters of tests.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.op_row import Op


def cases(ops: list[Op], first: Callable[[Op, int], int], **sampled: int) -> list[Any]:
    """Returns parameters "op, dtype" for each row and dtype. On the first device a plain run has one case in `first` of the row and
    the position of the dtype."""
    return [
        pytest.param(
            op,
            d,
            id=f"{op.name}-{str(d).removeprefix('torch.')}",
            marks=[
                pytest.mark.sampled(first=first(op, position), **sampled),
                *[pytest.mark.needs("fp64")] * (d == torch.float64),
            ],
        )
        for op in ops
        for position, d in enumerate(op.dtypes)
    ]


def results_of(op: Op, samples: list[tuple[Any, ...]]) -> list[Any]:
    results = []
    # Not a comprehension: after a graph break, Dynamo can compile the rest of a loop, but not of a comprehension.
    for sample in samples:
        results.append(op.call(*sample))
    return results
