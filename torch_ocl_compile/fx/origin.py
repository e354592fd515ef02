# torch_ocl_compile/fx/origin.py: describes a node of an FX graph: its op, operands and line of the user's code.
"""The descriptions are used in messages, dumps and records of launches."""

from __future__ import annotations

import re
from typing import Any

import torch

from torch_ocl_compile._C import ir


def source_line(node: torch.fx.Node) -> str:
    """Returns the line of the user's code, such as "model.py:61". "" if unknown."""
    found = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    found = [frame for frame in found if not frame[0].endswith("torch/nn/attention/flex_attention.py")] or found
    if not found:
        return ""
    path, line = found[-1]
    return f"{path.rsplit('/', 1)[-1]}:{line}"


def module_name(node: torch.fx.Node) -> str:
    """Returns the node's place in the model, such as "module layers.0 (Linear)"; "" if unknown. It serves for models
    whose code is all torch's, such as nn.Sequential.
    """
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    names = re.findall(r"\['?([^'\]]+)'?\]|\.(\w+)", path)[1:]  # the first is Dynamo's name of the model
    path = ".".join(a or b for a, b in names if (a or b) != "_modules")
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"module {path} ({kind.rsplit('.', 1)[-1]})" if path else f"module {kind.rsplit('.', 1)[-1]}"


def origin(node: torch.fx.Node) -> ir.Origin:
    return ir.Origin(str(node.target), source_line(node) or module_name(node))


def describe_value(node: torch.fx.Node) -> str:
    value = node.meta.get("val", node.meta.get("example_value"))
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{node.name}: {kind}{list(value.shape)} on {value.device}"
    return f"{node.name}: {value}"


def describe(node: torch.fx.Node) -> str:
    """Returns the node's op, operands and line of the model, as text for messages."""

    def text(a: Any) -> str:
        if isinstance(a, torch.fx.Node):
            return describe_value(a)
        return f"[{', '.join(text(x) for x in a)}]" if isinstance(a, (list, tuple)) else repr(a)

    listed = [text(a) for a in node.args] + [f"{k}={text(v)}" for k, v in node.kwargs.items()]
    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    last = max((i for i, line in enumerate(trace) if line.lstrip().startswith("File ")), default=len(trace))
    where = "\n".join("    " + line.strip() for line in trace[last : last + 2]) or "    (unknown)"
    return f"  op:    {node.target}({', '.join(listed)})\n  where:\n{where}"
