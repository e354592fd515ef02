# torch_ocl_compile/report/model_lines.py: finds the text of a line of the model from its place, such as "model.py:61".
from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable


def model_lines(places: Iterable[str]) -> dict[str, str]:
    """Returns place -> line, for the places whose file is found."""
    files = [_by_name(linecache.cache), _by_name(getattr(m, "__file__", None) for m in list(sys.modules.values()))]
    texts = {place: _text(place, files) for place in sorted(set(places))}
    return {place: text for place, text in texts.items() if text}


def _by_name(paths: Iterable[str | None]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in list(paths):
        if path and path.endswith(".py"):
            found.setdefault(os.path.basename(path), set()).add(path)
    return found


def _text(place: str, files: list[dict[str, set[str]]]) -> str:
    """Returns the source line of `place` ("name.py:number"), or "" if it is not found.

    `files` maps names to paths, the files that Dynamo traced first. If several files have the same name, the line is
    not known."""
    name, _, number = place.rpartition(":")
    for by_name in files:
        paths = by_name.get(name, set())
        if len(paths) == 1 and number.isdigit():
            return linecache.getline(next(iter(paths)), int(number)).strip()
    return ""
