# tests/device/tools/test_docs.py: the python and sh blocks of README.md and docs/ run; the python blocks of a page share their names.
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import coverage, doc_blocks
from tests.device.networks.whole_models import import_models
from tests.doc_blocks import ROOT, Block

# Blocks that do not run, and pages whose blocks do not: a new one needs a reason, and room here.
FEW_BLOCKS, FEW_PAGES = 40, 3
PAGES = [page for page in doc_blocks.pages() if any(block.runs for block in doc_blocks.blocks(page))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


@pytest.fixture
def settings_stay():
    """Pages change settings of torch."""
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)


@pytest.mark.sampled(first=2)
@pytest.mark.parametrize("page", PAGES, ids=name_of)
@pytest.mark.usefixtures("selected_devices")
def test_page(page, tmp_path, monkeypatch, settings_stay):
    for library in ("lightning", "transformers"):
        if f"import {library}" in page.read_text() or f"from {library}" in page.read_text():
            import_models(library)
    if "report.html" in page.read_text():
        pytest.importorskip("vl_convert")
    torch._dynamo.reset()
    torch.ocl.reset_fallback_counts()
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)  # Pages write files.
    names = {"__name__": "__main__"}
    for block in doc_blocks.blocks(page):
        if block.runs:
            run_python(block, names) if block.language == "python" else run_commands(block, tmp_path)


def run_python(block: Block, names: dict[str, object]) -> None:
    # Messages have the page's lines.
    exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), names)


def run_commands(block: Block, folder: Path) -> None:
    """Runs a block of sh, with a cache of its own. Of a console block it runs the lines behind `$ `."""
    text = block.text
    if block.language == "console":
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
    scripts = folder / ".commands"
    scripts.mkdir(exist_ok=True)
    for name, call in {"torch-ocl": "-m torch_ocl_compile", "python": ""}.items():
        (scripts / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
        (scripts / name).chmod(0o755)
    inherited = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    paths = {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": inherited}
    cache = folder / ".cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", text], cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, **paths, "TORCH_OCL_CACHE_DIR": str(cache)})  # fmt: skip
    assert done.returncode == 0, f"{block.where}:\n{block.text}\n{done.stdout}\n{done.stderr}"


def test_every_block_has_a_language():
    wrong = [block.where for page in doc_blocks.pages() for block in doc_blocks.blocks(page) if not block.language]
    assert not wrong, f"write ```python, ```sh or ```text, so that this test knows whether the block runs: {wrong}"


def test_few_blocks_do_not_run_and_each_has_a_reason():
    whole = {page: doc_blocks.page_reason(page) for page in doc_blocks.pages()}
    left_out = [
        block
        for page, reason in whole.items()
        for block in doc_blocks.blocks(page)
        if block.language in doc_blocks.RUNNABLE and block.reason and not reason
    ]
    short = [block.where for block in left_out if len(block.reason.split()) < 3]
    assert not short, f"say in a few words why these blocks do not run: {short}"
    assert len(left_out) <= FEW_BLOCKS, [block.where for block in left_out]
    assert sum(map(bool, whole.values())) <= FEW_PAGES, [name_of(page) for page, reason in whole.items() if reason]


def test_the_parser_finds_blocks_in_lists_and_their_reasons(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(
        "Text.\n<!-- no-run: needs a GPU -->\n```sh\nfalse\n```\n\n1. A\n\n   ```python\n   x = 1\n   ```\n"
    )
    first, second = doc_blocks.blocks(page)
    assert (first.language, first.text, first.reason, first.runs) == ("sh", "false\n", "needs a GPU", False)
    assert (second.line, second.text, second.runs) == (10, "x = 1\n", True)


def test_a_command_that_fails_is_found(tmp_path):
    block = Block(ROOT / "README.md", 1, "console", "$ true\nfalse\n$ python -c 'raise SystemExit(3)'\n", "")
    with pytest.raises(AssertionError, match=r"README.md:1"):
        run_commands(block, tmp_path)


def test_the_page_of_tests_says_what_make_test_runs(request):
    """Runs only after a collection of all tests, on a machine with the cases of CI.

    The numbers of cases depend on torch, on packages and on the runtimes found.
    """
    option, args = request.config.option, request.config.args
    if [Path(arg).resolve() for arg in args] != [ROOT / "tests"] or option.keyword or option.markexpr or option.sweep:
        pytest.skip("counts the cases of `make test`, which runs `pytest tests`")
    runtimes = [torch.ocl.get_device_properties(i).platform_name.split()[0] for i in range(torch.ocl.device_count())]
    packages = all(importlib.util.find_spec(name) for name in ("timm", "transformers", "sklearn"))
    if not torch.__version__.startswith("2.13.") or runtimes != ["Intel(R)", "Portable"] or not packages:
        pytest.skip("needs torch 2.13, timm, transformers and scikit-learn, and Intel's runtime and PoCL")
    made = coverage.table(request.config.pluginmanager.get_plugin("counting").counts)
    assert coverage.agree(made, coverage.on_page()), f"python -m tests.coverage --write\n{made}"


def test_counts_on_the_page_may_differ_by_a_tenth():
    page = "| what | first |\n|---|--:|\n| all | 5,800 |\n| some | - |\n"
    assert coverage.agree(page.replace("5,800", "5,900"), page)
    assert not coverage.agree(page.replace("5,800", "6,500"), page)
    assert not coverage.agree(page.replace("| - |", "| 40 |"), page)
    assert not coverage.agree(page.replace("some", "others"), page)
