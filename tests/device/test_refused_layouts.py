# tests/device/test_refused_layouts.py: sparse tensors and nested tensors: a short error, or the right result.
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from own_process import run_python

from torch_ocl_compile.errors import UnsupportedError

PLACES, V = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([1.0, 2.0, 3.0])
ROWS, COLUMNS = torch.tensor([0, 1, 3, 3]), torch.tensor([2, 0, 2])
COO = torch.sparse_coo_tensor(PLACES, V, (3, 3))
CSR = torch.sparse_csr_tensor(ROWS, COLUMNS, V, (3, 3))
LAYOUTS = ["sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]


def gradient(sparse: bool, compiled: bool, bag: bool) -> Any:
    def use(device: str) -> None:
        weight = torch.ones(3, 2, device=device, requires_grad=True)
        index = torch.tensor([1, 2], device=device)

        def loss(weight: torch.Tensor) -> torch.Tensor:
            if bag:
                return F.embedding_bag(index, weight, index * 0, sparse=sparse).sum()
            return F.embedding(index, weight, sparse=sparse).sum()

        (torch.compile(loss, backend="ocl") if compiled else loss)(weight).backward()

    return use


SPARSE: dict[str, Any] = {
    "to": lambda d: COO.to(d),
    "coo": lambda d: torch.sparse_coo_tensor(PLACES.to(d), V.to(d), (3, 3)),
    "coo without a size": lambda d: torch.sparse_coo_tensor(PLACES.to(d), V.to(d)),
    "coo of CPU tensors": lambda d: torch.sparse_coo_tensor(PLACES, V, (3, 3), device=d),
    "empty coo": lambda d: torch.empty(2, 2, layout=torch.sparse_coo, device=d),
    "zeros coo": lambda d: torch.zeros(2, 2, layout=torch.sparse_coo, device=d),
    "csr": lambda d: torch.sparse_csr_tensor(ROWS.to(d), COLUMNS.to(d), V.to(d), (3, 3)),
    "csc": lambda d: torch.sparse_csc_tensor(ROWS.to(d), COLUMNS.to(d), V.to(d), (3, 3)),
    "compressed": lambda d: torch.sparse_compressed_tensor(
        ROWS.to(d), COLUMNS.to(d), V.to(d), (3, 3), layout=torch.sparse_csr
    ),
    "empty csr": lambda d: torch.empty(2, 2, layout=torch.sparse_csr, device=d),
    "zeros csr": lambda d: torch.zeros(2, 2, layout=torch.sparse_csr, device=d),
    "csr, there and back": lambda d: CSR.to(d).cpu(),
    "csr, there and used": lambda d: CSR.to(d) @ torch.ones(3, 3, device=d),
    "csr, there and dense": lambda d: CSR.to(d).to_dense(),
    "csr, there and printed": lambda d: repr(CSR.to(d)),
    "to_sparse": lambda d: torch.eye(4, device=d).to_sparse(),
    **{
        f"to_{n}": lambda d, n=n: torch.eye(4, device=d).to_sparse(
            layout=getattr(torch, n), blocksize=(2, 2) if n[7] == "b" else None
        )
        for n in LAYOUTS
    },
    "to_sparse_csr": lambda d: torch.eye(4, device=d).to_sparse_csr(),
    "to_sparse, compiled": lambda d: torch.compile(lambda x: x.to_sparse(), backend="ocl")(torch.eye(4, device=d)),
    "sparse_mask": lambda d: torch.ones(3, 3, device=d).sparse_mask(COO.coalesce()),
    "coo times dense": lambda d: torch.sparse.mm(COO, torch.ones(3, 3, device=d)),
    "csr times dense": lambda d: CSR @ torch.ones(3, 3, device=d),
    "embedding": gradient(True, False, False),
    "embedding, compiled": gradient(True, True, False),
    "embedding_bag": gradient(True, False, True),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_tensors_are_refused(name: str, ocl_device: str) -> None:
    torch._dynamo.reset()
    with pytest.raises(UnsupportedError, match="ocl has no sparse tensors") as error:
        SPARSE[name](ocl_device)
    assert "do:    use a dense tensor" in str(error.value) and len(str(error.value)) < 400


def test_sparse_tensors_of_the_cpu_still_work() -> None:
    torch.testing.assert_close(COO.to_dense() @ V, torch.mv(CSR, V))
    assert COO.to(torch.float64).to_sparse_csr().layout == torch.sparse_csr


def jagged(device: str, heads: bool = False, grad: bool = False) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(5, 8)], layout=torch.jagged, device=device)
    if grad:
        x = x * torch.ones(8, device=device, requires_grad=True)
    return x.view(2, -1, 2, 4).transpose(1, 2) if heads else x


ATTENTION = """
import torch, torch.nn.functional as F
x = torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(5, 8)], layout=torch.jagged, device={device!r})
q = (x * torch.ones(8, device={device!r}, requires_grad={grad})).view(2, -1, 2, 4).transpose(1, 2)
function = lambda q: F.scaled_dot_product_attention(q, q, q)
try:
    (torch.compile(function, backend="ocl") if {compiled} else function)(q)
except Exception as error:
    text = str(error)
    assert "no attention of jagged tensors" in text and "do:    use layout=torch.jagged" in text, text
    print("refused")
"""


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_attention_of_jagged_tensors_is_refused(compiled: bool, grad: bool, ocl_device: str) -> None:
    """It ended the process."""
    status, out, err = run_python(ATTENTION.format(device=ocl_device, grad=grad, compiled=compiled))
    assert (status, out.split()[-1:]) == (0, ["refused"]), err[-2000:]


STRIDED = """
import torch
parts = [torch.ones(2, 3), torch.ones(1, 3)]
made = {make}
for name, use in dict(sin=lambda n: n.sin(), sum=lambda n: n.sum(), repr=repr, t=lambda n: n.transpose(1, 2).contiguous(),
    cpu=lambda n: n.cpu(), padded=lambda n: n.to_padded_tensor(0.0), clone=lambda n: n.clone(), mm=lambda n: n @ n,
    list=lambda n: n.unbind()).items():
    try:
        use(made())
    except RuntimeError as error:
        assert name == "mm" or "nested tensors with strided layout" in str(error), (name, error)
print("done")
"""


@pytest.mark.parametrize(
    "make",
    [
        "lambda: torch.nested.nested_tensor(parts, device={device!r})",
        "lambda: torch.nested.nested_tensor(parts).to({device!r})",
        "lambda: torch.nested.as_nested_tensor([p.to({device!r}) for p in parts])",
    ],
    ids=["device", "to", "list"],
)
def test_strided_nested_tensors_do_not_end_the_process(make: str, ocl_device: str) -> None:
    status, out, err = run_python(STRIDED.format(make=make.format(device=ocl_device)))
    assert (status, out.split()[-1:]) == (0, ["done"]), err[-2000:]


JAGGED: dict[str, Any] = {
    "sin": lambda n: n.sin() * 2,
    "linear": lambda n: F.gelu(F.linear(n, torch.ones(8, 8, device=n.device))),
    "sum": lambda n: n.sum(1),
    "softmax": lambda n: n.softmax(-1),
    "values": lambda n: n.values() * 2,
    "padded": lambda n: n.to_padded_tensor(0.0),
}


@pytest.mark.parametrize("name", JAGGED)
def test_jagged_arguments_of_compiled_functions(name: str, ocl_device: str) -> None:
    """The graph runs op by op, which is counted, or the error says what is missing."""
    torch._dynamo.reset()
    function = JAGGED[name]
    expected, x = function(jagged("cpu")), jagged(ocl_device)
    ours = torch.compile(function, backend="ocl")(x)
    if expected.is_nested:
        ours, expected = ours.values(), expected.values()
    torch.testing.assert_close(ours.cpu(), expected)


def test_gradient_of_a_jagged_argument(ocl_device: str) -> None:
    def gradient(device: str, compiled: bool) -> torch.Tensor:
        weight = torch.ones(8, 8, device=device, requires_grad=True)
        function = lambda n: F.gelu(F.linear(n, weight)).values().sum()  # noqa: E731
        torch._dynamo.reset()
        (torch.compile(function, backend="ocl") if compiled else function)(jagged(device)).backward()
        assert weight.grad is not None
        return weight.grad.cpu()

    torch.testing.assert_close(gradient(ocl_device, True), gradient("cpu", False))
