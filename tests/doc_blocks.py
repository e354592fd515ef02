# tests/doc_blocks.py: the code blocks of README.md and docs/, and which of them a test runs.
"""A fenced block names its language. Tests run blocks in `python` and `sh`. They do not run blocks in other languages.

A comment in front of a block says why it does not run: `<!-- no-run: needs a GPU -->`. The comment `<!-- no-run all:
... -->` at the head of a page holds for the whole page.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^(?P<indent> *)```(?P<head>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.M | re.S)
PAGE_REASON = re.compile(r"<!-- no-run all: (.*?) -->")
BLOCK_REASON = re.compile(r"<!-- no-run: ([^\n]*?) -->\s*\Z")
RUNNABLE = ("python", "sh", "console")


@dataclass(frozen=True)
class Block:
    """A fenced block. `line`: line of its first line of code, from 1. `reason`: why it does not run, or empty."""

    page: Path
    line: int
    language: str
    text: str
    reason: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in RUNNABLE and not self.reason


def pages() -> list[Path]:
    """README.md and all pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def page_reason(page: Path) -> str:
    found = PAGE_REASON.search(page.read_text(encoding="utf-8")[:1000])
    return found[1] if found else ""


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in their order."""
    text, whole = page.read_text(encoding="utf-8"), page_reason(page)
    found = []
    for match in FENCE.finditer(text):
        language = (match["head"].split() or [""])[0]
        reason = BLOCK_REASON.search(text[: match.start()])
        found.append(
            Block(
                page,
                text.count("\n", 0, match.start("text")) + 1,
                language,
                textwrap.dedent(match["text"]),
                (reason[1] if reason else "") or whole,
            )
        )
    return found
