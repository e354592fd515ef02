# tests/no_device/tree/test_selection.py: a plain run leaves out cases that the device cannot run, and all but a sample of the others.
import re
from types import SimpleNamespace

import pytest

import tests.conftest as conftest
from tests import coverage

CPU = SimpleNamespace(is_cpu=True, has_fp64=True, has_mma=False, has_wgmma=False)
HOPPER = SimpleNamespace(is_cpu=False, has_fp64=True, has_mma=True, has_wgmma=True)


@pytest.fixture
def can_run(monkeypatch):
    torch = pytest.importorskip("torch")

    def ask(properties, *needs, sweep=False, count=2, fixtures=()):
        monkeypatch.setattr(torch, "ocl", SimpleNamespace(get_device_properties=lambda _: properties), raising=False)
        marks = [pytest.mark.needs(what).mark for what in needs]
        item = SimpleNamespace(nodeid="test_it", fixturenames=fixtures, iter_markers=lambda name: marks)
        return conftest._can_run(item, "ocl:0", count, sweep)

    return ask


def test_what_a_device_lacks(can_run):
    assert can_run(CPU) and can_run(CPU, "cpu", "fp64") and can_run(HOPPER, "wgmma", "mma")
    assert not can_run(CPU, "wgmma") and not can_run(CPU, "cpu", "mma") and not can_run(HOPPER, "cpu")


def test_what_only_a_sweep_runs(can_run):
    assert not can_run(CPU, "sweep") and can_run(CPU, "sweep", sweep=True)
    assert not can_run(CPU, "sweep", "wgmma", sweep=True)


def test_two_devices(can_run):
    assert can_run(CPU, fixtures=["two_ocl_devices"]) and not can_run(CPU, fixtures=["two_ocl_devices"], count=1)
    assert can_run(CPU, fixtures=["two_ocl_devices"], count=0), "without a device it is skipped, and says why"


def test_a_misspelt_need_is_an_error(can_run):
    with pytest.raises(AssertionError, match=r"test_it needs .*wgma"):
        can_run(CPU, "wgma")


def test_samples():
    names = [f"test_op[{k}]" for k in range(1000)]
    assert all(conftest._in_sample(name, True, every=10) for name in names), "the first device runs all"
    other = [conftest._in_sample(name, False, every=10) for name in names]
    assert other == [conftest._in_sample(name, True, first=10) for name in names] and 70 < sum(other) < 130
    assert conftest._in_sample("test_op[lstm]", False, keep="lstm") and not conftest._in_sample("x", False)


def test_no_case_begins_when_time_is_up(monkeypatch):
    def config(until):
        options = SimpleNamespace(until=until)
        return SimpleNamespace(option=options, getoption=lambda name: getattr(options, name.removeprefix("--")))

    now = 1_000_000
    monkeypatch.setattr(conftest.time, "time", lambda: now)
    for until, end in ((None, None), (now - 5, now + conftest.LEAST_SECONDS), (now + 9999, now + 9999)):
        given = config(until)
        conftest._extend_until(given)
        assert given.option.until == end
    conftest.pytest_runtest_setup(SimpleNamespace(config=config(now + 1)))
    conftest.pytest_runtest_setup(SimpleNamespace(config=config(None)))
    with pytest.raises(pytest.skip.Exception, match="time is up"):
        conftest.pytest_runtest_setup(SimpleNamespace(config=config(now - 1)))


def test_every_test_file_is_in_one_group():
    files = [p.relative_to(coverage.ROOT / "tests").as_posix() for p in (coverage.ROOT / "tests").rglob("test_*.py")]
    assert files and all(any(re.match(pattern, file) for pattern in coverage.GROUPS.values()) for file in files)
