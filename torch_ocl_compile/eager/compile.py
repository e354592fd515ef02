# torch_ocl_compile/eager/compile.py: compiles an op that is called outside of compiled functions.
"""csrc/torch/eager.cpp calls this when it has no plan for an op with these arguments. The op is traced on fake tensors
in its functional form, and lowered like any graph. What the op writes becomes a store into the argument. The result is
a recipe (csrc/torch/recipe.h), of which C++ makes the plan. If there are no kernels for the op, it has the reason, and
the op runs on the CPU. All other errors are raised."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_ocl_compile import config, identity
from torch_ocl_compile._C import Recipe
from torch_ocl_compile.compile import debug
from torch_ocl_compile.compile.plan import device_index, lower_for_device
from torch_ocl_compile.decompositions.forms import FORMS
from torch_ocl_compile.decompositions.table import ocl_decomp_table
from torch_ocl_compile.eager.op_trace import Level, OpTrace, Untraceable
from torch_ocl_compile.eager.tracing_thread import tracing_thread
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core.registry import LOWERINGS
from torch_ocl_compile.lowering.elementwise.random import functionalise
from torch_ocl_compile.lowering.graphs.checks import BadArguments
from torch_ocl_compile.lowering.graphs.user_kernel import UserCall, bound_calls

log = logging.getLogger(__name__)

_WHERE = "  do:    find the line with TORCH_OCL_DEBUG=1, with which the op itself raises this error"
_labels = itertools.count()


def compile_op(name: str, overload: str, args: list[Any], same: list[int], level: int) -> Recipe:
    """Returns the recipe for a call. `same`: for each leaf, the number of the first leaf that is the same. Leaves are the
    arguments in the order of the schema, with lists flattened."""
    bad = False
    try:
        recipe = tracing_thread().submit(_recipe, name, overload, args, same, Level(level)).result()
        recipe.lasting = _lasts(name)
        return recipe
    except Untraceable as error:
        reason, bad, lasting = error.__cause__ or error, error.bad_arguments, error.bad_arguments or error.lasting
    except BadArguments as error:
        reason, bad, lasting = error, True, True
    except UnsupportedError as error:
        reason, lasting = error, True
    log.debug("%s.%s is not compiled (%s): %s: %s", name, overload, Level(level).name, type(reason).__name__, reason)
    refused = Recipe(Recipe.Kind.BAD_ARGUMENTS if bad else Recipe.Kind.NO_KERNELS)
    # The further lines of a message are about graphs of the user's.
    refused.reason = getattr(reason, "reason", "") or f"{type(reason).__name__}: {reason}".partition("\n")[0]
    refused.lasting = lasting and _lasts(name)
    return refused


def _lasts(name: str) -> bool:
    """True if only code of this package and of torch decides the plans of the op. Code that others add may differ in
    the next process."""
    if not name.startswith(("aten::", "prims::", "ocl::")) or identity.sources_changed():
        return False
    return all(identity.covers(f) for rows in (ocl_decomp_table(), FORMS, LOWERINGS) for f in rows.values())


def _recipe(name: str, overload: str, args: list[Any], same: list[int], level: Level, fixed: bool = False) -> Recipe:
    """Traces and lowers the op. `fixed`: floats, and integers that act as sizes, stay constants."""
    namespace, packet = name.split("::")
    op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    label = f"eager_{packet}_{next(_labels)}"
    try:
        with torch.no_grad():
            traced = OpTrace(op, args, same, level, fixed)
            if traced.resizes:
                recipe = Recipe(Recipe.Kind.RESIZES)
                recipe.resizes = traced.resizes
                return recipe
            gm = traced.graph_module
            debug.dump(label, "fx.txt", lambda: gm.print_readable(print_output=False))
            functionalise(gm)
            checks = config.get("index_errors") or config.get("debug")
            place = f"  op:    {op}, outside of compiled functions\n{_WHERE}"
            gm.meta["is_eager"] = True
            lowered = lower_for_device(gm, fallback="error", place=(lambda _: place) if checks else None)
            conditions = traced.conditions()  # The lowering may decide something by a size too.
    except UnsupportedError:
        if fixed or level is not Level.SIZES or not any(isinstance(leaf, (float, int)) for leaf in tree_leaves(args)):
            raise
        # A number may decide something, or a lowering may need it as a constant. Each then gets a condition.
        return _recipe(name, overload, args, same, level, fixed=True)
    if lowered.device.type == "cpu":
        raise UnsupportedError("none of its tensors is on an ocl device")
    if lowered.after or lowered.computed or lowered.constants:
        raise UnsupportedError("a part of it is computed on the host")
    if not all(isinstance(call, UserCall) for call in lowered.calls):
        raise UnsupportedError("a part of it is called from Python")
    debug.dump(label, "graph.txt", lowered.graph.str)
    recipe = lowered.recipe
    recipe.device, recipe.label, recipe.conditions = device_index(lowered), label, conditions
    recipe.set_calls(bound_calls(lowered.calls, recipe.device))
    recipe.generator = traced.generator()
    recipe.results, recipe.returned = traced.returns(recipe.results)
    return recipe
