# torch_ocl_compile/device/dynamo_interface.py: the interface through which torch._dynamo uses the device.
from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from torch_ocl_compile.device import torch_ocl as ocl


def register_interface(module: ModuleType) -> None:
    """Registers one interface for "ocl" and for each "ocl:i" that can exist. `module` is
    torch._dynamo.device_interface."""

    class OclInterface(module.DeviceInterface):  # type: ignore[misc, name-defined]
        device = torch.accelerator.device_index
        Event = torch.Event
        Stream = torch.Stream

        class Worker:
            set_device = staticmethod(torch.accelerator.set_device_index)
            current_device = staticmethod(torch.accelerator.current_device_index)
            get_device_properties = staticmethod(ocl.get_device_properties)

        current_device = staticmethod(torch.accelerator.current_device_index)
        set_device = staticmethod(torch.accelerator.set_device_index)
        device_count = staticmethod(ocl.device_count)
        is_available = staticmethod(ocl.is_available)
        current_stream = staticmethod(torch.accelerator.current_stream)
        set_stream = staticmethod(torch.accelerator.set_stream)
        stream = staticmethod(ocl.stream)
        synchronize = staticmethod(ocl.synchronize)
        exchange_device = staticmethod(ocl._exchange_device)
        maybe_exchange_device = staticmethod(ocl._maybe_exchange_device)
        memory_allocated = staticmethod(ocl.memory_allocated)
        get_device_properties = staticmethod(ocl.get_device_properties)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return torch.accelerator.current_stream(device_idx).stream_id

        @staticmethod
        def get_compute_capability(device: Any = None) -> str:
            return ocl.get_device_properties(device).driver

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return including_emulation  # bf16 is stored with 16 bits and computed in float32.

        @staticmethod
        def is_dtype_supported(dtype: torch.dtype, including_emulation: bool = False) -> bool:
            if dtype in (torch.float64, torch.complex128):
                return ocl.get_device_properties().has_fp64
            return True

        @staticmethod
        def is_triton_capable(device: Any = None) -> bool:
            return False

    module.register_interface_for_device("ocl", OclInterface)
    for index in range(16):
        module.register_interface_for_device(f"ocl:{index}", OclInterface)
