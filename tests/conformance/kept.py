# tests/conformance/kept.py: the published results, one JSON file per runtime in tests/conformance/results.
"""A kept file has what docs/conformance.md, README.md and docs/limits.md say of a run: date, commit, device, driver and
versions, the counts, and the entries that fail or use the CPU. A result without date, commit or driver is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness.results import text_of
from tests.conformance.expected import failure_of, op_name, where

FOLDER = Path(__file__).parent / "results"
FIELDS = ("when", "commit", "torch", "runtime", "driver", "opencl")
DTYPES = ("float32", "complex64", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool")
LISTED = ("float32", "complex64")  # The types whose entries with ops on the CPU are listed.
Outcome = dict[str, Any]


def read() -> list[dict[str, Any]]:
    """Returns the kept results."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    for content in found:
        check_fields(content)
    return found


def check_fields(content: dict[str, Any]) -> None:
    lacking = [name for name in FIELDS if not content.get(name)]
    if lacking:
        raise SystemExit(
            f"the results of {content.get('runtime')} lack {', '.join(lacking)}\n  do: run the entries again"
        )


def keep(results: list[dict[str, Any]], given: dict[str, str]) -> list[Path]:
    """Writes a file for each runtime. Several results of one runtime, for example of different types, are joined; they must be of
    one commit and one torch. `given`: fields of results that an older program has written."""
    joined: dict[str, dict[str, Any]] = {}
    for result in results:
        result = result | {name: value for name, value in given.items() if not result.get(name)}
        check_fields(result)
        known = joined.setdefault(result["runtime"], {**result, "outcomes": []})
        other = [name for name in (*FIELDS, "all_samples") if name != "when" and known.get(name) != result.get(name)]
        if other:
            raise SystemExit(f"the results of {result['runtime']} differ in {', '.join(other)}, so they are not joined")
        known["outcomes"] += result["outcomes"]
    FOLDER.mkdir(exist_ok=True)
    paths = []
    for runtime, result in joined.items():
        paths.append(FOLDER / file_name(runtime))
        paths[-1].write_text(text_of(condensed(result)), encoding="utf-8")
    return paths


def file_name(runtime: str) -> str:
    for part, name in (("Portable Computing", "pocl"), ("Intel(R) OpenCL", "intel"), ("NVIDIA CUDA", "nvidia")):
        if part in runtime:
            return f"{name}.json"
    return "".join(c if c.isalnum() else "_" for c in runtime.lower()) + ".json"


def condensed(result: dict[str, Any]) -> dict[str, Any]:
    outcomes, here = result["outcomes"], where(result["runtime"], result["torch"])

    def reason(o: Outcome) -> str:
        known = failure_of(o["case"], o["direction"], here)
        return known.reason if known else str(o["reason"])

    return {
        **{name: result[name] for name in (*FIELDS, "all_samples")},
        "counts": counts(outcomes),
        "failing": grouped((o for o in outcomes if o["status"] == "fail"), reason),
        "on_cpu": on_cpu(outcomes),
    }


def counts(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Returns the counts for each kind and type. `forward`, `backward`: how many pass, of how many. `samples`: for each direction, how
    many samples ran, of how many that PyTorch has; None if the run did not count those."""
    rows = []
    for kind in ("op", "module"):
        for dtype in DTYPES:
            entries = list(by_entry(outcomes, dtype, kind).values())
            if not entries:
                continue
            row: dict[str, Any] = {"kind": kind, "dtype": dtype, "number": len(entries)}
            for direction in ("forward", "backward"):
                found = [
                    o["status"] == "pass" for directions in entries for o in directions if o["direction"] == direction
                ]
                row[direction] = [sum(found), len(found)]
                ran = [o for directions in entries for o in directions if o["direction"] == direction]
                known = all(o.get("made") for o in ran)
                row.setdefault("samples", {})[direction] = [
                    sum(o.get("samples", 0) for o in ran),
                    sum(o["made"] for o in ran) if known else None,
                ]
            row["both"], row["device"] = (sum(map(test, entries)) for test in (passes, on_device))
            rows.append(row)
    return rows


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


def grouped(outcomes: Iterable[Outcome], reason: Callable[[Outcome], str]) -> list[list[str]]:
    """Returns an entry, its types and directions, and the reason, for each entry and reason."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for o in outcomes:
        _, entry, dtype = o["case"].split(":")
        found.setdefault((entry, reason(o)), Counter())[f"{dtype} {o['direction']}"] += 1
    return [[entry, ", ".join(sorted(places)), why] for (entry, why), places in sorted(found.items())]


def on_cpu(outcomes: list[Outcome]) -> list[list[Any]]:
    """Returns the entries that pass with ops on the CPU, in the types of LISTED: the entry, the type and these ops."""
    found: dict[tuple[str, str], set[str]] = {}
    for o in outcomes:
        _, entry, dtype = o["case"].split(":")
        if o["status"] == "pass" and o["eager"] and dtype in LISTED:
            found.setdefault((entry, dtype), set()).update(map(op_name, o["eager"]))
    return [[entry, dtype, sorted(ops)] for (entry, dtype), ops in sorted(found.items())]
