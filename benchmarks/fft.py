# benchmarks/fft.py: the time and the error of Fourier transforms, beside torch's on the CPU (MKL or pocketfft) and on CUDA (cuFFT).
"""python benchmarks/fft.py --sides cpu,ocl --threads 1
python benchmarks/fft.py --sides cuda,ocl --save h100_fft.json

Sides take turns (turns.py), and errors are relative to the transform in float64. `--threads` is for the side `cpu`; to give an OpenCL
CPU device the same cores, start the program with taskset.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

import torch
import turns

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


def measure(name: str, shape: tuple[int, ...], devices: dict[str, str], given: argparse.Namespace) -> list[turns.Row]:
    function, dtype = FUNCTIONS[name]
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    exact = function(x.to(torch.complex128 if dtype.is_complex else torch.float64))
    sides: dict[str, turns.Call] = {}
    rows: dict[str, turns.Row] = {}
    for side, place in devices.items():
        device = torch.device(place)
        call = functools.partial(function, x.to(device))
        sides[side] = device, call
        rows[side] = {"function": name, "shape": list(shape), "side": side, "error": turns.error(call(), exact)}
        rows[side]["settings"] = settings_in_effect("ocl" if device.type == "ocl" else "eager", device, "highest")
    turns.measure(sides, rows, given)
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=lambda text: text.split(","), default=["cpu", "ocl"], help="cpu, cuda, ocl")
    parser.add_argument("--functions", type=lambda text: text.split(","), default=list(FUNCTIONS))
    turns.add_options(parser, seconds=0.05)
    given = parser.parse_args()
    source = origin()
    torch.set_num_threads(given.threads)
    devices = {side: given.ocl_device if side == "ocl" else side for side in given.sides}
    found: list[turns.Row] = []
    for name, shape in CASES:
        if name not in given.functions:
            continue
        rows = measure(name, shape, devices, given)
        found += rows
        print(f"{name:16s} {'x'.join(map(str, shape)):14s} {turns.line(rows)}", flush=True)
    if given.save:
        results.write(results.result(source, turns.settings_of(given), fft=found), given.save)


if __name__ == "__main__":
    main()
