# tests/device/ops/test_sparse_products.py: products of sparse and dense matrices, conversions of compressed tensors, and gradients.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.device.ops.test_sparse import COO, DENSE, HYBRID, WIDE, check, stored

Tensor = torch.Tensor
RIGHT = torch.arange(20.0).view(4, 5) - 7
CSR = WIDE.to_sparse_csr()
BATCH = torch.stack([COO, COO * 2])

Case = Callable[[Any], Any]
CASES: dict[str, Case] = {
    "made": lambda to: torch.sparse_csr_tensor(
        to(CSR.crow_indices()), to(CSR.col_indices()), to(CSR.values()), (3, 4), check_invariants=True
    ),
    "of dense": lambda to: [to(WIDE).to_sparse_csr(), to(WIDE).to_sparse_csc(), to(WIDE).to_sparse_bsr((3, 2))],
    "conversions": lambda to: [
        to(CSR).to_dense(),
        to(CSR).to_sparse(),
        to(CSR).to_sparse_csc(),
        to(CSR).to_sparse_csc().to_sparse_csr(),
        to(COO).coalesce().to_sparse_csr(),
    ],
    "parts": lambda to: [to(CSR).crow_indices(), to(CSR).col_indices(), to(CSR).values(), to(CSR)._nnz()],
    "copies": lambda to: [to(CSR).clone(), to(CSR).double(), to(CSR).t(), stored(to(CSR))],
    "elementwise": lambda to: [
        to(CSR) * 2,
        to(CSR) * to(WIDE),
        to(CSR).sin(),
        to(CSR) + to(CSR),
        -to(CSR),
        to(CSR).sum(),
    ],
    "select": lambda to: to(CSR)[2],
    "csr @ dense": lambda to: [
        to(CSR) @ to(RIGHT),
        to(CSR) @ to(RIGHT)[:, 0],
        torch.sparse.mm(to(CSR), to(RIGHT.t()).t()),
    ],
    "csc @ dense": lambda to: to(CSR).to_sparse_csc() @ to(RIGHT),
    "dense @ csr": lambda to: to(DENSE) @ to(CSR),
    "coo @ dense": lambda to: [
        torch.sparse.mm(to(COO), to(DENSE)),
        to(COO).coalesce() @ to(DENSE),
        to(COO) @ to(DENSE)[0],
    ],
    "dense @ coo": lambda to: to(DENSE) @ to(COO),
    "sparse @ sparse": lambda to: [torch.sparse.mm(to(COO), to(COO)), to(CSR) @ to(RIGHT).to_sparse_csr()],
    "addmm": lambda to: [
        torch.addmm(to(torch.ones(5)), to(CSR), to(RIGHT), beta=2, alpha=3),
        torch.addmm(to(DENSE), to(COO), to(DENSE), beta=0.5),
        torch.sparse.addmm(to(DENSE), to(COO), to(DENSE)),
        to(DENSE).clone().addmm_(to(COO), to(DENSE)),
        torch.addmv(to(torch.ones(3)), to(CSR), to(RIGHT)[:, 0], alpha=2),
    ],
    "bmm": lambda to: torch.bmm(to(BATCH), to(torch.stack([DENSE, DENSE + 1]))),
    "csr sums": lambda to: [
        torch._sparse_csr_sum(to(x), dim, True, dtype=dtype)
        for x, dims in (
            (CSR, (0, 1, [0, 1])),
            (WIDE.int().to_sparse_csr(), (0, [0, 1])),
            ((WIDE * 0).to_sparse_csr(), (0, 1)),
        )
        for dim in dims
        for dtype in (None, torch.float64)
    ],
    "no elements": lambda to: [to(CSR * 0).to_dense().to_sparse_csr() @ to(RIGHT), to(CSR) @ to(RIGHT[:, :0])],
    "integers": lambda to: [to(COO.long()) @ to(DENSE.long()), to(COO.int()) @ to(DENSE.int())],
    "doubles": lambda to: to(CSR.double()) @ to(RIGHT.double()),
    "sampled_addmm": lambda to: torch.sparse.sampled_addmm(to(CSR), to(DENSE), to(WIDE), beta=0.5, alpha=2),
    "reductions": lambda to: [torch.sparse.mm(to(CSR), to(RIGHT), r) for r in ("sum", "mean", "amax", "amin")],
    "hybrid": lambda to: to(HYBRID).coalesce().sparse_mask(to(HYBRID).coalesce()),
}


@pytest.mark.parametrize("name", CASES)
def test_products(name: str, ocl_device: str) -> None:
    check(CASES[name], ocl_device)


def rows(m: int, k: int, dtype: torch.dtype) -> Tensor:
    """Returns a CSR matrix with a tenth of its elements. Every third row is empty."""
    x = torch.randn(m, k, dtype=torch.float64) * (torch.rand(m, k) < 0.1) * (torch.arange(m) % 3 > 0)[:, None]
    return x.to(dtype).to_sparse_csr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_widths(dtype: torch.dtype, ocl_device: str) -> None:
    """A work-item has 16, 8, 4 or 1 columns, and the last one may have fewer."""
    torch.manual_seed(0)
    a = rows(70, 90, dtype)
    for width in (1, 3, 4, 9, 16, 37):
        b = torch.randn(90, width).to(dtype)
        have = [a.to(ocl_device) @ b.to(ocl_device) for _ in range(2)]
        assert torch.equal(*have)
        want = (a.double() @ b.double()).to(dtype)
        torch.testing.assert_close(have[0].cpu(), want)


def test_wide_indices_and_wrong_columns(ocl_device: str) -> None:
    """Indices of 32 bits work. A column outside of the matrix is not read from outside of the memory."""
    to = torch.int32
    a = torch.sparse_csr_tensor(CSR.crow_indices().to(to), CSR.col_indices().to(to), CSR.values(), (3, 4)).to(
        ocl_device
    )
    torch.testing.assert_close((a @ RIGHT.to(ocl_device)).cpu(), WIDE @ RIGHT)
    wrong = torch.sparse_csr_tensor(
        CSR.crow_indices(), CSR.col_indices() + (1 << 40), CSR.values(), (3, 4), check_invariants=False
    )
    assert (wrong.to(ocl_device) @ RIGHT.to(ocl_device)).isfinite().all()
    with pytest.raises(RuntimeError, match="col_indices"):
        parts = [p.to(ocl_device) for p in (CSR.crow_indices(), CSR.col_indices() + 3, CSR.values())]
        torch.sparse_csr_tensor(*parts, (3, 4), check_invariants=True)


GRADIENTS: dict[str, Callable[..., Tensor]] = {
    "csr": lambda a, b: a.to_sparse_csr() @ b,
    "coo": lambda a, b: torch.sparse.mm(a.to_sparse(), b),
    "addmm": lambda a, b: torch.sparse.addmm(b[:3], a.to_sparse(), b, beta=0.5, alpha=2),
    "sampled": lambda a, b: torch.sparse.sampled_addmm(a.to_sparse_csr(), a, b[:, :4] @ b[:, :4].t()).to_dense(),
    "sum": lambda a, b: torch.sparse.mm(a.to_sparse_csr(), b, "sum"),
    "mean": lambda a, b: torch.sparse.mm(a.to_sparse_csr(), b, "mean"),
    "amax": lambda a, b: torch.sparse.mm(a.to_sparse_csr(), b, "amax"),
    "mask": lambda a, b: a.sparse_mask(WIDE.to(a).to_sparse()).to_dense() * b[:3, :4],
    "sum of rows": lambda a, b: torch.sparse.sum(a.to_sparse(), 1).to_dense() * b[:3, 0],
}


@pytest.mark.needs("fp64")
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, ocl_device: str) -> None:
    torch.manual_seed(0)
    a, b = WIDE.double(), torch.randn(4, 5, dtype=torch.float64)

    def grads(device: str) -> list[Tensor]:
        x, y = a.to(device).requires_grad_(), b.to(device).requires_grad_()
        out = GRADIENTS[name](x, y)
        weights = torch.arange(out.numel(), dtype=torch.float64).view(out.shape).to(device)
        return [g.to_dense().cpu() for g in torch.autograd.grad((out * weights).sum(), [x, y])]

    torch.testing.assert_close(grads(ocl_device), grads("cpu"))


@pytest.mark.sampled(first=4, every=0)
@pytest.mark.needs("fp64")
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_numerical_gradients(reduce: str, ocl_device: str) -> None:
    values = CSR.values().double().to(ocl_device).requires_grad_()
    b = (RIGHT.double() / 3).to(ocl_device).requires_grad_()
    crow, col = CSR.crow_indices().to(ocl_device), CSR.col_indices().to(ocl_device)

    def product(values: Tensor, b: Tensor) -> Any:
        return torch.sparse.mm(torch.sparse_csr_tensor(crow, col, values, (3, 4)), b, reduce)

    assert torch.autograd.gradcheck(product, (values, b), masked=True)
