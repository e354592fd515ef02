# benchmarks/fft.py: the time and the error of Fourier transforms, beside torch's on the CPU (MKL or pocketfft) and on CUDA (cuFFT).
"""python benchmarks/fft.py --sides cpu,ocl --threads 1
python benchmarks/fft.py --sides cuda,ocl --save h100_fft.json

Sides take turns in each of --rounds, and the fastest turn of each side counts. A turn calls the function for about --seconds and waits
for the device at the end. Errors are root mean squares relative to the transform in float64. `--threads` is for the side `cpu`; to give
an OpenCL CPU device the same cores, start the program with taskset.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import torch_ocl_compile  # noqa: F401  registers the device
from torch_ocl_compile.bench import results
from torch_ocl_compile.bench.origin import origin
from torch_ocl_compile.bench.side import settings_in_effect

Function = Callable[[torch.Tensor], torch.Tensor]
FUNCTIONS: dict[str, tuple[Function, torch.dtype]] = {
    "fft": (torch.fft.fft, torch.complex64),
    "rfft": (torch.fft.rfft, torch.float32),
    "irfft": (torch.fft.irfft, torch.complex64),
    "fft2": (torch.fft.fft2, torch.complex64),
    "first dimension": (lambda x: torch.fft.fft(x, dim=0), torch.complex64),
}
NUMBERS = 1 << 20  # of a batch of lines
LINES = [(NUMBERS >> k, 1 << k) for k in range(8, 21, 2)]
CASES: list[tuple[str, tuple[int, ...]]] = [
    *(("fft", shape) for shape in (*LINES, (1, 256), (1, 4096), (1024, 1000), (1024, 1001), (1024, 1009))),
    *(("rfft", shape) for shape in LINES),
    *(("irfft", shape) for shape in ((4096, 129), (256, 2049))),
    ("fft2", (4, 512, 512)),
    ("fft2", (12, 512, 512)),
    ("first dimension", (512, 64, 64)),
]


class Side:
    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def wait(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def turn(self, function: Function, x: torch.Tensor, calls: int) -> float:
        """Returns the seconds of a call."""
        self.wait()
        start = time.perf_counter()
        for _ in range(calls):
            function(x)
        self.wait()
        return (time.perf_counter() - start) / calls


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return (
        (got.cpu().to(exact.dtype) - exact).abs().square().mean().sqrt() / exact.abs().square().mean().sqrt()
    ).item()


def measure(
    name: str, shape: tuple[int, ...], sides: dict[str, Side], given: argparse.Namespace
) -> list[dict[str, Any]]:
    function, dtype = FUNCTIONS[name]
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    exact = function(x.to(torch.complex128 if dtype.is_complex else torch.float64))
    inputs = {side: x.to(at.device) for side, at in sides.items()}
    rows, calls = {}, {}
    for side, at in sides.items():
        rows[side] = {"function": name, "shape": list(shape), "side": side, "ms": float("inf")}
        rows[side]["error"] = error(function(inputs[side]), exact)
        rows[side]["settings"] = settings_in_effect("ocl" if at.device.type == "ocl" else "eager", at.device, "highest")
        at.turn(function, inputs[side], 2)
        calls[side] = max(1, int(given.seconds / at.turn(function, inputs[side], 1)))
    for _ in range(given.rounds):
        for side, at in sides.items():
            rows[side]["ms"] = min(rows[side]["ms"], at.turn(function, inputs[side], calls[side]) * 1e3)
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=lambda text: text.split(","), default=["cpu", "ocl"], help="cpu, cuda, ocl")
    parser.add_argument("--functions", type=lambda text: text.split(","), default=list(FUNCTIONS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ocl-device", default="ocl:0")
    parser.add_argument("--save", type=Path, help="write a result file")
    given = parser.parse_args()
    source = origin()
    torch.set_num_threads(given.threads)
    sides, found = {side: Side(given.ocl_device if side == "ocl" else side) for side in given.sides}, []
    for name, shape in CASES:
        if name not in given.functions:
            continue
        rows = measure(name, shape, sides, given)
        found += rows
        base = rows[0]["ms"]
        text = "  ".join(f"{r['side']} {r['ms']:8.3f} ms {base / r['ms']:5.2f} error {r['error']:.1e}" for r in rows)
        print(f"{name:16s} {'x'.join(map(str, shape)):14s} {text}", flush=True)
    if given.save:
        settings = {"rounds": given.rounds, "seconds": given.seconds, "threads": given.threads}
        results.write(results.result(source, settings, fft=found), given.save)


if __name__ == "__main__":
    main()
