# torch_ocl_compile/compile/float_guards.py: guards stored graphs by the floats that they were traced with.
"""Dynamo passes a Python float that changes between calls as a tensor and reads it with .item(). While AOTAutograd traces, an op
may need its value: clamp(min=-k). The value then becomes a constant of the graph, and Dynamo guards it. torch stores a graph with
its guards on integers only. So a later call with another float would find the graph with the first constant. Here the floats of a
graph are added to the integers that its stored guards are about. When an entry is loaded, torch adds its guards to those of the
frame, so that the next value is compiled, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._functorch._aot_autograd import autograd_cache
from torch._subclasses.fake_tensor import FakeTensor

# The functions with which versions of torch read the value of an integer at a lookup.
_HINTS = ("guarding_hint_or_throw", "size_hint")
# A condition that torch adds for each float. Dynamo's own guards have it, and evaluating it for a symbolic float makes the float a
# constant.
_NOT_NAN = re.compile(r"not math\.isnan\(L\['\w+'\]\)")


def floats_of(inputs: Iterable[Any]) -> list[torch.SymFloat]:
    """Returns the floats that Dynamo passes as tensors, in the order of the inputs."""
    memos = (x.item_memo for x in inputs if isinstance(x, FakeTensor) and x.device.type == "cpu" and x.dim() == 0)
    return [memo for memo in memos if isinstance(memo, torch.SymFloat) and memo.node.has_hint()]


def install(is_ours: Callable[[], bool]) -> str:
    """Wraps torch's functions, once. `is_ours` says whether this thread compiles for this backend. Returns why that is
    impossible, or ""."""
    functions: dict[str, Any] = vars(autograd_cache)
    name = next((name for name in _HINTS if name in functions), "")
    if not name:
        return f"torch {torch.__version__} reads the values of a graph's integers in a way that is not known"
    replaced: Any = autograd_cache.AOTAutogradCache
    hint, find, generate = functions[name], replaced._filter_backed_symints, replaced.generate_guards_expression

    def hint_of_number(number: Any) -> Any:
        return hint(number.node) if isinstance(number, torch.SymFloat) else hint(number)

    def backed_numbers(cls: Any, inputs: Any) -> Any:
        return [*find(inputs), *floats_of(inputs)] if is_ours() else find(inputs)

    def generate_guards_expression(cls: Any, cache_info: Any) -> str | None:
        terms = (generate(cache_info) or "").split(" and ")
        return " and ".join(term for term in terms if not _NOT_NAN.fullmatch(term)) or None

    functions[name] = hint_of_number
    replaced._filter_backed_symints = classmethod(backed_numbers)
    replaced.generate_guards_expression = classmethod(generate_guards_expression)
    return ""
