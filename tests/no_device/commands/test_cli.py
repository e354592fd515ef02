# tests/no_device/commands/test_cli.py: the command line without a device: help, wrong use, full disks, closed pipes, failing programs.
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import torch

from tests import written_pages
from torch_ocl_compile import cli, config
from torch_ocl_compile.cli import COMMANDS, main, parts
from torch_ocl_compile.errors import ConfigError, InternalError, ToolError
from torch_ocl_compile.tools import script

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    """Gives the commands an empty cache."""
    with config.override(cache_dir=str(tmp_path / "cache")):
        config.configure_core()
        yield
    config.configure_core()


@pytest.fixture
def run(capsys):
    """Runs a command in this process; returns (status, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(list(map(str, arguments)))
        return status, *capsys.readouterr()

    return run


def is_one_line(text: str) -> bool:
    return text.startswith("torch-ocl: ") and text.count("\n") == 1 and "Traceback" not in text


# Help


@pytest.mark.parametrize(
    "names, command", written_pages.commands(), ids=[" ".join(names) for names, _ in written_pages.commands()]
)
def test_help(names, command, run):
    """Every command's help says what it does, what each option means, and shows examples that the command accepts."""
    status, out, err = run(*names, "--help")
    assert status == 0 and not err
    assert command.help and all(option.help for option in command.params if isinstance(option, click.Option))
    if isinstance(command, click.Group):
        return
    assert "Examples:" in out and command.examples
    for example in command.examples:
        words = example.split(">")[0].split()
        words = words[words.index("torch-ocl") + 1 :]
        assert words[: len(names)] == list(names), example
        known = {name for option in command.params for name in option.opts}
        own = words[len(names) : first_target(words, names, command)]
        assert {word for word in own if word.startswith("--")} <= known, example


def first_target(words, names, command):
    """Returns the position at which the words of a user's own program begin."""
    if not command.context_settings.get("allow_interspersed_args", True):
        return next((i for i, word in enumerate(words) if i >= len(names) and not word.startswith("-")), len(words))
    return len(words)


def test_the_commands_are_listed_and_versions_shown(run):
    status, out, _ = run("--help")
    assert status == 0 and all(f"  {name} " in out for name in COMMANDS)
    status, out, _ = run("--version")
    assert status == 0 and "torch_ocl_compile" in out
    for name in COMMANDS:
        help = cli.top.get_command(click.Context(cli.top), name).help
        assert help, name


def test_the_page_is_what_the_help_says():
    assert (ROOT / "docs" / "command_line.md").read_text() == written_pages.page(), "python -m tests.written_pages"


# Wrong use: status 2


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["devices", "--nonsense"], "No such option"),
        (["cache"], "Missing command"),
        (["cache", "prune"], "--size or --unused-for"),
        (["cache", "prune", "--size", "-1"], "--size"),
        (["cache", "import", "missing.zip"], "missing.zip"),
        (["explain"], "Missing argument 'TARGET'"),
        (["explain", "missing.py"], "there is no file 'missing.py'"),
        (["explain", "/"], "'/' is no file"),
        (["explain", "--jsno", __file__], "No such option"),
        (["tune", "--nonsense", "gemm:1x1x1"], "No such option"),
        (["trace", "missing.py"], "there is no file 'missing.py'"),
        (["trace", "--output", "/nowhere/trace.json", __file__], "there is no folder '/nowhere'"),
        (["tune"], "Nothing to do"),
        (["tune", "--device", "cuda", "gemm:1x1x1"], "'cuda' is no OpenCL device"),
        (["tune", "--device", "table", "gemm:1x1x1"], "'table' is no device"),
        (["bench"], "Missing argument"),
        (["bench", "model.py"], "as MODULE:FUNCTION"),
        (["bench", "a:b", "--sides", "eager,magic"], "'magic' is none of eager, inductor, ocl"),
        (["bench", "a:b", "--sides", ","], "no name is given"),
    ],
    ids=" ".join,
)
def test_wrong_use(arguments, says, run, monkeypatch):
    monkeypatch.setattr(parts, "require_device", lambda: None)
    status, out, err = run(*arguments)
    assert status == 2 and not out
    # click prints the whole help for a group without a command.
    if arguments == ["cache"]:
        return
    assert is_one_line(err) and says in err and "--help`" in err, err


# Programs that fail: status 1

WRAPPED = """import torch
from torch_ocl_compile.errors import ConfigError
class Wrapper(Exception): inner_exception = ConfigError("all of it\\n  do: this")
raise Wrapper("backend raised:")
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Runs a target of tools/script.py that is made from a text."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, function: str = "") -> object:
        (tmp_path / "program.py").write_text(text)
        sys.modules.pop("program", None)
        return script.run_target(f"program:{function}" if function else "program.py", ["--flag", "7"])

    yield run
    sys.modules.pop("program", None)


def test_a_program_runs_as_a_main_program(program, tmp_path):
    program(
        "import sys, pathlib\nassert __name__ == '__main__'\npathlib.Path('said').write_text(' '.join(sys.argv))\nsys.exit(0)\n"
    )
    assert (tmp_path / "said").read_text() == "program.py --flag 7"
    assert program("def f():\n    import sys\n    return sys.argv[1:]\n", "f") == ["--flag", "7"]


@pytest.mark.parametrize(
    "text, function, says",
    [
        ("x = 1\nraise ValueError('so it is\\nreally')\n", "", r"program.py:2: ValueError: so it is$"),
        ("import json\njson.loads('[')\n", "", r"program.py:2: JSONDecodeError: "),
        ("def f(:\n", "", r"program.py:1: SyntaxError: "),
        ("import sys\nsys.exit(3)\n", "", r"program.py ended with status 3"),
        ("def f():\n    return 1 / 0\n", "f", r"program.py:2: ZeroDivisionError: "),
        ("", "g", r"program has no function 'g'"),
        (WRAPPED, "", r"program.py:4: ConfigError: all of it\n  do: this$"),
        ("import nonesuch\n", "", r"program.py:1: ModuleNotFoundError: .*nonesuch"),
    ],
)
def test_a_program_that_fails(text, function, says, program):
    argv, path = list(sys.argv), list(sys.path)
    with pytest.raises(ToolError, match=says):
        program(text, function)
    assert sys.argv == argv and sys.path == path


def test_a_module_that_is_missing(program):
    with pytest.raises(ToolError, match="nonesuch_module:f: ModuleNotFoundError"):
        script.run_target("nonesuch_module:f", [])


# How a command ends


@pytest.mark.parametrize(
    "error, status, says",
    [
        (ConfigError("it is wrong.\n  do: mend it"), 1, "torch-ocl: it is wrong; do: mend it\n"),
        (InternalError("a promise was broken"), 1, "torch-ocl: a promise was broken\n"),
        (torch.OutOfMemoryError("full\n  largest holders: x"), 1, "torch-ocl: full; largest holders: x\n"),
        (InternalError("a log\nof many lines"), 1, "torch-ocl: a log\nof many lines\n"),
        (PermissionError(13, "Permission denied", "/etc/x"), 1, "torch-ocl: Permission denied: /etc/x\n"),
        (ZeroDivisionError("division"), 1, "torch-ocl: ZeroDivisionError: division (--debug shows where)\n"),
        (KeyboardInterrupt(), 130, "torch-ocl: interrupted\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors(error, status, says, run, monkeypatch):
    from torch_ocl_compile.cli import cache

    def fail():
        raise error

    monkeypatch.setattr(cache, "_stats", fail)
    assert run("cache", "stats") == (status, "", says)
    for arguments in (("--debug", "cache", "stats"), ("cache", "stats", "--debug")):
        assert "Traceback" in run(*arguments)[2]


PRINTING = [["--help"], ["--version"], ["cache", "stats"], ["cache", "stats", "--json"], ["cache", "verify"], ["cache", "clear"],
            ["cache", "prune", "--size", "1"], ["cache", "--help"], ["devices"], ["devices", "--json"],
            ["doctor"], ["tune", "--forget"]]  # fmt: skip


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_full_disk(arguments, monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        status = main(arguments)
        monkeypatch.undo()
    assert (status, capsys.readouterr().err) == (1, "torch-ocl: No space left on device\n")


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_closed_pipe(arguments, monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        status = main(arguments)
        monkeypatch.undo()
    assert (status, capsys.readouterr().err) == (cli.PIPE_CLOSED, "")


def test_a_process_ends_with_the_status():
    """The process exits with the status of main(), and the shutdown of the interpreter prints nothing."""
    command = f"{sys.executable} -m torch_ocl_compile cache stats"
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    full = subprocess.run(["sh", "-c", f"{command} > /dev/full"], capture_output=True, text=True, env=environment)
    assert (full.returncode, full.stderr) == (1, "torch-ocl: No space left on device\n")
    pipe = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, env=environment
    )
    assert (pipe.returncode, pipe.stderr) == (cli.PIPE_CLOSED, "")


WITHOUT_DEVICE = """
import contextlib, io, json, sys
from torch_ocl_compile.cli import main
results = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    results.append([status, out.getvalue(), err.getvalue()])
json.dump(results, sys.stdout)
"""


def test_no_device(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("print('it ran')\n")
    fails = [["doctor"], ["explain", str(program)], ["trace", str(program)], ["tune", "gemm:8x8x8"],
             ["tune", str(program)], ["bench", "json:loads"],
             ["cache", "export", str(tmp_path / "x.zip")], ["cache", "import", str(program)], ["devices"]]  # fmt: skip
    works = [["cache", "stats"], ["cache", "clear"], ["--help"], ["tune", "--forget"]]
    environment = dict(
        os.environ, PYTHONPATH=str(ROOT), TORCH_OCL_DEVICES="nonesuch", TORCH_OCL_CACHE_DIR=str(tmp_path / "cache")
    )
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DEVICE, json.dumps(fails + works)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    for arguments, (status, out, err) in zip(fails, results, strict=False):
        assert status == 1 and "it ran" not in out, arguments
        if arguments[0] in ("devices", "doctor"):
            assert "No OpenCL device" in out and "nonesuch" in out and not err
        else:
            assert is_one_line(err) and "'nonesuch' matches no device" in err, (arguments, err)
    for arguments, (status, _, err) in zip(works, results[len(fails) :], strict=True):
        assert (status, err) == (0, ""), arguments
    assert done.stderr == "", "the runtime adds nothing"


def test_json_has_no_nan(capsys):
    parts.print_json({"a": [float("nan"), 1.5, {"b": (True, None)}], 7: "x"})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5, {"b": [True, None]}], "7": "x"}


def test_tables_are_whole_where_no_terminal_limits_them(capsys):
    parts.print_table(["name", ">value"], [("x" * 300, 1), ("[red]y[/red]", 22)])
    lines = capsys.readouterr().out.splitlines()
    assert "x" * 300 in lines[2] and "[red]y[/red]" in lines[3] and lines[3].rstrip().endswith("22")
    assert "\x1b" not in "".join(lines), "no colours outside of terminals"


def test_the_script_and_what_it_needs_are_installed():
    project = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'^\[project\.scripts\]\ntorch-ocl = "torch_ocl_compile\.cli:main"$', project, re.M)
    dependencies = re.search(r"^dependencies = \[(.*?)\]", project, re.M | re.S)
    assert {"click", "rich", "platformdirs"} == set(re.findall(r'"([a-z]+)', dependencies[1]))
