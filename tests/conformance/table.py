# tests/conformance/table.py: writes docs/conformance.md from the results of one or more runtimes.
"""All numbers are counted from the results. The reasons are those of expected.csv, or else the observed errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tests.conformance.expected import INDUCTOR, failure_of, inductor_entries, op_name, where
from tests.worker_process import ROOT

Outcome = dict[str, Any]
PAGE = ROOT / "docs" / "conformance.md"
COMMAND = "make conformance"
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool")


def write(results: list[dict[str, Any]]) -> None:
    PAGE.write_text(page(results))


def page(results: list[dict[str, Any]]) -> str:
    lines = [
        "# Conformance",
        "",
        "PyTorch describes its operators in `op_db` and its modules in `module_db`. Each entry has sample inputs. Each sample runs",
        'compiled with `backend="ocl"`, forward and, where PyTorch has a derivative, backward. The result is compared with PyTorch',
        f"on the CPU (`tests/conformance`, `tests/device/test_opinfo.py`). `{COMMAND}` writes this page.",
        "",
        "- *passes*: every sample gives PyTorch's dtype, shape and values. Values are compared by `assert_close` with its defaults. A",
        "  value outside of these may have at most twice PyTorch's own error against fp64. Random results are compared in dtype and shape.",
        "- *on the device*: the entry passes, and no op of it ran on the CPU.",
        "- An entry is not counted if PyTorch's own samples fail on the CPU.",
        "",
    ]
    for result in results:
        lines += [f"## {result['runtime']}, torch {result['torch']}", ""]
        if result["all_samples"]:
            lines += ["With all samples of every entry.", ""]
        lines += summary(result["outcomes"])
        lines += details(result)
    return "\n".join(lines).rstrip() + "\n"


def by_entry(outcomes: Iterable[Outcome], dtype: str, kind: str) -> dict[str, list[Outcome]]:
    """Returns the directions of each entry that PyTorch runs."""
    found: dict[str, list[Outcome]] = {}
    for o in outcomes:
        if o["case"].startswith(f"{kind}:") and o["case"].endswith(f":{dtype}") and o["status"] != "skip":
            found.setdefault(o["case"].rsplit(":", 1)[0], []).append(o)
    return found


def passes(directions: list[Outcome]) -> bool:
    return all(o["status"] == "pass" for o in directions)


def on_device(directions: list[Outcome]) -> bool:
    return passes(directions) and not any(o["eager"] for o in directions)


def summary(outcomes: list[Outcome]) -> list[str]:
    lines = [
        "| entries | dtype | number | pass forward | pass backward | pass both | on the device |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    compiled = inductor_entries()
    for kind in ("op", "module"):
        for dtype in DTYPES:
            entries = by_entry(outcomes, dtype, kind)
            if entries:
                lines.append(row(f"{kind}_db", dtype, entries))
            if compiled and dtype == "float32" and kind == "op":
                chosen = {e: d for e, d in entries.items() if e in compiled}
                lines.append(row(f"{kind}_db, those that Inductor compiles", dtype, chosen))
                rest = {e: d for e, d in entries.items() if e not in compiled}
                lines.append(row(f"{kind}_db, the others", dtype, rest))
    note = (
        f"Inductor compiles the entries of `{INDUCTOR.relative_to(ROOT)}`, counted in the code that it generates for the CPU: every\n"
        "graph becomes C++ or calls of a library's products and convolutions, and no graph breaks."
    )
    return [*lines, "", *([note, ""] if compiled else [])]


def row(title: str, dtype: str, entries: dict[str, list[Outcome]]) -> str:
    number = len(entries)

    def share(count: int, total: int = number) -> str:
        return f"{count} ({100 * count / total:.1f} %)" if total else "-"

    def passing(direction: str) -> str:
        found = [o for d in entries.values() for o in d if o["direction"] == direction]
        return share(sum(o["status"] == "pass" for o in found), len(found))

    both, device = (sum(map(test, entries.values())) for test in (passes, on_device))
    return f"| {title} | {dtype} | {number} | {passing('forward')} | {passing('backward')} | {share(both)} | {share(device)} |"


def details(result: dict[str, Any]) -> list[str]:
    outcomes, here = result["outcomes"], where(result["runtime"], result["torch"])

    def reason(o: Outcome) -> str:
        known = failure_of(o["case"], o["direction"], here)
        return known.reason if known else o["reason"]

    failing = grouped((o for o in outcomes if o["status"] == "fail"), reason)
    lines = [
        "### Not passing",
        "",
        *(failing or ["Nothing."]),
        "",
        "### Passing, with ops that run on the CPU (float32)",
        "",
    ]
    eager: dict[str, set[str]] = {}
    for o in outcomes:
        if o["status"] == "pass" and o["eager"] and o["case"].endswith(":float32"):
            eager.setdefault(o["case"].split(":")[1], set()).update(map(op_name, o["eager"]))
    lines += ["| entry | what runs on the CPU |", "|---|---|"]
    lines += [f"| {entry} | {', '.join(sorted(ops))} |" for entry, ops in sorted(eager.items())]
    return [*lines, ""]


def grouped(outcomes: Iterable[Outcome], reason: Callable[[Outcome], str]) -> list[str]:
    """Returns one line per entry and reason, with its dtypes and directions."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for o in outcomes:
        _, entry, dtype = o["case"].split(":")
        found.setdefault((entry, reason(o).replace("|", "/")), Counter())[f"{dtype} {o['direction']}"] += 1
    if not found:
        return []
    lines = ["| entry | where | why |", "|---|---|---|"]
    return lines + [
        f"| {entry} | {', '.join(sorted(where))} | {why} |" for (entry, why), where in sorted(found.items())
    ]
