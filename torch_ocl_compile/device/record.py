# torch_ocl_compile/device/record.py: what ran on the device, as structs: `with torch.ocl.record() as launches: compiled(x)`.
"""Launch records: one per kernel that a compiled graph enqueued while recording was on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch_ocl_compile import _C


@dataclass(frozen=True)
class LaunchRecord:
    """One launch. Times in ns on the device's clock, zero unless recorded with `timing=True`."""

    kernel: str
    kind: str
    origin: str  # the aten ops and the model's source lines
    device: int
    global_size: tuple[int, int, int]
    local_size: tuple[int, int, int]
    ops: int  # IR nodes in this kernel
    bytes: int  # read and written, analytic
    flops: int
    queued_ns: int
    start_ns: int
    end_ns: int
    graph: str = ""  # label of the compiled graph; "" for what no graph launches
    group: int = 0  # its position in that graph

    @property
    def time_us(self) -> float:
        """Time on the device in microseconds."""
        return (self.end_ns - self.start_ns) / 1000


@contextmanager
def record(*, timing: bool = False) -> Iterator[list[LaunchRecord]]:
    """Records the launches of compiled graphs. The list is filled when the block ends.

    `timing=True` also measures each kernel, and waits for the device at the end.
    """
    launches: list[LaunchRecord] = []
    _C.exec.begin_recording(timing)
    try:
        yield launches
    finally:
        for row in _C.exec.end_recording():
            launches.append(
                LaunchRecord(
                    kernel=row["kernel"],
                    kind=row["kind"],
                    origin=row["origin"],
                    device=row["device"],
                    global_size=tuple(row["global"]),
                    local_size=tuple(row["local"]),
                    ops=row["ops"],
                    bytes=row["bytes"],
                    flops=row["flops"],
                    queued_ns=row["queued_ns"],
                    start_ns=row["start_ns"],
                    end_ns=row["end_ns"],
                    graph=row["graph"],
                    group=row["group"],
                )
            )
