# torch_ocl_compile/device/record.py: records the launches on a device: `with torch.ocl.record() as launches: compiled(x)`.
"""There is one record for each kernel that a compiled graph enqueued while recording was on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from torch_ocl_compile import _C


@dataclass(frozen=True)
class LaunchRecord:
    """One launch. Times are in ns on the device's clock. They are zero unless the recording has `timing=True` and the driver tells them."""

    kernel: str
    kind: str
    origin: str  # The aten ops and the model's source lines.
    device: int
    global_size: tuple[int, int, int]
    local_size: tuple[int, int, int]
    ops: int  # Number of IR nodes in this kernel.
    bytes: int  # Bytes read and written, computed from the shapes.
    flops: int
    queued_ns: int
    start_ns: int
    end_ns: int
    stream: int = 0
    title: str = ""  # "gemm 64x10x4096 @ model.py:61, 5.24 MFLOP, 1.20 MB: addmm"
    graph: str = ""  # Label of the compiled graph; "" for a kernel that no graph launches.
    group: int = 0  # The kernel's position in that graph.

    @property
    def time_us(self) -> float:
        """Returns the time on the device in microseconds."""
        return (self.end_ns - self.start_ns) / 1000


# What C++ calls as LaunchRecord does.
SAME_NAMES = [field.name for field in fields(LaunchRecord) if not field.name.endswith("_size")]


@contextmanager
def record(*, timing: bool = False) -> Iterator[list[LaunchRecord]]:
    """Records the launches of compiled graphs. The list is filled when the block ends.

    `timing=True` also measures each kernel, and waits for the device at the end of the block.
    """
    launches: list[LaunchRecord] = []
    recording = _C.exec.begin_recording(timing)
    try:
        yield launches
    finally:
        for row in _C.exec.end_recording(recording):
            same = {name: row[name] for name in SAME_NAMES}
            launches.append(LaunchRecord(global_size=tuple(row["global"]), local_size=tuple(row["local"]), **same))
