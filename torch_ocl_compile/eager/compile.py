# torch_ocl_compile/eager/compile.py: compiles an op that is called outside of compiled functions.
"""csrc/torch/eager.cpp calls this when it has no plan for an op with these arguments. The op is traced on fake tensors
in its functional form, and lowered like any graph. What the op writes becomes a store into the argument. If there
are no kernels for the op, the result has the reason, and the op runs on the CPU. All other errors are raised. A
result that follows from the call alone is kept in the cache (csrc/torch/stored_plans.h)."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_ocl_compile import config, identity
from torch_ocl_compile.compile import debug
from torch_ocl_compile.compile.plan import make_plan
from torch_ocl_compile.decompositions.forms import FORMS
from torch_ocl_compile.decompositions.table import ocl_decomp_table
from torch_ocl_compile.eager.conditions import Conditions
from torch_ocl_compile.eager.op_trace import Level, OpTrace, Return, Untraceable
from torch_ocl_compile.eager.tracing_thread import tracing_thread
from torch_ocl_compile.errors import CompilerCrashError, UnsupportedError
from torch_ocl_compile.lowering.checks import BadArguments
from torch_ocl_compile.lowering.graph import lower_module
from torch_ocl_compile.lowering.lowered import Lowered
from torch_ocl_compile.lowering.random import functionalise
from torch_ocl_compile.lowering.registry import LOWERINGS

log = logging.getLogger(__name__)

_labels = itertools.count()


@dataclass
class EagerPlan:
    """The result of compiling an op. csrc/python/eager_bindings.cpp reads it. Leaves are the arguments in the order of
    the schema, with lists flattened."""

    plan: Any = None  # None if there is no plan.
    # ("tensor", leaf), ("numbers", leaves, dtype) or ("state", leaf, count).
    inputs: list[tuple[Any, ...]] = field(default_factory=list)
    symbols: list[tuple[int, int]] = field(default_factory=list)  # (leaf, dimension) of each size symbol.
    returns: list[Return] = field(default_factory=list)
    resizes: list[tuple[int, list[int], list[int]]] = field(default_factory=list)  # (leaf, sizes, strides).
    conditions: Conditions = field(default_factory=Conditions)  # The calls that the plan serves.
    bad_arguments: bool = False  # PyTorch's CPU kernel will raise its own error.
    reason: str = ""  # Why there is no plan.
    graph: str = ""  # The plan's ir.Graph as text.
    lasting: bool = False  # The result follows from the call alone, so another process would get the same.


def compile_op(name: str, overload: str, args: list[Any], same: list[int], level: int) -> EagerPlan:
    """Returns the plan for a call, or why there is none. `same`: for each leaf, the number of the first leaf that is
    the same."""
    label = f"{name}.{overload}" if overload else name
    bad = False
    try:
        made = tracing_thread().submit(_compile, name, overload, args, same, Level(level)).result()
        made.lasting = _lasts(name)
        return made
    except Untraceable as error:
        reason, bad, lasting = error.__cause__ or error, error.bad_arguments, error.bad_arguments or error.lasting
    except BadArguments as error:
        reason, bad, lasting = error, True, True
    except UnsupportedError as error:
        reason, lasting = error, True
    except CompilerCrashError as error:
        reason, lasting = error, False
    log.debug("%s is not compiled (%s): %s: %s", label, Level(level).name.lower(), type(reason).__name__, reason)
    # The further lines of a message are about graphs of the user's.
    text = getattr(reason, "reason", "") or f"{type(reason).__name__}: {reason}".partition("\n")[0]
    return EagerPlan(bad_arguments=bad, reason=text, lasting=lasting and _lasts(name))


def _lasts(name: str) -> bool:
    """True if only code of this package and of torch decides the plans of the op. Code that others add may differ in
    the next process."""
    if not name.startswith(("aten::", "prims::", "ocl::")) or identity.sources_changed():
        return False
    return all(identity.covers(f) for rows in (ocl_decomp_table(), FORMS, LOWERINGS) for f in rows.values())


def _compile(name: str, overload: str, args: list[Any], same: list[int], level: Level) -> EagerPlan:
    namespace, packet = name.split("::")
    op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    label = f"eager_{packet}_{next(_labels)}"
    with torch.no_grad():
        try:
            traced, conditions, lowered = _lowered(op, args, same, level, label)
        except UnsupportedError:
            if level is not Level.SIZES or not any(isinstance(leaf, float) for leaf in tree_leaves(args)):
                raise
            # A float may decide something, or a lowering may need it as a constant. Each then gets a condition.
            traced, conditions, lowered = _lowered(op, args, same, level, label, fixed=True)
    if lowered is None:
        return EagerPlan(resizes=traced.resizes(), conditions=conditions)
    if lowered.device.type == "cpu":
        raise UnsupportedError("none of its tensors is on an ocl device")
    debug.dump(label, "graph.txt", lowered.graph.str)
    inputs = [traced.input(source, lowered) for source in lowered.inputs]
    symbols = [traced.symbol(s) for s in lowered.sources]
    if lowered.after is not None:
        raise UnsupportedError("a result is computed on the host")
    results = [traced.result(r) for r in lowered.results]
    plan = make_plan(lowered, {**config.compile_options(None), "op": name}, label)
    log.debug("%s: compiled for %s, %d launches", label, level.name.lower(), plan.launch_count)
    graph = lowered.graph.str()
    return EagerPlan(plan, inputs, symbols, traced.returns(results), conditions=conditions, graph=graph)


def _lowered(
    op: Any, args: list[Any], same: list[int], level: Level, label: str, fixed: bool = False
) -> tuple[OpTrace, Conditions, Lowered | None]:
    """Returns the trace of an op, the calls that it serves, and its lowered graph: None if it only resizes arguments.
    `fixed`: floats stay constants."""
    traced = OpTrace(op, args, same, level, fixed)
    gm = traced.graph_module
    debug.dump(label, "fx.txt", lambda: gm.print_readable(print_output=False))
    if traced.resizes():
        return traced, traced.conditions(), None
    functionalise(gm)
    lowered = lower_module(gm, fallback="error")
    # The lowering may decide something by a size too.
    return traced, traced.conditions(), lowered
