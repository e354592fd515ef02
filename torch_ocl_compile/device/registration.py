# torch_ocl_compile/device/registration.py: registers the device `ocl` with torch: its name, its module, its Tensor methods.
"""Runs once, in `import torch` or `import torch_ocl_compile`. It loads the extension, but no OpenCL runtime."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import pkgutil
import sys
import time
import warnings
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from torch_ocl_compile.errors import ConfigError, UnsupportedError

# Modules, and the functions of this folder that adapt them after they have been imported.
ADAPTED = (
    ("torch._dynamo.device_interface", "dynamo_interface.register_interface"),
    ("torch._dynamo.backends.distributed", "distributed_data_parallel.keep_graphs_whole"),
    ("torch._dynamo.variables.optimizer", "compiled_optimizers.register"),
    ("torch._inductor.compile_fx", "default_backend.register"),
    ("torch._subclasses.fake_impls", "fake_rules.register"),
    ("torch.nn.attention.flex_attention", "flex_attention.register"),
    ("torch.nested._internal.ops", "jagged_attention.register_with"),
    ("torch.compiler._cache", "artifacts.register"),
    ("torch.distributed.distributed_c10d", "distributed.register_with"),
    ("torch.distributed.distributed_c10d", "distributed_data_parallel.broadcast_together"),
    ("torch.multiprocessing.reductions", "process_queues.refuse_storages"),
    ("multiprocessing.queues", "process_queues.check_queues"),
    ("torch.nn.parallel.comm", "data_parallel.register_with"),
    ("torch.nn.parallel.distributed", "distributed_gradients.register_with"),
    ("torch.nn.parallel.parallel_apply", "data_parallel.register_parallel_apply"),
    ("accelerate.state", "accelerate.register_with"),
    ("transformers.training_args", "accelerate.register_trainer"),
    ("lightning.pytorch.trainer.connectors.accelerator_connector", "lightning_trainer.register_with"),
    ("pytorch_lightning.trainer.connectors.accelerator_connector", "lightning_trainer.register_with"),
    ("lightning.fabric.connector", "lightning_trainer.register_with"),
    ("lightning_fabric.connector", "lightning_trainer.register_with"),
)
_registered = False
_ATEN = torch.library.Library("aten", "IMPL")


def wanted() -> bool:
    """True if `import torch` alone should register the device.

    torch has one accelerator per process, and a registered private device becomes it. CUDA tensors then fail in
    backward ("opt_parent_stream INTERNAL ASSERT"). So a torch with CUDA devices keeps CUDA until `import
    torch_ocl_compile` asks for ocl. TORCH_OCL_AUTOLOAD=always or never decides otherwise.
    """
    from torch_ocl_compile.device import environment

    choice = environment.value("autoload")
    if choice != "auto":
        return choice == "always"
    return not (torch.backends.cuda.is_built() and torch.cuda.device_count() > 0)


def register() -> None:
    """Registers the device once. ImportError if the extension does not load. RuntimeError if another plug-in has the
    private device. A wrong environment variable is raised by the first use of a device, because `import torch` turns errors into
    warnings."""
    global _registered
    if _registered:
        return
    from torch_ocl_compile import _C, config, identity  # noqa: F401  (identity records when the package was loaded)
    from torch_ocl_compile.device import environment, runtimes, torch_ocl

    value = environment.value
    _C.set_device_fault(environment.fault())
    _C.set_device_sources(
        str(value("devices")), runtimes.vendor_libraries(), str(value("profile")), str(value("library"))
    )
    _C.set_configure(config.configure_core)
    _C.allow_wrong_runtimes(bool(value("untested")))
    _C.set_fallback_warnings(bool(value("warn_fallback")))
    _run_eager_ops(str(value("eager")))
    _forbid_fallback(str(value("fallback")))
    config.follow("untested", _C.allow_wrong_runtimes)
    config.follow("warn_fallback", _C.set_fallback_warnings)
    config.follow("fallback", _forbid_fallback)
    config.follow("eager", _run_eager_ops)
    for name in ("devices", "library", "profile"):
        config.follow(name, partial(_choose_devices, name))
    config.follow("autoload", _refuse_autoload)
    utils: Any = torch.utils
    utils.rename_privateuse1_backend("ocl")
    torch._register_device_module("ocl", torch_ocl)
    utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    _C.register_profilers()
    _print_from_the_cpu()
    _register_ctc_loss()
    _pass_autocast_through()
    _ATEN.impl("empty_quantized", _refuse_quantized, "QuantizedPrivateUse1")
    _C.set_before_first_use(adapt_torch)
    _when_imported("torch_ocl_compile.compile.backend", lambda _: adapt_torch())
    _when_imported("torch._dynamo.trace_rules", _keep_dynamo_out)
    for name, where in ADAPTED:
        _when_imported(name, partial(_adapt, where))
    atexit.register(_end)
    _registered = True


def adapt_torch() -> None:
    """Changes settings of torch that concern the whole process. Called when the first tensor gets memory on a device,
    or the backend is loaded, so that a program that only uses the CPU finds torch as it is."""
    from torch_ocl_compile.device import environment, fx_flag

    for problem in environment.unknown():
        warnings.warn(problem, stacklevel=2)
    fx_flag.install()
    # The fast paths of nn.TransformerEncoder and MultiheadAttention use an op that only CUDA and the CPU have.
    torch.backends.mha.set_fastpath_enabled(False)


def _refuse_quantized(*args: Any, **kwargs: Any) -> Any:
    raise UnsupportedError(
        "ocl devices hold no quantized tensors (torch.qint8, torch.quint8).\n  do: use torch.fake_quantize_per_tensor_affine, "
        "keep integers beside a scale as torchao does, or call .dequantize() on the CPU first."
    )


def _register_ctc_loss() -> None:
    """Registers the ops of ctc_loss outside of compiled functions. Their formulas are imported by the first call."""

    def run(name: str, *args: Any) -> Any:
        from torch_ocl_compile.eager import ctc

        return ctc.run(name, *args)

    for packet in ("_ctc_loss", "_ctc_loss_backward"):
        for overload in ("default", "Tensor"):
            name = packet if overload == "default" else f"{packet}.{overload}"
            _ATEN.impl(name, partial(run, f"{packet}.{overload}"), "PrivateUse1")


def _pass_autocast_through() -> None:
    """Makes torch.cond, while_loop, scan and other ops that call functions pass autocast on to the ops inside, as torch makes
    them do for the devices it knows. Without a rule they raise an error."""
    ops: Any = torch._ops
    autocast: Any = torch._C.DispatchKey.__members__["AutocastPrivateUse1"]
    ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(autocast)
    for op in ops._higher_order_ops.values():
        if autocast not in op.py_kernels:
            op.fallthrough(autocast)


def _run_eager_ops(how: str) -> None:
    """Applies the option `eager`."""
    from torch_ocl_compile import _C

    _C.compile_eager_ops(how == "compile")


def _forbid_fallback(choice: str) -> None:
    """Applies the option `fallback` to eager ops. Compiled functions read the option when they are compiled."""
    from torch_ocl_compile import _C

    _C.set_fallback_forbidden(choice == "error")


def _choose_devices(name: str, value: str) -> None:
    """Applies a new value of the option `devices`, `library` or `profile`. ConfigError if a device has already been used."""
    from torch_ocl_compile import _C, config
    from torch_ocl_compile.device import runtimes

    of = {option: str(config.get(option)) for option in ("devices", "library", "profile")} | {name: value}
    if _C.set_device_sources(of["devices"], runtimes.vendor_libraries(), of["profile"], of["library"]):
        return
    if value == config.get(name):
        return
    raise ConfigError(
        f"option {name!r}: {value!r} comes too late, the devices have been listed and may hold tensors.\n"
        "  do: set it right after `import torch_ocl_compile`, before anything uses a device (device_count() does), or in the "
        f"environment: TORCH_OCL_{name.upper()}"
    )


def _refuse_autoload(choice: str) -> None:
    """Refuses a new value of the option `autoload`, because `import torch` has already read it."""
    from torch_ocl_compile import config

    if choice != config.get("autoload"):
        raise ConfigError(
            f"option 'autoload': {choice!r} comes too late, `import torch` has read it.\n"
            "  do: set the environment variable TORCH_OCL_AUTOLOAD before Python starts"
        )


def _print_from_the_cpu() -> None:
    """Makes printing copy a tensor to the CPU first, as torch does for mps and xla. Otherwise it would take some twenty
    small ops."""
    module: Any = torch._tensor_str
    original = module._tensor_str

    def _tensor_str(self: torch.Tensor, indent: int) -> Any:
        return original(self.cpu() if self.device.type == "ocl" and not self.is_meta else self, indent)

    module._tensor_str = _tensor_str


def _end() -> None:
    """Waits for threads that work for us, because the interpreter is about to end.

    Autograd's device thread may still be destroying the last graph, which aborts the process on Python 3.11 with any
    accelerator. Threads of an OpenCL runtime may still compile or run kernels. Then the cache is put into one file.
    """
    from torch_ocl_compile import _C

    if _C.used_by_other_threads():
        time.sleep(0.1)
    _C.distributed.end_groups()
    if _C.devices_ready():
        _C.end_devices()
    _C.exec.checkpoint_cache()


def _adapt(where: str, module: ModuleType) -> None:
    """Imports and calls a function of this folder, named as in ADAPTED."""
    file, _, function = where.partition(".")
    getattr(importlib.import_module(f"torch_ocl_compile.device.{file}"), function)(module)


def _keep_dynamo_out(module: ModuleType) -> None:
    """Keeps Dynamo from compiling frames of this package. It may compile only device/current.py, device/flex_attention.py,
    the tools and the code of user kernels."""
    device = Path(__file__).parent
    for part in pkgutil.iter_modules([str(device.parent)], "torch_ocl_compile."):
        if part.name not in (
            "torch_ocl_compile._C",
            "torch_ocl_compile.device",
            "torch_ocl_compile.tools",
            "torch_ocl_compile.user_kernel",
        ):
            module.add(part.name)
    for part in pkgutil.iter_modules([str(device)], "torch_ocl_compile.device."):
        if part.name not in ("torch_ocl_compile.device.current", "torch_ocl_compile.device.flex_attention"):
            module.add(part.name)


class _AfterImport(MetaPathFinder, Loader):
    """Runs a function after a module has been imported. torch._dynamo must not be imported while `import torch` runs."""

    def __init__(self, name: str, action: Any) -> None:
        self._name, self._action = name, action
        self._busy = False

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name or self._busy:
            return None
        self._busy = True
        spec = importlib.util.find_spec(fullname)
        self._busy = False
        if spec is None or spec.loader is None:
            return None
        self._loader = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path.remove(self)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._action(module)


def _when_imported(name: str, action: Any) -> None:
    if name in sys.modules:
        action(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, action))
