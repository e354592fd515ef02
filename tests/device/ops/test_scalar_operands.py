# tests/device/ops/test_scalar_operands.py: binary ops on every mix of tensors, 0-dim tensors, CPU scalars and Python numbers.
"""Dtypes and values must be those of the CPU, in eager mode and compiled. Mixes that the CPU refuses are left out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.sampled(first=8)
ROW = torch.tensor([1.25, 2, 0.5, 3, 1, 0.75])
KINDS: dict[str, Any] = {
    "tensor": ROW,
    "half": ROW.half(),
    "integers": ROW.mul(2).int() + 1,
    "bytes": ROW.mul(2).byte() + 1,
    "flags": ROW > 0.9,
    "one element": ROW[1:2].clone(),
    "0-dim": ROW[0].clone(),
    "0-dim half": ROW[1].half(),
    "0-dim integer": torch.tensor(3),
    "0-dim flag": torch.tensor(True),
    "CPU double": torch.tensor(2.5, dtype=torch.float64),
    "CPU integer": torch.tensor(2),
    "int": 2,
    "float": 2.5,
    "bool": True,
}
NUMBERS = ("CPU double", "CPU integer", "int", "float", "bool")
# In eager mode, these ops do not accept a CPU scalar together with a tensor of the device yet.
NO_CPU_SCALARS = ("logical_xor", "where")
OPS = (
    "add sub mul div floor_divide remainder pow maximum minimum fmax atan2 copysign eq lt logical_xor bitwise_and xlogy ldexp"
    " heaviside where rsub"
)


def call(name: str, a: Any, b: Any) -> torch.Tensor:
    found: torch.Tensor = torch.where(ROW.to(a.device) > 1, a, b) if name == "where" else getattr(torch, name)(a, b)
    return found


def placed(kind: str, device: str) -> Any:
    return KINDS[kind].to(device) if isinstance(KINDS[kind], torch.Tensor) and kind not in NUMBERS else KINDS[kind]


def expected(name: str) -> list[tuple[str, str, torch.Tensor]]:
    """Returns (first operand, second operand, result) for all mixes that the CPU accepts."""
    found = []
    for a, b in itertools.product(KINDS, repeat=2):
        on_host = name in NO_CPU_SCALARS and (a.startswith("CPU") or b.startswith("CPU"))
        if not (a in NUMBERS and b in NUMBERS) and not on_host:
            try:
                found.append((a, b, call(name, KINDS[a], KINDS[b])))
            except (RuntimeError, TypeError, AttributeError):
                continue
    return found


def assert_same(got: torch.Tensor, wanted: torch.Tensor, mix: str) -> None:
    torch.testing.assert_close(got, wanted, equal_nan=True, msg=lambda text: f"{mix}: {text}")


@pytest.mark.parametrize("name", OPS.split())
def test_mixed_operands(ocl_device: str, name: str) -> None:
    wanted = expected(name)
    assert len(wanted) > 20
    wanted = wanted[:: max(len(wanted) // 40, 1)]  # About 40 mixes; all of them would take a minute.

    def every() -> list[torch.Tensor]:
        return [call(name, placed(a, ocl_device), placed(b, ocl_device)) for a, b, _ in wanted]

    # In eager mode each mix compiles a kernel of its own, so only every fourth runs.
    for a, b, result in wanted[::4]:
        assert_same(call(name, placed(a, ocl_device), placed(b, ocl_device)).cpu(), result, f"{a}, {b}")
    torch._dynamo.reset()
    for (a, b, result), got in zip(wanted, torch.compile(every, backend="ocl")(), strict=True):
        assert_same(got.cpu(), result, f"{a}, {b}")
