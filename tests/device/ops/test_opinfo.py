# tests/device/ops/test_opinfo.py: PyTorch's op_db and module_db, compiled, against PyTorch on the CPU.
"""A plain run takes samples of the cases; `pytest --sweep` runs all of them.

`make conformance` runs all cases in worker processes, so that a crash costs one case, and writes docs/conformance.md.
Cases that may fail are listed in tests/conformance/expected.csv.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conformance import cases, expected
from tests.conformance.__main__ import Journal
from tests.conformance.workers import run_all


def directions() -> list[tuple[cases.Case, str]]:
    found = [(c, cases.FORWARD) for c in cases.cases()]
    return found + [(c, cases.BACKWARD) for c in cases.cases() if c.has_gradient]


@pytest.mark.sampled(first=400, every=1600)
@pytest.mark.parametrize("case, direction", [pytest.param(c, d, id=f"{c.name}:{d}") for c, d in directions()])
def test_case(case: cases.Case, direction: str, ocl_device: str) -> None:
    where = expected.where(torch.ocl.get_device_properties(ocl_device).platform_name, torch.__version__)
    known = expected.failure_of(case.name, direction, where)
    if known and known.reason.startswith("ends the process"):
        pytest.skip(known.reason)
    outcome = cases.run(case, direction, ocl_device)
    if outcome.status == "skip":
        pytest.skip(outcome.reason)
    wrong = expected.unexpected(outcome.as_dict(), where)
    assert not wrong, wrong


def test_sizes_of_practice(ocl_device: str) -> None:
    """A part of the entries, in a process of its own, because it changes op_db's sizes."""
    program = [sys.executable, "-m", "tests.conformance.practice", "--part", "7/40", "--device", ocl_device]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_expected_rows_name_cases() -> None:
    """Each row of the expectations must be well formed. A few rows may name entries of op_db that this torch lacks."""
    names = {c.name.rsplit(":", 1)[0] for c in cases.cases()}
    failures = [row for found in expected.failures().values() for row in found]
    listed = [*failures, *(row for found in expected.on_cpu().values() for row in found)]
    assert all(r.direction in (cases.FORWARD, cases.BACKWARD) and r.reason and r.error for r in failures)
    assert all(r.dtypes and hasattr(torch, dtype) for r in listed for dtype in r.dtypes.split())
    assert all(row.names() for found in expected.on_cpu().values() for row in found)
    assert len({f"{r.kind}:{r.entry}" for r in listed} - names) <= len(names) // 100


# Rows of expectations, which the tests below compare with made-up outcomes.
SPARSE = expected.Failure("op", "to_sparse", "float32", "*", "forward", "no kernels? for Sparse", "sparse tensors")
MOVED = expected.OnCpu("op", "stft", "float32 float16", "Intel", "aten._fft_r2c; dtype torch.complex64 has no kernels")


def outcome(
    entry: str, status: str = "pass", dtype: str = "float32", reason: str = "", eager: tuple[str, ...] = ()
) -> dict:
    return {
        **{"case": f"op:{entry}:{dtype}", "direction": "forward", "status": status, "reason": reason},
        "eager": dict.fromkeys(eager, 1),
    }


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "failures", lambda: {("op", "to_sparse"): [SPARSE]})
    monkeypatch.setattr(expected, "on_cpu", lambda: {("op", "stft"): [MOVED]})


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("found", "message"),
    [
        (outcome("add"), ""),
        (outcome("add", "fail", reason="value: off"), "value: off"),
        (outcome("add", eager=("eager aten::add.out",)), "runs on the CPU.*: aten.add.out"),
        (outcome("to_sparse", "fail", reason="there is no kernel for SparseOCL"), ""),
        (outcome("to_sparse", "fail", reason="the process ended (-11)"), "fails otherwise than.*the process ended"),
        (outcome("to_sparse", "fail", "float16", "there is no kernel for SparseOCL"), "there is no kernel"),
        (outcome("to_sparse"), "passes; take its row out"),
        (outcome("stft", eager=("aten._fft_r2c: no lowering",)), ""),
        (outcome("stft", dtype="bfloat16", eager=("aten._fft_r2c: no lowering",)), "runs on the CPU.*: aten._fft_r2c"),
        (outcome("stft", eager=("aten._fft_r2c: why", "aten.mul.out: why")), "runs on the CPU.*: aten.mul.out$"),
        (outcome("stft", "skip"), ""),
    ],
)
def test_what_the_data_do_not_say_is_named(found: dict, message: str) -> None:
    wrong = expected.unexpected(found, "EPYC (Intel(R) OpenCL), torch 2.13.0")
    assert re.search(message, wrong) if message else not wrong, wrong


@pytest.mark.usefixtures("made_up")
def test_an_op_that_comes_back_to_the_device_is_named() -> None:
    where = "EPYC (Intel(R) OpenCL), torch 2.13.0"
    both = [outcome("stft", dtype=d, eager=("aten._fft_r2c: why",)) for d in ("float32", "float16")]
    assert expected.returned(both, where) == [
        "op:stft: dtype torch.complex64 has no kernels on the device now; take it out of on_cpu.csv"
    ]
    assert not expected.returned(both, "NVIDIA, torch 2.13.0"), "the row is about another runtime"
    assert not expected.returned(both[:1], where), "not all its dtypes have run"


def test_on_cpu_is_written_from_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "ON_CPU", tmp_path / "on_cpu.csv")
    other = expected.OnCpu("op", "add", "float32", "PoCL", "aten.add")
    monkeypatch.setattr(expected, "on_cpu", lambda: {("op", "add"): [other]})
    moves = outcome("stft", eager=("aten._fft_r2c: why",))
    everywhere = [moves, outcome("stft", dtype="float16", eager=("aten._fft_r2c: why",)), outcome("add")]
    expected.write_on_cpu(
        [
            {"runtime": "A", "torch": "2.11", "outcomes": [*everywhere, outcome("mul", eager=("aten.mul.out: why",))]},
            {
                "runtime": "B",
                "torch": "2.13",
                "outcomes": [*everywhere, outcome("mul"), outcome("sub", "fail", eager=("x",))],
            },
        ]
    )
    rows = expected._read(tmp_path / "on_cpu.csv", expected.OnCpu)
    assert rows == {
        ("op", "add"): [other],
        ("op", "mul"): [expected.OnCpu("op", "mul", "float32", "A, torch 2.11", "aten.mul.out")],
        ("op", "stft"): [expected.OnCpu("op", "stft", "float32 float16", "*", "aten._fft_r2c")],
    }


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    """A run that was stopped continues after its last complete line. A run with other sources starts again."""
    path, what = tmp_path / "results.json.partial", {"runtime": "A", "source": 1.0}
    journal = Journal(path, what)
    assert not journal.done()
    for entry in ("add", "mul"):
        journal.add(outcome(entry))
    journal.file.close()
    path.write_text(path.read_text() + '{"case": "op:sub')
    again = Journal(path, what)
    assert again.done() == {("op:add:float32", "forward"), ("op:mul:float32", "forward")}
    again.add(outcome("sub"))
    again.file.close()
    assert len(Journal(path, what).outcomes) == 3
    assert not Journal(path, {**what, "source": 2.0}).outcomes


def test_workers_begin_nothing_after_their_time() -> None:
    assert list(run_all([("op:add:float32", "forward")], ["cpu", "ocl", "0"], 1, 10.0, seconds=-1.0)) == []
