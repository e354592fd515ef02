# tests/device/kernels/test_products_group.py: a matrix times a row on GPUs, of which a work-item computes several rows.
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

Tensor = torch.Tensor
OPTIONS = {"fallback": "error", "kernel_family": "group", "units": 2}


def product(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype) - 128)


def two_int4(x: Tensor, w: Tensor) -> Tensor:
    packed = w[:, : x.shape[1] // 2]
    return F.linear(x, torch.stack([packed & 15, packed >> 4], -1).reshape(len(w), -1).to(x.dtype) - 8)


def normed(x: Tensor, w: Tensor) -> Tensor:
    return product(F.rms_norm(x, x.shape[-1:], eps=1e-6), w)


def gated(x: Tensor, w: Tensor) -> Tensor:
    gate, up = (product(x, w) / 4096).chunk(2, -1)
    return F.silu(gate) * up


def largest(x: Tensor, w: Tensor) -> Tensor:
    return (x[:1] * w.to(x.dtype)).amax(-1) + x[0, 0]


def of_two(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of two rows, of which one is negated, over pairs of the matrix's rows: loops in two dimensions."""
    y = (x[:1] * w.to(x.dtype).reshape(-1, 2, w.shape[1])).sum(-1)
    return y, -y


# Rows and depth: whole blocks of four rows, and of two; a last work-group with too many rows; a depth that ends in a vector of
# a work-item; a depth of which a work-item has one vector.
SIZES = [(512, 1024), (514, 1024), (1028, 512), (512, 592), (2048, 64)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [product, two_int4, normed, gated, largest, of_two])
@pytest.mark.parametrize(("rows", "depth"), SIZES)
@pytest.mark.sampled(first=6, every=7)
def test_rows_of_a_matrix(
    ocl_device: str, function: Callable[..., Tensor], dtype: torch.dtype, rows: int, depth: int
) -> None:
    compiled = torch.compile(function, backend="ocl", options=OPTIONS, dynamic=False)
    torch.manual_seed(0)
    for count in (1, 2):
        x, w = torch.randn(count, depth, dtype=dtype), torch.randint(0, 256, (rows, depth), dtype=torch.uint8)
        exact = function(x.double(), w)
        for first in (0, 1):  # A row that begins at element 1 has no aligned vectors.
            memory = torch.cat([x.new_zeros(first), x.flatten()]).to(ocl_device)
            with torch.no_grad():
                ours, again = (compiled(memory[first:].view(count, depth), w.to(ocl_device)) for _ in range(2))
            pairs = zip(ours, again, exact, strict=True) if isinstance(ours, tuple) else [(ours, again, exact)]
            for a, b, wanted in pairs:
                assert torch.equal(a.cpu(), b.cpu())
                error = (a.cpu().double() - wanted).abs().max() / wanted.abs().max()
                assert error <= (2e-6 if dtype == torch.float32 else 1e-2), error
