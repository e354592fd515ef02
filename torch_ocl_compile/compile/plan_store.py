# torch_ocl_compile/compile/plan_store.py: connects AOTAutograd's cache with our cache file: keys and entries.
"""AOTAutograd looks up a graph of Dynamo before it traces it. torch would keep entries in a folder below /tmp that
others may be able to create. An entry is a pickle, which can run code. So entries go where the kernels go: into a
file that only the user can change, with a limit on its size and a checksum for each entry (docs/cache.md).

Four functions of torch are wrapped for this. For graphs of other backends they behave as before:

FxGraphHashDetails.__init__                decides what of Inductor is part of a key; for our graphs nothing, see cache_key.py
AOTAutogradCache.iterate_over_candidates   finds the entries of a key
AOTAutogradCache._write_to_local_cache     stores an entry
AOTAutogradCache.make_entry                makes an entry; ours contain the compiled graphs, others contain keys of Inductor's cache
"""

from __future__ import annotations

import inspect
import logging
import pickle
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._inductor.codecache import FxGraphHashDetails

from torch_ocl_compile import _C, config, identity
from torch_ocl_compile.compile import ahead, cache_key, float_guards, stored_plan
from torch_ocl_compile.compile.stored_plan import CompiledGraph
from torch_ocl_compile.errors import OclError

log = logging.getLogger(__name__)

MOST_ENTRIES = 8  # At most this many entries of one key are kept. They differ in their guards on sizes.
# torch stores no graph with a private function of torch, or with one of ours. These are safe: the graph's text, which is part of
# the key, has their arguments.
_CACHEABLE = (
    "torch.amp.autocast_mode._enter_autocast",
    "torch.amp.autocast_mode._exit_autocast",
    "torch_ocl_compile.device.compiled_optimizers.adam_in_one_call",
)
_OURS = stored_plan.__name__.encode()  # The module that pickle names in our entries.
# (class, function, the parameters that the function must have)
_WRAPPED: list[tuple[Any, str, list[str]]] = [
    (FxGraphHashDetails, "__init__", ["self", "gm", "example_inputs", "fx_kwargs", "inputs_to_check"]),
    (AOTAutogradCache, "iterate_over_candidates", ["local", "remote_cache", "key"]),
    (AOTAutogradCache, "_write_to_local_cache", ["key", "content"]),
    (AOTAutogradCache, "make_entry", []),
]


class _Lookup(threading.local):
    """The key of this thread's compilation. "" outside of our compilations."""

    key = ""
    prefix = ""
    missed: Callable[[], None] = staticmethod(lambda: None)  # called if the cache has no such graph


_lookup = _Lookup()
_prefixes: dict[str, str] = {}  # AOTAutograd's key of a graph -> prefix of its key in our cache


@contextmanager
def lookup(gm: torch.fx.GraphModule, settings: dict[str, Any], inputs: Sequence[Any]) -> Iterator[bool]:
    """Wraps one call of AOTAutograd. Yields whether graphs may be found and stored."""
    config.configure_core()
    reason = _reason_against(settings, inputs)
    key = prefix = ""
    if not reason:
        try:
            key = cache_key.key(gm, settings, inputs)
            prefix = identity.entry_prefix(cache_key.devices(inputs)[0])
        except (OclError, OSError) as error:  # OSError: a source file cannot be read.
            reason = str(error)
    if reason:
        log.info("graphs are neither stored nor loaded: %s", reason)
        ahead.expect_kernels(gm, inputs)
        yield False
        return
    before = _lookup.key, _lookup.prefix, _lookup.missed
    _lookup.key, _lookup.prefix, _lookup.missed = key, prefix, partial(ahead.expect_kernels, gm, inputs)
    inductor: Any = torch._inductor.config
    cacheable = {**inductor.unsafe_marked_cacheable_functions, **dict.fromkeys(_CACHEABLE, "")}
    try:
        with inductor.patch(unsafe_marked_cacheable_functions=cacheable):
            yield True
    finally:
        _lookup.key, _lookup.prefix, _lookup.missed = before


def _reason_against(settings: dict[str, Any], inputs: Sequence[Any]) -> str:
    if any(isinstance(x, torch.Tensor) and x.is_nested for x in inputs):
        return "torch makes no key for nested tensors"
    if settings.get("interpret"):
        return "the option interpret runs them op by op"
    if config.get("dump"):
        return "a dump needs the graphs that are traced"
    if not _C.exec.cache_stats().get("enabled"):
        return "there is no cache"
    return install()


@cache
def install() -> str:
    """Wraps torch's functions, once. Returns why that is impossible, or ""."""
    for owner, name, expected in _WRAPPED:
        function = getattr(owner, name, None)
        if function is None or (expected and list(inspect.signature(function).parameters) != expected):
            return f"torch {torch.__version__} has no {owner.__name__}.{name} that is known"
    unknown = float_guards.install(lambda: bool(_lookup.key))
    if unknown:
        return unknown
    describe, find, write, make = (getattr(owner, name) for owner, name, _ in _WRAPPED)

    def describe_graph(self: Any, gm: Any, example_inputs: Any, fx_kwargs: Any, inputs_to_check: Any) -> None:
        if not _lookup.key:
            describe(self, gm, example_inputs, fx_kwargs, inputs_to_check)
        else:
            self.gm, self.example_inputs, self.ocl = gm, list(example_inputs), _lookup.key

    def iterate_over_candidates(cls: Any, local: bool, remote_cache: Any, key: str) -> Any:
        if not _lookup.key:
            return find(local, remote_cache, key)
        _prefixes[key] = _lookup.prefix
        return _candidates(_lookup.prefix + key) if local else find(False, remote_cache, key)

    def write_to_local_cache(key: str, content: bytes) -> None:
        if _OURS in content:
            if key in _prefixes:  # a training step is stored after its first backward, when its lookup is over
                _store(_prefixes[key] + key, content)
        else:
            write(key, content)

    def make_entry(*args: Any, **kwargs: Any) -> Any:
        forward = kwargs["compiled_fw_func"] if "compiled_fw_func" in kwargs else args[0]
        while hasattr(forward, "__wrapped__"):
            forward = forward.__wrapped__
        if not isinstance(forward, CompiledGraph):
            return make(*args, **kwargs)
        with functorch_config.patch(bundled_autograd_cache=True):
            return make(*args, **kwargs)

    details: Any = FxGraphHashDetails
    details.__init__ = describe_graph
    replaced: Any = AOTAutogradCache
    replaced.iterate_over_candidates = classmethod(iterate_over_candidates)
    replaced._write_to_local_cache = staticmethod(write_to_local_cache)
    replaced.make_entry = staticmethod(make_entry)
    return ""


def _candidates(key: str) -> Iterator[tuple[Any, bytes, bool]]:
    """Yields (entry, its pickle, True) for each stored entry, latest first. True says that the entry comes from this
    machine.
    """
    contents = _contents(key)
    if not contents:
        _lookup.missed()
    for content in contents:
        try:
            entry = pickle.loads(content)
            # torch forbids retain_graph=True if backward overwrites what was saved. CompiledGraph has a second plan for
            # this case.
            entry.runtime_metadata.bw_donated_idxs = []
            entry.compiled_fw.result.tokens = len(entry.runtime_metadata.tokens)
        except Exception as error:
            _drop(key, error)
            return
        yield entry, content, True


def _contents(key: str) -> list[bytes]:
    value = _C.exec.cache_find("graphs", key)
    if not value:
        return []
    try:
        found = pickle.loads(zlib.decompress(value))
        return [content for content in found if isinstance(content, bytes)]
    except Exception as error:
        _drop(key, error)
        return []


def _drop(key: str, error: Exception) -> None:
    log.warning("a stored graph cannot be read and is compiled anew: %s: %s", type(error).__name__, error)
    _C.exec.cache_erase("graphs", key)


def _store(key: str, content: bytes) -> None:
    contents = [content, *(c for c in _contents(key) if c != content)][:MOST_ENTRIES]
    _C.exec.cache_store("graphs", key, zlib.compress(pickle.dumps(contents), 1))


def serializable(compiler: Any) -> Any:
    """Makes a compiler whose results AOTAutograd stores."""
    return SerializableAOTDispatchCompiler(CompiledGraph, compiler)
