# torch_ocl_compile/compile/graph.py: compiles one graph of AOTAutograd: to a plan, or, if it must be cut, to several pieces.
from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_ocl_compile.compile import ahead, debug, progress, times
from torch_ocl_compile.compile.bodies import Body, CutBody, EagerBody, PlanBody, Step, note_cut
from torch_ocl_compile.compile.control_flow import ControlBody, branch_of
from torch_ocl_compile.compile.plan import lower_for_device, make_plan, measure_kernels
from torch_ocl_compile.errors import (
    CompilerCrashError,
    ConfigError,
    CutNeeded,
    FallbackError,
    NotLowered,
    UnsupportedError,
)
from torch_ocl_compile.fx.control_flow import control_flow_name, graphs_and_operands, is_control_flow
from torch_ocl_compile.fx.host_part import TRANSFERS, graph_device
from torch_ocl_compile.fx.origin import describe, source_line
from torch_ocl_compile.fx.split import Piece, Split, is_view, operator_name, split
from torch_ocl_compile.lowering.elementwise.random import functionalise
from torch_ocl_compile.lowering.graphs.fallback import REMEDY
from torch_ocl_compile.lowering.graphs.float_arguments import tensors_to_floats
from torch_ocl_compile.lowering.graphs.lowered import Lowered
from torch_ocl_compile.lowering.graphs.sparse import reads_or_makes_sparse
from torch_ocl_compile.lowering.graphs.strides import strides_of


@dataclass(frozen=True)
class Task:
    """A graph to compile. `boundaries`: what lower_module must know of its arguments and results."""

    gm: GraphModule
    kind: str
    settings: dict[str, Any]
    label: str
    boundaries: Mapping[str, Any]

    def part(self, gm: GraphModule, number: int, **changes: Any) -> Task:
        return replace(self, gm=gm, label=f"{self.label}.{number}", **changes)


def compile_body(task: Task) -> Body:
    """Compiles a graph. NotLowered if it can become neither a plan nor several. Other errors are for the user, such as that the
    device has no float64."""
    try:
        return compile_plan(task)
    except CutNeeded as error:
        return _compile_cut(task, dict(error.reasons))


def compile_plan(task: Task, lowered: Lowered | None = None) -> PlanBody:
    """Compiles a graph to a plan. `lowered`: the graph, if it has been lowered. CutNeeded if it cannot become one plan."""
    tracing, watch, settings = times.since_last_graph(), times.Stopwatch(), task.settings
    crashing: set[tuple[str, str]] = set()
    while True:
        with progress.phase(f"{task.label} is lowered"):
            lowered = lowered or lower(task, crashing)
        check_device(lowered.device)
        debug.dump(task.label, "graph.txt", lowered.graph.str)
        lowering = watch.lap()
        measure_kernels(lowered, settings)
        tuning = watch.lap() if settings.get("max_autotune") else 0.0
        if task.kind != "inference":  # In training, weights change at each step.
            settings = {**settings, "kept_weights_mb": 0}
        try:
            with progress.phase(f"{task.label} is scheduled, and its kernels are built"):
                plan = make_plan(lowered, settings, task.label, started=_started(task, lowered, settings))
            break
        except CompilerCrashError as error:
            if settings.get("fallback") == "error":
                raise
            if crashing.issuperset(error.ops):  # Those ops are no kernels any more, so what crashes is between them.
                raise NotLowered(str(error)) from error
            crashing.update(error.ops)
            lowered = None
    fx_nodes = len(task.gm.graph.nodes)
    size = debug.remember(task.label, fx_nodes, lowered, plan).size()
    times.keep(task.label, size, plan.timings(), tracing=tracing, lowering=lowering, tuning=tuning)
    return PlanBody(
        kind=task.kind, fx_nodes=fx_nodes, lowered=lowered, settings=settings, strides=plan.output_strides(), plan=plan
    )


def _started(task: Task, lowered: Lowered, settings: dict[str, Any]) -> Any:
    if task.kind == "forward":
        return ahead.start(task.gm, lowered, settings, task.label)
    return ahead.take_backward(task.gm, lowered, settings) if task.kind == "backward" else None


def lower(task: Task, crashing: set[tuple[str, str]] | None = None) -> Lowered:
    checks = task.settings.get("index_errors") or task.settings.get("debug")
    try:
        return lower_for_device(
            task.gm,
            **task.boundaries,
            fallback=str(task.settings.get("fallback", "eager")),
            # The indices of a backward graph were those of its forward graph.
            place=describe if task.kind != "backward" and checks else None,
            crashing=crashing or (),
        )
    except (CutNeeded, FallbackError):
        raise
    except UnsupportedError as error:
        raise NotLowered(str(error)) from error


def check_device(device: torch.device) -> None:
    """Raises ConfigError if the tensors are on another backend's device."""
    ours = torch._C._get_privateuse1_backend_name()
    if device.type != ours:
        raise ConfigError(f"backend='ocl' was given tensors on '{device}'.\n  do: move model and inputs to '{ours}'.")


# Graphs that are cut


def _compile_cut(task: Task, cuts: dict[Node, str]) -> CutBody:
    while True:
        whole = split(task.gm, cuts, task.boundaries.get("aliases", ()))
        tasks = {i: _task_of(task, whole, i) for i, piece in enumerate(whole.pieces) if piece.cut is None}
        lowered, found = _lower_pieces(whole, tasks)
        if not found:
            break
        cuts.update(found)
    bodies: list[Body] = []
    for i, piece in enumerate(whole.pieces):
        if piece.cut is None:
            bodies.append(_compile_piece(tasks[i], piece, lowered.get(i)))
        elif is_control_flow(piece.cut):
            bodies.append(_compile_control_flow(task, i, piece, cuts[piece.cut]))
        else:
            bodies.append(_eager_node(task, piece, cuts[piece.cut]))
    bodies.append(_whole_graph(replace(task, gm=whole.results.module), None))
    return _connect(task.gm, whole, bodies)


def _lower_pieces(whole: Split, tasks: Mapping[int, Task]) -> tuple[dict[int, Lowered], dict[Node, str]]:
    """Returns the lowered pieces, and further nodes at which the graph must be cut."""
    lowered: dict[int, Lowered] = {}
    found: dict[Node, str] = {}
    for i, task in tasks.items():
        if graph_device(task.gm.graph).type == "cpu":
            continue
        try:
            lowered[i] = lower(task)
        except CutNeeded as error:
            originals = {copy: node for node, copy in whole.pieces[i].copies.items()}
            found.update({originals[copy]: reason for copy, reason in error.reasons.items()})
        except NotLowered:
            continue  # Compiling the piece raises it again.
    return lowered, found


def _task_of(task: Task, whole: Split, number: int) -> Task:
    """Returns the task of a piece."""
    piece, later = whole.pieces[number], [*whole.pieces[number + 1 :], whole.results]
    places = [n for n in task.gm.graph.nodes if n.op == "placeholder"]
    positions = {kind: set(task.boundaries.get(kind, ())) for kind in ("parameters", "donated")}
    given = {kind: {n for i, n in enumerate(places) if i in listed} for kind, listed in positions.items()}
    given["donated"] -= {node for other in later for node in other.takes}
    boundaries = {kind: [i for i, n in enumerate(piece.takes) if n in nodes] for kind, nodes in given.items()}
    return task.part(piece.module, number, boundaries={**boundaries, "separate_views": True})


def _compile_piece(task: Task, piece: Piece, lowered: Lowered | None) -> Body:
    if graph_device(task.gm.graph).type == "cpu":
        return EagerBody(function=piece.module, strides=[strides_of(n.meta.get("val")) for n in piece.gives])
    try:
        return compile_plan(task, lowered)
    except NotLowered as error:
        if task.settings.get("fallback") == "error":
            raise FallbackError(f"a part of the {task.kind} graph would run eagerly.\n  why:   {error}") from error
        name = f"a part of the {task.kind} graph"
        return _eager(piece, task.label, debug.Cut(op=name, reason=str(error), source="", eager=True))


def _eager_node(task: Task, piece: Piece, reason: str) -> EagerBody:
    node = piece.cut
    assert node is not None
    name, source = operator_name(node), source_line(node)
    moves = is_view(node) or node.target in TRANSFERS or node.target is torch.ops.aten._local_scalar_dense.default
    # The first compute nothing. An op on sparse tensors may have kernels; if not, the device refuses it when it is called.
    if moves or reads_or_makes_sparse(node):
        return _eager(piece, task.label, debug.Cut(op=name, reason=reason, source=source, eager=False))
    if task.settings.get("fallback") == "error":
        message = f"{name}: {reason}, and options={{'fallback': 'error'}} forbids to run it eagerly."
        raise FallbackError(f"{message}\n{describe(node)}\n{REMEDY}", f"{name}: {reason}")
    return _eager(piece, task.label, debug.Cut(op=name, reason=reason, source=source, eager=True))


def _eager(piece: Piece, label: str, cut: debug.Cut) -> EagerBody:
    note_cut(cut, label)
    return EagerBody(function=piece.module, strides=[strides_of(n.meta.get("val")) for n in piece.gives], cut=cut)


def _compile_control_flow(task: Task, number: int, piece: Piece, reason: str) -> ControlBody:
    node = piece.cut
    assert node is not None
    graphs, operands = graphs_and_operands(node)
    name = control_flow_name(node)
    cut = debug.Cut(op=name, reason=reason, source=source_line(node), eager=False)
    note_cut(cut, task.label)
    branches = []
    for k, given in enumerate(graphs):
        # The graph around stays as it is: it runs eagerly if another piece of it cannot be compiled.
        graph = GraphModule(given, copy.deepcopy(given.graph))
        _return_tuple(graph)
        functionalise(graph)
        body = compile_or_run(
            replace(task, gm=graph, kind="inference", label=f"{task.label}.{number}.{k}", boundaries={})
        )
        branches.append(branch_of(body, graph))
    return ControlBody(
        op=name,
        branches=branches,
        counts=[len(listed) for listed in operands],
        operands=EagerBody(function=piece.module, strides=[None] * sum(len(listed) for listed in operands)),
        gives=[_position(n) for n in piece.gives],
        strides=[strides_of(n.meta.get("val")) for n in piece.gives],
        cut=cut,
    )


def _position(getitem: Node) -> int:
    position = getitem.args[1]
    assert isinstance(position, int)
    return position


def _return_tuple(graph: GraphModule) -> None:
    output = next(iter(reversed(graph.graph.nodes)))
    if not isinstance(output.args[0], (list, tuple)):
        output.args = ((output.args[0],),)
        graph.recompile()


def compile_or_run(task: Task) -> Body:
    """Compiles a graph. One that cannot be compiled runs op by op. FallbackError if that is forbidden."""
    if graph_device(task.gm.graph).type == "cpu":
        return _whole_graph(task, None)
    try:
        return compile_body(task)
    except NotLowered as error:
        return eager_graph(task, str(error))


def eager_graph(task: Task, reason: str) -> EagerBody:
    """Runs a graph that cannot become a plan eagerly. FallbackError if that is forbidden."""
    name = f"the whole {task.kind} graph"
    if task.settings.get("fallback") == "error":
        message = f"{name} would run eagerly, which options={{'fallback': 'error'}} forbids.\n"
        raise FallbackError(f"{message}  why:   {reason}")
    cut = debug.Cut(op=name, reason=reason, source="", eager=True)
    note_cut(cut, task.label)
    return _whole_graph(task, cut)


def _whole_graph(task: Task, cut: debug.Cut | None) -> EagerBody:
    tensors_to_floats(task.gm)
    output = next(iter(reversed(task.gm.graph.nodes)))
    return EagerBody(function=task.gm, strides=[None] * len(output.args[0]), cut=cut)


def _connect(gm: GraphModule, whole: Split, bodies: list[Body]) -> CutBody:
    """Gives each value that pieces pass on a slot."""
    slots = {n: i for i, n in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")}
    for piece in whole.pieces:
        for node in piece.gives:
            slots.setdefault(node, len(slots))
    steps: list[Step] = []
    read_later: set[Node] = set()
    for piece, body in reversed(list(zip([*whole.pieces, whole.results], bodies, strict=True))):
        step = Step(
            body=body,
            takes=[slots[n] for n in piece.takes],
            gives=[] if piece is whole.results else [slots[n] for n in piece.gives],
            drops=[slots[n] for n in piece.takes if n not in read_later],
        )
        steps.insert(0, step)
        read_later.update(piece.takes)
    return CutBody(steps=steps[:-1], results=steps[-1], slots=len(slots))
