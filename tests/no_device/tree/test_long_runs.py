# tests/no_device/tree/test_long_runs.py: rows of long runs are replaced, joined and merged; the page shows what the file has.
from __future__ import annotations

import argparse
import json

import pytest

from tests import long_runs

ROW = {"what": "random programs", "device": "a GPU", "when": "2026-11-25 10:00:00", "commit": "aaa", "torch": "2.13.0",
       "count": 300, "unit": "programs", "seconds": 60, "failures": [], "note": "", "first": "33:0", "next": "33:90"}  # fmt: skip


def test_the_page_has_the_table_of_the_file():
    assert long_runs.on_page() == long_runs.table(long_runs.read(long_runs.DATA)), "python -m tests.long_runs write"


def test_a_run_that_goes_on_is_added():
    more = ROW | {"when": "2026-11-25 11:00:00", "commit": "bbb", "count": 200, "first": "33:90", "next": "33:150"}
    more["failures"] = ["wrong value (33:99)"]
    (row,) = long_runs.merged([ROW], [more])
    assert (row["count"], row["seconds"], row["first"], row["next"]) == (500, 120, "33:0", "33:150")
    assert row["commit"] == "aaa to bbb" and row["failures"] == ["wrong value (33:99)"]
    third = more | {"commit": "ccc", "first": "33:150", "next": "33:160", "failures": []}
    assert long_runs.merged([row], [third])[0]["commit"] == "aaa to ccc"


def test_a_new_run_replaces_an_older_one():
    new = ROW | {"when": "2026-11-26 10:00:00", "count": 5, "first": "34:0", "next": "34:2"}
    assert long_runs.merged([ROW], [new]) == [new]
    assert long_runs.merged([new], [ROW]) == [new]
    other = ROW | {"device": "a CPU"}
    assert long_runs.merged([ROW], [other]) == [other, ROW]


def test_files_are_merged_into_one(tmp_path):
    path = tmp_path / "folder" / "rows.json"
    long_runs.add(path, [ROW])
    long_runs.add(path, [ROW | {"device": "a CPU"}])
    assert [row["device"] for row in json.loads(path.read_text())] == ["a CPU", "a GPU"]
    assert sum('"what"' in line for line in path.read_text().splitlines()) == 2


def test_failures_in_the_table():
    failed = ROW | {
        "count": 2000,
        "failures": ["crash (33:1)", "crash (33:1)", "hang | (33:2)"],
        "note": "210 to 212 MB",
    }
    text = long_runs.table([failed]).splitlines()[-1]
    assert "2,000 programs | 3 fail: crash (33:1) (2 times), hang / (33:2); 210 to 212 MB | 2026-11-25 | `aaa`" in text
    assert "| no failure |" in long_runs.table([ROW])


def options(tmp_path, *arguments):
    parser = argparse.ArgumentParser()
    long_runs.add_options(parser, "SEED")
    return parser.parse_args(["--record", str(tmp_path / "rows.json"), *arguments])


def test_a_run_records_itself_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_OCL_COMMIT", "0123abc")
    monkeypatch.setattr(long_runs, "device_names", lambda device: f"the device {device}")
    with pytest.raises(SystemExit, match="no run of 'stress' on the device ocl:0 is recorded"):
        long_runs.begin("stress", "ocl:0", "rounds", options(tmp_path, "--from", "last"))
    run = long_runs.begin("stress", "ocl:0", "rounds", options(tmp_path, "--from", "7"))
    assert run.place == "7" and run.done == 0
    run.end(3, ["seed 9"], "10")
    again = long_runs.begin("stress", "ocl:0", "rounds", options(tmp_path, "--from", "last"))
    assert again.place == "10" and again.done == 3
    again.end(2, [], "12")
    (row,) = long_runs.read(tmp_path / "rows.json")
    assert (row["commit"], row["count"], row["next"], row["failures"]) == ("0123abc", 5, "12", ["seed 9"])


def test_the_limit_of_time(tmp_path, monkeypatch):
    run = long_runs.Run("stress", "ocl:0", "rounds", 2.0, None)
    assert not run.over()
    run.started -= 121
    assert run.over()
    run.minutes = 0.0
    assert not run.over()


def test_tests_are_counted():
    assert (
        long_runs.tests_counted("100% tests passed, 0 tests failed out of 36\n====== 12 passed, 3 skipped in 4s\n")
        == 48
    )
    assert long_runs.tests_counted("1 failed, 11 passed in 2.0s\n") == 11


def test_each_work_meets_each_end():
    from tests.process_ends import ENDS, WORK, drawn

    assert len({drawn(number)[:2] for number in range(len(WORK) * len(ENDS))}) == len(WORK) * len(ENDS)
