# torch_ocl_compile/device/fx_flag.py: gives each thread its own flag "fx is tracing".
"""It is installed when the first tensor gets memory on a device or the backend is loaded, because it changes torch for
the whole process.

torch has one flag for the whole process. While make_fx or AOTAutograd trace in one thread, compiled functions in
other threads refuse to run ("using FX to symbolically trace a dynamo-optimized function"). Since torch 2.13, a
compilation by Dynamo hides the flag, but other traces do not."""

from __future__ import annotations

import functools
import threading
from types import ModuleType
from typing import Any

import torch
from torch.fx import _symbolic_trace


class _Thread(threading.local):
    is_tracing = False


_thread = _Thread()


class _WithFlagOfThread(ModuleType):
    """Replaces the class of the module torch.fx._symbolic_trace. torch's higher-order ops set the flag there by its
    name."""

    @property
    def _is_fx_tracing_flag(self) -> bool:
        return _thread.is_tracing

    @_is_fx_tracing_flag.setter
    def _is_fx_tracing_flag(self, on: bool) -> None:
        _thread.is_tracing = on


def is_fx_tracing() -> bool:
    fx: Any = _symbolic_trace
    fx.is_fx_tracing_warning()
    return _thread.is_tracing


def is_fx_symbolic_tracing() -> bool:
    return _thread.is_tracing and not torch.compiler.is_compiling()


def install() -> None:
    """Installs the flag, once. Call it before a function is compiled, because a compiled function keeps the check as it finds
    it. While a trace runs, nothing is installed, because that trace has set the flag of the process."""
    fx: Any = _symbolic_trace
    if isinstance(fx, _WithFlagOfThread) or vars(fx).get("_is_fx_tracing_flag") is not False:
        return
    original = fx.Tracer.trace

    @functools.wraps(original)
    def trace(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, _thread.is_tracing = _thread.is_tracing, True
        try:
            return original(self, *args, **kwargs)
        finally:
            _thread.is_tracing = before

    fx.Tracer.trace = trace
    fx.is_fx_tracing, fx.is_fx_symbolic_tracing = is_fx_tracing, is_fx_symbolic_tracing
    fx.__class__ = _WithFlagOfThread
