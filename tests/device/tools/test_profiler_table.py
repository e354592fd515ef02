# tests/device/tools/test_profiler_table.py: torch.ocl.profile(): the table, its numbers, and the peaks that it compares them
# with.
import io
import math
import threading

import pytest
import torch

from torch_ocl_compile.errors import ConfigError

PEAKS = {"bandwidth": 2e9, "flops": 3e9}


@pytest.fixture
def product(ocl_device):
    """Returns a function that calls a compiled product (64 x 256 by 256 x 128) with relu."""
    a, b = torch.ones(64, 256).to(ocl_device), torch.ones(256, 128).to(ocl_device)
    compiled = torch.compile(lambda a, b: torch.relu(a @ b), backend="ocl")
    compiled(a, b)
    torch.ocl.synchronize(ocl_device)
    return lambda: compiled(a, b)


def test_the_rows_add_up(ocl_device, product):
    host = torch.ones(1000)
    with torch.ocl.profile(show=False, **PEAKS) as result:
        for _ in range(3):
            product()
        host.to(ocl_device)
    assert [row.time_us for row in result.rows] == sorted((row.time_us for row in result.rows), reverse=True)
    assert math.fsum(row.share for row in result.rows) == pytest.approx(1)
    (row,) = [row for row in result.rows if row.kind == "gemm"]
    assert row.title.startswith("gemm 64x128x256 @ test_profiler_table.py:") and row.title.endswith(": mm, relu")
    assert row.calls == 3 and row.flops == 3 * (2 * 64 * 128 * 256 + 64 * 128)
    assert row.bytes == 3 * 4 * (64 * 256 + 256 * 128 + 64 * 128)
    assert row.bandwidth == pytest.approx(row.bytes / row.time_us * 1e6)
    assert row.bandwidth_share == pytest.approx(row.bandwidth / 2e9)
    assert row.flops_share == pytest.approx(row.flops / row.time_us * 1e6 / 3e9)
    (upload,) = [row for row in result.rows if row.kind == "upload"]
    assert upload.title == "upload 4.00 kB" and upload.bytes == 4000 and math.isnan(upload.bandwidth_share)
    assert sum(row.time_us for row in result.rows) <= result.seconds * 1e6


def test_the_table_is_printed(ocl_device, product, capsys):
    with torch.ocl.profile(**PEAKS):
        product()
    printed = capsys.readouterr().out
    assert f"{ocl_device} {torch.ocl.get_device_name(ocl_device)}: busy for " in printed
    assert "peaks: 2.00 GB/s, 3.00 GFLOP/s" in printed
    lines = printed.splitlines()
    (head,) = [line for line in lines if line.startswith("kernel ")]
    assert head.split() == ["kernel", "calls", "ms", "share", "GB/s", "of", "peak", "GFLOP/s", "of", "peak"]
    (row,) = [line for line in lines if line.startswith("gemm 64x128x256")]
    assert len(row) == len(head) and row.count("%") == 3

    file = io.StringIO()
    with torch.ocl.profile(file=file, top=1, **PEAKS):
        product()
        torch.ones(10).to(ocl_device).cpu()
    assert capsys.readouterr().out == ""
    assert "... and 2 more, " in file.getvalue()


def test_peaks_are_measured(ocl_device, product):
    with torch.ocl.profile(show=False) as result:
        product()
    (row,) = [row for row in result.rows if row.kind == "gemm"]
    properties = torch.ocl.get_device_properties(ocl_device)
    if not (properties.has_mma or properties.has_wgmma):
        peak = row.flops_rate / row.flops_share
        assert peak > 1e9  # Every current device computes more than 1 GFLOP/s.
        assert row.flops_share < 1.5  # It may be above 1 if other programs slowed down the measurement of the peak.
    assert row.bandwidth / row.bandwidth_share > 1e8
    other = torch.ocl.profile(show=False, flops=1e9)
    with other:
        product()
    (same,) = [row for row in other.rows if row.kind == "gemm"]
    assert same.flops_share == pytest.approx(same.flops_rate / 1e9)
    assert same.bandwidth / same.bandwidth_share == pytest.approx(row.bandwidth / row.bandwidth_share)


def test_profiles_nest_and_overlap(ocl_device, product):
    outer = torch.ocl.profile(show=False, **PEAKS)
    inner = torch.ocl.profile(show=False, **PEAKS)
    with torch.ocl.record() as launches:
        with outer:
            product()
            inner.__enter__()
            product()
        product()
        inner.__exit__(None, None, None)
    assert [row.calls for row in outer.rows] == [2] and [row.calls for row in inner.rows] == [2]
    assert [launch.kind for launch in launches] == ["gemm"] * 3


def test_all_threads_are_seen(ocl_device, product):
    with torch.ocl.profile(show=False, **PEAKS) as result:
        workers = [threading.Thread(target=product) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert [row.calls for row in result.rows] == [4]


def test_nothing_is_kept_when_no_profile_is_open(ocl_device, product):
    product()
    with torch.ocl.profile(show=False, **PEAKS) as result:
        pass
    assert result.rows == []
    assert str(result) == "No OpenCL device did anything while this profile was open."


def test_a_block_that_fails_prints_nothing_and_ends_the_recording(ocl_device, product, capsys):
    with pytest.raises(ZeroDivisionError), torch.ocl.profile(**PEAKS) as result:
        product()
        raise ZeroDivisionError
    assert capsys.readouterr().out == "" and result.rows == [] and len(result.commands) == 1


@pytest.mark.parametrize("name", ["bandwidth", "flops"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan])
def test_a_peak_that_is_no_rate_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name}=.* is not a rate a second"):
        torch.ocl.profile(**{name: value})


def test_a_profile_opens_once(ocl_device):
    result = torch.ocl.profile(show=False)
    with result, pytest.raises(ConfigError, match="is open already"):
        result.__enter__()
