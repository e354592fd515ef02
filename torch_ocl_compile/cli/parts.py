# torch_ocl_compile/cli/parts.py: what several commands use: options, tables, JSON, progress.
from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from torch_ocl_compile import _C, config

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(dir_okay=False, path_type=Path)
# Width in columns of output that does not go to a terminal.
UNLIMITED = 10_000


@dataclass
class Session:
    """One run of a command line."""

    group: click.Group
    name: str
    debug: bool = False  # If true, errors show a traceback.


def _set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.obj.debug = True


class Command(click.Command):
    """A command with the option --debug. Its help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += self.debug_option()
        self.examples = list(examples)

    @staticmethod
    def debug_option() -> list[click.Parameter]:
        return [
            click.Option(
                ["--debug"],
                is_flag=True,
                expose_value=False,
                callback=_set_debug,
                help="Show a traceback with an error.",
            )
        ]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class Group(click.Group):
    """A group that lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON in place of a table.")(command)


def device_option(help: str) -> Callable[[F], F]:
    def checked(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
        try:
            device = torch.device(value)
        except RuntimeError:
            raise click.BadParameter(f"{value!r} is no device; devices are called ocl, ocl:0, ocl:1, ...") from None
        if device.type != "ocl":
            raise click.BadParameter(f"{value!r} is no OpenCL device; those are called ocl, ocl:0, ocl:1, ...")
        if 0 < _C.device_count() <= (device.index or 0):
            raise click.BadParameter(f"{value!r} does not exist; `torch-ocl devices` lists {_C.device_count()}.")
        return value

    return click.option("--device", default="ocl", show_default=True, callback=checked, help=help)


def output_option(default: str | None = None, name: str = "--output", help: str = "") -> Callable[[F], F]:
    """Returns an option for an output file. The folder must exist; this is checked before anything is computed."""
    return click.option(
        name, type=FILE, default=default, show_default=True, metavar="FILE", callback=writable, help=help
    )


def writable(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """Callback of an option for an output file. BadParameter if its folder does not exist."""
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(value.parent)!r}.")
    return value


def require_device() -> None:
    """Raises ConfigError with the reason if there is no device."""
    _C.require_device(-1)


def names(ctx: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    """Callback of an option that takes comma-separated names."""
    return [name.strip() for name in value.split(",") if name.strip()]


def names_of(*allowed: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Returns the callback of an option that takes comma-separated names out of `allowed`."""

    def callback(ctx: click.Context, parameter: click.Parameter, value: str) -> list[str]:
        found = names(ctx, parameter, value)
        if wrong := [name for name in found if name not in allowed]:
            raise click.BadParameter(f"{wrong[0]!r} is none of {', '.join(allowed)}.")
        if not found:
            raise click.BadParameter(f"no name is given; there are {', '.join(allowed)}.")
        return found

    return callback


class _Output(Console):
    def on_broken_pipe(self) -> None:
        # main() handles this error.
        raise BrokenPipeError


def output() -> Console:
    """Returns a console on standard output. Lines are wrapped only on a terminal."""
    return _Output(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else UNLIMITED)


def say(text: str) -> None:
    output().print(text, markup=False, soft_wrap=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """Prints a table. A column whose name begins with ">" is aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, title=title, title_justify="left", pad_edge=False)
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_escaped(cell) for cell in row))
    output().print(table)


def _escaped(cell: object) -> str:
    from rich.markup import escape

    return escape(str(cell))


def print_json(value: object) -> None:
    """Prints JSON. NaN becomes null, because JSON has no NaN."""
    click.echo(json.dumps(plain(value), indent=1, allow_nan=False))


def plain(value: Any) -> Any:
    """Replaces NaN by None, because JSON has no NaN."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and value != value else value


def beside_json(as_json: bool) -> AbstractContextManager[Any]:
    """Within the block, what a program prints goes to standard error if standard output is for JSON."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def number(value: float, form: str) -> str:
    """Returns the number formatted by `form`, or a dash for NaN."""
    return "-" if value != value else format(value, form)


@contextmanager
def progress(first: str) -> Iterator[Callable[[str], None]]:
    """Shows on a terminal what is being done. Use: `with progress("compiling") as now: now("measuring")`."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with config.override(progress=False), Console(stderr=True).status(first) as status:  # only one line of progress
        yield status.update
