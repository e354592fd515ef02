# torch_ocl_compile/compile/check_report.py: compares a kernel's result with the expected one, and saves a launch that differs.
"""`save` makes <cache>/failed/<graph>_<kernel>_<hash>/. Its rerun.py runs the kernel again with the saved inputs (tools/rerun.py).
The folder contains the values of the tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torch_ocl_compile.compile.debug import save_failure

Tensor = torch.Tensor

RERUN = '''"""{title}

torch {torch}, {device}. Run this file to launch the kernel again with the saved inputs. It needs torch and torch_ocl_compile.
"""

from pathlib import Path

from torch_ocl_compile.tools import rerun

if __name__ == "__main__":
    rerun.run(Path(__file__).resolve().parent)
'''


@dataclass
class Difference:
    """How a result differs from what is expected. `place`, `got`, `expected` and `allowed` belong to the first element
    that differs by more than `allowed`.
    """

    place: tuple[int, ...]
    got: Any
    expected: Any
    allowed: float
    count: int
    elements: int
    largest: float  # The largest error, among elements that are numbers.
    nans: int
    expected_nans: int

    def __str__(self) -> str:
        place = f"[{', '.join(map(str, self.place))}]"
        return (
            f"element {place} is {self.got!r} instead of {self.expected!r} (allowed: {self.allowed:.3g} more or less); "
            f"{self.count} of {self.elements} elements differ, the largest error is {self.largest:.3g}; "
            f"NaN: {self.nans} instead of {self.expected_nans}"
        )


def difference(got: Tensor, expected: Tensor, allowed: Tensor | None) -> Difference | None:
    """Compares a result with the expected one. Returns None if every element is within `allowed` of the expected one.
    An infinite `allowed` accepts anything. `expected` is fp64 for floating point.
    """
    if got.is_floating_point():
        mine = got.double()
        same = (mine == expected) | (torch.isnan(mine) & torch.isnan(expected))
        error = (mine - expected).abs()
    else:
        same = got == expected
        error = (got.double() - expected.double()).abs()
    bound = torch.zeros((), dtype=torch.float64) if allowed is None else allowed
    wrong = ~(same | (error <= bound) | torch.isinf(bound))
    if not wrong.any():
        return None
    flat = int(wrong.flatten().int().argmax())
    place = tuple(int(k) for k in torch.unravel_index(torch.tensor(flat), got.shape)) if got.dim() else ()
    numbers = error[wrong & torch.isfinite(error)]
    return Difference(
        place=place,
        got=got[place].item(),
        expected=expected[place].item(),
        allowed=float(bound.expand(got.shape)[place]),
        count=int(wrong.sum()),
        elements=got.numel(),
        largest=float(numbers.max()) if numbers.numel() else 0.0,
        nans=int(torch.isnan(got).sum()) if got.is_floating_point() else 0,
        expected_nans=int(torch.isnan(expected).sum()) if got.is_floating_point() else 0,
    )


@dataclass
class Compared:
    """A result of a launch. `layout` is the result's place in the memory of the launch, see rerun.py. It is None if the
    result was merged from several partial results, which a single buffer does not show.
    """

    name: str
    got: Tensor
    expected: Tensor
    allowed: Tensor | None
    layout: tuple[int, int, list[int], list[int], torch.dtype] | None


def save(
    names: tuple[str, str, str],
    launch: Mapping[str, Any],
    inputs: Mapping[str, Tensor],
    results: Sequence[Compared],
    texts: Mapping[str, str],
) -> Path:
    """Saves a launch whose results differ, and returns the folder. `names` are the names of the graph, the kernel and
    the device. `launch` has the arguments of _C.exec.launch_alone, and in `regions` the memory before the launch.
    `texts` are other files.
    """
    label, kernel, device = names
    key = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:8]
    objects = {"launch.pt": dict(launch), "inputs.pt": dict(inputs), "results.pt": [vars(result) for result in results]}
    title = f"{kernel} of {label} computes something else than the interpreter."
    script = RERUN.format(title=title, torch=torch.__version__, device=device)
    return save_failure(f"{label}_{kernel}_{key}", {**texts, "rerun.py": script}, objects)
