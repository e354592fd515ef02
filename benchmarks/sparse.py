# benchmarks/sparse.py: the time and the error of sparse times dense (CSR), and of a step on a sparse gradient, beside torch's on the CPU.
"""python -m benchmarks.sparse --sides cpu,ocl --threads 1

Sides (cpu, ocl) take turns (turns.py), and errors are relative to the result in float64.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

import torch

import torch_ocl_compile  # noqa: F401  registers the device
from benchmarks import turns

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


def coalesced(rows: int, count: int, _: int) -> Operands:
    """Returns a square COO matrix of about `count` elements."""
    draw = torch.Generator().manual_seed(1)
    places = torch.randint(rows, (2, count), generator=draw)
    values = torch.randn(count, generator=draw)
    return [torch.sparse_coo_tensor(places, values, (rows, rows), check_invariants=False).coalesce()]


def blocks(rows: int, size: int, width: int) -> Operands:
    """Returns a square BSR matrix, of which a tenth of the blocks is not 0, and a dense matrix."""
    draw = torch.Generator().manual_seed(1)
    chosen = (torch.rand(rows // size, rows // size, generator=draw) < 0.1).float().kron(torch.ones(size, size))
    sparse = (torch.randn(rows, rows, generator=draw) * chosen).to_sparse_bsr((size, size))
    return [sparse, torch.randn(rows, width, generator=draw)]


PRODUCT = "product"
CASES: list[tuple[str, Callable[..., Operands], tuple[int, int, int], Function]] = [
    *((PRODUCT, matrix, (10000, 20, width), torch.matmul) for width in (1, 8, 64, 256)),
    *((PRODUCT, matrix, (100000, per_row, 64), torch.matmul) for per_row in (5, 50)),
    ("coalesce", gradient, (100000, 8192, 64), lambda table, grad: grad.coalesce().values()),
    ("blocks times dense", blocks, (1024, 16, 64), torch.matmul),
    ("to dense", coalesced, (1000, 20000, 1), torch.Tensor.to_dense),
    ("add to dense", gradient, (100000, 8192, 64), lambda table, grad: table.add_(grad, alpha=-0.0)),
]


def measure(
    name: str, make: Callable[..., Operands], shape: tuple[int, int, int], function: Function, given: argparse.Namespace
) -> list[turns.Row]:
    operands = make(*shape)
    calls: dict[str, turns.Call] = {}
    for side in given.sides:
        device = torch.device(given.ocl_device if side == "ocl" else side)
        calls[side] = device, functools.partial(function, *(x.to(device, copy=True) for x in operands))
    # Adding to a table adds zeros, so that a turn changes nothing; relative to them there is no error.
    exact = None if name == "add to dense" else function(*(x.double() for x in operands))
    return turns.measure(calls, exact, given, function=name, shape=list(shape))


def main() -> None:
    given = turns.parser_of_sides(__doc__, ["cpu", "ocl"], seconds=0.05).parse_args()
    cases = {
        f"{name} {'x'.join(map(str, shape))}": functools.partial(measure, name, make, shape, function, given)
        for name, make, shape, function in CASES
    }
    turns.run("sparse", cases, given)


if __name__ == "__main__":
    main()
