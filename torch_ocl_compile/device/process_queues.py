# torch_ocl_compile/device/process_queues.py: refuses ocl tensors that are sent to other processes, when they are sent.
"""A queue of multiprocessing pickles in a thread. An object that cannot be pickled is dropped there, and the process that
reads the queue waits for ever. So `put` looks for ocl tensors itself, and raises where it was called."""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.errors import UnsupportedError

_STORAGES = (torch.UntypedStorage, torch.TypedStorage)


def refuse_storages(reductions: ModuleType) -> None:
    """Makes the pickler of multiprocessing refuse storages on ocl. The function of torch.multiprocessing.reductions for them
    expects CPU memory."""

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        _refuse(storage)
        return reductions.reduce_storage(storage)

    ForkingPickler.register(torch.UntypedStorage, reduce_storage)


def check_queues(queues: ModuleType) -> None:
    """Makes the queues of multiprocessing.queues look for ocl tensors in `put`. SimpleQueue pickles in `put` anyway."""
    for queue in (queues.Queue, queues.JoinableQueue):
        queue.put = _checked(queue.put)


def _checked(put: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(put)
    def checked(self: Any, obj: Any, *args: Any, **kwargs: Any) -> None:
        if _C.devices_ready():
            _refuse_tensors_in(obj)
        put(self, obj, *args, **kwargs)

    return checked


def _refuse_tensors_in(obj: Any) -> None:
    try:
        _Search(_Nowhere()).dump(obj)
    except UnsupportedError:
        raise
    except Exception:  # What cannot be pickled is reported by the queue.
        return


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


class _Search(pickle.Pickler):
    """Walks through an object as pickle does. UnsupportedError if it contains a tensor on ocl."""

    def persistent_id(self, obj: Any) -> str | None:
        """Returns a name for what need not be walked through: tensors and arrays of numbers."""
        if isinstance(obj, (torch.Tensor, *_STORAGES)):
            _refuse(obj)
            return "tensor"
        numpy = sys.modules.get("numpy")
        return "array" if numpy is not None and isinstance(obj, numpy.ndarray) and not obj.dtype.hasobject else None


def _refuse(obj: Any) -> None:
    device = torch.device(obj.device)
    if device.type == "ocl":
        raise UnsupportedError(
            f"a tensor on {device} cannot be sent to another process, whose OpenCL context has other memory.\n"
            "  do:    send x.cpu(), and move it in the process that receives it, with .to('ocl')"
        )
