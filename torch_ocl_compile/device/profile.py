# torch_ocl_compile/device/profile.py: torch.ocl.profile(), which prints what the devices did and how near they came to
# their peaks.
"""No torch.profiler is needed: `with torch.ocl.profile(): step()` prints a table when the block ends."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TextIO

from torch_ocl_compile import _C
from torch_ocl_compile.errors import ConfigError, OclError

_WIDEST = 88  # characters of a kernel's title


@dataclass(frozen=True)
class Peak:
    """The highest rates that a device reaches, per second. NaN if unknown."""

    bytes: float
    flops: float


@dataclass(frozen=True)
class ProfileRow:
    """All calls of one kernel with the same sizes, or all transfers of one kind and size."""

    device: int
    title: str
    kind: str  # kind of the kernel; "upload", "download", "copy" or "fill" for a transfer
    kernel: str  # "" for a transfer
    origin: str
    calls: int
    time_us: float
    share: float  # share of the device's time in all rows
    bytes: int
    flops: int
    bandwidth: float  # bytes per second
    flops_rate: float  # operations per second
    bandwidth_share: float  # share of the peak bandwidth; NaN for a transfer
    # Share of the peak rate of operations. NaN for a transfer, and on tensor cores unless a peak was given.
    flops_share: float


class Profile:
    """What `torch.ocl.profile` saw. `rows` and `str()` are filled when its block has ended."""

    def __init__(self, top: int, peak: Peak, file: TextIO | None, show: bool) -> None:
        self.rows: list[ProfileRow] = []
        self.commands: list[dict[str, Any]] = []
        self.seconds = 0.0  # length of the block by the host's clock
        self._top, self._given, self._file, self._show = top, peak, file, show
        self._peaks: dict[int, Peak] = {}
        self._notes: list[str] = []
        self._recording: int | None = None

    def __enter__(self) -> Profile:
        if self._recording is not None:
            raise ConfigError("torch.ocl.profile: this profile is open already.\n  do: call torch.ocl.profile() again")
        self._recording = _C.exec.begin_recording(True, True)
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        assert self._recording is not None
        self.commands = _C.exec.end_recording(self._recording)
        self.seconds = time.perf_counter() - self._started
        self._recording = None
        if kind is not None:
            return
        for device in sorted({c["device"] for c in self.commands}):
            self._peaks[device] = self._peak_of(device)
        self.rows = _rows(self.commands, self._peaks, peak_given=self._given.flops == self._given.flops)
        if self._show:
            print(self, file=self._file or sys.stdout)

    def _peak_of(self, device: int) -> Peak:
        given = self._given
        if given.bytes == given.bytes and given.flops == given.flops:
            return given
        try:
            measured = measured_peak(device)
        except OclError as error:
            self._notes.append(f"The peaks of ocl:{device} cannot be measured: {error}")
            return given
        return Peak(
            given.bytes if given.bytes == given.bytes else measured.bytes,
            given.flops if given.flops == given.flops else measured.flops,
        )

    def __str__(self) -> str:
        if not self.rows:
            return "No OpenCL device did anything while this profile was open."
        lines = [self._headline(device) for device in sorted({row.device for row in self.rows})]
        lines += self._notes
        shown = self.rows[: self._top] if self._top else self.rows
        several = len({row.device for row in self.rows}) > 1
        table = [["kernel", "calls", "ms", "share", "GB/s", "of peak", "GFLOP/s", "of peak"]]
        for row in shown:
            title = f"ocl:{row.device} {row.title}" if several else row.title
            table.append([_cut(title), str(row.calls), f"{row.time_us / 1000:.3f}", f"{row.share:.1%}",
                          _rate(row.bandwidth), _percent(row.bandwidth_share), _rate(row.flops_rate if row.flops else 0.0),
                          _percent(row.flops_share if row.flops else float("nan"))])  # fmt: skip
        lines += ["", *_aligned(table)]
        if len(shown) < len(self.rows):
            rest = sum(row.share for row in self.rows[len(shown) :])
            lines.append(f"... and {len(self.rows) - len(shown)} more, {rest:.1%} of the time")
        return "\n".join(lines)

    def _headline(self, device: int) -> str:
        own = [c for c in self.commands if c["device"] == device]
        on_device = [c for c in own if c["end_ns"] and not c["type"].startswith("wait")]
        busy = _union((c["start_ns"], c["end_ns"]) for c in on_device) / 1e6
        waited = sum(c["returned_ns"] - c["called_ns"] for c in own if c["type"].startswith("wait of the host")) / 1e6
        moved = sum(c["bytes"] for c in on_device if c["type"] in ("upload", "download"))
        peak = self._peaks[device]
        return (
            f"ocl:{device} {_C.device_properties(device)['name']}: busy for {busy:.2f} of {self.seconds * 1000:.2f} ms; "
            f"{moved / 1e6:.2f} MB moved between it and the host, which waited {waited:.2f} ms\n"
            f"peaks: {_rate(peak.bytes)} GB/s, {_rate(peak.flops)} GFLOP/s"
        )


def profile(
    *,
    top: int = 20,
    bandwidth: float | None = None,
    flops: float | None = None,
    file: TextIO | None = None,
    show: bool = True,
) -> Profile:
    """`with torch.ocl.profile() as result:` records what all OpenCL devices do and prints a table when the block ends.

    A row of the table is a kernel with its sizes, or a kind of transfer. It shows the calls, the time on the device,
    the share of the time, and what was reached of the device's bandwidth and arithmetic peak. The peaks are measured
    once per process and device, by a copy and by fp32 multiply-adds, which takes a fraction of a second. `bandwidth`
    (bytes per second) and `flops` (operations per second) replace the measured peaks. Kernels on tensor cores are
    compared with `flops` alone. `top`: rows in the table, 0 for all. `show=False` prints nothing: see `result.rows` and
    `str(result)`.
    """
    for name, value in (("bandwidth", bandwidth), ("flops", flops)):
        if value is not None and not value > 0:
            raise ConfigError(f"torch.ocl.profile: {name}={value!r} is not a rate a second, which is above 0.")
    nan = float("nan")
    return Profile(top, Peak(bandwidth or nan, flops or nan), file, show)


_measured: dict[int, Peak] = {}


def measured_peak(device: int) -> Peak:
    """Returns the peaks of a device. They are measured at the first call for the device."""
    if device not in _measured:
        _measured[device] = Peak(*_C.measure_peaks(device))
    return _measured[device]


def _rows(commands: list[dict[str, Any]], peaks: dict[int, Peak], *, peak_given: bool) -> list[ProfileRow]:
    groups: dict[tuple[int, str, str], list[dict[str, Any]]] = defaultdict(list)
    for command in commands:
        if command["end_ns"] and not command["type"].startswith("wait"):
            groups[command["device"], command["kernel"], command["title"]].append(command)
    times = {key: sum(c["end_ns"] - c["start_ns"] for c in group) for key, group in groups.items()}
    totals: dict[int, int] = defaultdict(int)
    for (device, _, _), ns in times.items():
        totals[device] += ns
    rows = []
    for key, group in groups.items():
        device, first, ns = key[0], group[0], times[key]
        bytes_, flops = sum(c["bytes"] for c in group), sum(c["flops"] for c in group)
        bandwidth, rate = (bytes_ / ns * 1e9, flops / ns * 1e9) if ns else (float("nan"), float("nan"))
        launch = first["type"] == "launch"
        compared = launch and (peak_given or not first["tensor_cores"])
        rows.append(
            ProfileRow(
                device=device, title=first["title"], kind=first["kind"] or first["type"], kernel=first["kernel"],
                origin=first["origin"], calls=len(group), time_us=ns / 1000, share=ns / totals[device] if ns else 0.0,
                bytes=bytes_, flops=flops, bandwidth=bandwidth, flops_rate=rate,
                bandwidth_share=bandwidth / peaks[device].bytes if launch else float("nan"),
                flops_share=rate / peaks[device].flops if compared else float("nan"),
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: -row.time_us)


def _union(spans: Iterable[tuple[int, int]]) -> int:
    """Returns the length that the spans cover together."""
    total, end = 0, 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def _cut(title: str) -> str:
    return title if len(title) <= _WIDEST else title[: _WIDEST - 3] + "..."


def _rate(value: float) -> str:
    """Returns a rate as text, in billions per second with three digits."""
    billions = value / 1e9
    if billions != billions or billions == 0:
        return "-"
    return f"{billions:.{2 if billions < 10 else 1 if billions < 100 else 0}f}"


def _percent(value: float) -> str:
    return "-" if value != value else f"{value:.1%}"


def _aligned(table: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    rows = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in table
    ]
    return [rows[0], "-" * len(rows[0]), *rows[1:]]
