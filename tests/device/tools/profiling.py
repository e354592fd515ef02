# tests/device/tools/profiling.py: runs a function under torch.profiler and reads the trace that it exports.
import json
import tempfile
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class Trace:
    """The events of an exported Chrome trace."""

    def __init__(self, prof):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            prof.export_chrome_trace(str(path))
            self.text = path.read_text(encoding="utf-8")
        self.events = json.loads(self.text)["traceEvents"]

    def of(self, *categories):
        """Returns the events of these categories that have a duration, sorted by start."""
        found = [e for e in self.events if e["ph"] == "X" and e["cat"] in categories]
        return sorted(found, key=lambda e: e["ts"])

    @property
    def kernels(self):
        return self.of("kernel")

    @property
    def calls(self):
        return self.of("privateuse1_runtime")

    def call_of(self, event):
        """Returns the event of the host's call that enqueued a command."""
        (call,) = [c for c in self.calls if c["args"]["correlation"] == event["args"]["correlation"]]
        return call

    def op_of(self, event):
        """Returns the event of the PyTorch op or user annotation that a call or command belongs to."""
        (op,) = [
            e for e in self.of("cpu_op", "user_annotation") if e["args"]["External id"] == event["args"]["External id"]
        ]
        return op


def end(event):
    return event["ts"] + event["dur"]


def profiled(function, *, activities=BOTH, **options):
    with profile(activities=activities, **options) as prof:
        function()
    return prof, Trace(prof)
