# torch_ocl_compile/eager/tracing.py: records the aten ops of a function on fake tensors, without changing state of other threads.
"""make_fx would do the same, but it sets flags of the whole process while it traces. fx's flag "is tracing" makes
compiled functions in other threads refuse to run, and nn.Module.__call__ is replaced. Before torch 2.12 the table of
decompositions is replaced too. An eager op is traced at its first call, when other threads may be doing anything.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import extract_val
from torch.utils._python_dispatch import TorchDispatchMode, autograd_would_have_decomposed
from torch.utils._pytree import tree_leaves, tree_map

from torch_ocl_compile.fx import ops  # noqa: F401  (this import defines torch.ops.ocl.number)

aten = torch.ops.aten
# Ops that ask for a property of a tensor. The fake tensor answers them, and the graph gets no node for them.
QUESTIONS = {
    torch.ops.prim.device.default,
    aten.size.default,
    aten.stride.default,
    aten.storage_offset.default,
}


def trace(
    function: Callable[..., Sequence[torch.Tensor]],
    inputs: Sequence[Any],
    decompositions: Mapping[Any, Callable[..., Any]],
) -> GraphModule:
    """Returns the graph of a function whose inputs are fake tensors, SymInts and SymFloats. Each number that the
    function computes from sizes is one node, ocl::number. The lowering reads the number's expression.
    """
    recorder = _Recorder(decompositions)
    for position, value in enumerate(inputs):
        recorder.add_input(position, value)
    with recorder:
        results = function(*inputs)
    recorder.graph.output([recorder.node_of(result) for result in results])
    return GraphModule(recorder.owner, recorder.graph)


class _Recorder(TorchDispatchMode):
    """Adds a node for each op that returns tensors or has no result."""

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decompositions = decompositions
        self.owner = torch.nn.Module()  # Holds constants.
        self.graph = Graph()
        # The id of a tensor -> the tensor and its node. The tensor is kept too, so that no later tensor gets the same id.
        self.nodes: dict[int, tuple[torch.Tensor, Node]] = {}
        self.numbers: dict[Any, Node] = {}  # Expression -> node.

    def add_input(self, position: int, value: Any) -> None:
        node = self.graph.placeholder(f"arg{position}_1")
        node.meta["val"] = extract_val(value)
        if isinstance(value, torch.Tensor):
            self.nodes[id(value)] = (value, node)
        else:
            self.numbers[value.node.expr] = node

    def node_of(self, value: Any) -> Any:
        """Returns the node of a tensor or a symbolic number. Returns other values unchanged."""
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return self._number(value)
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.nodes:
            self.nodes[id(value)] = (value, self._constant(value))
        return self.nodes[id(value)][1]

    def _number(self, value: torch.SymInt | torch.SymFloat) -> Node:
        expr = value.node.expr
        if expr not in self.numbers:
            node = self.graph.call_function(torch.ops.ocl.number.default, (str(expr),))
            node.meta["val"] = value
            self.numbers[expr] = node
        return self.numbers[expr]

    def _constant(self, value: torch.Tensor) -> Node:
        name = f"_tensor_constant{len(self.nodes)}"
        setattr(self.owner, name, value)
        node = self.graph.get_attr(name)
        node.meta["val"] = extract_val(value)
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in QUESTIONS:
            return func(*args, **kwargs)
        made = self._decomposed(func, args, kwargs)
        if made is not NotImplemented:
            return made
        # A constant may be written to, so each use gets a new copy.
        if func is aten.lift_fresh.default:
            func = aten.lift_fresh_copy.default
        taken = tree_map(self.node_of, (args, kwargs))
        made = func(*args, **kwargs)
        if made is None or func._schema.is_mutable or any(isinstance(x, torch.Tensor) for x in tree_leaves(made)):
            self._record(self.graph.call_function(func, *taken), made)
        return made

    def _decomposed(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        decomposition = self.decompositions.get(func)
        if decomposition is not None:
            with self:
                made = decomposition(*args, **kwargs)
            if made is not NotImplemented:
                return made
        if not autograd_would_have_decomposed(func, tree_leaves((args, kwargs))):
            return NotImplemented
        with self:
            return func.decompose(*args, **kwargs)

    def _record(self, node: Node, made: Any) -> None:
        node.meta["val"] = extract_val(made)
        if isinstance(made, torch.Tensor):
            # For a tensor that was written, this is the node that wrote it.
            self.nodes[id(made)] = (made, node)
        elif isinstance(made, (list, tuple)):
            for i, item in enumerate(made):
                if item is not None:
                    self._record(self.graph.call_function(operator.getitem, (node, i)), item)
