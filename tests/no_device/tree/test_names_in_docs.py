# tests/no_device/tree/test_names_in_docs.py: every name of this project that README and docs mention exists.
"""Checked are names of torch.ocl and of torch_ocl_compile, options, environment variables, commands with their options,
targets of make, and files. For each kind, a function returns the names in a text that do not exist."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
from functools import cache
from pathlib import Path

import click
import pytest
import torch

from tests import written_pages
from torch_ocl_compile import config

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.S)

# Files that pages mention and the repository does not contain: programs on the page write them, or they are a user's
# own.
FOREIGN = {
    "cache.sqlite": "the cache",
    "demo.png": "the demo writes it",
    "trace.json": "`torch-ocl trace` writes it",
    "bench.png": "`python -m benchmarks plot` writes it",
    "run.png": "`python -m benchmarks plot` writes it",
    "run.json": "`python -m benchmarks models` writes it",
    "a.json": "a result file",
    "b.json": "a result file",
    "NAME.json": "a result file",
    "*.fx.txt": "a dump",
    "*.graph.txt": "a dump",
    "forward_*.fx.txt": "a dump",
    "backward_*.fx.txt": "a dump",
    "kernel.cl": "of the folder of a kernel that differs",
    "group.txt": "of the folder of a kernel that differs",
    "rerun.py": "of the folder of a kernel that differs",
    "train.py": "a user's script",
    "model.py": "a user's script",
}
ENDINGS = "py|cpp|h|cl|def|md|json|sh|toml|txt|csv|sqlite|png"
# Environment variables that are not options.
OTHER_VARIABLES = {
    "TORCH_OCL_": "how the names begin",
    "TORCH_OCL_FUZZ_SEED": "of the tests",
}


def code_of(text: str) -> str:
    return "\n".join(CODE.findall(text))


# One function for each kind of name


def missing_attributes(text: str) -> set[str]:
    """Returns missing names of the form torch.ocl.NAME or torch_ocl_compile.NAME, and missing imports from there."""
    found = set(re.findall(r"\b(?:torch\.ocl|torch_ocl_compile)(?:\.[A-Za-z_]\w*)+", text))
    for module, names in re.findall(r"from (torch_ocl_compile[\w.]*) import ([\w, ]+)", text):
        found |= {f"{module}.{name.strip()}" for name in names.split(",")}
    return {name for name in found if not exists(name) and name.split(".")[-1] not in ENDINGS.split("|")}


@cache
def exists(name: str) -> bool:
    first, *rest = name.split(".")
    value = torch if first == "torch" else importlib.import_module(first)
    for i, part in enumerate(rest):
        if not hasattr(value, part):
            module = ".".join([first, *rest[: i + 1]])
            if module == "torch_ocl_compile.lightning":
                return defines(module, rest[i + 1 :])
            try:
                value = importlib.import_module(module)
                continue
            except ImportError:
                return False
        value = getattr(value, part)
    return True


def defines(module: str, names: list[str]) -> bool:
    """True if the module's text defines or imports the name. The module is not imported, because it needs another package."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    found |= {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    return not names or (len(names) == 1 and names[0] in found)


def missing_variables(text: str) -> set[str]:
    variables = {row.variable for row in config.options().values()} | set(OTHER_VARIABLES)
    return set(re.findall(r"\bTORCH_OCL_\w*", text)) - variables


def missing_options(text: str) -> set[str]:
    """Returns missing options: keys of options={...}, and arguments of config.set, get and override."""
    names = set(re.findall(r"config\.(?:set|get)\(\s*\"(\w+)\"", text))
    for inside in re.findall(r"config\.override\(([^)]*)\)", text):
        names |= set(re.findall(r"(\w+)=", inside))
    for inside in re.findall(r"options=\{([^}]*)\}", text):
        names |= set(re.findall(r"\"(\w+)\":", inside))
    return names - set(config.options())


@cache
def commands() -> dict[tuple[str, ...], click.Command]:
    return dict(written_pages.commands())


def missing_commands(text: str) -> set[str]:
    """Returns missing commands, and options that a command lacks, as in `torch-ocl cache stats --nonsense`."""
    wrong = set()
    for line in re.findall(r"(?:torch-ocl|-m torch_ocl_compile) +([^\n`|>#]*)", text.replace("\\\n", " ")):
        words = [word.strip("(),.;:\"'") for word in line.split()]
        if not words or words[0].isupper() or words[0].startswith("-"):
            continue
        names: tuple[str, ...] = ()
        while words and (*names, words[0]) in commands():
            names = (*names, words.pop(0))
        command = commands().get(names)
        if command is None or (isinstance(command, click.Group) and words and not words[0].startswith("-")):
            wrong.add(line.strip())
            continue
        if not command.context_settings.get("allow_interspersed_args", True):
            words = words[
                : next((i for i, word in enumerate(words) if word.endswith(".py") or ":" in word), len(words))
            ]
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {
            "--help",
            "--debug",
        }
        wrong |= {
            f"{' '.join(names)} {word}" for word in words if word.startswith("--") and word.split("=")[0] not in known
        }
    return wrong


def missing_targets(text: str) -> set[str]:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", code_of(text), re.M))
    return named - targets


@cache
def files() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(name for name in listed.stdout.split() if (ROOT / name).exists())


def missing_files(text: str) -> set[str]:
    """Returns missing paths and file names: a name must be the end of a file's path; `*` stands for any text."""
    found = set()
    for code in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)):
        found |= set(re.findall(rf"(?<![\w./<~*-])[\w*][\w./*-]*\.(?:{ENDINGS})\b(?![\w(])", code))
    known = set(FOREIGN)
    return {name for name in found if name.split("/")[-1] not in known and not name[0].isupper() and not is_file(name)}


def is_file(name: str) -> bool:
    pattern = re.escape(name.removeprefix("./")).replace(r"\*", "[^/]*")
    return any(re.search(rf"(^|/){pattern}$", path) for path in files())


KINDS = [missing_attributes, missing_variables, missing_options, missing_commands, missing_targets, missing_files]


@pytest.mark.parametrize("missing", KINDS, ids=lambda kind: kind.__name__.removeprefix("missing_"))
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_names_exist(path, missing):
    wrong = missing(path.read_text(encoding="utf-8"))
    assert not wrong, f"{path.name} mentions what does not exist: {sorted(wrong)}"


@pytest.mark.parametrize(
    "missing, text, wrong",
    [
        (missing_attributes, "`torch.ocl.record()`, torch.ocl.memory._snapshot, `torch.ocl.recrod`", {"torch.ocl.recrod"}),
        (missing_attributes, "from torch_ocl_compile import explain, explian", {"torch_ocl_compile.explian"}),
        (missing_attributes, "torch_ocl_compile._C.exec.build_counters() torch_ocl_compile.eager.no()", {"torch_ocl_compile.eager.no"}),
        (missing_attributes, "from torch_ocl_compile.lightning import OclAccelerator, Ocl", {"torch_ocl_compile.lightning.Ocl"}),
        (missing_variables, "TORCH_OCL_DUMP=x TORCH_OCL_DUMPS=x", {"TORCH_OCL_DUMPS"}),
        (missing_options, 'options={"debug": True, "bugs": 1}; config.set("dmp", 1); config.override(egr=1)', {"bugs", "dmp", "egr"}),
        (missing_commands, "`torch-ocl devices --jsno`, `torch-ocl nothing`", {"devices --jsno", "nothing"}),
        (missing_commands, "`python -m torch_ocl_compile cache sweep`\n`torch-ocl explain x.py --own`", {"cache sweep"}),
        (missing_targets, "`make test`, `make tests`\n\nmake nothing of it", {"tests"}),
        (missing_files, "`docs/install.md`, `codegen/phases.h`, `op_table*.py`, `docs/no.md`, `phasers.h`", {"docs/no.md", "phasers.h"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_what_does_not_exist_is_found(missing, text, wrong):
    assert missing(text) == wrong
