# benchmarks/harness/op_side.py: runs single operations on one side, in a process of its own.
"""Reads commands, one per line, and answers each with a line of JSON: "i N PRECISION" prepares case N, "t" times it, "e"
gives its error, "p" gives the device's peak, "s" the settings of the side. ops.py starts this program."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.harness import cases
from benchmarks.harness.side import device_of, set_up, settings_in_effect
from benchmarks.harness.sides import CHANNELS_LAST, SIDES
from benchmarks.harness.timing import relative_error, seconds_of

# What PyTorch says if the allowed kernels of attention cannot run a case: on CUDA, on the CPU.
NO_KERNEL = ("No available kernel", "No viable backend")
# Types of the inputs, by precision. fp32 for the others.
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Layers(torch.nn.Module):
    """`copies` independent calls of a case. Its weights are parameters. The inputs of all calls follow one another in
    the arguments."""

    def __init__(self, case: cases.Case, inputs: list[torch.Tensor], copies: int) -> None:
        super().__init__()
        self.case, self.given = case, len(inputs) - case.weights
        held = [[torch.nn.Parameter(w, requires_grad=False) for w in inputs[self.given :]] for _ in range(copies)]
        if copies > 1:
            held = [[torch.nn.Parameter(w.clone(), requires_grad=False) for w in ws] for ws in held]
        self.held = torch.nn.ModuleList(torch.nn.ParameterList(ws) for ws in held)

    def forward(self, *xs: torch.Tensor) -> Any:
        n = self.given
        results = [self.case.call(*xs[i * n : (i + 1) * n], *weights) for i, weights in enumerate(self.held)]  # type: ignore[misc]
        return results if len(results) > 1 else results[0]


class Worker:
    """One side. It has one prepared case at a time."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.side, self.threads, self.most_calls = settings["side"], settings["threads"], settings["calls"]
        self.kind = SIDES[self.side]
        self.cases = cases.chosen(settings["batch"], settings["groups"], settings["parts"])
        self.device = device_of(self.side, settings["ocl_device"])

    def seconds(self, inputs: list[torch.Tensor], calls: int) -> float:
        return seconds_of(lambda: self.call(*inputs), self.device, calls)

    def compiled(self, call: Any) -> Any:
        kind = self.kind
        return torch.compile(call, backend=kind.backend, mode=kind.mode, dynamic=False) if kind.backend else call

    def prepare(self, index: int, precision: str = "highest") -> float | None:
        """Compiles a case and decides how often it is called. Returns the seconds of one operation, or None if the side may
        use one kernel of attention only and that one cannot run the case."""
        set_up(self.side, self.threads, precision, freezing=True)
        self.precision = precision
        case = self.case = self.cases[index]
        inputs = [x.to(self.device) for x in case.inputs(TYPES.get(precision, torch.float32))]
        if self.kind.attention:
            try:
                case.call(*inputs)
            except RuntimeError as error:
                if not any(text in str(error) for text in NO_KERNEL):
                    raise
                return None
        return self.prepare_call(case, inputs)

    def prepare_call(self, case: cases.Case, inputs: list[torch.Tensor]) -> float:
        formats = {"": inputs}
        if case.images:
            last = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
            formats = {name: last if name == CHANNELS_LAST else inputs for name in self.kind.op_formats}
        torch._dynamo.reset()
        if case.weights and self.kind.backend:
            formats = {"": inputs[: -case.weights]}
            self.call = self.compiled(Layers(case, inputs, 1))
        else:
            self.call = self.compiled(case.call)
        best = float("inf")
        with torch.no_grad():
            for name, given in formats.items():
                for _ in range(3):
                    seconds = self.seconds(given, 3)
                if seconds < best:
                    best, self.inputs, self.format = seconds, given, name
        # A call costs some tens of microseconds on the host. So a short operation is timed as several independent
        # operations per call.
        self.copies = max(1, min(16, int(3e-3 / best)))
        if self.copies > 1:
            best = self.repeat(inputs)
        self.calls = max(1, min(self.most_calls, int(0.2 / (best * self.copies))))
        return best

    def repeat(self, inputs: list[torch.Tensor]) -> float:
        """Puts several independent operations into one call. Returns the seconds of one operation."""
        case, given, n = self.case, self.inputs, len(self.inputs)
        self.inputs = [x.clone() for _ in range(self.copies) for x in given]

        def several(*xs: torch.Tensor) -> list[object]:
            return [case.call(*xs[i : i + n]) for i in range(0, len(xs), n)]

        with_weights = case.weights and self.kind.backend
        self.call = self.compiled(Layers(case, inputs, self.copies) if with_weights else several)
        with torch.no_grad():
            return min(self.seconds(self.inputs, 2) for _ in range(3)) / self.copies

    def error(self) -> float:
        """Relative error (RMSE) of up to 2^16 elements of the first result. NaN for operations whose fp64 result would
        take long."""
        case, flat = self.case, 1 << 16
        if case.flops > 3e11 or case.group == "attention_grad":
            return float("nan")
        with torch.no_grad():
            given = case.inputs(TYPES.get(self.precision, torch.float32))
            exact: Any = case.call(*(x.double() if x.is_floating_point() else x for x in given))
            exact = exact[0] if isinstance(exact, (tuple, list)) else exact
            got = self.call(*self.inputs)
            got = got[0] if self.copies > 1 else got
            got = got[0] if isinstance(got, (tuple, list)) else got
        got, exact = (t.double().cpu().flatten() for t in (got, exact))
        step = max(1, exact.numel() // flat)
        return relative_error(got[::step], exact[::step])

    def run(self) -> float:
        """Seconds of one operation."""
        # The other side's OpenMP threads use a core for about 11 ms after its last operation.
        time.sleep(0.03)
        with torch.no_grad():
            # The other side has filled the caches, and the threads of this side were asleep.
            self.seconds(self.inputs, 1)
            return self.seconds(self.inputs, self.calls) / self.copies

    def settings(self) -> dict[str, Any]:
        """How the prepared case runs. `format` is "" if it has no images."""
        return settings_in_effect(self.side, self.device, self.precision) | {"format": self.format}

    def measured_peak(self) -> float:
        """The peak of a CPU device in fp32 operations per second. A multiply-add counts as two. NaN for a GPU, where
        the peak depends on the tensor cores that a case may use."""
        from torch_ocl_compile import _C

        index = torch.device(self.device).index or 0
        is_cpu = torch.get_device_module("ocl").get_device_properties(index).is_cpu
        return _C.measure_peaks(index)[1] if is_cpu else float("nan")


def main() -> None:
    # Output of the libraries must not mix with the answers.
    sys.stdout, answers = sys.stderr, sys.stdout
    side = Worker(json.loads(sys.argv[1]))
    commands: dict[str, Callable[[], Any]] = {
        "t": side.run, "e": side.error, "p": side.measured_peak, "s": side.settings}  # fmt: skip
    for line in sys.stdin:
        command, *arguments = line.split()
        result = side.prepare(int(arguments[0]), arguments[1]) if command == "i" else commands[command]()
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
