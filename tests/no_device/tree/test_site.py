# tests/no_device/tree/test_site.py: the documentation site builds, loads nothing from the network, lists every page, has no
# broken link.
from __future__ import annotations

import html
import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from tests import doc_blocks

yaml = pytest.importorskip("yaml", reason="pip install torch-ocl-compile[docs]")
pytest.importorskip("material", reason="no mkdocs-material: pip install torch-ocl-compile[docs]")
ROOT = Path(__file__).resolve().parents[3]
OUTSIDE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


class Loads(HTMLParser):
    """Collects what a browser loads for a page, and the anchors of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        if tag in ("script", "img", "iframe", "source", "object"):
            self.addresses.append(values.get("src") or values.get("data") or "")
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.addresses.append(values.get("href") or "")


def places(nav: object) -> list[str]:
    """The pages in the navigation of mkdocs.yml."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in places(part)]


def build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site. With --strict, a broken link or anchor ends the build with an error."""
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def results_page():
    """The program benchmarks/page.py, as a module."""
    from benchmarks import page

    return page


def test_every_page_has_a_place(results_page):
    placed = places(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    pages |= results_page.built(results_page.contents()).keys()
    missing, gone = sorted(pages - set(placed)), sorted(set(placed) - pages)
    assert not missing, f"add a line to `nav` in mkdocs.yml for each of: {missing}"
    assert not gone, f"`nav` in mkdocs.yml names pages that do not exist: {gone}"
    assert len(placed) == len(set(placed)), "a page has two places in mkdocs.yml"


def test_pages_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        foreign = [a for a in loads.addresses if re.match(r"(https?:)?//", a)]
        assert not foreign, f"{page.relative_to(site)} loads {foreign}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_the_site_has_every_run(site, results_page):
    text = html.unescape("".join(page.read_text(encoding="utf-8") for page in (site / "performance").glob("*.html")))
    missing = [content["command"] for content in results_page.contents() if content["command"] not in text]
    assert not missing, f"no page of {results_page.PARTS} has the runs of these commands: {missing}"


def test_lists_tables_and_blocks_are_rendered(site):
    """Unlike Markdown on code hosts, that of the site requires four columns of indentation inside of lists."""
    for page in site.rglob("*.html"):
        for text in re.findall(r"<p>(.*?)</p>", page.read_text(encoding="utf-8"), re.S):
            wrong = re.search(r"(^|\n)(- |\d+\. |\|.*\||```)", text)
            assert not wrong, (
                f"{page.name}: a list, table or block without a blank line, or not indented by 4: {text[:200]}"
            )


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: page.name)
def test_links_of_pages_outside_of_the_site(page, site):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor and path.is_relative_to(ROOT / "docs"):
            built = Loads()
            built.feed((site / path.relative_to(ROOT / "docs").with_suffix(".html")).read_text(encoding="utf-8"))
            assert anchor in built.anchors, f"{page.name} links to {target}#{anchor}, and the page has no such heading"


def test_a_wrong_anchor_ends_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[nowhere](#no-such-heading)\n")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    settings |= {"docs_dir": str(tmp_path / "docs"), "nav": ["index.md"], "extra_css": [], "hooks": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    done = build(tmp_path / "built", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode != 0 and "no-such-heading" in done.stderr


def test_the_page_of_supported_operators_is_what_the_expectations_say():
    packages = all(importlib.util.find_spec(name) for name in ("torchvision", "timm", "transformers"))
    if not packages or not torch.__version__.startswith("2.13."):
        pytest.skip("the page lists the operators of torch 2.13, and networks of torchvision, timm and transformers")
    from tests.conformance import supported

    assert supported.page() == supported.PAGE.read_text(encoding="utf-8"), "python -m tests.conformance supported"


def test_the_pages_that_run_are_the_pages_of_the_site():
    assert {p.name for p in doc_blocks.pages()} >= {"README.md", "index.md", "train_a_cnn.md"}
