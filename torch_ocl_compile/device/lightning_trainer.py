# torch_ocl_compile/device/lightning_trainer.py: OclAccelerator, and what lets Lightning's Trainer and Fabric choose ocl devices.
"""Lightning has a registry of accelerators, but puts all of them except CUDA and MPS on the CPU when there is one device, runs mixed
precision for CUDA, and looks for a fixed list of devices if a program names none. register_with() replaces these three decisions
for ocl. Lightning comes as two packages, `lightning` and `pytorch_lightning` with `lightning_fabric`, each with a Trainer and Fabric,
and with classes of its own. So OclAccelerator derives from no class of theirs, and is registered with each Accelerator."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import torch

from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.errors import ConfigError


class OclAccelerator:
    """OpenCL devices, for Trainer and Fabric. `devices` is a number of devices, their indices, or "auto" for all."""

    def setup(self, trainer: Any) -> None:
        """Called by the Trainer; there is nothing to do."""

    def setup_device(self, device: torch.device) -> None:
        """Makes `device` the current one."""
        if device.type != "ocl":
            raise ConfigError(
                f"the strategy runs on '{device}', not on an ocl device.\n"
                "  do: pass no strategy, or SingleDeviceStrategy('ocl')"
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
            raise ConfigError(f"there is no device ocl:{missing[0]}; `torch-ocl devices` lists them")
        return devices

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """One device for each process."""
        return [torch.device("ocl", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """How many devices devices="auto" means: those from the first on that are like it. Other devices, such as a second runtime for
        the same CPU, are used only if a program asks for them."""
        first = torch_ocl.get_device_properties(0).name
        others = range(1, torch_ocl.device_count())
        return next((i for i in others if torch_ocl.get_device_properties(i).name != first), torch_ocl.device_count())

    @staticmethod
    def is_available() -> bool:
        """True if there is an OpenCL device."""
        return torch_ocl.is_available()

    @staticmethod
    def name() -> str:
        """The name in the registry of accelerators."""
        return "ocl"


def register_with(module: ModuleType) -> None:
    """Adds the accelerator "ocl". `module` is one that turns the arguments of a Trainer or of Fabric into a strategy."""
    names: Any = module
    package = module.__name__.split(".trainer.")[0].removesuffix(".connector")
    is_fabric = module.__name__.endswith(".connector")
    accelerators = importlib.import_module(f"{package}.accelerators")
    registry = accelerators.ACCELERATOR_REGISTRY if is_fabric else accelerators.AcceleratorRegistry
    names.Accelerator.register(OclAccelerator)
    if "ocl" not in registry:
        registry.register("ocl", OclAccelerator, description="OpenCL devices")
    connector = names._Connector if is_fabric else names._AcceleratorConnector
    _replace_choices(connector, names, "Fabric" if is_fabric else "The Trainer")
    ddp = importlib.import_module(f"{package}.strategies").DDPStrategy
    name = "_determine_ddp_device_ids" if is_fabric else "determine_ddp_device_ids"
    ddp_devices = getattr(ddp, name)

    @functools.wraps(ddp_devices)
    def determine_ddp_device_ids(self: Any) -> Any:
        """DDPStrategy uses CUDA's streams if there are numbers of devices."""
        return None if self.root_device.type == "ocl" else ddp_devices(self)

    setattr(ddp, name, determine_ddp_device_ids)


def _replace_choices(connector: Any, names: Any, who: str) -> None:
    """Replaces the three decisions. `names` has Lightning's classes."""
    choose_accelerator, choose_strategy = connector._choose_auto_accelerator, connector._choose_strategy
    choose_precision = connector._check_and_init_precision

    def _choose_auto_accelerator(self: Any) -> Any:
        """Takes ocl, if it is torch's accelerator and the program's strategy names no other device. CUDA would have no backward."""
        found = choose_accelerator()
        if torch._C._get_accelerator().type != "ocl" or not OclAccelerator.is_available():
            return found
        strategy = self._strategy_flag
        if isinstance(strategy, names.SingleDeviceStrategy) and strategy.root_device.type != "ocl":
            return "cpu" if strategy.root_device.type == "cpu" else found
        names.rank_zero_info(f"{who} uses ocl devices. To use the CPU, pass accelerator='cpu'.")
        return "ocl"

    @functools.wraps(choose_strategy)
    def _choose_strategy(self: Any) -> Any:
        found = choose_strategy(self)
        if isinstance(self.accelerator, OclAccelerator) and isinstance(found, names.SingleDeviceStrategy):
            return names.SingleDeviceStrategy(device=self._parallel_devices[0])
        return found

    @functools.wraps(choose_precision)
    def _check_and_init_precision(self: Any) -> Any:
        fabric = hasattr(self, "_precision_input")
        asked = self._precision_input if fabric else self._precision_flag
        given = self._precision_instance if fabric else self._precision_plugin_flag
        if asked in ("16-mixed", "bf16-mixed") and given is None and isinstance(self.accelerator, OclAccelerator):
            return names.MixedPrecision(asked, "ocl")
        return choose_precision(self)

    connector._choose_auto_accelerator = _choose_auto_accelerator
    connector._choose_strategy = _choose_strategy
    connector._check_and_init_precision = _check_and_init_precision
