# torch_ocl_compile/lightning.py: OclAccelerator, which lets the Trainer of Lightning use ocl devices.
"""Trainer(strategy=SingleDeviceStrategy("ocl", OclAccelerator())). docs/libraries.md says why the strategy is needed."""

from __future__ import annotations

from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.accelerators import Accelerator

from torch_ocl_compile.device import torch_ocl


class OclAccelerator(Accelerator):
    """OpenCL devices, for Trainer and Fabric. `devices` is a number of devices, their indices, or "auto" for all."""

    def setup_device(self, device: torch.device) -> None:
        """Makes `device` the current one."""
        if device.type != "ocl":
            raise MisconfigurationException(
                f"the strategy runs on '{device}', not on an ocl device.\n"
                "  do: for one device, pass strategy=SingleDeviceStrategy('ocl', OclAccelerator()) and no accelerator"
            )
        torch_ocl.set_device(device)

    def teardown(self) -> None:
        """Gives cached memory back."""
        torch_ocl.empty_cache()

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """What the callback DeviceStatsMonitor logs."""
        return torch_ocl.memory_stats(device)

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """The indices of the devices: 2 -> [0, 1], "1" -> [0], "0,1" -> [0, 1]."""
        if isinstance(devices, str):
            devices = [int(index) for index in devices.split(",") if index] if "," in devices else int(devices)
        if isinstance(devices, int):
            devices = list(range(devices if devices >= 0 else torch_ocl.device_count()))
        missing = [index for index in devices if not 0 <= index < torch_ocl.device_count()]
        if missing:
            raise MisconfigurationException(f"there is no device ocl:{missing[0]}; `torch-ocl devices` lists them")
        return devices

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """One device for each process."""
        return [torch.device("ocl", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """How many devices devices="auto" means."""
        return torch_ocl.device_count()

    @staticmethod
    def is_available() -> bool:
        """True if there is an OpenCL device."""
        return torch_ocl.is_available()

    @staticmethod
    def name() -> str:
        """The name in the registry of accelerators."""
        return "ocl"
