# torch_ocl_compile/device/accelerate.py: accelerate, and the Trainer of transformers, on ocl devices under torchrun and beside CUDA.
"""accelerate has a fixed list of device types. Under torchrun, it takes a device outside of its list for a single process, so that
each process would train alone, without a word. If torch has CUDA, it takes CUDA, which has no backward beside ocl, or NCCL's process
group, which has no ocl tensors. The Trainer takes CUDA even if a variable names another device."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

import torch

from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.errors import ConfigError

VARIABLE = "ACCELERATE_TORCH_DEVICE"


def _is_chosen() -> bool:
    return torch.device(os.environ.get(VARIABLE, "cpu")).type == "ocl"


def _is_left_open() -> bool:
    """True if the program names no device, and torch's accelerator is ocl."""
    return VARIABLE not in os.environ and torch._C._get_accelerator().type == "ocl"


def _refusal(problem: str) -> ConfigError:
    return ConfigError(
        f"accelerate does not know the device ocl: {problem}.\n"
        f"  do: set {VARIABLE}=ocl in the environment, or ACCELERATE_USE_CPU=1 to train on the CPU"
    )


def register_with(module: ModuleType) -> None:
    """Replaces a method and a property of `module`, accelerate.state."""
    state: Any = module.PartialState
    kinds: Any = module.DistributedType
    original, default_device = state._prepare_backend, state.default_device.fget

    @functools.wraps(original)
    def _prepare_backend(self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None) -> Any:
        found, kind = original(self, cpu, sagemaker_dp, backend)
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if cpu or kind not in (kinds.NO, kinds.MULTI_GPU) or "LOCAL_RANK" not in os.environ:
            return found, kind
        if processes == 1:  # torchrun with one process
            return (backend, kinds.NO) if _is_chosen() or _is_left_open() else (found, kind)
        if not _is_chosen():
            if not _is_left_open():
                return found, kind
            how = "on CUDA, without gradients" if kind == kinds.MULTI_GPU else "alone, on the CPU"
            raise _refusal(f"each of the {processes} processes would train {how}")
        torch_ocl.set_device(int(os.environ["LOCAL_RANK"]) % torch_ocl.device_count())
        # The kind decides how a model is wrapped: this one gives DistributedDataParallel no device numbers of CUDA.
        return backend or "cpu:gloo,ocl:ocl", kinds.MULTI_CPU

    def _default_device(self: Any) -> torch.device:
        found: torch.device = default_device(self)
        if found.type == "cuda" and _is_left_open():
            raise _refusal("the process would train on CUDA, without gradients")
        return found

    state._prepare_backend, state.default_device = (
        _prepare_backend,
        property(_default_device, doc=default_device.__doc__),
    )


def register_trainer(module: ModuleType) -> None:
    """Replaces a property of `module`, transformers.training_args."""
    arguments: Any = module.__dict__["TrainingArguments"]
    original = arguments.__dict__["_setup_devices"].func

    @functools.wraps(original)
    def _setup_devices(self: Any) -> torch.device:
        found: torch.device = original(self)
        state = self.distributed_state
        if found.type != "cuda" or state is None or state.device.type != "ocl":
            return found
        self._n_gpu = 1
        return state.device  # type: ignore[no-any-return]

    arguments._setup_devices = functools.cached_property(_setup_devices)
    arguments._setup_devices.__set_name__(arguments, "_setup_devices")
