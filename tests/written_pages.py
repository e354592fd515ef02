# tests/written_pages.py: the texts of docs/command_line.md, and of the tables of docs/options.md and docs/profiles.md.
"""`python -m tests.written_pages` writes the first. Tests compare all; pytest --update-golden writes the tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from torch_ocl_compile import _C, config
from torch_ocl_compile.cli import top

DOCS = Path(__file__).resolve().parents[1] / "docs"
SCOPES = {
    "start": " (before the first use of a device)",
    "process": "",
    "compile": " (also in `torch.compile(options=...)`)",
}

HEAD = """\
# Command line

<!-- Written by `python -m tests.written_pages` from the help of the commands. -->
<!-- no-run all: the examples need scripts and files of the reader; tests/device/tools/test_commands.py runs the commands -->

`torch-ocl COMMAND` and `python -m torch_ocl_compile COMMAND` are the same. `--help` shows this text for each command.

- **Tables** are for people. `--json` prints JSON in place of a table, for programs.
- **Colours and progress** appear on terminals only.
- **Messages** about a failure are one line on standard error. `--debug` adds a traceback.

| exit status | meaning |
|--:|---|
| 0 | fine |
| 1 | the command found a fault: no device, wrong results, a program that fails, a file that cannot be used, a full disk |
| 2 | wrong use: an unknown option, a missing file |
| 130 | interrupted |
| 141 | the reader of the output is gone, as in `torch-ocl devices \\| head -1` |
"""


def commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """Returns every command with its names, in the order of the help: ("cache", "stats"), ..."""
    return list(_below((), top))


def _below(names: tuple[str, ...], group: click.Group) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from _below((*names, name), command)


def page() -> str:
    """Returns the text of docs/command_line.md."""
    return HEAD + "".join(_section(names, command) for names, command in commands())


def _section(names: tuple[str, ...], command: click.Command) -> str:
    title = f"\n{'#' * (len(names) + 1)} {' '.join(names)}\n\n"
    text = title + "\n\n".join(_paragraph(part) for part in inspect.cleandoc(command.help or "").split("\n\n")) + "\n"
    if isinstance(command, click.Group):
        return text
    context = click.Context(command)
    arguments = " ".join(p.make_metavar(context) for p in command.params if isinstance(p, click.Argument))
    usage = f"torch-ocl {' '.join(names)} [OPTIONS] {arguments}".rstrip()
    examples = "\n".join(getattr(command, "examples", []))
    options = [_row(p) for p in command.params if isinstance(p, click.Option) and p.name != "debug"]
    text += f"\n```text\n{usage}\n```\n"
    if options:
        text += "\n| option | default | meaning |\n|---|---|---|\n" + "\n".join(options) + "\n"
    return text + f"\n```sh\n{examples}\n```\n"


def _paragraph(text: str) -> str:
    r"""Returns a paragraph of a help text as one line. A list, which begins with \b, becomes a table."""
    if text.startswith("\b"):
        rows = [line.split("  ", 1) for line in text.splitlines()[1:]]
        head = "| column | meaning |\n|---|---|\n"
        return head + "\n".join(f"| {name.strip()} | {meaning.strip()} |" for name, meaning in rows)
    return " ".join(text.split())


def _row(option: click.Option) -> str:
    value = option.default
    shown = (
        f"`{value}`"
        if isinstance(value, str | int | float | Path) and value not in ("", False) and value == value
        else ""
    )
    if option.secondary_opts:
        shown = f"`{option.opts[0]}`"
    kind = option.type
    if isinstance(kind, click.Choice):
        form = " " + "\\|".join(map(str, kind.choices))
    else:
        form = "" if option.is_flag else " " + (option.metavar or kind.name.upper().removesuffix(" RANGE"))
    meaning = re.sub(r"  \[default:.*?\]", "", option.help or "")
    return f"| `{'/'.join([*option.opts, *option.secondary_opts])}{form}` | {shown} | {meaning} |"


def option_table() -> str:
    """Returns the options as a Markdown table, for docs/options.md."""
    lines = ["| option | environment variable | values | default | meaning |", "|---|---|---|---|---|"]
    for row in config.options().values():
        where = f"`{row.name}`" + SCOPES[row.scope]
        default = "" if row.default == "" else f"`{int(row.default) if row.kind is bool else row.default}`"
        lines.append(f"| {where} | `{row.variable}` | {row.values()} | {default} | {row.help} |")
    return "\n".join(lines) + "\n"


def kernel_table() -> str:
    """Returns the hand-written kernels as a Markdown table, for docs/options.md."""
    lines = ["| kernel | execution level | operation | types | checked on the device |", "|---|---|---|---|---|"]
    for row in _C.exec.kernels():
        checked = "yes" if any(row["types"].values()) else "no"
        types = ", ".join(row["types"])
        lines.append(f"| `{row['name']}` | `{row['level']}` | `{row['operation']}` | {types} | {checked} |")
    return "\n".join(lines) + "\n"


def profile_table() -> str:
    """Returns the device profiles as a Markdown table, for docs/profiles.md."""
    lines = [
        "| profile | device | units | work-group | granted | local memory (KiB) | subgroup | fp64 | fp16 "
        "| memory (MiB) | largest buffer (MiB) | arguments | source |",
        "|---|---|" + "--:|" * 4 + "---|---|---|" + "--:|" * 3 + "---|",
    ]
    for row in _C.profiles():
        local = str(row["local_bytes"] >> 10) + (" (in global memory)" if row["local_is_global"] else "")
        subgroups = ", ".join(str(1 << bit) for bit in range(10) if row["subgroup_sizes"] >> bit & 1) or "none"
        precision = ["yes" if row[key] else "no" for key in ("has_fp64", "has_fp16")]
        memory = [str(row[key] >> 20) for key in ("total_memory", "max_alloc_bytes")]
        numbers = [row[key] for key in ("multi_processor_count", "max_group_size", "least_granted")]
        cells = [f"`{row['name']}`", row["device"], *numbers, local, subgroups]
        lines.append(
            "| "
            + " | ".join(map(str, [*cells, *precision, *memory, row["max_kernel_arg_bytes"], row["source"]]))
            + " |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (DOCS / "command_line.md").write_text(page(), encoding="utf-8")
