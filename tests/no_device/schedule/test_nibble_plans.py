# tests/no_device/schedule/test_nibble_plans.py: which sums over rows of int4 are multiplied by tensor cores, on an H200.
from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks.decode import MODELS, Model
from tests.no_device.schedule.test_few_rows import lowered, pair
from tests.no_device.scheduling import Seen, collecting, render


def on_tensor_cores(seen: Seen, caps: str = "warpgroup") -> list[bool]:
    return ["mma.sync" in kernel["text"] for kernel in render(seen.graph, caps)["kernels"]]


def test_a_token_of_a_decoder() -> None:
    """Five products, with norms, rotary embedding, cache, gate and residual in their launches, and nothing but attention else."""
    model = Model(dataclasses.replace(MODELS["tiny"], layers=1), "int4", torch.bfloat16, "cpu")
    seen: list[Seen] = []
    with torch.no_grad():
        collecting(model, seen, dynamic=False)(torch.tensor([0]), torch.tensor([3]))
    kernels = render(seen[0].graph, "warpgroup")["kernels"]
    products = [kernel for kernel in kernels if "mma.sync" in kernel["text"]]
    assert len(products) == 5 and len(kernels) <= 8, [kernel["origin"] for kernel in kernels]
    assert not any("op_u8_value" in kernel["text"] for kernel in kernels)
    assert on_tensor_cores(seen[0], "gpu").count(True) == 0


def weight(p: torch.Tensor, s: torch.Tensor, group: int) -> torch.Tensor:
    return ((pair(p).to(s.dtype) - 8).reshape(len(p), -1, group) * s[..., None]).reshape(len(p), -1)


def normed(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), n)


CASES: dict[str, tuple[int, int, Any, bool]] = {
    "one row": (1, 128, lambda x, n, p, s: F.linear(x, weight(p, s, 128)), True),
    "eight rows": (8, 128, lambda x, n, p, s: F.linear(x, weight(p, s, 128)), True),
    "a norm": (1, 128, lambda x, n, p, s: F.linear(normed(x, n), weight(p, s, 128)), True),
    "small groups": (2, 32, lambda x, n, p, s: F.linear(x, weight(p, s, 32)), True),
    "too small groups": (2, 16, lambda x, n, p, s: F.linear(x, weight(p, s, 16)), False),
    "floats of bf16": (1, 128, lambda x, n, p, s: F.linear(x.float(), weight(p, s.float(), 128)), True),
    "floats": (1, 128, lambda x, n, p, s: F.linear(x.float() / 3, weight(p, s.float(), 128)), False),
    "a norm of floats": (
        1,
        128,
        lambda x, n, p, s: F.linear(normed(x.float(), n.float()), weight(p, s.float(), 128)),
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_products(case: str) -> None:
    rows, group, function, expected = CASES[case]
    x, n = torch.randn(rows, 512).bfloat16(), torch.ones(512).bfloat16()
    seen = lowered(
        function, x, n, torch.randint(0, 256, (48, 256), dtype=torch.uint8), torch.rand(48, 512 // group).bfloat16()
    )
    assert (True in on_tensor_cores(seen)) == expected
