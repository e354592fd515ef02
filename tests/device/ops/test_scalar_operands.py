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


TOO_LARGE: dict[str, Any] = {
    "masked_fill": lambda x, v: x.masked_fill(x > 2, v),
    "fill": lambda x, v: x.clone().fill_(v),
    "index_fill": lambda x, v: x.index_fill(0, torch.tensor([0, 2], device=x.device), v),
    "scatter": lambda x, v: x.scatter(0, torch.tensor([0, 2], device=x.device), v),
    "add": lambda x, v: x.add(x, alpha=v),
    "addcmul": lambda x, v: x.addcmul(x, x, value=v),
    "clamp": lambda x, v: x.clamp(max=v),
    "threshold": lambda x, v: torch.nn.functional.threshold(x, 1, v),
    "hardtanh": lambda x, v: torch.nn.functional.hardtanh(x, 0, v),
    "lists": lambda x, v: torch._foreach_add([x, x], [x, x], alpha=v)[0],
    "random": lambda x, v: torch.randint(0, v, (3,), dtype=x.dtype, device=x.device) * 0,
    "linspace": lambda x, v: torch.linspace(0, v, 3, dtype=x.dtype, device=x.device),
    "equal": lambda x, v: x == v,
    "plus": lambda x, v: x + v,  # Wraps around.
    "where": lambda x, v: torch.where(x > 2, x, v),
    "one": lambda x, v: x.new_zeros(2).index_put((torch.tensor([True, False], device=x.device),), torch.tensor(v)),
}


@pytest.mark.sampled(first=1)
@pytest.mark.parametrize("name", TOO_LARGE)
def test_numbers_that_a_type_cannot_hold(ocl_device: str, name: str) -> None:
    """Raises an error where the CPU does, instead of storing a number that has wrapped around, also after valid numbers."""
    for dtype, *numbers in (
        (torch.int8, 5, 300, 7.5, 2**63 + 5),
        (torch.uint8, 3, 4, 5, 6, 256, -5),
        (torch.float16, 2.5, 65505, 1e39),
    ):
        x = torch.arange(6).to(dtype)
        for number in numbers:
            if name in ("add", "lists") and dtype.is_floating_point:
                continue  # The CPU has alpha in float16.
            try:
                expected_one = TOO_LARGE[name](x, number)
            except (RuntimeError, TypeError, ValueError):
                with pytest.raises(
                    (RuntimeError, TypeError, ValueError),
                    match=r"without overflow|Overflow|out of bounds|invalid combination|For integral|greater than max",
                ):
                    TOO_LARGE[name](x.to(ocl_device), number)
            else:
                torch.testing.assert_close(TOO_LARGE[name](x.to(ocl_device), number).cpu(), expected_one)
