# torch_ocl_compile/compile/cache_key.py: makes the part of a stored graph's key that does not come from Dynamo's graph.
"""AOTAutograd's own key covers the graph, the inputs, and settings of AOTAutograd. Its part about Inductor is left out,
because computing it loads all code generators of Inductor, which takes seconds. Measured choices of kernels are not
part of the key: a stored graph is scheduled when it is loaded, with the choices known then."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols

from torch_ocl_compile import identity
from torch_ocl_compile.compile import foreign_ops, overlaps, python_code
from torch_ocl_compile.compile.float_guards import floats_of
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core.context import allows_tf32
from torch_ocl_compile.lowering.core.registry import LOWERINGS


def key(gm: torch.fx.GraphModule, settings: Mapping[str, Any], inputs: Sequence[Any]) -> str:
    """Returns the key. `settings`: options of scope "compile". UnsupportedError if something has no name that other
    processes know."""
    foreign_ops.check_inputs(inputs)
    parts = [
        of_code(),
        sorted(settings.items()),
        [identity.of_device(index) for index in devices(inputs)],
        torch_settings(),
        foreign_ops.identity_of(gm),
        size_bounds(inputs),
        overlaps.overlaps_of(inputs),
        foreign_functions([torch._decomp.decomposition_table, inductors_table(), LOWERINGS]),
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def torch_settings() -> list[Any]:
    """Returns settings of torch that change a graph, if AOTAutograd's own key lacks them in some version."""
    autocast = [
        (device, torch.get_autocast_dtype(device))
        for device in torch._C._autocast_supported_devices()
        if torch.is_autocast_enabled(device)
    ]
    deterministic: Any = torch.utils.deterministic
    # The switches of torch.backends.cuda for attention apply to every device.
    cuda: Any = torch.backends.cuda
    attention = (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled())
    return [
        (torch.__version__, torch.version.git_version),
        (torch.get_default_dtype(), autocast, allows_tf32(), torch.compiler.config.cache_key_tag),
        (torch.are_deterministic_algorithms_enabled(), deterministic.fill_uninitialized_memory),
        (torch.get_float32_matmul_precision(), attention),
        inductor_options(),
    ]


def inductor_options() -> list[tuple[str, str]]:
    """Returns options of Inductor, which PyTorch's decompositions and its partitioner read.

    Options that name folders are left out: torch makes one of them from the working directory.
    """
    inductor: Any = torch._inductor.config
    return sorted(
        (name, repr(value)) for name, value in inductor.save_config_portable(ignore_private_configs=False).items()
    )


def inductors_table() -> Mapping[Any, Any]:
    """Returns Inductor's decompositions, if they are loaded. If not, nobody can have added to them."""
    module = sys.modules.get("torch._inductor.decomposition")
    return getattr(module, "decompositions", {})


def of_code() -> str:
    """Identifies the code that this process runs. UnsupportedError if that is impossible."""
    found = identity.of_code()
    if not found:
        raise UnsupportedError(
            "a source of torch_ocl_compile has changed since this process began, or its extension has no hash"
        )
    return found


def devices(inputs: Iterable[Any]) -> list[int]:
    """Returns the devices that a graph may run on: the devices of its inputs, then the current one."""
    ours = torch._C._get_privateuse1_backend_name()
    found = set()
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.device.type == ours and value.device.index is not None:
            found.add(value.device.index)
    current = torch.accelerator.current_device_index()
    return [*sorted(found), *([] if current in found else [current])]


def size_bounds(inputs: Iterable[Any]) -> list[str]:
    """Returns what is known of symbolic sizes and floats before a graph is traced: ranges, and conditions of the frame. A plan may
    rely on them, and a stored graph brings them along."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
        return []
    values = list(inputs)
    symbols = {s for value in [*values, *floats_of(values)] for s in free_symbols(value)}
    env = context.fake_mode.shape_env
    guards = {str(guard.expr) for guard in env.guards if guard.expr.free_symbols <= symbols}
    return [*sorted(f"{s} in {env.var_to_range.get(s)}" for s in symbols), *sorted(guards)]


def foreign_functions(tables: Iterable[Mapping[Any, Any]]) -> list[tuple[str, str]]:
    """Returns (op, digest of its function) for decompositions and lowerings that come neither from torch nor from this package."""
    return sorted(
        (str(op), python_code.digest([function], f"the function that compiles {op}", foreign_ops.describe_op))
        for table in tables
        for op, function in table.items()
        if not identity.covers(function)
    )
