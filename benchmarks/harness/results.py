# benchmarks/harness/results.py: result files of `python -m benchmarks models`: reads and writes them, and computes means.
"""A result file has the rows of one run of one build, and what is needed to trust and repeat them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.harness.origin import SECTIONS
from benchmarks.harness.sides import HEAP, is_ours
from torch_ocl_compile.cli.parts import plain
from torch_ocl_compile.errors import ToolError

Rows = list[dict[str, Any]]

# The settings that rows share are written once, in `row_settings`; a row has their place in that list.
FORMAT = 2
NAN = float("nan")


def case_of(row: dict[str, Any]) -> tuple[Any, ...]:
    if "case" in row:  # a single operation
        return row["precision"], row["group"], row["case"]
    return row["protocol"], row["precision"], row["model"], row["mode"], row["batch"]


def add_best(rows: list[dict[str, Any]]) -> None:
    """Sets `against_best` of each row: the time of the fastest other side divided by the time of this side. Sides of this
    project are not compared with one another."""
    for row in rows:
        others = [r["ms"] for r in rows if case_of(r) == case_of(row) and r["side"] != row["side"]
                  and not (is_ours(r["side"]) and is_ours(row["side"]))]  # fmt: skip
        row["against_best"] = min(others) / row["ms"] if others else NAN


def geometric_means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns, for each protocol, precision, mode and side, the geometric means over networks of both ratios."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["protocol"], row["precision"], row["mode"], row["side"]), []).append(row)
    means = []
    for (protocol, precision, mode, side), members in groups.items():
        best = [r["against_best"] for r in members]
        means.append(
            {
                "protocol": protocol,
                "precision": precision,
                "mode": mode,
                "side": side,
                "networks": len(members),
                "ratio": statistics.geometric_mean(r["ratio"] for r in members),
                "against_best": NAN if any(b != b for b in best) else statistics.geometric_mean(best),
            }
        )
    return means


def way_of(row: dict[str, Any]) -> str:
    """Memory format and optimizer of a row, as choose() of its side chose them. "-" in files that do not tell."""
    settings = row.get("settings") or {}
    return ", ".join(settings[key] for key in ("format", "optimizer") if settings.get(key)) or "-"


def settings_text(settings: dict[str, Any]) -> str:
    """What settings_in_effect() of a side returned, as one line of text."""
    parts = ["eager"]
    if settings.get("attention"):
        parts = [f"eager, attention by {settings['attention']} alone"]
    if settings["backend"]:
        mode = f", mode={settings['mode']!r}" if settings["mode"] else ""
        parts = [f"torch.compile(backend={settings['backend']!r}{mode})"]
    parts += ["freezing"] if settings["freezing"] else []
    parts += ["cudnn.benchmark"] if settings["cudnn_benchmark"] else []
    parts += ["TF32"] if settings.get("tf32") else []
    cores = settings["cores"]
    named = f"cores {','.join(map(str, cores))}" if len(cores) <= 16 else f"{len(cores)} cores"
    parts.append(f"{settings['threads']} threads on {named}")
    parts += [f"{settings['compute_units']} compute units"] if settings["compute_units"] else []
    variables = dict(settings["environment"])
    if all(variables.get(name) == value for name, value in HEAP.items()):
        parts.append("a heap that keeps its memory")
        variables = {name: value for name, value in variables.items() if name not in HEAP}
    elif not any(variables.get(name) for name in HEAP):
        parts.append("the system's heap")
    if "TORCH_OCL_TUNED" in variables and variables["TORCH_OCL_TUNED"] is None:
        parts.append("tuned choices allowed")
    return ", ".join([*parts, *(f"{name}={value}" for name, value in variables.items() if value is not None)])


def sides_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns, for each side and its settings, the modes that it ran, the settings as text, and the largest numbers of
    busy cores, page faults and kernels outside of compiled graphs. Rows of files that do not tell are left out."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("settings"):
            found.setdefault((row["side"], settings_text(row["settings"])), []).append(row)
    return [
        {
            "side": side,
            "modes": list(dict.fromkeys(row["mode"] for row in members if "mode" in row)),
            "settings": text,
            **{
                key: max((row[key] for row in members if key in row), default=NAN)
                for key in ("busy_cores", "page_faults", "eager_kernels")
            },
        }
        for (side, text), members in found.items()
    ]


def read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ToolError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = repr(content.get("format")) if isinstance(content, dict) else "none"
        raise ToolError(
            f"{path} is no result of `python -m benchmarks models --save` (format {found}, expected {FORMAT})"
        )
    content = expanded(content)
    for section in ("networks", "operations"):
        content[section] = [{k: NAN if v is None else v for k, v in row.items()} for row in content[section]]
    return content


def shared(content: dict[str, Any]) -> dict[str, Any]:
    """Returns the content with the settings of its rows in `row_settings`, each once."""
    pool: list[dict[str, Any]] = []
    made = {key: value for key, value in content.items() if key not in SECTIONS} | {"row_settings": pool}
    for section in SECTIONS:
        if section in content:
            made[section] = rows = [dict(row) for row in content[section]]
            for row in rows:
                if row.get("settings"):
                    if row["settings"] not in pool:
                        pool.append(row["settings"])
                    row["settings"] = pool.index(row["settings"])
    return made


def expanded(content: dict[str, Any]) -> dict[str, Any]:
    """Undoes shared()."""
    made = {key: value for key, value in content.items() if key != "row_settings"}
    for section in SECTIONS:
        if section in content:
            made[section] = [
                row | {"settings": content["row_settings"][row["settings"]]}
                if isinstance(row.get("settings"), int)
                else row
                for row in content[section]
            ]
    return made


def text_of(content: dict[str, Any] | list[Any]) -> str:
    """Returns JSON with one line for each row of a list, and for each field that is no list."""

    def text(value: Any) -> str:
        return json.dumps(value, allow_nan=False, ensure_ascii=False)

    def rows(items: list[Any], indent: str) -> str:
        return "[" + ",".join(f"\n{indent} {text(item)}" for item in items) + f"\n{indent}]" if items else "[]"

    if isinstance(content, list):
        return rows(content, "") + "\n"
    fields = [f" {text(k)}: " + (rows(v, " ") if isinstance(v, list) else text(v)) for k, v in content.items()]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def write(content: dict[str, Any], path: Path) -> None:
    path.write_text(text_of(plain(shared(content))), encoding="utf-8")


def result(origin: dict[str, Any], settings: dict[str, Any], **sections: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the content of a result file, for write(). `origin`: of origin.py. `sections`: rows by the name of their
    section."""
    assert set(sections) <= set(SECTIONS), sections.keys()
    return {"format": FORMAT, **origin, "settings": settings, "networks": [], "operations": [], **sections}
