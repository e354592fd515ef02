# torch_ocl_compile/fx/origin.py: describes a node of an FX graph: its op, operands and line of the user's code.
"""The descriptions are used in messages, dumps and records of launches."""

from __future__ import annotations

import re
from typing import Any

import torch

from torch_ocl_compile._C import ir


def source_line(node: torch.fx.Node) -> str:
    """The line of the user's code, "model.py:61". "" if unknown."""
    found = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    if not found:
        return ""
    path, line = found[-1]
    return f"{path.rsplit('/', 1)[-1]}:{line}"


def origin(node: torch.fx.Node) -> ir.Origin:
    return ir.Origin(str(node.target), source_line(node))


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
