# scripts/stubs.py: writes the types of the extension, torch_ocl_compile/_C/*.pyi, for mypy.
"""python scripts/stubs.py      (part of `make lint`)

mypy's stubgen reads the signatures that pybind11 writes for the functions of csrc/python. This adds what they do not say: an index
may also be an int, and a dict has strings as keys."""

from __future__ import annotations

import re
from pathlib import Path

from mypy.stubgen import generate_stubs, parse_options

ROOT = Path(__file__).resolve().parents[1]
INDEX = re.compile(r"\b(torch_ocl_compile\._C\.ir\.)?IndexExpr\b")
WORDS = [
    (re.compile(r"typing\.SupportsInt \| typing\.SupportsIndex"), "int"),
    (re.compile(r"typing\.SupportsFloat \| typing\.SupportsIndex"), "float"),
    (re.compile(r"\(.*(?=\) ->)"), lambda parameters: INDEX.sub(r"\g<0> | int", parameters[0])),
    (re.compile(r"(?<![\w.])dict\b(?!\[)"), "dict[str, typing.Any]"),
    (re.compile(r"(?<![\w.])list\b(?!\[)"), "list[typing.Any]"),
]


def main() -> None:
    generate_stubs(
        parse_options(["--quiet", "--inspect-mode", "--package", "torch_ocl_compile._C", "--output", str(ROOT)])
    )
    for path in (ROOT / "torch_ocl_compile" / "_C").glob("*.pyi"):
        text = path.read_text(encoding="utf-8")
        for word, type_ in WORDS:
            text = word.sub(type_, text)
        path.write_text("import typing\n" + text, encoding="utf-8")


if __name__ == "__main__":
    main()
