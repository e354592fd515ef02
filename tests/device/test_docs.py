# tests/device/test_docs.py: every ```python block of README.md and docs/ runs; those of a page share their names.
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
PAGES = [p for p in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if BLOCK.search(p.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
@pytest.mark.filterwarnings("ignore:.*has no eager ocl kernel")
def test_page(page):
    if torch.ocl.device_count() == 0:
        pytest.skip("no OpenCL device found: pip install torch-ocl-compile[cpu]")
    torch._dynamo.reset()
    text = page.read_text()
    names = {"__name__": page.stem}
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), names)  # messages show the page's own lines


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
