# benchmarks/ops.py: single operations, eager and compiled, in one interleaved run, with their share of the device's roofline.
"""python benchmarks/ops.py --groups gemm,conv --sides eager,ocl --flops 60e12 --bandwidth 4.0e12

Every side is a process of its own. A round begins with a pause and one call that is not timed. Then it times --calls calls and one
wait for the device. An operation of less than some milliseconds is timed as several independent operations per call, so that the
time is not that of the host. The table has the median of the rounds:
  ratio     time of the first side over the time of this side
  roofline  least time that --flops (operations a second, a multiply-add is two) and --bandwidth (bytes a second) allow, over the time
  error     RMSE to fp64 over the RMS of the result, on a sample of its elements
The last lines are geometric means by group.

The weight of a linear layer ("nt") is a parameter, as in a model, so packing it once is not part of the time. Other operands are packed
in every call, if the kernel packs. The side `eager` runs convolutions in the faster of the two memory formats, the other sides
channels-last. Without --flops, peak.py measures the multiply-adds of a CPU device once in every round."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cases as table


class Layers(torch.nn.Module):
    """`copies` independent calls of a case. The weights are parameters; the inputs of all calls follow one another."""

    def __init__(self, case: table.Case, inputs: list[torch.Tensor], copies: int) -> None:
        super().__init__()
        self.case, self.given = case, len(inputs) - case.weights
        held = [[torch.nn.Parameter(w, requires_grad=False) for w in inputs[self.given :]] for _ in range(copies)]
        if copies > 1:
            held = [[torch.nn.Parameter(w.clone(), requires_grad=False) for w in ws] for ws in held]
        self.held = torch.nn.ModuleList(torch.nn.ParameterList(ws) for ws in held)

    def forward(self, *xs):
        n = self.given
        results = [self.case.call(*xs[i * n : (i + 1) * n], *held) for i, held in enumerate(self.held)]
        return results if len(results) > 1 else results[0]


def seconds_of_call(call, inputs: list[torch.Tensor], n: int) -> float:
    """The mean of `n` calls."""
    device = inputs[0].device.type
    start = time.perf_counter()
    for _ in range(n):
        call(*inputs)
    if device != "cpu":
        (torch.cuda if device == "cuda" else torch.ocl).synchronize()
    return (time.perf_counter() - start) / n


class Worker:
    """One side, which has one case prepared at a time."""

    def __init__(self, settings: dict) -> None:
        from side import device_of

        torch.set_num_threads(settings["threads"])
        torch.backends.cudnn.allow_tf32 = settings["tf32"]
        torch.backends.cudnn.benchmark = True  # its fastest kernels, found while a case is prepared
        torch.set_float32_matmul_precision("high" if settings["tf32"] else "highest")
        self.side, self.most_calls, self.cases = settings["side"], settings["calls"], settings["cases"]
        self.device = device_of(self.side, settings["ocl_device"])
        self.peak = None

    def compiled(self, call):
        return call if self.side == "eager" else torch.compile(call, backend=self.side, dynamic=False)

    def prepare(self, index: int) -> float:
        """Compiles a case, and decides how often it is called. Its seconds."""
        case = self.case = self.cases[index]
        inputs = [x.to(self.device) for x in case.inputs()]
        formats = [inputs]
        if case.images:
            last = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
            formats = [inputs, last] if self.side == "eager" else [last]
        if self.side != "eager":
            torch._dynamo.reset()
        if case.weights and self.side != "eager":
            formats = [inputs[: -case.weights]]
            self.call = self.compiled(Layers(case, inputs, 1))
        else:
            self.call = self.compiled(case.call)
        best = float("inf")
        with torch.no_grad():
            for given in formats:
                for _ in range(3):
                    seconds = seconds_of_call(self.call, given, 3)
                if seconds < best:
                    best, self.inputs = seconds, given
        # A call on the host costs some tens of microseconds: short operations are timed as several independent ones a call.
        self.copies = max(1, min(16, int(3e-3 / best)))
        if self.copies > 1:
            best = self.repeat(inputs)
        self.calls = max(1, min(self.most_calls, int(0.2 / (best * self.copies))))
        return best

    def repeat(self, inputs: list[torch.Tensor]) -> float:
        """Several independent operations in one call. The seconds of one."""
        case, given, n = self.case, self.inputs, len(self.inputs)
        self.inputs = [x.clone() for _ in range(self.copies) for x in given]

        def several(*xs):
            return [case.call(*xs[i : i + n]) for i in range(0, len(xs), n)]

        with_weights = case.weights and self.side != "eager"
        self.call = self.compiled(Layers(case, inputs, self.copies) if with_weights else several)
        with torch.no_grad():
            return min(seconds_of_call(self.call, self.inputs, 2) for _ in range(3)) / self.copies

    def error(self) -> float:
        """On up to 2^16 elements of the first result, for operations whose fp64 result is quick to have."""
        case, flat = self.case, 1 << 16
        if case.flops > 3e11 or case.group == "attention_grad":
            return float("nan")
        with torch.no_grad():
            exact = case.call(*(x.double() if x.is_floating_point() else x for x in case.inputs()))
            exact = exact[0] if isinstance(exact, (tuple, list)) else exact
            got = self.call(*self.inputs)
            got = got[0] if self.copies > 1 else got
            got = got[0] if isinstance(got, (tuple, list)) else got
        got, exact = (t.double().cpu().flatten() for t in (got, exact))
        step = max(1, exact.numel() // flat)
        got, exact = got[::step], exact[::step]
        return ((got - exact).pow(2).mean().sqrt() / exact.pow(2).mean().sqrt()).item()

    def run(self) -> float:
        """Seconds of one operation."""
        time.sleep(0.03)  # threads of the other side's OpenMP take a core for some 11 ms after its last operation
        with torch.no_grad():
            seconds_of_call(self.call, self.inputs, 1)  # the other side had the caches, and our threads slept
            return seconds_of_call(self.call, self.inputs, self.calls) / self.copies

    def measured_peak(self) -> float:
        """The device's, in the units of peak.py; nan for what has none."""
        if self.side != "ocl":
            return float("nan")
        if self.peak is None:
            from peak import Peak

            try:
                self.peak = Peak(torch.ocl.get_device_name(self.device))
            except LookupError:  # a GPU
                self.peak = lambda: float("nan")
        return self.peak()


def worker(settings: dict) -> None:
    """Answers "i" (prepare case i), "t" (time it), "e" (its error), "p" (its device's peak), one JSON value a line."""
    sys.stdout, answers = sys.stderr, sys.stdout
    side = Worker(settings)
    commands = {"t": side.run, "e": side.error, "p": side.measured_peak}
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        result = side.prepare(int(argument)) if command == "i" else commands[command]()
        print(json.dumps(result), file=answers, flush=True)


class Side:
    def __init__(self, side: str, args: argparse.Namespace) -> None:
        environment = dict(os.environ) | ({"TORCH_OCL_AUTOLOAD": "never"} if side != "ocl" else {})
        settings = {key: getattr(args, key) for key in ("calls", "threads", "ocl_device", "batch", "groups", "tf32")}
        command = [sys.executable, __file__, "--worker", json.dumps(settings | {"side": side, "parts": args.cases})]
        error = None if args.verbose else subprocess.DEVNULL
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=error, env=environment, text=True
        )

    def ask(self, command: str) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a side stopped with status {self.process.wait()}; --verbose shows what it said")
        return float(json.loads(answer))


def chosen(batch: int, groups: list[str], parts: list[str]) -> list[table.Case]:
    wanted = [c for c in table.all_cases(batch) if not groups or c.group in groups]
    return [c for c in wanted if not parts or any(part in c.name for part in parts)]


def main() -> None:
    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument(
        "--groups",
        type=names,
        default=[],
        help="gemm, conv, conv_data, conv_weight, conv3 (all 3x3 of resnet18 and vgg16), memory, attention, ...",
    )
    parser.add_argument("--cases", type=names, default=[], help="parts of the names of the cases to run; all if empty")
    parser.add_argument("--sides", type=names, default=["eager", "ocl"])
    parser.add_argument(
        "--batch", type=int, default=64, help="images a convolution; below 32 the other cases shrink too"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--flops", type=float, default=float("nan"), help="the device's peak, operations a second; a CPU's is measured"
    )
    parser.add_argument(
        "--bandwidth", type=float, default=float("nan"), help="the device's copy bandwidth, bytes a second"
    )
    parser.add_argument("--tf32", action="store_true", help="allow TF32 on every side")
    parser.add_argument("--ocl-device", default="ocl:0")
    parser.add_argument("--no-errors", dest="errors", action="store_false")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.worker:
        settings = json.loads(args.worker)
        worker(settings | {"cases": chosen(settings["batch"], settings["groups"], settings["parts"])})
        return

    print(f"torch {torch.__version__}; {args.rounds} interleaved rounds of up to {args.calls} calls, median")
    print(
        f"{'group':14s} {'case':26s} {'side':9s} {'ms':>9s} {'ratio':>6s} {'TFLOP/s':>8s} {'GB/s':>7s} {'roofline':>8s} {'error':>8s}"
    )
    sides = {name: Side(name, args) for name in args.sides}
    rows, ratios, shares = [], {}, {}
    for index, case in enumerate(chosen(args.batch, args.groups, args.cases)):
        times: dict[str, list[float]] = {name: [] for name in sides}
        for side in sides.values():
            side.ask(f"i {index}")
        peaks = []
        for _ in range(args.rounds):
            if args.flops != args.flops and "ocl" in sides:
                peaks.append(sides["ocl"].ask("p"))
            for name, side in sides.items():
                times[name].append(side.ask("t"))
        flops = statistics.median(peaks) if peaks else args.flops
        first = statistics.median(times[args.sides[0]])
        for name, side in sides.items():
            seconds = statistics.median(times[name])
            least = max(v for v in (case.flops / flops, case.bytes / args.bandwidth, 0.0) if v == v)
            row = {"group": case.group, "case": case.name, "side": name, "ms": seconds * 1e3, "ratio": first / seconds,
                   "tflops": case.flops / seconds / 1e12, "gbytes": case.bytes / seconds / 1e9, "peak_tflops": flops / 1e12,
                   "roofline": least / seconds, "error": side.ask("e") if args.errors else float("nan")}  # fmt: skip
            rows.append(row)
            ratios.setdefault((case.group, name), []).append(row["ratio"])
            shares.setdefault((case.group, name), []).append(row["roofline"])
            print(f"{case.group:14s} {case.name:26s} {name:9s} {row['ms']:9.3f} {row['ratio']:6.2f} {row['tflops']:8.2f} "
                  f"{row['gbytes']:7.0f} {row['roofline']:8.1%} {row['error']:8.1e}", flush=True)  # fmt: skip
    for (group, name), values in ratios.items():
        print(
            f"geometric mean {group:14s} {name:9s} {statistics.geometric_mean(values):6.2f}, "
            f"roofline {min(shares[group, name]):.1%} to {max(shares[group, name]):.1%}"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
