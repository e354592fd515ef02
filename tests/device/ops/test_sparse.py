# tests/device/ops/test_sparse.py: COO and compressed tensors: making, moving, storing and printing them, and the ops on them.
from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

Tensor = torch.Tensor
warnings.filterwarnings("ignore", message="Sparse")
PLACES, VALUES = torch.tensor([[0, 1, 1, 2, 0], [2, 0, 2, 1, 2]]), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
COO = torch.sparse_coo_tensor(PLACES, VALUES, (3, 3))  # The last element has the index of the first.
HYBRID = torch.sparse_coo_tensor(PLACES[:1], torch.arange(10.0).view(5, 2), (4, 2))
DENSE = torch.arange(9.0).view(3, 3) - 4
CUBE = torch.sparse_coo_tensor(
    torch.randint(0, 3, (3, 12), generator=torch.Generator().manual_seed(0)),
    torch.arange(24.0).view(12, 2).sin(),
    (3, 3, 3, 2),
)
WIDE = torch.tensor([[0.0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 4, 5]])


def stored(x: Tensor) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


Case = Callable[[Any], Any]  # Of a function that moves a tensor to the device.
COO_OPS: dict[str, Case] = {
    "made": lambda to: torch.sparse_coo_tensor(to(PLACES), to(VALUES), (3, 3)),
    "made without size": lambda to: torch.sparse_coo_tensor(to(PLACES), to(VALUES)),
    "of dense": lambda to: to(DENSE).relu().to_sparse(),
    "hybrid of dense": lambda to: to(DENSE).relu().to_sparse(1),
    "parts": lambda to: [to(COO)._indices(), to(COO)._values(), to(COO).is_coalesced(), to(COO)._nnz()],
    "coalesce": lambda to: [to(COO).coalesce(), to(COO).coalesce().indices(), to(COO).coalesce().values()],
    "coalesce bool": lambda to: to(COO.bool()).coalesce(),
    "coalesce half": lambda to: to(COO.half()).coalesce(),
    "hybrid": lambda to: [to(HYBRID).coalesce(), to(HYBRID).to_dense(), to(HYBRID) * to(torch.ones(4, 2))],
    "dense": lambda to: to(COO).to_dense(),
    "no elements": lambda to: [to(torch.zeros(2, 3)).to_sparse().coalesce(), to(torch.zeros(2, 3)).to_sparse() * 2],
    "copies": lambda to: [to(COO).clone(), to(COO).double(), to(COO).detach(), to(COO).clone().zero_()],
    "stored": lambda to: [stored(to(COO)), pickle.loads(pickle.dumps(to(COO)))],
    "add to dense": lambda to: [
        to(DENSE).clone().add_(to(COO), alpha=2),
        to(DENSE.t()) + to(COO),
        to(DENSE.int()) + to(COO),
    ],
    "add": lambda to: [to(COO) + to(COO), to(COO).coalesce() + to(COO).coalesce() * 2, to(COO) - to(COO).coalesce()],
    "times number": lambda to: [to(COO) * 3, to(COO) / 2, -to(COO), to(COO).mul_(to(torch.tensor(2.0)))],
    "times dense": lambda to: [to(COO) * to(DENSE), to(DENSE[0]) * to(COO)],
    "times sparse": lambda to: to(COO) * to(DENSE.relu().to_sparse()),
    "functions": lambda to: [getattr(to(COO).coalesce(), f)() for f in ("sin", "abs", "sqrt", "relu", "tanh", "sign")],
    "power": lambda to: to(COO) ** 2,
    "sums": lambda to: [to(COO).sum(), torch.sparse.sum(to(COO), 0), torch.sparse.sum(to(HYBRID), 1), to(COO).norm()],
    "shapes": lambda to: [
        to(COO).t(),
        to(COO).unsqueeze(0),
        to(COO).narrow_copy(0, 1, 2),
        torch.cat([to(COO), to(COO)]),
    ],
    "select": lambda to: [
        to(COO)[1],
        to(COO).index_select(0, to(torch.tensor([2, 0, 0]))),
        to(HYBRID).index_select(1, to(torch.tensor([1]))),
    ],
    "softmax": lambda to: [
        f(to(x), dim)
        for f in (torch.sparse.softmax, torch.sparse.log_softmax)
        for x, dims in ((COO, (0, -1)), (HYBRID, (0, 1)), (CUBE, (0, 1, 2)), (COO * 0, (1,)))
        for dim in dims
    ],
    "softmax of no elements": lambda to: torch.sparse.softmax(to(torch.zeros(2, 3)).to_sparse(), 1),
    "softmax of another type": lambda to: torch.sparse.softmax(to(COO), 1, dtype=torch.float64),
    "mask": lambda to: [to(DENSE).sparse_mask(to(COO).coalesce()), to(COO).sparse_mask(to(DENSE.relu().to_sparse()))],
}


def same(have: Any, want: Any, device: str) -> None:
    if isinstance(want, list):
        for a, b in zip(have, want, strict=True):
            same(a, b, device)
    elif not isinstance(want, Tensor):
        assert have == want
    else:
        assert (have.layout, have.dtype, have.shape, str(have.device)) == (want.layout, want.dtype, want.shape, device)
        have = have.detach().cpu()
        if want.layout is torch.strided:
            torch.testing.assert_close(have, want)
        else:
            torch.testing.assert_close(have.to_dense(), want.to_dense())


def check(case: Case, device: str) -> None:
    torch.ocl.reset_fallback_counts()
    have = case(lambda t: t.to(device))
    assert torch.ocl.fallback_counts() == {}
    same(have, case(lambda t: t), device)


@pytest.mark.parametrize("name", COO_OPS)
def test_coo(name: str, ocl_device: str) -> None:
    check(COO_OPS[name], ocl_device)


def test_printed(ocl_device: str) -> None:
    for x in (COO, WIDE.to_sparse_csr()):
        lines = repr(x.to(ocl_device)).replace(f"device='{ocl_device}', ", "").split()
        assert lines == repr(x).split()


def test_values_are_those_of_the_tensor(ocl_device: str) -> None:
    x = COO.to(ocl_device).coalesce()
    x.values().mul_(2)
    torch.testing.assert_close(x.cpu().to_dense(), 2 * COO.to_dense())


def test_gradients(ocl_device: str) -> None:
    def grads(device: str) -> list[Tensor]:
        values = VALUES.to(device).requires_grad_()
        dense = DENSE.to(device).requires_grad_()
        x = torch.sparse_coo_tensor(PLACES.to(device), values, (3, 3)).coalesce()
        loss = (x * dense).sum() + torch.sparse.sum(x * 2, 0).to_dense().square().sum()
        return [g.to_dense().cpu() for g in torch.autograd.grad(loss, [values, dense])]

    torch.testing.assert_close(grads(ocl_device), grads("cpu"))


@pytest.mark.sampled(first=4, every=0)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_gradients_of_softmax(name: str, dim: int, ocl_device: str) -> None:
    """The gradient has other elements than the result."""
    torch.manual_seed(0)
    x, weights = CUBE.double().coalesce(), torch.randn(3, 3, 3, 2, dtype=torch.float64)
    places = torch.ones(3, 3, 3, 2).to_sparse(3).coalesce()

    def grads(device: str) -> list[Tensor]:
        values = x.values().to(device).requires_grad_()
        made = getattr(torch.sparse, name)(torch.sparse_coo_tensor(x.indices().to(device), values, x.shape), dim)
        some = made.detach().to_dense() * weights.to(device)
        loss = (made * some).to_dense().sum() + torch.sparse.sum(made.sparse_mask(places.to(device)) * made).square()
        return [g.cpu() for g in torch.autograd.grad(loss, [values])]

    torch.ocl.reset_fallback_counts()
    ours = grads(ocl_device)
    assert torch.ocl.fallback_counts() == {}
    torch.testing.assert_close(ours, grads("cpu"))


def test_partial_gradient_of_softmax(ocl_device: str) -> None:
    """Elements that the gradient does not have count as 0."""
    x = CUBE.coalesce()
    for back, made in (
        (torch.ops.aten._sparse_softmax_backward_data, torch.sparse.softmax),
        (torch.ops.aten._sparse_log_softmax_backward_data, torch.sparse.log_softmax),
    ):
        for dim in range(3):
            y = made(x, dim)
            grad = torch.sparse_coo_tensor(x.indices()[:, ::2], x.values()[::2] + 1, x.shape).coalesce()
            ours = back(grad.to(ocl_device), y.to(ocl_device), dim, x.to(ocl_device))
            same(ours, back(grad, y, dim, x), ocl_device)


def test_what_has_no_kernel_runs_on_the_cpu(ocl_device: str) -> None:
    torch.ocl.reset_fallback_counts()
    x = WIDE.to_sparse_csr()
    have = torch._sparse_csr_prod(x.to(ocl_device), 1, True)
    assert have.device == torch.device(ocl_device)
    assert list(torch.ocl.fallback_counts()) == ["aten::_sparse_csr_prod.dim_dtype"]
    torch.testing.assert_close(have.cpu().to_dense(), torch._sparse_csr_prod(x, 1, True).to_dense())


def test_bad_arguments(ocl_device: str) -> None:
    x = COO.to(ocl_device)
    for wrong in (
        lambda: x + x.to_dense(),
        lambda: x + COO,
        lambda: x * torch.ones(3, 3),
        lambda: x * torch.ones(2, 5).to(ocl_device),
    ):
        with pytest.raises(RuntimeError):
            wrong()
