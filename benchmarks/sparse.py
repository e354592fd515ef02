# benchmarks/sparse.py: the time and the error of sparse times dense (CSR), and of a step on a sparse gradient, beside torch's on the CPU.
"""python benchmarks/sparse.py --sides cpu,ocl --threads 1

Sides take turns (turns.py), and errors are relative to the result in float64. `--threads` is for the side `cpu`; to give an OpenCL
CPU device the same cores, start the program with taskset.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import turns

import torch_ocl_compile  # noqa: F401  registers the device
from torch_ocl_compile.bench import results
from torch_ocl_compile.bench.origin import origin
from torch_ocl_compile.bench.side import settings_in_effect

Operands = list[torch.Tensor]
Function = Callable[..., torch.Tensor]


def matrix(rows: int, per_row: int, width: int) -> Operands:
    """Returns a square CSR matrix with `per_row` elements in each row on average, and a dense matrix."""
    draw = torch.Generator().manual_seed(1)
    places = torch.randint(rows * rows, (rows * per_row,), generator=draw).unique()
    values = torch.randn(len(places), generator=draw)
    begins = torch.searchsorted(places // rows, torch.arange(rows + 1))
    sparse = torch.sparse_csr_tensor(begins, places % rows, values, (rows, rows), check_invariants=False)
    return [sparse, torch.randn(rows, width, generator=draw)]


def gradient(rows: int, count: int, width: int) -> Operands:
    """Returns a table and the gradient of `count` words, of which few occur twice."""
    draw = torch.Generator().manual_seed(1)
    words = torch.randint(rows, (1, count), generator=draw)
    values = torch.randn(count, width, generator=draw)
    return [torch.zeros(rows, width), torch.sparse_coo_tensor(words, values, (rows, width), check_invariants=False)]


PRODUCT = "product"
CASES: list[tuple[str, Callable[..., Operands], tuple[int, int, int], Function]] = [
    *((PRODUCT, matrix, (10000, 20, width), torch.matmul) for width in (1, 8, 64, 256)),
    *((PRODUCT, matrix, (100000, per_row, 64), torch.matmul) for per_row in (5, 50)),
    ("coalesce", gradient, (100000, 8192, 64), lambda table, grad: grad.coalesce().values()),
    ("add to dense", gradient, (100000, 8192, 64), lambda table, grad: table.add_(grad, alpha=-0.0)),
]


def measure(
    name: str, make: Callable[..., Operands], shape: tuple[int, int, int], function: Function, given: argparse.Namespace
) -> list[turns.Row]:
    operands = make(*shape)
    exact = function(*(x.double() for x in operands))
    sides: dict[str, turns.Call] = {}
    rows: dict[str, turns.Row] = {}
    for side in given.sides:
        device = torch.device(given.ocl_device if side == "ocl" else side)
        placed = [x.to(device, copy=True) for x in operands]

        def call(placed: Operands = placed) -> torch.Tensor:
            return function(*placed)

        sides[side] = device, call
        # Adding to a table adds zeros, so that a turn changes nothing; relative to them there is no error.
        error = 0.0 if name == "add to dense" else turns.error(call(), exact)
        rows[side] = {"function": name, "shape": list(shape), "side": side, "error": error}
        rows[side]["settings"] = settings_in_effect("ocl" if device.type == "ocl" else "eager", device, "highest")
    turns.measure(sides, rows, given)
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=lambda text: text.split(","), default=["cpu", "ocl"], help="cpu, ocl")
    turns.add_options(parser, seconds=0.05)
    given = parser.parse_args()
    source = origin()
    torch.set_num_threads(given.threads)
    found: list[turns.Row] = []
    for name, make, shape, function in CASES:
        rows = measure(name, make, shape, function, given)
        found += rows
        print(f"{name:12s} {'x'.join(map(str, shape)):14s} {turns.line(rows)}", flush=True)
    if given.save:
        results.write(results.result(source, turns.settings_of(given), sparse=found), given.save)


if __name__ == "__main__":
    main()
