# tests/no_device/schedule/test_rows_together.py: rows of a product that are read together become reductions of one launch.
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.no_device.schedule.test_few_rows import kinds, lowered
from tests.no_device.schedule.test_schedule import assert_scheduled_equals_unscheduled

Tensor = torch.Tensor
HEADS, KEYS, HEAD = 6, 2, 16


def product(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w.float())


def gated(x: Tensor, w: Tensor) -> Tensor:
    gate, up = product(x, w).chunk(2, -1)
    return F.silu(gate) * up


def alternating(x: Tensor, w: Tensor) -> Tensor:
    y = product(x, w)
    return F.gelu(y[:, ::2]) * y[:, 1::2]


def lstm(x: Tensor, w: Tensor) -> Tensor:
    i, f, g, o = product(x, w).chunk(4, -1)
    return o.sigmoid() * (f.sigmoid() * 0.5 + i.sigmoid() * g.tanh()).tanh()


def rotated(t: Tensor, turn: Tensor) -> Tensor:
    return t * turn[0] + torch.cat([-t[..., HEAD // 2 :], t[..., : HEAD // 2]], -1) * turn[1]


def rotary(x: Tensor, w: Tensor, turn: Tensor, keys: Tensor, values: Tensor, at: Tensor) -> Tensor:
    """Queries, and keys and values that are stored in a cache."""
    y = product(x, w)
    q, k, v = (t.view(-1, HEAD) for t in y.split([HEADS * HEAD, KEYS * HEAD, KEYS * HEAD], -1))
    keys.index_copy_(1, at, rotated(k, turn)[:, None])
    values.index_copy_(1, at, v[:, None] * 0.5)
    return rotated(q, turn)


def weight(rows: int) -> Tensor:
    return torch.randint(-127, 128, (rows, 256), dtype=torch.int8)


@pytest.mark.parametrize("function", [gated, alternating, lstm])
def test_parts_of_a_result(function: Any) -> None:
    seen = lowered(function, torch.randn(1, 256) / 100, weight(64))
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=1e-5)
    assert kinds(seen, "gpu") == ["reduction"]
    assert kinds(seen, "cpu16") == ["reduction", "pointwise"]


def test_rotary_embedding_and_cache() -> None:
    caches = [torch.randn(KEYS, 8, HEAD) for _ in range(2)]
    inputs = [torch.randn(1, 256), weight((HEADS + 2 * KEYS) * HEAD), torch.randn(2, HEAD), *caches, torch.tensor([3])]
    seen = lowered(rotary, *inputs)
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=1e-5)
    assert kinds(seen, "gpu") == ["reduction"]


def overlapping(x: Tensor, w: Tensor) -> Tensor:
    y = product(x, w)
    return y[:, :48] * y[:, 16:]


def other_order(x: Tensor, w: Tensor) -> Tensor:
    y = product(x, w)
    return y[:, :32] * y[:, 32:].flip(-1)


def five_parts(x: Tensor, w: Tensor) -> Tensor:
    a, b, c, d, e = product(x, w[:60]).chunk(5, -1)
    return a * b + c * d + e


def returned(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = product(x, w)
    return y, y[:, :32] * y[:, 32:]


def of_unequal_heads(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = product(x, w)
    return y[:, :16] * y[:, 16:32], y[:, 32:40] + y[:, 40:48] * y[:, 48:56]


@pytest.mark.parametrize("function", [overlapping, other_order, five_parts, returned, of_unequal_heads])
def test_rows_that_stay_in_one_reduction(function: Any) -> None:
    seen = lowered(function, torch.randn(1, 256) / 100, weight(64))
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=1e-5)
    assert kinds(seen, "gpu")[0] == "reduction" and len(kinds(seen, "gpu")) == 2
