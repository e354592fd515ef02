# torch_ocl_compile/report/explanation.py: explain() and watch(), which describe what is compiled in their scope and how
# it runs.
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._dynamo import OptimizedModule
from torch.utils._pytree import tree_leaves

from torch_ocl_compile.compile import debug
from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.device.record import LaunchRecord, record
from torch_ocl_compile.errors import ConfigError, ToolError
from torch_ocl_compile.report import roofline
from torch_ocl_compile.report.breaks import Breaks
from torch_ocl_compile.report.findings import Choice, Cut, Findings, Graph
from torch_ocl_compile.report.kernels import add_times, kernels_of
from torch_ocl_compile.report.memory import memory_of
from torch_ocl_compile.report.model_lines import model_lines
from torch_ocl_compile.report.phases import Phases, passes_of


class Explanation(Findings):
    """What was compiled, how it was fused, and how it runs. `print(it)`, or `it.save("report.html")`."""

    def save(self, path: str | Path) -> None:
        """Writes one HTML file that needs nothing else. Raises ToolError if a package for it is missing."""
        Path(path).write_text(load_page()(self), encoding="utf-8")

    def as_dict(self) -> dict[str, Any]:
        """Returns the explanation as a dict for JSON."""
        graphs = [
            {"label": g.label, "aten_nodes": g.aten_nodes, "launches": len(g.kernels), "eager_calls": g.eager_calls,
             "time_us": g.time_us, "peak_bytes": g.memory.peak,
             "kernels": [{"name": k.name, "ops": k.nodes, "origin": k.origin, "bytes": k.bytes, "flops": k.flops,
                          "time_us": k.time_us, "fused": k.fused, "why_no_more": k.why_no_more, "refused": k.refused} for k in g.kernels]}
            for g in self.graphs
        ]  # fmt: skip
        breaks = [{"reason": b.reason, "place": b.place, "code": b.code} for b in self.breaks]
        cuts = [
            {"graph": c.graph, "op": c.op, "place": c.place, "reason": c.reason, "eager": c.eager} for c in self.cuts
        ]
        choices = [{"op": c.op, "place": c.place, "way": c.way} for c in self.choices]
        return {"graphs": graphs, "graph_breaks": breaks, "cuts": cuts, "choices": choices, "eager_in_graphs": self.eager_in_graphs,
                "eager_outside": self.eager_outside, "compile_seconds": self.phases}  # fmt: skip

    def __str__(self) -> str:
        lines = []
        for graph in self.graphs:
            lines.append(str(graph))
            for k in graph.kernels:
                time = "" if k.time_us is None else f", {k.time_us:.0f} us"
                lines.append(f"  {k.name}: {k.nodes} ops, {k.origin}{time}")
                lines += [f"    {refusal}" for refusal in k.refused]
        users = dict.fromkeys(record.title for record in self.outside if record.kind == "user")
        lines += [f"your kernel: {title}" for title in users]
        lines += [f"graph break: {b.place} {b.reason}" for b in self.breaks]
        lines += [f"cut: {cut}" for cut in self.cuts]
        lines += [str(choice) for choice in self.choices]
        lines += [f"eager: {name}" for name in [*self.eager_in_graphs, *self.eager_outside]]
        return "\n".join(lines)


def load_page() -> Callable[[Findings], str]:
    """Returns the function that writes the page. Raises ToolError if a package for it is missing."""
    try:
        from torch_ocl_compile.report.page import render
    except ModuleNotFoundError as error:
        raise ToolError(
            f"the report's page needs {error.name}.\n  do: pip install torch-ocl-compile[report]"
        ) from error
    return render


def explain(
    function: Callable[..., Any], *inputs: Any, runs: int = 3, backward: bool = False, **keywords: Any
) -> Explanation:
    """Compiles a function or model, and calls it with `inputs` and `keywords`: once, then `runs` times to measure its kernels.

    `backward`: also computes the gradients of its results' sum, and so compiles the backward graphs. They are dropped; no
    `.grad` changes. What the function itself changes (statistics, an optimizer's step) it changes at every call."""
    if not callable(function):
        raise ConfigError(
            f"explain takes a model or a function, then its inputs; the first argument is {type(function).__name__}"
        )
    torch._dynamo.reset()
    is_compiled = isinstance(function, OptimizedModule) or hasattr(function, "_torchdynamo_orig_callable")
    compiled = function if is_compiled else torch.compile(function, backend="ocl")
    model = function._orig_mod if isinstance(function, OptimizedModule) else function
    title = getattr(model, "__name__", None) or type(model).__name__
    with watch(title, timing=False) as found:
        call_to_measure(compiled, inputs, keywords, found, runs=runs, backward=backward)
    return found.explanation


def call_to_measure(
    compiled: Callable[..., Any],
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    found: Watch,
    *,
    runs: int,
    backward: bool = False,
) -> None:
    """Calls `compiled` once, which compiles it, and then `runs` times with timing."""

    def step() -> None:
        results = compiled(*inputs, **keywords)
        if backward:
            _gradients(results)

    step()
    if runs > 0:
        with record(timing=True) as launches:
            for _ in range(runs):
                step()
        found.launches += launches


def _gradients(results: Any) -> None:
    roots = [t for t in tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves: dict[int, torch.Tensor] = {}
    seen, stack = set(), [t.grad_fn for t in roots]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            leaves[id(variable)] = variable
        stack += [following for following, _ in node.next_functions]
    if leaves:
        torch.autograd.grad(roots, list(leaves.values()), [torch.ones_like(t) for t in roots], allow_unused=True)


@dataclass
class Watch:
    """What watch() collects. `explanation` is there when its block ends."""

    explanation: Explanation
    launches: list[LaunchRecord] = field(default_factory=list)


@contextlib.contextmanager
def watch(title: str, *, timing: bool) -> Iterator[Watch]:
    """Explains what is compiled in the block. `timing`: also measures every kernel that runs in it, and the device."""
    found = Watch(Explanation(title))
    breaks, phases = Breaks(), Phases()
    in_graphs, outside = debug.fallback_counts(), torch_ocl.fallback_counts()
    with contextlib.ExitStack() as stack:
        graphs = stack.enter_context(debug.collecting())
        launches = stack.enter_context(record(timing=True)) if timing else []
        yield found
    found.launches += launches
    it = found.explanation
    it.phases = phases.seconds()
    it.breaks = breaks.found()
    it.eager_in_graphs = debug.fallbacks_since(in_graphs)
    it.eager_outside = {
        op: count - outside.get(op, 0)
        for op, count in torch_ocl.fallback_counts().items()
        if count > outside.get(op, 0)
    }
    it.cuts = [Cut(label, cut.op, cut.source, cut.reason, cut.eager) for label, cut in graphs.cuts]
    it.choices = [Choice(c.op, c.source, c.way) for c in graphs.choices]
    _add_graphs(it, graphs, found.launches)


def _add_graphs(it: Explanation, graphs: list[debug.Record], records: list[LaunchRecord]) -> None:
    for graph in graphs:
        report = graph.plan.report()
        kernels = kernels_of(graph.label, report)
        records = add_times(kernels, records)
        it.graphs.append(
            Graph(graph.label, graph.fx_nodes, graph.calls, report["device"], kernels, memory_of(report), report["log"],
                  passes_of(graph.plan))
        )  # fmt: skip
    it.outside = records
    it.model_lines = model_lines(line for g in it.graphs for k in g.kernels for line in k.lines)
    if any(k.times_us for g in it.graphs for k in g.kernels):
        precisions = {k.precision for g in it.graphs for k in g.kernels}
        it.roofline = roofline.measure(it.graphs[0].device, sorted(precisions))
