# tests/device/test_opinfo.py: PyTorch's op_db and module_db through the compiler, against PyTorch on the CPU.
"""A plain run takes samples of the cases; `pytest --sweep` all of them, as does `make conformance`, which also survives
cases that end the process and writes docs/conformance.md. What may fail is in tests/conformance/expected.csv."""

from __future__ import annotations

import pytest
import torch

from tests.conformance import cases
from tests.conformance.expected import reason_for, rows


def directions() -> list[tuple[cases.Case, str]]:
    found = [(c, cases.FORWARD) for c in cases.cases()]
    return found + [(c, cases.BACKWARD) for c in cases.cases() if c.has_gradient]


@pytest.mark.sampled(every=90, first=True)
@pytest.mark.parametrize("case, direction", [pytest.param(c, d, id=f"{c.name}:{d}") for c, d in directions()])
def test_case(case: cases.Case, direction: str, ocl_device: str) -> None:
    known = reason_for(case.name, direction, torch.ocl.get_device_properties(ocl_device).platform_name)
    if known.startswith("ends the process"):
        pytest.skip(known)
    outcome = cases.run(case, direction, ocl_device)
    if outcome.status == "skip":
        pytest.skip(outcome.reason)
    if known:
        assert outcome.status == "fail", f"passes; take its row out of expected.csv (it says: {known})"
    else:
        assert outcome.status == "pass", outcome.reason


def test_expected_rows_name_cases() -> None:
    """A row about an entry that this torch lacks says so in nothing: only misspelt dtypes and directions are wrong."""
    names = {c.name.rsplit(":", 1)[0] for c in cases.cases()}
    listed = [row for found in rows().values() for row in found]
    wrong = [r for r in listed if r.direction not in (cases.FORWARD, cases.BACKWARD) or not r.reason or not r.dtypes]
    assert not wrong
    assert all(hasattr(torch, dtype) for r in listed for dtype in r.dtypes.split())
    assert len({f"{r.kind}:{r.entry}" for r in listed} - names) <= len(names) // 100
