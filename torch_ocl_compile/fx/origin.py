# torch_ocl_compile/fx/origin.py: describes a node of an FX graph: its op, operands and line of the user's code.
"""The descriptions are used in messages, dumps and records of launches."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from torch_ocl_compile._C import ir


def source_line(node: torch.fx.Node) -> str:
    """Returns the line of the user's code, such as "model.py:61". "" if unknown."""
    found = _frames(node)
    return f"{found[-1][0].rsplit('/', 1)[-1]}:{found[-1][1]}" if found else ""


def _frames(node: torch.fx.Node) -> list[tuple[str, str, str, str]]:
    """Returns (path, number, function, text) of the lines of the user's code that made the node, the outermost first. Code that
    torch has made is left out."""
    found: list[tuple[str, str, str, str]] = re.findall(
        r'File "([^"]+)", line (\d+)(?:, in (.*))?\n?(?!\s*File ")(.*)', node.meta.get("stack_trace") or ""
    )
    found = [f for f in found if not f[0].startswith("<eval_with_key>")]
    return [f for f in found if not f[0].endswith("torch/nn/attention/flex_attention.py")] or found


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
    where = f"    {module_name(node) or _call_in_progress() or '(unknown)'}"
    for path, line, function, code in _frames(node)[-1:]:
        where = f'    File "{path}", line {line}, in {function}\n    {code.strip()}'
    return f"  op:    {node.target}({', '.join(listed)})\n  where:\n{where}"


def _call_in_progress() -> str:
    """Returns the line of the user's code that called what is being compiled; "" in autograd's thread."""
    frame, _ = user_frame()
    return f'called from File "{frame.f_code.co_filename}", line {frame.f_lineno}' if frame is not None else ""


def user_frame() -> tuple[FrameType | None, int]:
    """Returns the innermost frame outside of torch and this package, and its `stacklevel` if the caller warns."""
    own = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith((*own, "<eval_with_key>", "<frozen")):
        frame, level = frame.f_back, level + 1
    return frame, level
