# tests/device/ops/test_complex.py: complex tensors, and the lazy conjugate and negative views that come with them.
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

torch.manual_seed(0)
Z = torch.randn(4, 4, dtype=torch.complex64)
X = torch.randn(4, 4)
# Each function makes its own lazy views, so that it can be called with tensors of any device.
VIEWS: dict[str, Any] = {
    "product of negatives": lambda z: z.conj().imag @ z.real,
    "linear": lambda z: F.linear(z, z.conj()),
    "product with itself": lambda z: z.conj() @ z,
    "product with a vector": lambda z: z.conj() @ z[0],
    "adjoint": lambda z: torch.addmm(z, z.mH, z),
    "conjugate": lambda z: z.conj(),
    "resolved": lambda z: z.conj().resolve_conj(),
    "transposed": lambda z: z.conj().t(),
    "row": lambda z: z.conj()[1],
    "imaginary part": lambda z: z.conj().imag,
    "resolved imaginary part": lambda z: z.conj().imag.resolve_neg(),
    "sum of a negative": lambda z: z.conj().imag.sum(0),
    "physical": lambda z: torch._conj_physical(z.conj()),
    "in place": lambda z: z.clone().conj_physical_(),
    "in place on a conjugate": lambda z: z.clone().conj().conj_physical_(),
    "product in place": lambda z: z.clone().conj().mul_(2),
    "negated in place": lambda z: z.clone().conj().neg_(),
    "filled": lambda z: z.clone().conj().fill_(1 + 2j),
    "row filled": lambda z: z.clone().conj().t()[1].fill_(1 + 2j),
    "negative filled": lambda z: z.clone().conj().imag.fill_(3.0),
    "written into": lambda z: torch.zeros_like(z).conj().copy_(z),
    "converted": lambda z: z.conj().to(torch.complex128 if z.device.type == "cpu" else z.dtype).to(z.dtype),
    "to real": lambda z: torch._neg_view(z.real).to(torch.float16).float(),
    "indexed": lambda z: torch.zeros_like(z).index_put_((torch.tensor([0], device=z.device),), z[0].conj()),
    "cat": lambda z: torch.cat([z.conj(), z]),
}


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    return torch.allclose(ours.cpu().resolve_conj().resolve_neg(), theirs.resolve_conj().resolve_neg(), atol=1e-4)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", VIEWS)
def test_as_on_the_cpu(name: str, compiled: bool, ocl_device: str) -> None:
    function = VIEWS[name]
    ours = (torch.compile(function, backend="ocl") if compiled else function)(Z.to(ocl_device))
    assert same(ours, function(Z))


LAZY: dict[str, Any] = {
    "conjugate": (Z, lambda z: z.conj()),
    "negative": (X, torch._neg_view),
    "both": (Z, lambda z: torch._neg_view(z.conj())),
    "transposed conjugate": (Z, lambda z: z.t().conj()),
    "part of a negative": (X, lambda x: torch._neg_view(x)[1:, ::2]),
}


@pytest.mark.parametrize("name", LAZY)
def test_copies_of_lazy_views(name: str, ocl_device: str) -> None:
    """Copies give the numbers of the view: to the device, back, within it, and into a lazy view."""
    base, view = LAZY[name]
    there = view(base.to(ocl_device))
    assert same(view(base).to(ocl_device), view(base))
    assert same(there.cpu(), view(base))
    assert same(there.clone(), view(base))
    wider = torch.complex128 if base.is_complex() else torch.float64
    assert same(there.cpu().to(wider), view(base).to(wider))
    for source in (view(base), there, view(base).resolve_conj().resolve_neg(), there.clone()):
        for device in (ocl_device, "cpu"):
            target = view(torch.zeros_like(base, device=device))
            target.copy_(source)
            assert same(target, view(base)), (source.device, device)


ARGUMENTS: dict[str, Any] = {
    "sum": lambda x: x + 1,
    "product": lambda x: x @ x.t(),
    "function": lambda x: x.sin(),
    "view": lambda x: x.t(),
    "negated": lambda x: -x,
}


@pytest.mark.parametrize("operation", ARGUMENTS)
@pytest.mark.parametrize("name", LAZY)
@pytest.mark.sampled(every=1)
def test_lazy_arguments_of_compiled_functions(name: str, operation: str, ocl_device: str) -> None:
    base, view = LAZY[name]
    function = ARGUMENTS[operation]
    compiled = torch.compile(function, backend="ocl")
    assert same(compiled(view(base.to(ocl_device))), function(view(base)))
    plain = base.to(ocl_device)
    assert same(compiled(plain), function(base))


@pytest.mark.parametrize("name", LAZY)
def test_compiled_writes_to_lazy_arguments(name: str, ocl_device: str) -> None:
    base, view = LAZY[name]

    def write(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    ours, theirs = base.to(ocl_device), base.clone()
    assert same(torch.compile(write, backend="ocl")(view(ours)), write(view(theirs)))
    assert same(ours, theirs)


def test_gradient_through_a_conjugate(ocl_device: str) -> None:
    def gradient(device: str) -> torch.Tensor:
        leaf = Z.to(device).requires_grad_()
        (leaf.conj() @ leaf).abs().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    assert same(gradient(ocl_device), gradient("cpu"))


def written_part(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.complex(x, y + 1)
    x.copy_(y)
    return z


def written_whole(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rest = z[1:] * 1
    result = torch.complex(z.real, y)
    z.copy_(rest[0])
    return result


@pytest.mark.parametrize(("function", "base"), [(written_part, X), (written_whole, Z)])
def test_results_keep_what_is_overwritten_later(function: Any, base: torch.Tensor, ocl_device: str) -> None:
    """A complex result consists of two real tensors, which may be views of an argument."""
    expected = [base.detach().clone(), X.detach().flip(0)]
    arguments = [x.to(ocl_device) for x in expected]
    result = torch.compile(function, backend="ocl")(*arguments)
    assert same(result, function(*expected))
    assert same(arguments[0], expected[0])


def test_the_numbers_of_a_later_part(ocl_device: str) -> None:
    """PyTorch counts the storage offset of a complex tensor in complex elements, and that of its real view in real numbers."""
    z = Z.to(ocl_device)[1:]
    numbers = torch.compile(lambda z: torch.view_as_real(z), backend="ocl")(z)
    assert same(numbers, torch.view_as_real(Z[1:])) and numbers.data_ptr() == z.data_ptr()


def test_as_bool(ocl_device):
    """A number is False only if both of its parts are 0."""
    x = torch.tensor([0j, 1j, 1 + 0j, 2 + 3j, complex(0, float("nan"))])
    given, target = x.to(ocl_device), torch.empty(5, dtype=torch.bool, device=ocl_device)
    functions = (lambda x: x.to(torch.bool), lambda x: torch.empty(5, dtype=torch.bool, device=x.device).copy_(x))
    compiled = [torch.compile(function, backend="ocl")(given) for function in functions]
    for got in (given.to(torch.bool), target.copy_(given), *compiled):
        assert got.cpu().tolist() == x.bool().tolist()
