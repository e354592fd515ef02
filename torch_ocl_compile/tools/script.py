# torch_ocl_compile/tools/script.py: runs a user's program inside this process, for commands that observe what it compiles.
from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torch_ocl_compile.errors import OclError, ToolError


def run_target(target: str, arguments: Sequence[str]) -> Any:
    """Runs `script.py` as a main program, or calls the function of `module:function` without arguments and returns its
    result. ToolError that names the program's line if it fails."""
    if is_function(target):
        return _call(target, arguments)
    with _main_program(target, arguments), _failures(target, target):
        runpy.run_path(target, run_name="__main__")
    return None


def is_function(target: str) -> bool:
    """True if a target is `module:function` rather than the path of a script."""
    module, _, function = target.partition(":")
    return function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _call(target: str, arguments: Sequence[str]) -> Any:
    module_name, _, function_name = target.partition(":")
    with _main_program(target, arguments), _failures(target, None):
        sys.path[0] = os.getcwd()
        module = importlib.import_module(module_name)
        function: Callable[[], Any] | None = getattr(module, function_name, None)
        if function is None:
            raise ToolError(f"{module_name} has no function {function_name!r}.")
        return function()


@contextlib.contextmanager
def _main_program(target: str, arguments: Sequence[str]) -> Iterator[None]:
    saved = sys.argv, list(sys.path)
    sys.argv = [target, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(target)))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = saved


@contextlib.contextmanager
def _failures(target: str, path: str | None) -> Iterator[None]:
    """Turns an error that ends the program into a ToolError."""
    try:
        yield
    except ToolError:
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            raise ToolError(f"{target} ended with status {error.code}.") from error
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        # Dynamo wraps errors of the program in its own.
        cause = getattr(error, "inner_exception", error)
        lines = str(cause).strip().splitlines() or [""]
        reason = "\n".join(lines) if isinstance(cause, OclError | torch.OutOfMemoryError) else lines[0]
        raise ToolError(f"{_place(error, path) or target}: {type(cause).__name__}: {reason}") from error


def _place(error: Exception, path: str | None) -> str:
    """Returns "file:line" where a program failed: the last line of its own file, or the last line outside of packages."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    if path is not None:
        own = [f for f in frames if os.path.abspath(f.filename) == os.path.abspath(path)]
    else:
        here = os.path.dirname(os.path.abspath(__file__))
        own = [f for f in frames if "site-packages" not in f.filename and os.path.dirname(os.path.abspath(f.filename)) != here
               and os.sep + "importlib" + os.sep not in f.filename]  # fmt: skip
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""
