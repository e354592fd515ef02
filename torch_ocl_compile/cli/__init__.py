# torch_ocl_compile/cli/__init__.py: the command line. Lists the commands, and sets their exit status and messages.
"""`torch-ocl COMMAND` or `python -m torch_ocl_compile COMMAND`. Each command is a module of this folder, which is
imported when the command is used. tests/written_pages.py writes docs/command_line.md."""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence

import click
import torch

from torch_ocl_compile import __version__
from torch_ocl_compile.cli.parts import Command, Session
from torch_ocl_compile.device import environment
from torch_ocl_compile.errors import OclError

FINE, FAULT, WRONG_USE, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

# Name -> what the command does. The module with this name has the function `command`.
COMMANDS = {
    "devices": "List the OpenCL devices, in the order of ocl:0, ocl:1, ...",
    "doctor": "Compile and check small networks on every device.",
    "explain": "Show the graphs and kernels that a program compiles.",
    "trace": "Write a Chrome trace of the kernels that a program runs.",
    "bench": "Time a model beside eager PyTorch and Inductor.",
    "tune": "Measure which kernel variant is fastest on a device.",
    "warm": "Fill the cache for a program, without computing anything.",
    "cache": "Look after the kernel cache.",
    "package": "Write a model to a file that runs without PyTorch and Python.",
    "run": "Run a package.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"torch_ocl_compile.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = difflib.get_close_matches(args[0], COMMANDS, 1) if args else []
        if args and args[0] not in COMMANDS and near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands,
    params=Command.debug_option(),
    epilog="Exit status: 0 fine, 1 the command found a fault, 2 wrong use, 130 interrupted, 141 the reader of the output is gone.",
)
@click.version_option(__version__, message="torch_ocl_compile %(version)s")
def top() -> None:
    """torch.compile on OpenCL devices.

    `torch-ocl COMMAND --help` shows the options of a command, with examples."""


def main(argv: Sequence[str] | None = None, group: click.Group = top, name: str = "torch-ocl") -> int:
    """Runs a command and returns the exit status. An error is one line on stderr; --debug adds a traceback."""
    session = Session(group, name)
    try:
        return _run(session, list(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:
        _drop_output()
        return PIPE_CLOSED
    except (KeyboardInterrupt, click.Abort):
        return _fail(session, INTERRUPTED, "interrupted")
    except click.exceptions.NoArgsIsHelpError as error:  # A group was called without a command.
        click.echo(error.format_message(), err=True)
        return WRONG_USE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else name
        return _fail(session, WRONG_USE, f"{_one_line(error.format_message())} See `{where} --help`.")
    except click.ClickException as error:
        return _fail(session, error.exit_code, _one_line(error.format_message()))
    except (OclError, torch.OutOfMemoryError) as error:
        return _fail(session, FAULT, _one_line(str(error)))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _drop_output()
        where = f": {error.filename}" if error.filename else ""
        return _fail(session, FAULT, f"{error.strerror or error}{where}")
    except Exception as error:
        return _fail(session, FAULT, f"{type(error).__name__}: {_one_line(str(error))} (--debug shows where)")


def _run(session: Session, arguments: list[str]) -> int:
    # click's main() is not used, because it ends the process with a status of its own when a pipe is closed.
    try:
        for problem in environment.unknown():
            print(f"{session.name}: warning: {problem}", file=sys.stderr)
        with session.group.make_context(session.name, arguments, obj=session) as context:
            status = session.group.invoke(context)
    except click.exceptions.Exit as end:  # Raised by --help and --version.
        status = end.exit_code
    sys.stdout.flush()
    return int(status or FINE)


def _one_line(message: str) -> str:
    """Joins lines of the form "what happened", "do: what to do" into one line. Other text, such as a compiler's log, is
    unchanged."""
    lines = [line.strip() for line in message.strip().splitlines()]
    if all(re.match(r"[a-z ]+: ", line) for line in lines[1:]):
        return "; ".join(line.rstrip(".") if i < len(lines) - 1 else line for i, line in enumerate(lines))
    return message


def _fail(session: Session, status: int, message: str) -> int:
    """Prints the message on stderr, if it is open. Returns the status."""
    with contextlib.suppress(OSError, ValueError):
        if session.debug:
            traceback.print_exc()
        print(f"{session.name}: {message}", file=sys.stderr, flush=True)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _drop_output()
    return status


def _drop_output() -> None:
    """Discards buffered output. Otherwise the interpreter would fail again when it flushes at its end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
