# torch_ocl_compile/cli/target.py: the arguments TARGET [ARGUMENTS]... of commands that run a program.
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from torch_ocl_compile.tools.script import is_function

F = TypeVar("F", bound=Callable[..., Any])


def checked_target(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    script, _, function = value.partition(":")
    if script.endswith(".py") and function.isidentifier() and os.path.isfile(script):
        module = os.path.splitext(os.path.relpath(script))[0].replace(os.sep, ".")
        raise click.BadParameter(f"a target is a script, {script}, or a function of a module, {module}:{function}.")
    if not is_function(value):
        if not os.path.exists(value):
            raise click.BadParameter(f"there is no file {value!r}; a target is a script or MODULE:FUNCTION.")
        if not os.path.isfile(value):
            raise click.BadParameter(f"{value!r} is no file.")
    return value


def target_argument(command: F) -> F:
    """Adds TARGET [ARGUMENTS]... to a command, which gets them as `target` and `arguments`."""
    command = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)(command)
    return click.argument("target", callback=checked_target)(command)
