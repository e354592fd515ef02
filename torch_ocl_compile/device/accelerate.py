# torch_ocl_compile/device/accelerate.py: processes of torchrun train together with accelerate, and with transformers.
"""accelerate has a fixed list of device types. Under torchrun, it takes a device outside of its list for a single process, so that
each process would train alone, without a word. If torch has CUDA, it takes CUDA, which has no backward beside ocl."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

import torch

from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.errors import ConfigError

VARIABLE = "ACCELERATE_TORCH_DEVICE"


def register_with(module: ModuleType) -> None:
    """Replaces a method of `module`, accelerate.state."""
    state: Any = module.PartialState
    kinds: Any = module.DistributedType
    original = state._prepare_backend

    @functools.wraps(original)
    def _prepare_backend(self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None) -> Any:
        found, kind = original(self, cpu, sagemaker_dp, backend)
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if cpu or kind not in (kinds.NO, kinds.MULTI_GPU) or processes == 1 or "LOCAL_RANK" not in os.environ:
            return found, kind
        chosen = torch.device(os.environ.get(VARIABLE, "cpu")).type
        if chosen != "ocl":
            if VARIABLE in os.environ or torch._C._get_accelerator().type != "ocl":
                return found, kind
            how = "on CUDA, without gradients" if kind == kinds.MULTI_GPU else "alone, on the CPU"
            raise ConfigError(
                f"accelerate does not know the device ocl: each of the {processes} processes would train {how}.\n"
                f"  do: set {VARIABLE}=ocl in the environment, or ACCELERATE_USE_CPU=1 to train on the CPU"
            )
        torch_ocl.set_device(int(os.environ["LOCAL_RANK"]) % torch_ocl.device_count())
        # The kind decides how a model is wrapped: this one gives DistributedDataParallel no device numbers of CUDA.
        return backend or "cpu:gloo,ocl:ocl", kinds.MULTI_CPU

    state._prepare_backend = _prepare_backend
