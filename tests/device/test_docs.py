# tests/device/test_docs.py: every ```python block of README.md and docs/ runs; the blocks of a page share their names.
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import coverage

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
PAGES = [p for p in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if BLOCK.search(p.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_page(page):
    if torch.ocl.device_count() == 0:
        pytest.skip("no OpenCL device found: pip install torch-ocl-compile[cpu]")
    torch._dynamo.reset()
    text = page.read_text()
    names = {"__name__": page.stem}
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), names)  # Messages show the lines of the page.


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_results_page_is_what_the_result_files_say():
    subprocess.run([sys.executable, ROOT / "benchmarks" / "page.py", "--check"], check=True)


def test_readme_says_what_make_test_runs(request):
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
    assert made == coverage.in_readme(), f"python -m tests.coverage --write\n{made}"
