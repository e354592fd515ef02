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
