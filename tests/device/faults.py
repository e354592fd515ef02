# tests/device/faults.py: plants faults in the text of kernels, to test that something finds them.
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torch_ocl_compile import _C


@contextmanager
def changed(faults: list[tuple[str, str, str]]) -> Iterator[None]:
    """Changes the texts of kernels of plans that are made meanwhile. A fault is (kernel, part of its text, what replaces
    the part). Without a name, it is in each kernel; without a part, it comes at the end."""
    _C.testing.plant(faults)
    try:
        yield
    finally:
        _C.testing.plant([])


NOT_C = [("", "", "\nthis is no C\n")]


@contextmanager
def planted(kind: str | None, pattern: str, by: str, graph: str = "") -> Iterator[list[str]]:
    """Replaces what matches `pattern` by `by` in the texts of kernels of one kind ("gemm", ...; None: all), in graphs
    whose label begins with `graph`. Yields the names of the changed kernels."""
    real: Callable[..., Any] = _C.exec.compile
    found: list[str] = []

    def compile_(ir_graph: Any, device: int, calls: Any, options: dict[str, Any], *_: Any) -> Any:
        if not options["label"].startswith(graph):
            return real(ir_graph, device, calls, options)
        plain = real(ir_graph, device, calls, {**options, "check": False, "debug": False})
        replaced: dict[tuple[str, str], str] = {}
        for kernel in plain.describe():
            if kind is None or kernel["kind"] == kind:
                parts = {(kernel["name"], m[0]): m.expand(by) for m in re.finditer(pattern, kernel["text"])}
                replaced |= parts
                found.extend([kernel["name"]] if parts else [])
        with changed([(*k, v) for k, v in replaced.items()]):
            return real(ir_graph, device, calls, options)

    _C.exec.compile = compile_
    torch._dynamo.reset()
    try:
        yield found
    finally:
        _C.exec.compile = real
        torch._dynamo.reset()
