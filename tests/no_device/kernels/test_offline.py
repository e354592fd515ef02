# tests/no_device/kernels/test_offline.py: a sample of kernels, compiled for Intel's and AMD's GPUs, which need not be there.
"""`make offline` compiles all of them, for ten chips. A kernel that needs more than tests/offline/allowed.csv allows is spilled
to memory where it was not before: make it smaller, or allow it with a reason in the commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.offline import rendering, rows, summary, table
from tests.offline.compilers import CHIPS, FOLDER, CompileError, compile_text, version
from tests.offline.rendering import Kernel
from tests.offline.results import Results
from tests.offline.summary import Worst

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/offline_compilers.sh"
AMD, INTEL = ("gfx906", "gfx1100", "gfx1030"), ("skl", "pvc", "acm-g10")
# Each problem in one type, for one chip of each vendor.
SAMPLE = [
    (name, problem.types[number % len(problem.types)], (AMD[number % 3], INTEL[number % 3]))
    for number, (name, problem) in enumerate(rows.PROBLEMS.items())
]


@pytest.fixture(scope="module", autouse=True)
def compilers() -> None:
    """Unpacks the compilers, or skips."""
    done = subprocess.run([SCRIPT, FOLDER], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


def wrong(kernels: list[Kernel], chips: tuple[str, ...]) -> list[str]:
    results = Results()
    results.add(((kernel.text, chip) for kernel in kernels for chip in kernel.chips(chips)), jobs=1)
    worsts, failed = summary.summarise(kernels, chips, results)
    return failed + summary.faults(worsts, summary.allowed())


@pytest.mark.sampled(first=10)
@pytest.mark.parametrize("problem, type, chips", SAMPLE, ids=lambda x: "-".join(x) if isinstance(x, tuple) else x)
def test_kernels_need_no_more_than_allowed(problem: str, type: str, chips: tuple[str, ...]) -> None:
    one_of_a_row = {(kernel.limits, kernel.row): kernel for kernel in rows.render(problem, type)}
    assert one_of_a_row
    # A problem that reaches many rows shares them with others, so every second one is enough.
    chosen = sorted(one_of_a_row)[:: 2 if len(one_of_a_row) > 6 else 1]
    assert wrong([one_of_a_row[key] for key in chosen], chips) == []


def test_golden_kernels_need_no_more_than_allowed() -> None:
    kernels = list(rendering.goldens())
    assert len(kernels) >= 6
    assert wrong(kernels, (AMD[2], INTEL[2])) == []


def test_the_problems_reach_every_kernel_with_every_tile() -> None:
    assert rows.missing([kernel for problem in rows.PROBLEMS for kernel in rows.render(problem, "fp32")]) == []


LARGE = """__attribute__((reqd_work_group_size(64, 1, 1))) __kernel void large(__global float* x, int n, int step) {
  const int at = get_global_id(0);
  __local float shared[64];
  shared[get_local_id(0)] = x[at];
  barrier(CLK_LOCAL_MEM_FENCE);
  float DECLARED;
  for (int i = 0; i < n; ++i) { const float y = shared[i % 64]; ADDED }
  STORED
}
"""


def large(values: int) -> str:
    """Returns a kernel that keeps so many values in registers."""
    text = LARGE.replace("DECLARED", ", ".join(f"v{i} = x[at + {i} * step]" for i in range(values)))
    text = text.replace("ADDED", " ".join(f"v{i} = v{i} * y + v{(i + 1) % values};" for i in range(values)))
    return text.replace("STORED", " ".join(f"x[at + {i} * step] = v{i};" for i in range(values)))


@pytest.mark.sampled(first=4)
@pytest.mark.parametrize("chip", (*AMD, *INTEL))
def test_reports(chip: str) -> None:
    """A kernel with few values fits into registers, and one with many does not."""
    (small,), (full,) = (compile_text(large(values), CHIPS[chip]) for values in (8, 280))
    assert (small.kernel, small.spills, small.scratch, small.local) == ("large", 0, 0, 256)
    assert full.spills > 0 and full.scratch > 0 and full.local == 256
    assert full.registers >= small.registers > 8
    assert small.width == 64 if chip == "gfx906" else small.width in (8, 16, 32)
    assert small.waves >= 8 > full.waves if CHIPS[chip].vendor == "amd" else small.waves == 0


@pytest.mark.parametrize("chip", ("gfx906", "skl"))
def test_a_kernel_that_does_not_build_is_an_error_with_the_log(chip: str) -> None:
    with pytest.raises(CompileError, match="nonesuch"):
        compile_text("__kernel void k(__global int* x) { x[0] = nonesuch; }", CHIPS[chip])
    with pytest.raises(CompileError, match="nothing defines outside"):
        compile_text("int outside(int); __kernel void k(__global int* x) { x[0] = outside(1); }", CHIPS[chip])
    with pytest.raises(CompileError, match=r"no kernel|no section"):
        compile_text("int twice(int x) { return 2 * x; }", CHIPS[chip])


def test_a_second_run_compiles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    first = Results(path)
    first.add([(large(8), chip) for chip in AMD], jobs=2)
    again = Results(path)
    again.add([(large(8), chip) for chip in AMD], jobs=2)
    assert (first.compiled, again.compiled) == (len(AMD), 0)
    assert again.of(large(8), AMD[0]) == first.of(large(8), AMD[0])
    assert version("amd") in Results.key("", AMD[0])
    with pytest.raises(KeyError):
        again.of(large(9), AMD[0])


FOUND = Worst("gemm/group 64x64", "fp32", "skl", 1, 128, 3, 1024, 0, 8, 0)


def fails_with_3(folder: Path, path: str) -> str:
    environment = {**os.environ, "PATH": path}
    done = subprocess.run([SCRIPT, folder], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 3, done
    return done.stderr


def test_the_script_replaces_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter").write_text("dear")
    assert "holds something else" in fails_with_3(tmp_path / "mine", os.environ["PATH"])
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter"]


@pytest.mark.parametrize(
    "given, message",
    [
        ({}, "apt-get is missing"),
        (
            {"apt-get": "", "apt-cache": "exit 1", "id": "echo 1000"},
            "apt does not know these packages: intel-opencl-icd .* sudo apt-get update",
        ),
        ({"apt-get": "echo no network >&2; exit 100", "apt-cache": ""}, "apt-get download failed: no network"),
    ],
    ids=("no apt", "old lists", "no network"),
)
def test_the_script_says_what_is_missing(given: dict[str, str], message: str, tmp_path: Path) -> None:
    """Runs the script with few programs, some of which are stand-ins."""
    (tmp_path / "bin").mkdir()
    for name in ["bash", "env", "cksum", "cut", "mkdir", "dirname", "flock", "rmdir", "mktemp", "cat", "rm", "id"]:
        if name not in given:
            (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    if given:
        given = {"dpkg-deb": "", **given}
    for name, text in given.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    assert re.search(message, fails_with_3(tmp_path / "compilers", str(tmp_path / "bin")))
    assert not (tmp_path / "compilers").exists()


def test_limits() -> None:
    key = FOUND.key
    assert summary.faults([FOUND], {key: (3, 1024)}) == []
    assert summary.faults([FOUND], {key: (4, 2048)}) == []
    for limits in ({}, {key: (2, 1024)}, {key: (3, 512)}):
        (fault,) = summary.faults([FOUND], limits)
        assert "gemm/group 64x64 in fp32 on skl: 3 spills and 1024 bytes" in fault
    assert summary.too_generous([FOUND], {key: (3, 1024)}, ["fp32"]) == []
    for limits in ({key: (4, 1024)}, {key: (3, 2048)}, {("gone", "fp32", "skl"): (1, 0), key: (3, 1024)}):
        assert len(summary.too_generous([FOUND], limits, ["fp32"])) == 1
        assert summary.too_generous([FOUND], limits, ["bf16"]) == []


def test_limits_are_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "allowed.csv"
    limits = summary.raised({FOUND.key: (1, 2048)}, [FOUND, replace(FOUND, row="fits", spills=0, scratch=0)])
    summary.write_allowed(limits, path)
    assert summary.allowed(path) == {FOUND.key: (3, 2048)}
    assert summary.reasons(path) == {FOUND.key: ""}
    path.write_text(path.read_text().replace("2048,", "2048,an array"))
    summary.write_allowed(limits, path)
    assert summary.reasons(path) == {FOUND.key: "an array"}
    why = summary.reasons()
    for row, type, chip in summary.allowed():
        assert row and type in rendering.TYPES and chip in CHIPS and why[row, type, chip]


def test_kernels_that_differ_in_sizes_are_alike() -> None:
    text = "#define TILE 64\nvoid sum_0123456789ab(int n) { for (int i = 0; i < 3; ++i) x[i * 100] *= 0x1.8p-2f; }"
    one = Kernel("generated sum", "fp32", 128, text, "")
    same = replace(
        one, text=text.replace("0123456789ab", "ffffffffffff").replace("100", "20").replace("0x1.8p-2", "0x1.4p-9")
    )
    assert summary.one_of_each([one, same]) == summary.one_of_each([same, one]) == [one]
    for other in (text.replace("64", "32"), text.replace("i < 3", "i < 4"), text.replace("*=", "+=")):
        assert len(summary.one_of_each([one, replace(one, text=other)])) == 2


def test_of_hand_written_kernels_the_longest_is_taken() -> None:
    short, long = (Kernel("gemm/group 64x64", "fp32", (128, 0), text, "") for text in ("x += 1;", "x += exp(y);"))
    other = replace(short, limits=(112, 8))
    assert summary.one_of_each([short, long, other]) == summary.one_of_each([long, short, other]) == [long, other]


def test_the_page_names_every_chip() -> None:
    text = table.PAGE.read_text(encoding="utf-8")
    assert [chip for chip in CHIPS if f"\n| {chip} |" not in text] == []


@pytest.mark.needs("sweep")  # Writing the page takes hours, which a new kernel need not wait for.
def test_the_page_names_every_kernel() -> None:
    text = table.PAGE.read_text(encoding="utf-8")
    missing = sorted(file for file in rows.files() if f"\n| {file}" not in text)
    assert not missing, f"docs/offline.md lacks {missing}: `make offline` writes it"
