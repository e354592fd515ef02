# tests/no_device/schedule/test_norms_in_products.py: products of a few rows normalise the row that they read.
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.no_device.schedule.test_few_rows import kinds, lowered
from tests.no_device.schedule.test_schedule import assert_scheduled_equals_unscheduled
from tests.no_device.scheduling import Seen, render

Tensor = torch.Tensor
K = 256


def product(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype))


def rms(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    return product(F.rms_norm(x, (K,), g, eps=1e-6), w)


def scale_from_one(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    """The form of a model that computes norms in fp32, with the weight as a difference from 1."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + g.float())
    return product(y.to(x.dtype), w)


def weight_last(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    y = x.float()
    return product(g * (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype), w)


def three_products(x: Tensor, g: Tensor, *weights: Tensor) -> list[Tensor]:
    y = F.rms_norm(x, (K,), g, eps=1e-6)
    return [product(y, w) for w in weights]


def written_later(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    y = F.rms_norm(x, (K,), g, eps=1e-6)
    x.zero_()
    return product(y, w)


def of_mean(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    return product(x * (1 / (1 + x.abs().mean(-1, keepdim=True))) * g, w)


def two_int4(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    packed = w.view(torch.uint8)[:, : K // 2]
    q = torch.stack([packed & 15, packed >> 4], -1).reshape(len(w), K)
    return product(F.rms_norm(x, (K,), g, eps=1e-6), q)


def inputs(rows: int, dtype: torch.dtype) -> list[Tensor]:
    return [
        torch.randn(rows, K, dtype=dtype) * 3,
        torch.randn(K, dtype=dtype),
        torch.randint(-127, 128, (64, K), dtype=torch.int8),
    ]


def is_inside(seen: Seen) -> bool:
    return "normalises the row" in render(seen.graph, "gpu")["schedule"]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("function", [rms, scale_from_one, weight_last, of_mean, two_int4])
def test_a_norm_has_no_launch(function: Any, rows: int) -> None:
    seen = lowered(function, *inputs(rows, torch.float32))
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=1e-5)
    assert kinds(seen, "gpu") == ["reduction"]
    assert len(kinds(seen, "cpu16")) > 1


@pytest.mark.parametrize("function", [rms, scale_from_one, weight_last])
def test_norms_of_16_bits(function: Any) -> None:
    seen = lowered(function, *inputs(1, torch.bfloat16))
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=2e-2)
    assert kinds(seen, "gpu") == ["reduction"]


@pytest.mark.parametrize("function", [three_products, written_later])
def test_each_product_normalises_the_row(function: Any) -> None:
    x, g, w = inputs(1, torch.float32)
    seen = lowered(function, x, g, w, *([w[:16].clone(), w[:24].clone()] if function is three_products else []))
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=1e-5)
    assert is_inside(seen)
    assert kinds(seen, "gpu") == (["batch"] if function is three_products else ["reduction", "pointwise"])


def layer_norm(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    return product(F.layer_norm(x, (K,), g), w)


def returned(x: Tensor, g: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = F.rms_norm(x, (K,), g, eps=1e-6)
    return y, product(y, w)


def half_of_the_row(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    return product(F.rms_norm(x, (K,), g, eps=1e-6)[:, : K // 2], w[:, : K // 2])


def not_linear(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    return product(F.rms_norm(x, (K,), g, eps=1e-6).sin(), w)


def read_by_others(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    y = F.rms_norm(x, (K,), g, eps=1e-6)
    return product(y, w).sum() + y


@pytest.mark.parametrize("function", [layer_norm, returned, half_of_the_row, not_linear, read_by_others])
def test_norms_that_stay(function: Any) -> None:
    seen = lowered(function, *inputs(1, torch.float32))
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=1e-5)
    assert not is_inside(seen)
