# torch_ocl_compile/compile/overlaps.py: calls of a graph whose arguments lie or overlap in memory in another way than when it
# was compiled.
"""If arguments overlap and one of them is written, AOTAutograd replaces them by one argument: the tensor that they are views
of, their base. The compiled graph depends on which arguments overlap, on their offsets and on the shape of the base.
A graph whose as_strided names a position in memory depends on the offsets of all arguments. Dynamo's guards contain none
of these, so it may call a graph with arguments that do not fit. This module compares them at each call of a graph that
writes or names a position, and compiles the graph anew where they differ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._ops import HigherOrderOperator
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_ocl_compile import _C
from torch_ocl_compile.fx.effects import Effect, effect_of, named_arguments

log = logging.getLogger(__name__)

# Describes the arguments that overlap, or where arguments lie. A number is None where it is symbolic, that is, where the graph
# takes any number.
Overlaps = tuple[Any, ...]

MOST_GRAPHS = 8  # Calls with still others, and all with jagged tensors, run the graph of Dynamo op by op.


def guarded(gm: torch.fx.GraphModule, inputs: Sequence[Any], compiled: Any, compile_for: Callable[..., Any]) -> Any:
    """Returns `compiled`, with the comparison in front if the graph may write or names a position. `compile_for`: compiles
    a list of fake inputs."""
    nodes = [node for part in gm.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes]
    writes = any(effect_of(node) not in (None, Effect.RANDOM, Effect.CHECK) for node in gm.graph.nodes)
    positions = any(
        "as_strided" in str(n.target) and named_arguments(n).get("storage_offset") is not None for n in nodes
    )
    if not writes and not positions:
        return compiled
    return _Guarded(gm, inputs, compiled, compile_for, positions)


class _Guarded:
    def __init__(
        self,
        gm: torch.fx.GraphModule,
        inputs: Sequence[Any],
        compiled: Any,
        compile_for: Callable[..., Any],
        positions: bool,
    ) -> None:
        self.gm, self.compiled, self.compile_for, self.positions = gm, compiled, compile_for, positions
        self.expected: Overlaps = (overlaps_of(inputs), self._offsets(inputs))
        self.others: dict[Any, Any] = {}

    def _offsets(self, inputs: Sequence[Any]) -> Overlaps:
        if not self.positions:
            return ()
        return tuple(
            _hint(x.storage_offset()) for x in inputs if isinstance(x, torch.Tensor) and x.layout == torch.strided
        )

    def __call__(self, *args: Any) -> Any:
        found = (overlaps_of(args) if _C.any_overlap(args) else (), self._offsets(args))
        if found == self.expected or agree(self.expected, found):
            return self.compiled(*args)
        key = (found, tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in args))
        if key not in self.others:
            log.info(
                "a graph's arguments lie in memory in another way than before: %s instead of %s", found, self.expected
            )
            # The ragged size of a jagged tensor is a number of Dynamo's, which a second trace cannot have.
            jagged = any(is_traceable_wrapper_subclass(x) for x in args)
            many = len(self.others) >= MOST_GRAPHS
            self.others[key] = self.gm if many or jagged else self._compile(args)
        return self.others[key](*args)

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def _compile(self, args: Sequence[Any]) -> Any:
        # Ops such as while_loop make symbols. Without them, none stands for the offset of an argument in its memory.
        makes_symbols = any(isinstance(node.target, HigherOrderOperator) for node in self.gm.graph.nodes)
        mode = torch._subclasses.FakeTensorMode(shape_env=ShapeEnv() if makes_symbols else None)
        with torch._guards.tracing(torch._guards.TracingContext(mode)):
            inputs = [mode.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) else x for x in args]
            return self.compile_for(inputs)


def views_of_bases(inputs: Sequence[Any]) -> Any:
    """A context for AOTAutograd. If arguments overlap, it makes a result that is a view of one by strides and offset:
    the view ops that it recorded begin at the argument, but it would apply them to the base."""
    replays = functorch_config.view_replay_for_aliased_outputs and not overlaps_of(inputs)
    return functorch_config.patch(view_replay_for_aliased_outputs=replays)


def overlaps_of(inputs: Sequence[Any]) -> Overlaps:
    """Describes each set of inputs that overlap: positions and offsets of the inputs, and what AOTAutograd makes their
    base from.
    """
    sharing: dict[int, list[int]] = {}
    for i, x in enumerate(inputs):
        if isinstance(x, torch.Tensor) and x.layout == torch.strided:
            sharing.setdefault(x.untyped_storage()._cdata, []).append(i)
    found = []
    for members in sharing.values():
        touching = _touching({i: _extent(inputs[i]) for i in members})
        if touching:
            found.append((tuple((i, _known(inputs[i].storage_offset())) for i in touching), _base(inputs[touching[0]])))
    return tuple(found)


def agree(expected: Any, found: Any) -> bool:
    """Compares two descriptions. None in the first one agrees with any number."""
    if isinstance(expected, tuple):
        return (
            isinstance(found, tuple)
            and len(expected) == len(found)
            and all(agree(a, b) for a, b in zip(expected, found, strict=True))
        )
    return expected is None or bool(expected == found)


def _touching(extents: dict[int, tuple[int, int]]) -> list[int]:
    """Returns the keys of the extents that meet another one."""
    found: set[int] = set()
    widest: int | None = None  # The one that ends last, of those that begin before the current one.
    for i in sorted(extents, key=lambda i: extents[i]):
        first, end = extents[i]
        if first == end:
            continue
        if widest is not None and first < extents[widest][1]:
            found |= {i, widest}
        if widest is None or end > extents[widest][1]:
            widest = i
    return sorted(found)


def _extent(x: torch.Tensor) -> tuple[int, int]:
    """Returns the bytes of the storage from the first to the last element: (first, end). Equal numbers for an empty tensor."""
    sizes, size = [_hint(n) for n in x.shape], x.element_size()
    first = _hint(x.storage_offset())
    last = first + sum((n - 1) * _hint(stride) for n, stride in zip(sizes, x.stride(), strict=True))
    return first * size, first * size if 0 in sizes else (last + 1) * size


def _base(x: torch.Tensor) -> Overlaps:
    if x._base is None:
        return (_known(x.untyped_storage().nbytes()),)
    return tuple(tuple(_known(n) for n in numbers) for numbers in (x._base.shape, x._base.stride()))


def _known(n: Any) -> int | None:
    """Returns None for a symbolic number."""
    return n if isinstance(n, int) else None


def _hint(n: Any) -> int:
    """Returns the number of the inputs that the graph is traced with."""
    return n if isinstance(n, int) else int(n.node.hint)
