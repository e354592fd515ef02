# tests/device/ops/test_cpu_index.py: an index or a mask on the CPU is moved to the device of the indexed tensor, as CUDA does.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

X = torch.arange(24.0).reshape(6, 4)
INDEX, MASK = torch.tensor([4, 1, 1]), torch.arange(6) % 2 == 0


def put(index: Any, value: Any, accumulate: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
    def write(x: torch.Tensor) -> torch.Tensor:
        there = value.to(x.device) if isinstance(value, torch.Tensor) and value.dim() > 0 else value
        indices = index if isinstance(index, tuple) else (index,)
        if accumulate:
            return x.clone().index_put_(indices, there, accumulate=True)
        y = x.clone()
        y[index] = there
        return y

    return write


ALLOWED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "index": lambda x: x[INDEX],
    "list": lambda x: x[[1, 5]],
    "int32": lambda x: x[INDEX.int()],
    "second dimension": lambda x: x[:, INDEX % 4],
    "mask": lambda x: x[MASK],
    "mask of everything": lambda x: x[X > 5],
    "list of bools": lambda x: x[:, [True, False, True, True]],
    "two": lambda x: x[INDEX, torch.tensor([0, 1, 2])],
    "one here, one on the CPU": lambda x: x[INDEX.to(x.device), torch.tensor([0, 1, 2])],
    "mask and index": lambda x: x[MASK, torch.tensor([0, 1, 2])],
    "number": lambda x: x[torch.tensor(3)],
    "permutation": lambda x: x[torch.tensor([5, 3, 1, 0, 2, 4])],
    "empty": lambda x: x[torch.tensor([], dtype=torch.int64)],
    "aten._unsafe_index": lambda x: torch.ops.aten._unsafe_index.Tensor(x, [INDEX]),
    "aten.index.Tensor_out": lambda x: torch.ops.aten.index.Tensor_out(x, [INDEX], out=torch.empty(3, 4, device=x.device)),
    "set number": put(INDEX, 1.0),
    "set mask": put(MASK, 1.0),
    "set by a tensor": put(INDEX, torch.ones(3, 4)),
    "set to a number on the CPU": put(INDEX, torch.tensor(2.0)),
    "set mask to a number on the CPU": put(MASK, torch.tensor(2.0)),
    "set mask by a tensor": put(MASK, torch.ones(3, 4)),
    "accumulate": put(INDEX, torch.ones(3, 4), accumulate=True),
    "accumulate a number": put(INDEX, torch.tensor(2.0), accumulate=True),
    "index_put": lambda x: torch.index_put(x, (INDEX,), torch.ones((), device=x.device)),
    "aten._unsafe_index_put": lambda x: torch.ops.aten._unsafe_index_put(x, [INDEX], torch.ones((), device=x.device)),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ALLOWED)
def test_an_index_on_the_cpu(name: str, compiled: bool, ocl_device: str) -> None:
    function = ALLOWED[name]
    if compiled and name.startswith("aten."):
        return  # torch traces the ops of torch.ops for one device only.
    torch._dynamo.reset()
    there = X.to(ocl_device)
    torch.ocl.reset_fallback_counts()
    ours = (torch.compile(function, backend="ocl") if compiled else function)(there)
    assert torch.ocl.fallback_counts() == {}
    assert ours.device == there.device
    torch.testing.assert_close(ours.cpu(), function(X), rtol=0, atol=0)


def test_a_number_of_the_device_is_written_to_the_cpu(ocl_device: str) -> None:
    x = X.clone()
    x[INDEX] = torch.tensor(7.0, device=ocl_device)
    torch.testing.assert_close(x, put(INDEX, 7.0)(X))


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "CPU tensor, index on the device": lambda x: X[INDEX.to(x.device)],
    "CPU tensor, mask on the device": lambda x: X[MASK.to(x.device)],
    "CPU tensor, written by an index on the device": lambda x: put(INDEX.to(x.device), 1.0)(X),
    "values on the CPU": lambda x: x.clone().index_put_((INDEX,), torch.ones(3, 4)),
    "values on the device": lambda x: X.clone().index_put_((INDEX,), torch.ones(3, 4, device=x.device)),
    "take": lambda x: x.take(INDEX),
    "index_select": lambda x: x.index_select(0, INDEX),
    "gather": lambda x: x.gather(0, INDEX[None].expand(1, 3)),
    "scatter": lambda x: x.scatter(0, INDEX[None], 1.0),
    "masked_select": lambda x: x.masked_select(X > 5),
    "index_add": lambda x: x.index_add(0, INDEX, torch.ones(3, 4, device=x.device)),
    "index_copy": lambda x: x.index_copy(0, INDEX, torch.ones(3, 4, device=x.device)),
    "index_fill": lambda x: x.index_fill(0, INDEX, 1.0),
    "put": lambda x: x.put(INDEX, torch.ones(3, device=x.device)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused(name: str, ocl_device: str) -> None:
    torch.ocl.reset_fallback_counts()
    with pytest.raises((ValueError, RuntimeError), match=r"device|ocl:\d"):
        REFUSED[name](X.to(ocl_device))
    assert torch.ocl.fallback_counts() == {}


def test_an_index_on_another_device_is_refused(two_ocl_devices: tuple[str, str]) -> None:
    first, second = two_ocl_devices
    with pytest.raises(ValueError, match="move the index"):
        X.to(first)[INDEX.to(second)]
