# torch_ocl_compile/compile/stored_plan.py: packs a compiled graph for AOTAutograd's cache, and loads it.
"""An entry has the lowered graph: its recipe, as for eager ops (csrc/torch/recipe.cpp), and the functions of the
host. The schedule is not part of it, because it depends on measured choices of kernels, which may be newer than the entry. It is
kept beside the kernels, under a key of the entry and of these choices (csrc/exec/stored_plan.h).
"""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
from typing import Any

import torch
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache, FXGraphCacheMiss
from torch._inductor.output_code import OutputCode
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from torch_ocl_compile.compile import debug
from torch_ocl_compile.compile.bodies import Body, Names
from torch_ocl_compile.compile.call import Boxed
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.fx.host_function import HostFunction
from torch_ocl_compile.fx.overloads import overload

log = logging.getLogger(__name__)


class CompiledGraph(OutputCode):
    """A compiled graph for AOTAutograd, which calls it with one list. `reason` says why it cannot be stored, or is ""."""

    def __init__(self, run: Boxed, *, kind: str = "", body: Body = None, reason: str = "") -> None:
        self.run: Boxed | None = run
        self.kind = kind
        self.body = body
        self.reason = reason
        self.stored = b""
        self.tokens = 0  # Of a loaded graph: the number of tokens before its arguments and results.
        self._boxed_call = True
        self._time_taken_ns = 0
        # AOTAutograd does not store a graph without a key.
        self._fx_graph_cache_key = None if reason else "ocl"

    def __call__(self, args: Any) -> Any:
        return self.run(args)  # type: ignore[misc]

    def prepare_for_serialization(self) -> None:
        """AOTAutograd calls this on a copy that it is about to store."""
        try:
            if self.body is None:
                raise UnsupportedError(self.reason)
            self.stored = pack(self.body)
            names = Names("", _plan_key(self.stored))
            for plan in self.body.plans():
                plan.plan.keep(names.next(True)[1])
        except Exception as error:
            log.info("a graph cannot be stored and is compiled in each process: %s", error)
            raise BypassAOTAutogradCache(str(error)) from error
        self.run = self.body = None

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """AOTAutograd calls this on an entry that it has loaded. An error counts as a cache miss, and the graph is
        traced and compiled again."""
        try:
            with _disable_current_modes():
                body = unpack(self.stored)
                body.load(Names(debug.next_label(self.kind, loaded=True), _plan_key(self.stored)))
                self.run, self.body, self.stored = with_tokens(body.boxed(), self.tokens), body, b""
        except Exception as error:
            log.warning("a stored graph cannot be used and is compiled anew: %s", error)
            raise FXGraphCacheMiss(str(error)) from error

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass


def with_tokens(run: Boxed, number: int) -> Boxed:
    """Returns the graph without the tokens that order its effects, such as checks of errors. AOTAutograd leaves them out of the
    calls of a graph that it has traced, but not of one that it has loaded."""
    if number == 0:
        return run

    def call(args: list[Any]) -> Any:
        given = [*[None] * number, *args]
        args.clear()
        return run(given)[number:]

    return call


def pack(body: Body) -> bytes:
    """Packs a graph as bytes. Raises pickle's errors if something cannot be stored."""
    with _disable_current_modes(), io.BytesIO() as file:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(body)
        return file.getvalue()


def unpack(stored: bytes) -> Body:
    return pickle.loads(stored)


def _plan_key(stored: bytes) -> str:
    return hashlib.sha256(stored).hexdigest()


class _Pickler(pickle.Pickler):
    """Stores ops by name, FX graphs as text, and tensors on a device as copies on the host."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, OpOverload):
            return _op, (str(value),)
        if isinstance(value, GraphModule):
            return HostFunction.of(value).__reduce__()
        if isinstance(value, FakeTensor):
            raise UnsupportedError("it has a tensor without values")
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return _moved, (value.detach().cpu(), value.device)
        return NotImplemented


def _op(name: str) -> OpOverload:
    found = overload(name)
    if found is None:
        raise UnsupportedError(f"this torch has no op {name}")
    return found


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.to(device)
