# tests/no_device/graphs/test_cross_entropy.py: the gradient of cross entropy needs the logits and two numbers a row.
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.no_device import scheduling

ROWS, CLASSES = 6, 11
CASES: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "weights": {"weight": torch.linspace(0.1, 2, CLASSES)},
    "weights, sum": {"weight": torch.linspace(0.1, 2, CLASSES), "reduction": "sum"},
    "images": {"shape": (2, CLASSES, 3, 5)},
    "logits of bf16": {"dtype": torch.bfloat16},
    "softmax of bf16": {"dtype": torch.bfloat16, "softmax": True},
    "smoothed": {"label_smoothing": 0.1},
}


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    settings = dict(CASES[name])
    shape, dtype = settings.pop("shape", (ROWS, CLASSES)), settings.pop("dtype", torch.float32)
    rounds = settings.pop("softmax", False)  # As under autocast, where the loss alone converts to fp32.
    torch.manual_seed(1)
    x = (torch.randn(shape) * 3).to(dtype)
    target = torch.randint(CLASSES, (shape[0], *shape[2:]))
    target[0] = -100  # ignored

    def loss(x: Tensor, settings: dict[str, Any]) -> Tensor:
        if rounds:
            return F.nll_loss(F.log_softmax(x, 1).to(torch.promote_types(x.dtype, torch.float32)), target, **settings)
        return F.cross_entropy(x.float() if x.dtype is torch.bfloat16 else x, target, **settings)

    seen: list[scheduling.Seen] = []
    given = x.clone().requires_grad_()
    got = scheduling.collecting(lambda x: loss(x, settings), seen)(given)
    direction = torch.linspace(1, 2, got.numel()).view(got.shape)
    got.backward(direction)
    exact = x.double().requires_grad_()
    wide = {k: v.double() if isinstance(v, Tensor) else v for k, v in settings.items()}
    expected = loss(exact, wide)
    expected.backward(direction.double())
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
    tolerance = 1e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(given.grad.double(), exact.grad, rtol=tolerance, atol=tolerance)
    forward, backward = seen
    assert (forward.kind, backward.kind) == ("forward", "backward")
    reductions = [n for n in str(backward.graph).splitlines() if n.startswith("node reduce")]
    rows = [n for n in reductions if "softmax" in n]  # The weights of a smoothed loss are summed, too.
    assert len(rows) == (1 if name == "smoothed" else 0), reductions


def test_forward_stores_no_softmax() -> None:
    """The logits of a product are saved in bf16, and two numbers of each row."""
    weight, target = torch.randn(CLASSES, 8), torch.randint(CLASSES, (ROWS,))
    seen: list[scheduling.Seen] = []

    def loss(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(F.linear(x, w), target)

    arguments = [torch.randn(ROWS, 8).requires_grad_(), weight.requires_grad_()]
    scheduling.collecting(loss, seen)(*arguments).backward()
    forward = str(seen[0].graph)
    results = [line.split()[1] for line in forward.splitlines() if line.startswith("result ")]
    buffers = {line.split()[1]: line for line in forward.splitlines() if line.startswith("buffer ")}
    wide = [buffers[b] for b in results if f"f32 [{ROWS}, {CLASSES}]" in buffers[b]]
    assert not wide
    assert sum(f"bf16 [1, {ROWS}, {CLASSES}]" in buffers[b] for b in results) == 1
