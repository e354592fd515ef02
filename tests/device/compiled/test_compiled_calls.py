# tests/device/compiled/test_compiled_calls.py: calls of compiled graphs without Python, and those that need functions on the host.
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

FORWARDED = {"CompiledGraph.__call__"}
# Name -> (function, arguments that are no tensor on the device, whether sizes are symbolic, whether a call needs Python).
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool, bool]] = {
    "static": (lambda x: x.relu() + 1, (), False, False),
    "sizes": (lambda x: (x * 2).sum(0) + x.shape[0], (), True, False),
    "a size is returned": (lambda x: (x + 1, x.shape[0] * 3 + 1), (), True, False),
    "a scalar on the CPU": (lambda x, s: (x * s, s), (torch.tensor(0.5),), False, False),
    "a vector on the CPU": (lambda x, v: x[:, v], (torch.tensor([2, 0]),), False, False),
    "the argument": (lambda x: (x, x.T, x * 2), (), False, False),
    "a float of sizes": (lambda x: x * (x.shape[0] ** 0.5), (), True, True),
    "a result on the CPU": (lambda x: ((x + 1).cpu() * 2, x - 1), (), False, True),
    "arithmetic on the CPU": (lambda x, s: x * (s + 1), (torch.tensor(0.5),), False, True),
}


def python_functions(call: Callable[[], Any]) -> tuple[Any, set[str]]:
    """Returns the result of a call, and the functions of torch_ocl_compile.compile that it ran in Python."""
    found = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("torch_ocl_compile.compile."):
            found.add(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, found


@pytest.mark.parametrize("name", list(CASES))
def test_what_runs_in_python(ocl_device: str, name: str) -> None:
    function, others, dynamic, needs_python = CASES[name]
    compiled = torch.compile(function, backend="ocl", dynamic=dynamic, options={"fallback": "error"})
    for rows in (4, 4, 6) if dynamic else (4, 4):
        x = torch.randn(rows, 3)
        on_device = x.to(ocl_device)
        got, ran = python_functions(lambda x=on_device: compiled(x, *others))
        torch.testing.assert_close(got, function(x, *others), check_device=False)
    assert (ran == FORWARDED) != needs_python, ran
    assert ran >= FORWARDED


def test_dropout(ocl_device: str) -> None:
    """Forward reserves its part of the random numbers in C++, and backward draws the same ones."""
    x = torch.ones(100, 100, device=ocl_device, requires_grad=True)
    compiled = torch.compile(
        lambda x: torch.nn.functional.dropout(x, 0.25), backend="ocl", options={"fallback": "error"}
    )
    y, _ = python_functions(lambda: compiled(x))
    z, ran = python_functions(lambda: compiled(x))
    assert ran == FORWARDED
    y.sum().backward()
    assert torch.equal(x.grad, y.detach()), "each kept element has the same factor in both"
    assert 0.2 < (y == 0).double().mean().item() < 0.3 and not torch.equal(y, z)
    torch.manual_seed(3)
    first = compiled(x)
    torch.manual_seed(3)
    assert torch.equal(first, compiled(x))


@pytest.mark.parametrize("function", [lambda x, n: F.leaky_relu(x, n / 8), lambda x, n: F.hardtanh(x, -n / 8, n / 8)])
def test_number_of_an_activation_changes(ocl_device, function):
    """The gradients follow a slope or bound that is another Python number in each call."""
    compiled = torch.compile(function, backend="ocl")
    for number in (1, 2, 4):
        x = torch.linspace(-2, 2, 9, requires_grad=True)
        given = x.detach().to(ocl_device).requires_grad_()
        function(x, number).sum().backward()
        compiled(given, number).sum().backward()
        assert torch.equal(given.grad.cpu(), x.grad)
