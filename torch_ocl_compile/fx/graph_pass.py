# torch_ocl_compile/fx/graph_pass.py: the decorator of all passes that change FX graphs. It checks that no effect is lost.
"""A pass is a function of a GraphModule and of `Changes` with the decorator @graph_pass. It must tell `Changes` what it
replaces. Anything it forgets is an InternalError that names the pass and the node, because an update of a user's
tensor must never be lost silently."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from torch_ocl_compile.errors import InternalError
from torch_ocl_compile.fx.effects import Effect, effect_of, written
from torch_ocl_compile.fx.origin import describe

P = ParamSpec("P")
T = TypeVar("T")


def set_policy(node: Node, policy: CheckpointPolicy) -> None:
    """Tells PyTorch's partitioner whether backward gets the node's saved result or computes it again."""
    node.meta["recompute"], node.meta["ac_graph_id"] = policy, 0


class Changes:
    """Changes a graph for a pass, and records the changes."""

    def __init__(self) -> None:
        self.replaced: dict[Node, Node] = {}  # Erased node -> the node that its users read now.
        self.erased: set[Node] = set()
        self.moved: dict[Node, Node] = {}  # Node that had an effect -> the node that has it now.

    def replace(self, old: Node, new: Node) -> None:
        """Makes users of `old` read `new`, and erases `old`."""
        old.replace_all_uses_with(new)
        self.replaced[old] = new
        self.erase(old)

    def erase(self, node: Node) -> None:
        """Erases a node without users."""
        node.graph.erase_node(node)
        self.erased.add(node)

    def move_effect(self, old: Node, new: Node) -> None:
        """Declares that `new` now has the effect that `old` had."""
        self.moved[old] = new

    def now(self, node: Node) -> Node:
        """Returns the node that has replaced `node`, or `node` itself."""
        while node in self.replaced:
            node = self.replaced[node]
        return node


def graph_pass(
    change: Callable[Concatenate[GraphModule, Changes, P], T],
) -> Callable[Concatenate[GraphModule, P], T]:
    """Makes a pass of a function. InternalError if the graph has other effects after the pass than before."""

    @functools.wraps(change)
    def run(graph_module: GraphModule, /, *args: P.args, **kwargs: P.kwargs) -> T:
        before = GraphEffects(graph_module.graph)
        changes = Changes()
        result = change(graph_module, changes, *args, **kwargs)
        before.compare(change.__name__, graph_module.graph, changes)
        if before.nodes != list(graph_module.graph.nodes):
            graph_module.graph.lint()
            graph_module.recompile()
        return result

    return run


def on_each_graph(
    gm: GraphModule,
    concerns: Callable[[Node], bool],
    change: Callable[Concatenate[GraphModule, P], int],
    *args: P.args,
    **kwargs: P.kwargs,
) -> int:
    """Calls a pass for a graph and the graphs that it calls, where it concerns a node. Returns the sum of the results."""
    modules = [m for m in gm.modules() if isinstance(m, GraphModule)]
    return sum(change(m, *args, **kwargs) for m in modules if any(map(concerns, m.graph.nodes)))


class GraphEffects:
    """The nodes of a graph and their effects before a pass."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.nodes = list(graph.nodes)
        effects = {node: effect_of(node) for node in self.nodes}
        self.effects: dict[Node, Effect] = {node: e for node, e in effects.items() if e is not None}
        self.written = {node: written(node) for node in self.effects}
        # Text of each node, because an erased node loses its arguments.
        self.text = {node: describe(node) for node in self.effects}

    def compare(self, name: str, graph: torch.fx.Graph, changes: Changes) -> None:
        """Raises InternalError if the pass `name` has lost, added, reordered or redirected an effect."""
        after = dict.fromkeys(graph.nodes)
        for problem, node in (
            *self._lost(after, changes),
            *self._added(after, changes),
            *self._altered(after, changes),
        ):
            raise InternalError(f"the pass {name} {problem}.\n{self.text.get(node) or describe(node)}")

    def _lost(self, after: Mapping[Node, None], changes: Changes) -> Iterator[tuple[str, Node]]:
        for node in self.nodes:
            if node not in after and node not in changes.erased:
                yield "erased a node that it did not replace", node
        for node, effect in self.effects.items():
            heir = changes.moved.get(node, node)
            if heir not in after or (heir is node and effect_of(node) is not effect):
                yield f"lost a node that {effect.value}", node

    def _added(self, after: Mapping[Node, None], changes: Changes) -> Iterator[tuple[str, Node]]:
        known = {*self.effects, *changes.moved.values()}
        for node in after:
            if node not in known and effect_of(node) is not None:
                yield "added a node with an effect that no node had", node

    def _altered(self, after: Mapping[Node, None], changes: Changes) -> Iterator[tuple[str, Node]]:
        kept = [node for node in self.effects if node in after]
        for node, now_here in zip(kept, (n for n in after if n in self.effects), strict=True):
            if node is not now_here:
                yield "changed the order of effects", node
            if node not in changes.moved and written(node) != tuple(changes.now(t) for t in self.written[node]):
                yield "made a node write to something else", node


def compare_copy(name: str, nodes: Iterable[Node], copies: Mapping[Node, Node]) -> None:
    """Checks a graph that consists of copies of `nodes`. InternalError if an effect has no copy, or if the order of
    effects has changed."""
    effects = {node: effect for node in nodes if (effect := effect_of(node)) is not None}
    for node, effect in effects.items():
        if node not in copies:
            raise InternalError(f"{name} lost a node that {effect.value}.\n{describe(node)}")
    for node, following in itertools.pairwise(effects):
        if not copies[node] < copies[following]:
            raise InternalError(f"{name} changed the order of effects.\n{describe(following)}")


def placeholders_first(graph: torch.fx.Graph) -> None:
    """Moves the placeholders to the beginning of the graph."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    head = next(iter(graph.nodes))
    for node in placeholders:
        if node is not head:
            head.prepend(node)
        else:
            head = head.next


@graph_pass
def drop_dead_code(graph_module: GraphModule, changes: Changes) -> None:
    """Erases nodes that nobody reads and that have no effect."""
    for node in reversed(list(graph_module.graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output") and effect_of(node) is None:
            changes.erase(node)
