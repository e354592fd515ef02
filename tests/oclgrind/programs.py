# tests/oclgrind/programs.py: runs under Oclgrind, in a separate process: small models, and each of their large ops alone.
from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from torch_ocl_compile import _C
from torch_ocl_compile.tuning import measure

EVERYTHING = "--all" in sys.argv


def conv(channels: int, out: int, size: int, **kwargs: Any) -> tuple[nn.Module, torch.Tensor]:
    return nn.Conv2d(channels, out, padding=1, **kwargs), torch.randn(1, channels, size, size - 1)


class Attention(nn.Module):
    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = x.unbind(0)
        mask = (
            (torch.arange(k.shape[-2], device=x.device) % 3 > 0).expand(q.shape[-2], -1)
            if self.mask == "mask"
            else None
        )
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.mask == "causal")


class Fourier(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.fft.rfft(x))


class Sorted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sorts rows of one block and, as they have more, rows of one digit."""
        return x[:, :70].sort().values.sum() + (x > 0).sort().values[:, :-7].sum()


# The sizes are no multiples of tile sizes, so every dimension has a partial tile.
PROGRAMS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "linear": lambda: (nn.Linear(9, 11), torch.randn(7, 9)),
    "one row": lambda: (nn.Linear(19, 21), torch.randn(1, 19)),
    "mlp": lambda: (nn.Sequential(nn.Linear(5, 20), nn.GELU(), nn.LayerNorm(20), nn.Linear(20, 3)), torch.randn(6, 5)),
    "convolution": lambda: conv(5, 6, 6, kernel_size=3),
    "strided convolution": lambda: conv(3, 4, 7, kernel_size=3, stride=2),
    "grouped convolution": lambda: conv(4, 6, 5, kernel_size=3, groups=2),
    "packed weight gradient": lambda: conv(16, 16, 6, kernel_size=3),
    "winograd": lambda: conv(48, 32, 17, kernel_size=3),
    "depthwise": lambda: conv(5, 5, 6, kernel_size=3, groups=5),
    "normalised": lambda: (
        nn.Sequential(nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        torch.randn(2, 4, 4, 4),
    ),
    "attention": lambda: (Attention(""), torch.randn(3, 1, 2, 9, 8)),
    "causal attention": lambda: (Attention("causal"), torch.randn(3, 1, 1, 18, 8)),
    "masked attention": lambda: (Attention("mask"), torch.randn(3, 1, 1, 7, 16)),
    "fourier": lambda: (Fourier(), torch.randn(3, 30)),
    "sorted": lambda: (Sorted(), torch.randn(2, 4100)),
}


# (problem, graph, choices, device, options)
Case = tuple[str, Any, list[tuple[str, str]], int, dict[str, Any]]
found: dict[str, Case] = {}


def collect(graph: Any, index: int, settings: Mapping[str, Any]) -> list[Any]:
    """Replaces the function that measures choices. Collects the cases, each of which main() runs once."""
    for problem, alone, choices in _C.exec.tuning_cases(graph, index, dict(settings)):
        found.setdefault(problem, (problem, alone, choices, index, dict(settings)))
    return []


def try_case(problem: str, alone: Any, choices: list[tuple[str, str]], index: int, settings: dict[str, Any]) -> None:
    if problem.startswith("sort "):
        # The example's counts are zero, which would send several keys to one place. Sorts have no choice: the model ran this one.
        print(f"ran {choices[0][0]} in its graph for {problem}", flush=True)
        return
    inputs = measure.example_inputs(alone, index)
    reference = None
    for choice, turned in choices:
        if turned and not EVERYTHING:
            continue
        started = time.monotonic()
        results = [x.cpu() for x in measure._compile(alone, index, settings, choice).run(list(inputs))]
        reference = reference or results
        measure._compare(results, reference, measure.tolerance(alone))
        print(f"ran {choice} for {problem}: {time.monotonic() - started:.1f} s", flush=True)


def alone() -> list[str]:
    """Returns the kernels that run alone. Attention runs in models."""
    return [
        row["name"]
        for row in _C.exec.kernels()
        if row["level"] in ("item", "group") and not row["operation"].startswith("attention") and "fp32" in row["types"]
    ]


def try_kernels() -> None:
    """Runs each portable kernel alone, with its two cases that have the fewest work-items, or with all of up to 2,000."""
    for kernel in alone():
        cases = _C.exec.check_cases(kernel, "fp32", set="edges", filled=False)
        items = [math.prod(case["groups"]) * case["local"] for case in cases]
        for number in sorted(range(len(cases)), key=items.__getitem__)[: None if EVERYTHING else 2]:
            if EVERYTHING and items[number] > 2000:
                break
            fault = _C.exec.fault_of_case(0, kernel, "fp32", number, "edges")
            assert fault == "", f"{kernel}, case {number}: {fault}"
            print("ran", kernel, "alone", flush=True)


def main() -> None:
    if "--alone" in sys.argv:
        try_kernels()
        return
    torch.manual_seed(0)
    measure.tune_graph = collect  # type: ignore[assignment]
    for name, make in PROGRAMS.items():
        torch._dynamo.reset()
        model, x = make()
        expected = model(x).square().sum()
        moved = model.to("ocl")
        compiled = torch.compile(
            moved, backend="ocl", dynamic=False, options={"fallback": "error", "max_autotune": True}
        )
        loss = compiled(x.to("ocl").requires_grad_()).square().sum()
        loss.backward()
        torch.testing.assert_close(loss.cpu(), expected, rtol=1e-4, atol=1e-4)
        assert all(p.grad is not None and p.grad.isfinite().all() for p in moved.parameters())
        print("passed", name, flush=True)
    for case in found.values():
        try_case(*case)


if __name__ == "__main__":
    main()
