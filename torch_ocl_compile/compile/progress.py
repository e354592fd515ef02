# torch_ocl_compile/compile/progress.py: a line on the terminal that says what goes on while a compilation takes long.
"""The line appears after ten seconds. While kernels are built, the core's line takes its place, which counts kernels
(csrc/runtime/build/build_progress.h)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch_ocl_compile import config

FIRST_S, BETWEEN_S = 10.0, 0.2
_ERASE = "\r\033[K"  # to the start of the line, and clear it
_TRACING = "PyTorch traces the model"


class _Line:
    """The line of one compilation. It is removed by `end`."""

    def __init__(self, is_ours: bool) -> None:
        self.is_ours = is_ours  # False while it is unknown which backend will get the graph.
        self.phase = _TRACING
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name="ocl progress", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        shown = ""
        late = not self.ended.wait(FIRST_S)
        while late:
            if self.is_ours and self.phase != shown:
                shown = self.phase
                sys.stderr.write(f"{_ERASE}torch_ocl_compile: {shown}"[:80])
                sys.stderr.flush()
            late = not self.ended.wait(BETWEEN_S)
        if shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()

    def end(self) -> None:
        self.ended.set()
        self.thread.join()


_line: _Line | None = None  # Dynamo reports only the outermost of nested compilations.


def watch_dynamo() -> None:
    """Shows a line for each compilation that Dynamo begins from now on."""
    from torch._dynamo.callback import callback_handler

    if _begin not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(_begin)
        callback_handler.register_end_callback(_end)


@contextmanager
def phase(text: str) -> Iterator[None]:
    """Says what the compilation does within the block. Only this backend's compilations have phases."""
    line = _line
    if line is None:
        yield
        return
    line.is_ours, before, line.phase = True, line.phase, text
    try:
        yield
    finally:
        line.phase = before


def _begin(_: Any) -> None:
    global _line
    if _line is None and config.get("progress") and sys.stderr is not None and sys.stderr.isatty():
        _line = _Line(_traces_for_us())


def _end(_: Any) -> None:
    global _line
    if _line is not None:
        _line.end()
        _line = None


def _traces_for_us() -> bool:
    """True if the frame that Dynamo begins to trace is compiled with this backend. False for a lazy backward graph: whose it is,
    its first phase says."""
    from torch._dynamo.eval_frame import innermost_backend

    frame: Any = sys._getframe(2)
    while frame is not None:
        converter = frame.f_locals.get("self")
        backend = getattr(converter, "_torchdynamo_orig_backend", None)
        if backend is not None:
            backend = innermost_backend(backend)
            given = getattr(backend, "compiler_fn", backend)  # torch.compile wraps a backend that has options.
            return str(getattr(given, "__module__", "")).startswith("torch_ocl_compile")
        frame = frame.f_back
    return False
