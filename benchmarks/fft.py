# benchmarks/fft.py: the time and the error of Fourier transforms, beside torch's on the CPU (MKL or pocketfft) and on CUDA (cuFFT).
"""python -m benchmarks.fft --sides cpu,ocl --threads 1
python -m benchmarks.fft --sides cuda,ocl --save h100_fft.json

Sides (cpu, cuda, ocl) take turns (turns.py), and errors are relative to the transform in float64.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

import torch

import torch_ocl_compile  # noqa: F401  registers the device
from benchmarks import turns

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


def measure(name: str, shape: tuple[int, ...], given: argparse.Namespace) -> list[turns.Row]:
    function, dtype = FUNCTIONS[name]
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    exact = function(x.to(torch.complex128 if dtype.is_complex else torch.float64))
    devices = {side: torch.device(given.ocl_device if side == "ocl" else side) for side in given.sides}
    calls = {side: (device, functools.partial(function, x.to(device))) for side, device in devices.items()}
    return turns.measure(calls, exact, given, function=name, shape=list(shape))


def main() -> None:
    parser = turns.parser_of_sides(__doc__, ["cpu", "ocl"], seconds=0.05)
    parser.add_argument("--functions", type=turns.words, default=list(FUNCTIONS))
    given = parser.parse_args()
    cases = {
        f"{name} {'x'.join(map(str, shape))}": functools.partial(measure, name, shape, given)
        for name, shape in CASES
        if name in given.functions
    }
    turns.run("fft", cases, given)


if __name__ == "__main__":
    main()
