# benchmarks/order.py: the time of sorts, selections, searches and running sums, by length, beside torch's on the CPU and on CUDA.
"""taskset -c 0 python -m benchmarks.order --sides cpu,ocl --threads 1 --save cpu_intel_order.json

Sides (cpu, cuda, ocl) take turns (turns.py). Errors are relative to the result in float64.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

import torch

import torch_ocl_compile  # noqa: F401  registers the device
from benchmarks import turns

Function = Callable[[torch.Tensor], torch.Tensor]
FUNCTIONS: dict[str, Function] = {
    "sort": lambda x: x.sort().values,
    "topk": lambda x: x.topk(100).values,
    "unique": lambda x: (x * 1000).round().unique(),
    "median": torch.median,
    "kthvalue": lambda x: x.kthvalue(x.numel() // 3).values,
    "searchsorted": lambda x: torch.searchsorted(x[:1000].sort().values, x),
    "cumsum": lambda x: x.cumsum(0),
}
LENGTHS = [10**k for k in range(3, 8)]


def measure(name: str, length: int, given: argparse.Namespace) -> list[turns.Row]:
    function = FUNCTIONS[name]
    x = torch.randn(length, generator=torch.Generator().manual_seed(1))
    exact = function(x.double() if name == "cumsum" else x).double()
    devices = {side: torch.device(given.ocl_device if side == "ocl" else side) for side in given.sides}
    calls = {side: (device, functools.partial(function, x.to(device))) for side, device in devices.items()}
    return turns.measure(calls, exact, given, function=name, length=length)


def main() -> None:
    parser = turns.parser_of_sides(__doc__, ["cpu", "ocl"], seconds=0.05)
    parser.add_argument("--functions", type=turns.words, default=list(FUNCTIONS))
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in turns.words(text)], default=LENGTHS)
    given = parser.parse_args()
    cases = {
        f"{name} {length}": functools.partial(measure, name, length, given)
        for name in given.functions
        for length in given.lengths
    }
    turns.run("order", cases, given)


if __name__ == "__main__":
    main()
