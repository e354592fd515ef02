# torch_ocl_compile/fx/effects.py: finds out what a node of an FX graph does besides returning a value.
"""Dynamo's graphs are not functional. They have in-place methods, `out=` arguments, random functions and assertions,
like the model. AOTAutograd's graphs have aten overloads, whose schemas describe the effects. A node that is not
known to be pure counts as having an effect."""

from __future__ import annotations

import enum
import functools
import inspect
import keyword
import operator
from typing import Any

import torch
from torch._library.utils import is_impure
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import Node
from torch.utils._pytree import tree_leaves


class Effect(enum.Enum):
    """The value of each member completes the sentence "the node ..."."""

    WRITE = "writes to a tensor"
    RANDOM = "draws random numbers"
    CHECK = "checks a condition"
    OTHER = "calls what may have any effect"


_ARITHMETIC = ("add", "and", "concat", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow", "rshift", "sub")
_IN_PLACE = [f"i{name}" for name in (*_ARITHMETIC, "truediv", "xor")]
WRITING_OPERATORS = {operator.setitem, operator.delitem, *(getattr(operator, name) for name in _IN_PLACE)}
WRITING_METHODS = {"__setitem__", "__delitem__", "__set__", *(f"__{name}__" for name in _IN_PLACE)}
# Ops that write although neither name nor schema says so: name -> (the argument that enables it, the arguments that are
# written).
HIDDEN_WRITES: dict[str, tuple[str, tuple[str, ...]]] = {
    "batch_norm": ("training", ("running_mean", "running_var")),
    "native_batch_norm": ("training", ("running_mean", "running_var")),
    "instance_norm": ("use_input_stats", ("running_mean", "running_var")),
    "embedding": ("max_norm", ("weight",)),
    "embedding_bag": ("max_norm", ("weight",)),
}
# Random ops of this package, and of torch if they lack the tag. Each function decides by the arguments, given by name.
DRAWS: dict[str, Any] = {
    "rng_reserve": lambda given: True,
    "attention": lambda given: given.get("p", 0) != 0 and given.get("state") is None,
    **dict.fromkeys(
        (
            "dropout1d",
            "dropout2d",
            "dropout3d",
            "gumbel_softmax",
            "multi_head_attention_forward",
            "fractional_max_pool2d",
            "fractional_max_pool3d",
        ),
        lambda given: True,
    ),
}
CHECK_NAMES = ("_assert", "_check", "sym_constrain_range", "assert_")


def effect_of(node: Node) -> Effect | None:
    """Returns what the node does besides returning its value. None for a pure node."""
    if node.op not in ("call_function", "call_method", "call_module") or _is_pure(node.target):
        return None
    if node.op == "call_module" or not _is_known(node.target):
        return Effect.CHECK if _name(node.target).startswith(CHECK_NAMES) else Effect.OTHER
    if _writes(node):
        return Effect.WRITE
    if _draws(node):
        return Effect.RANDOM
    if _name(node.target).startswith(CHECK_NAMES):
        return Effect.CHECK
    return Effect.OTHER if node.is_impure(impure_random=False) else None


def written(node: Node) -> tuple[Any, ...]:
    """Returns the arguments that the node writes to."""
    if node.op not in ("call_function", "call_method"):
        return ()
    return tuple(a for a in tree_leaves(_written_values(node)) if isinstance(a, Node))


def named_arguments(node: Node) -> dict[str, Any]:
    """Returns the arguments of a call by name, with defaults, as far as the target has named parameters."""
    defaults = _parameters(node.target)
    return {**defaults, **dict(zip(defaults, node.args, strict=False)), **node.kwargs}


def _writes(node: Node) -> bool:
    return len(tree_leaves(_written_values(node))) > 0


def _written_values(node: Node) -> list[Any]:
    """Returns the written arguments: nodes and lists of nodes."""
    if node.target in WRITING_OPERATORS and _is_number(node.args[0]):
        return []
    arguments = named_arguments(node)
    values = [arguments[name] for name in _written_names(node.target) if arguments.get(name) is not None]
    name = _name(node.target)
    changes_first = node.target in WRITING_OPERATORS or name in WRITING_METHODS or _ends_in_place(name)
    if changes_first or arguments.get("inplace") is True:
        values.append(node.args[0] if node.args else next(iter(node.kwargs.values()), None))
    if node.kwargs.get("out") is not None:
        values.append(node.kwargs["out"])
    switch, names = HIDDEN_WRITES.get(name, ("", ()))
    if arguments.get(switch):
        values += [arguments[n] for n in names if arguments.get(n) is not None]
    return values


def _draws(node: Node) -> bool:
    name = _name(node.target)
    given = named_arguments(node)
    if name in DRAWS:
        return bool(DRAWS[name](given))
    off = any(given.get(p) == 0 for p in ("p", "dropout_p")) or any(
        given.get(t) is False for t in ("training", "train")
    )
    return not off and _is_seeded(node.target)


def _is_number(value: Any) -> bool:
    """True if `x += 1` makes a new number, because the value is no tensor."""
    if isinstance(value, Node):
        value = value.meta.get("val", value.meta.get("example_value"))
    return isinstance(value, (int, float, torch.SymInt, torch.SymFloat))


def _ends_in_place(name: str) -> bool:
    # operator.and_ has the underscore because `and` is a keyword.
    return name.endswith("_") and not name.endswith("__") and not keyword.iskeyword(name[:-1])


# The functions below take targets. One target occurs in many nodes, so results are cached.


@functools.lru_cache(4096)
def _name(target: Any) -> str:
    """Returns "add_" for the method "add_", torch.add_ and aten.add_.Tensor."""
    if isinstance(target, str):
        return target
    if isinstance(target, OpOverload):
        return str(target._schema.name).rsplit("::", 1)[-1]
    return str(getattr(target, "__name__", target))


@functools.lru_cache(4096)
def _is_known(target: Any) -> bool:
    """True if name, schema and arguments of the target describe all its effects."""
    if isinstance(target, (str, OpOverload, OpOverloadPacket)):
        return True
    if target is getattr or target in _torch_functions() or getattr(target, "__module__", "") in ("_operator", "math"):
        return True
    return getattr(target, "__module__", "") == "torch" and (op_of(target) is not None or "sym_" in _name(target))


@functools.lru_cache(4096)
def _is_pure(target: Any) -> bool:
    """True if an aten overload has no effect with any arguments. Most nodes have such a target."""
    if not isinstance(target, OpOverload):
        return target is operator.getitem
    name = _name(target)
    by_name = name in HIDDEN_WRITES or name in DRAWS or name.startswith(CHECK_NAMES)
    return not (by_name or _is_seeded(target) or is_impure(target))


@functools.cache
def _torch_functions() -> set[Any]:
    return {function for group in torch.overrides.get_overridable_functions().values() for function in group}


@functools.lru_cache(4096)
def op_of(target: Any) -> OpOverloadPacket | None:
    """Returns the aten op of a method or function of torch."""
    if isinstance(target, OpOverloadPacket):
        return target
    found = getattr(torch.ops.aten, _name(target), None)
    return found if isinstance(found, OpOverloadPacket) else None


@functools.lru_cache(4096)
def _overload(target: Any) -> OpOverload | None:
    """Returns the overload whose schema has the names and the writes. For a packet it is the first one: all its
    overloads but out= agree in these.
    """
    if isinstance(target, OpOverload):
        return target
    packet = op_of(target) if _is_known(target) else None
    return None if packet is None else getattr(packet, packet.overloads()[0])


@functools.lru_cache(4096)
def _parameters(target: Any) -> dict[str, Any]:
    """Returns name -> default of each parameter, in order. Empty if the target has no known parameters."""
    if inspect.isfunction(target):
        found = inspect.signature(target).parameters.values()
        return {p.name: None if p.default is p.empty else p.default for p in found}
    overload = _overload(target)
    return {} if overload is None else {a.name: a.default_value for a in overload._schema.arguments}


@functools.lru_cache(4096)
def _written_names(target: Any) -> tuple[str, ...]:
    overload = _overload(target) if not inspect.isfunction(target) else None
    arguments = () if overload is None else overload._schema.arguments
    return tuple(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)


@functools.lru_cache(4096)
def _is_seeded(target: Any) -> bool:
    if isinstance(target, OpOverload):
        return torch.Tag.nondeterministic_seeded in target.tags
    packet = op_of(target)
    return packet is not None and any(
        torch.Tag.nondeterministic_seeded in getattr(packet, name).tags for name in packet.overloads()
    )
