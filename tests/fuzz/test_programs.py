# tests/fuzz/test_programs.py: new random programs on the first device; programs that showed faults on every device.
from __future__ import annotations

import itertools
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.fuzz import judge
from tests.fuzz.__main__ import Report
from tests.fuzz.check import refused_on_device
from tests.fuzz.corpus import kernels, values
from tests.fuzz.corpus.row import Named, named
from tests.fuzz.runner import Run, Worker
from tests.worker_process import ROOT
from torch_ocl_compile import _C

CORPUS: list[Named] = [*kernels.PROGRAMS, *values.PROGRAMS]
COUNT = int(os.environ.get("TORCH_OCL_FUZZ_COUNT", "100"))
# TORCH_OCL_FUZZ_SEED=fresh draws a new seed. Of 2,300 new programs three showed a fault.
SEED = "777"


@pytest.fixture(scope="module")
def worker_for(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Worker]]:
    """Returns a process for each device: a crash of the driver fails one test only."""
    workers: dict[str, Worker] = {}

    def find(device: str) -> Worker:
        if device not in workers:
            workers[device] = Worker(device, 120, tmp_path_factory.mktemp("fuzz") / "worker.log")
        return workers[device]

    yield find
    for worker in workers.values():
        worker.stop()


# A program that showed a fault runs on the first device; some run on each.
@pytest.mark.sampled(first=2, every=16)
@pytest.mark.parametrize("row", CORPUS, ids=lambda row: row.name)
def test_named(row: Named, ocl_device: str, worker_for: Callable[[str], Worker]) -> None:
    outcome = worker_for(ocl_device).ask({"program": row.program.as_dict(), "oracle": False})[0]
    assert outcome["kind"] == "ok", f"{row.why}: {outcome['kind']}: {outcome['text']}"


def test_fresh_programs(selected_devices: list[str], tmp_path: Path, sweep: bool) -> None:
    """`python -m tests.fuzz --seed S --count N` runs the programs again, and writes scripts of those that fail."""
    seed = os.environ.get("TORCH_OCL_FUZZ_SEED", SEED)
    seed = secrets.token_hex(4) if seed == "fresh" else seed
    asked = "TORCH_OCL_FUZZ_COUNT" in os.environ
    count = COUNT if asked or sweep else COUNT // 4  # CI runs 300 more by `make fresh`.
    print(f"python -m tests.fuzz --seed {seed} --count {count} --device {selected_devices[0]}")
    run = Run(seed, count, selected_devices[0], 1, tmp_path)
    report = Report(run, shrinks=2, shrink_s=10)
    for outcome in run.outcomes():
        report.take(outcome)
    report.worker.stop()
    print(report.summary())
    assert report.done >= count
    scripts = [Path(path).read_text() for _, path, _ in report.files if path]
    assert not report.failed, "\n\n".join([report.summary(), *scripts[:2]])


def test_a_report_ends_with_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last lines have the seed and the text of each script. One failing program fails the run."""
    report = Report(Run("a1b2", 300, "ocl:0", 1, tmp_path), shrinks=0, shrink_s=0)
    row = named("", "", ["make(device, (7, 5), torch.float32, 1)"], ["v0 = a0 * 2"], ["v0"])
    for _ in range(20):
        report.take({"kind": "as torch without us", "batch": 4, "text": ""})
    assert report.status() == 1, "no program is right"
    report.take({"kind": "ok", "batch": 4, "text": ""})
    assert report.status() == 0
    for batch in (5, 9):
        program = row.program.as_dict()
        report.take({"kind": "wrong value", "batch": batch, "member": None, "program": program, "text": "off by 1"})
    assert report.status() == 1
    text = report.scripts(300)
    assert "2 of 23 random programs fail" in text and "--seed a1b2 --count 300 --device ocl:0" in text
    assert text.count("v0 = a0 * 2") == 2 and "a1b2_9.py: off by 1" in text


class Crashing(Worker):
    """Its process crashes at the requests that `reason` says: "drawing" a program, or already at its "start"."""

    def __init__(self, log: Path, reason: str) -> None:
        super().__init__("ocl:0", 1, log)
        self.reason = reason

    def exchange(self, request: bytes, limit_s: float) -> bytes | None:
        return json.dumps([{"kind": "ok"}]).encode() if self.reason == "drawing" and b"ready" in request else b""


@pytest.mark.parametrize("reason, kind", [("drawing", "as torch without us"), ("start", "crash")])
def test_a_crash_of_the_first_drawing_is_no_fault_of_ours(tmp_path: Path, reason: str, kind: str) -> None:
    (tmp_path / "log").write_text("Fatal Python error: Floating point exception")
    outcomes = Run("a1b2", 1, "ocl:0", 1, tmp_path)._batch(Crashing(tmp_path / "log", reason), 5)
    assert {outcome["kind"] for outcome in outcomes} == {kind}


def test_a_fault_is_noticed(selected_devices: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows that the tests above can fail.

    `python -m tests.fuzz.planted` prints how many random programs it takes to notice each fault.
    """
    monkeypatch.setenv("TORCH_OCL_FUZZ_PLANT", "slice_one_off")
    row = named("", "", ["make(device, (7, 5), torch.float32, 1)"], ["v0 = a0[2:6] * 2"], ["v0"])
    worker = Worker(selected_devices[0], 120, tmp_path / "worker.log")
    try:
        outcome = worker.ask({"program": row.program.as_dict(), "oracle": False})[0]
    finally:
        worker.stop()
    assert outcome["kind"] == "wrong value", outcome


def test_faults_can_be_planted() -> None:
    """Plants all faults at once in a separate process, which shows that what they replace exists."""
    script = "from tests.fuzz import planted\nfor name in planted.FAULTS: planted.plant(name)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_what_rounding_leaves_of_zero() -> None:
    """Tests the rounding errors of terms that cancel, as in the gradient of attention to a single key."""
    zero, left = torch.zeros(8), torch.full((8,), 1.7e-7)
    several = torch.zeros(judge.RUNS, 8, dtype=torch.float64)

    def wrong(mine: torch.Tensor, terms: float) -> str:
        some = judge._against_fp64(
            mine, zero, mine == zero, zero.double(), several, several, torch.float32, terms, 0.0, False
        )
        return some[0]

    assert not wrong(left, 0.75) and wrong(left, 0.0) and wrong(100 * left, 0.75)


def test_tensors_on_the_cpu_in_a_join(ocl_device: str, worker_for: Callable[[str], Worker]) -> None:
    """PyTorch refuses such a join on every device but the CPU, so it is no fault of ours."""
    join = "v1 = torch.vstack([a0, v0])"
    for line, argument in (
        ("v0 = torch.tensor(0.3)", "make(device, (), torch.float32, 1)"),
        ("v0 = torch.tensor([0.3])", "make(device, (1,), torch.float32, 1)"),
    ):
        program = named("", "", [argument], [line, join], ["v1"]).program
        outcome = worker_for(ocl_device).ask({"program": program.as_dict(), "oracle": False})[0]
        assert outcome["kind"] == "skipped", outcome["text"]
        assert refused_on_device(program, ocl_device, 4, 0)
        program = named("", "", [argument], [line.replace(")", ", device=device)"), join], ["v1"]).program
        assert not refused_on_device(program, ocl_device, 4, 0)


def test_attention_that_is_written_to(ocl_device: str, worker_for: Callable[[str], Worker]) -> None:
    """PyTorch refuses the gradient of fused attention if an operand was written to; on the CPU only for some layouts."""
    arguments = [f"make(device, (2, 1, 1, 1), torch.float32, {i})" for i in range(3)]
    arguments[1] += ".permute(3, 2, 1, 0).reshape(1, 1, 1, 2).permute(3, 2, 1, 0)"
    arguments[2] += ".requires_grad_()"
    arguments.append("make(device, (1, 1, 1, 1), torch.float32, 3)")
    lines = ["v0 = F.scaled_dot_product_attention(a0, a1, a2, a3)", "a1.eq_(a2)"]
    program = named("", "", arguments, lines, ["v0"], gradient=True).program
    assert worker_for(ocl_device).ask({"program": program.as_dict(), "oracle": False})[0]["kind"] == "skipped"


def test_pool_that_is_detached_in_place(ocl_device: str, worker_for: Callable[[str], Worker]) -> None:
    """Its result is a view on every device but the CPU. Any other view is not detached on the CPU either."""
    lines = ["v0 = F.max_pool1d(a0, 1)", "v0.detach_()"]
    program = named("", "", ["make(device, (1, 1, 1), torch.float32, 1)"], lines, ["v0"], mode="eager").program
    assert worker_for(ocl_device).ask({"program": program.as_dict(), "oracle": False})[0]["kind"] == "skipped"


def test_device_without_float64(ocl_device: str) -> None:
    """float64 is then no part of what a program may ask for."""
    from tests.fuzz.check import check

    program = named("", "", ["make(device, (3,), torch.float64, 1)"], ["v0 = a0 + 1"], ["v0"], mode="eager").program
    index = torch.device(ocl_device).index
    _C.pretend_no_fp64(index, True)
    try:
        assert check(program, ocl_device, oracle=False).kind == "skipped"
    finally:
        _C.pretend_no_fp64(index, False)
    assert check(program, ocl_device, oracle=False).kind == "ok"


def test_strides_that_only_eager_mode_has() -> None:
    """Traced, a comparison keeps the strides of dimensions of one element, and later ops then assume channels-last."""
    from tests.fuzz.check import wrong_when_traced
    from tests.fuzz.reference import Native

    images = "make(device, (4, 8, 2, 1), torch.float32, 0).permute(0, 3, 1, 2)"
    for line, wrong in (("v1 = torch.hstack([v0, v0])", True), ("v1 = torch.vstack([v0, v0]).contiguous()", False)):
        program = named("", "", [images], ["v0 = torch.eq(a0, a0)", line], ["v1"]).program
        assert wrong_when_traced(Native(program, 4, 0)) is wrong


def test_programs_are_the_same_everywhere() -> None:
    """A seed and a number identify one program."""
    from tests.fuzz.worker import Source

    def drawn() -> list[Any]:
        source = Source()
        return [source.batch("same", batch) for batch in range(4)]

    assert drawn() == drawn()


def test_attention_beyond_memory_is_refused() -> None:
    """PyTorch's kernel sometimes ends the process if values have more rows than keys."""
    from tests.fuzz.reference import execute

    names = {"F": torch.nn.functional, **{f"a{i}": torch.zeros(1, 1, 5 + i // 2, 8) for i in range(3)}}
    execute("v0 = F.scaled_dot_product_attention(a0, a1, a0)", names)
    with pytest.raises(ValueError, match="5 and 6 rows"):
        execute("v0 = F.scaled_dot_product_attention(a0, a1, a2)", names)


def test_lines_that_warn_run_again() -> None:
    """A line with out= must not give a warning: if it is refused, all earlier lines run again."""
    from tests.fuzz.maker import Maker
    from tests.fuzz.program import Settings

    maker = Maker(None, Settings())  # type: ignore[arg-type]
    x, y = (maker.argument(f"make(device, ({size},), torch.float32, 0)") for size in (3, 1))
    assert maker.add([f"v0 = F.l1_loss({x}, {y})"])
    assert not maker.add([f"torch.add({x}, 1, out={y})"])


def test_rows_are_statements() -> None:
    """All rows of the op tables can be printed as statements, except those that build modules and those that opt out."""
    from tests.fuzz import rows

    left_out, wanted = [], [op for family in rows.FAMILIES for op in rows.programs(family)]
    for op in wanted:
        sample = op.samples(op.dtypes[0])[0]
        names = {id(x): f"a{i}" for i, x in enumerate(tree_leaves(sample)) if isinstance(x, torch.Tensor)}
        try:
            assert rows.lines_of(op, sample, names, (f"v{i}" for i in itertools.count()).__next__)
        except rows.NotPrintable:
            left_out.append(op.name)
    assert len(left_out) < 0.05 * len(wanted), left_out
