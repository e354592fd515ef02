# tests/no_device/tree/device_lists.py: finds the places in torch's Python sources that name other accelerators.
"""A place is a function that compares with a device's name ("cuda", "xpu", ...), has a list of such names, or asks
is_cuda or is_xpu. A function that also asks for the private device's name (PrivateUse1) treats us like the others, so it is
no place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

NAMES = {"cuda", "xpu", "mps", "mtia", "hpu", "xla"}
MENTIONS = re.compile(r"is_cuda\b|is_xpu\b|[\"'](?:cuda|xpu|mps|mtia|hpu)[\"']")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

# What a program that uses ocl can reach. A name of a folder stands for all files in it.
WATCHED = (
    "_decomp", "_dynamo", "_functorch", "_higher_order_ops", "_meta_registrations.py", "_prims_common", "_refs",
    "_subclasses", "_tensor.py", "_tensor_str.py", "_utils.py", "accelerator", "amp", "autograd", "distributed",
    "functional.py", "multiprocessing", "nested", "nn", "optim", "random.py", "serialization.py", "storage.py",
    "utils/_foreach_utils.py", "utils/checkpoint.py", "utils/data", "utils/dlpack.py", "utils/flop_counter.py",
)  # fmt: skip


def sources(torch_folder: Path) -> Iterator[Path]:
    for name in WATCHED:
        path = torch_folder / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.is_file()


def places(torch_folder: Path) -> set[tuple[str, str]]:
    """Returns the places as (file, function). The function is "" for code outside of functions."""
    found: set[tuple[str, str]] = set()
    for path in sources(torch_folder):
        text = path.read_text(encoding="utf-8")
        if MENTIONS.search(text):
            name = path.relative_to(torch_folder).as_posix()
            found |= {(name, function) for function in _functions(text)}
    return found


def _functions(text: str) -> set[str]:
    found: set[str] = set()
    lines = text.splitlines()

    def visit(node: ast.AST, inside: tuple[str, ...], asks_for_us: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Definition):
                body = "\n".join(lines[child.lineno - 1 : child.end_lineno])
                is_function = not isinstance(child, ast.ClassDef)
                visit(child, (*inside, child.name), is_function and "privateuse1" in body.lower())
                continue
            if not asks_for_us and _names_devices(child):
                found.add(".".join(inside))
            visit(child, inside, asks_for_us)

    visit(ast.parse(text), (), False)
    return found


def _names_devices(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("is_cuda", "is_xpu")
    if isinstance(node, ast.Compare):
        return any(_constants(side) for side in (node.left, *node.comparators))
    return isinstance(node, ast.List | ast.Tuple | ast.Set) and len(node.elts) > 1 and bool(_constants(node))


def _constants(node: ast.AST) -> set[str]:
    """Returns the names of devices that `node` is, or that it lists."""
    items = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]
    return {i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)} & NAMES
