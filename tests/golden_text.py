# tests/golden_text.py: golden texts name the files of kernels/ that they contain, with a hash, in place of their lines.
from __future__ import annotations

import hashlib
import re
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
INCLUDE = re.compile(r'#include "kernels/(.+)"  // sha256 (\w+)\n')


def line(name: str, content: str) -> str:
    return f'#include "kernels/{name}"  // sha256 {hashlib.sha256(content.encode()).hexdigest()[:16]}\n'


def shortened(text: str) -> str:
    """Returns the text with a line in place of each kernel file that stands in it to the letter."""
    files = {path.relative_to(KERNELS).as_posix(): path.read_text(encoding="utf-8") for path in KERNELS.rglob("*.cl")}
    for name, content in sorted(files.items(), key=lambda item: -len(item[1])):
        text = text.replace(content, line(name, content))
    return text


def whole(text: str) -> str:
    """Undoes shortened(). Raises ValueError if a kernel file is not the one that the text was made with."""

    def content(found: re.Match[str]) -> str:
        read = (KERNELS / found[1]).read_text(encoding="utf-8")
        if line(found[1], read) != found[0]:
            raise ValueError(f"kernels/{found[1]} changed: pytest --update-golden rewrites the golden texts")
        return read

    return INCLUDE.sub(content, text)
