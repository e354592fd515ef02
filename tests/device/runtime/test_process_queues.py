# tests/device/runtime/test_process_queues.py: a tensor on ocl cannot be sent to another process: the sender gets an error.
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from torch_ocl_compile.errors import UnsupportedError


class Box:
    def __init__(self, content: Any) -> None:
        self.content = content


OBJECTS: dict[str, Any] = {
    "tensor": lambda x: x,
    "view": lambda x: x[1:],
    "in a dictionary": lambda x: {"batch": [(1, x)]},
    "in an object": Box,
    "parameter": torch.nn.Parameter,
    "storage": lambda x: x.untyped_storage(),
    "jagged": lambda x: torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 3], device=x.device)),
    "module": lambda x: torch.nn.Linear(2, 2).to(x.device),
}


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue", "SimpleQueue"])
@pytest.mark.parametrize("name", OBJECTS)
def test_a_queue_refuses_in_put(name: str, kind: str, ocl_device: str) -> None:
    """The reader waited for ever, because the queue's thread dropped the object."""
    queue = getattr(mp.get_context("spawn"), kind)()
    with pytest.raises(UnsupportedError, match=r"a tensor on ocl:\d cannot be sent") as error:
        queue.put(OBJECTS[name](torch.ones(3, 2, device=ocl_device)))
    assert "send x.cpu()" in str(error.value)
    assert queue.empty()


def test_what_a_queue_takes(ocl_device: str) -> None:
    x = torch.arange(3.0, device=ocl_device)
    queue = mp.get_context("spawn").Queue()
    for sent in (x.cpu(), {"a": [x.cpu(), 1]}, "text"):
        queue.put(sent)
        got = queue.get(timeout=60)
        assert torch.equal(got, x.cpu()) if isinstance(got, torch.Tensor) else type(got) is type(sent)


def test_an_argument_of_a_process_is_refused(ocl_device: str) -> None:
    process = mp.get_context("spawn").Process(target=print, args=(torch.ones(2, device=ocl_device),))
    with pytest.raises(UnsupportedError, match="cannot be sent to another process"):
        process.start()
