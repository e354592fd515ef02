# torch_ocl_compile/tuning/measure.py: measures kernel variants on the device and stores the fastest correct one.
"""It tunes the contractions, convolutions and attentions of a graph that have no measurement yet. Each candidate that the
kernels offer runs alone on random inputs, and is compared with the variant that the compiler's cost model
prefers. A candidate that does not build, fails, exceeds the deadline or gives another result is disabled for the
driver. OpenCL cannot cancel a kernel. After a kernel that does not end, the process tunes no more, and keeps the queue
and the memory that this kernel uses.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile import _C, config
from torch_ocl_compile._C import ir
from torch_ocl_compile.dtypes import TORCH_DTYPES
from torch_ocl_compile.errors import OclError
from torch_ocl_compile.tuning import table
from torch_ocl_compile.tuning.table import Table

log = logging.getLogger(__name__)

ROUNDS = 5  # Rounds in which the finalists are measured in turn.
FINALISTS = 3
# A choice must take less than this share of the time of the cost model's choice. Smaller gains are noise.
MAX_TIME_SHARE = 0.98
# Number of the operand of attention's gradients that has the statistics of the rows, of shape [2, batch, heads, rows].
STATISTICS_OPERAND = 4
SECONDS = 0.05  # Seconds of timed calls of one candidate.
# Largest allowed difference from the cost model's variant, divided by the largest value. It depends on the least exact
# dtype of the operands. Other orders of summation and rounding of halves stay far below; a wrong element does not.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}
REDUCED = 2e-2  # Largest allowed difference if TF32 or similar rounding is allowed.

# Plans and tensors that a kernel which did not end may still use.
_kept: list[Any] = []
_stopped = False
session: list[Tuned] = []  # Everything that this process has measured.
again = False  # If true, problems with a stored measurement are measured too, once per process.
until = float("inf")  # No candidate is tried after this time of time.monotonic().
left_out: set[str] = set()  # Problems for which no time was left, or not for all candidates.


@dataclass(frozen=True)
class Tuned:
    """The result for one problem. Times are milliseconds on the device for all its kernels."""

    problem: str
    choice: str
    ms: float
    model_choice: str
    model_ms: float
    tried: int
    cut: bool = False  # The time ended before all candidates were tried. The problem is measured again next time.


class VariantError(Exception):
    """A candidate must not be used. The message says why."""


class HangError(VariantError):
    """A candidate was still running at the deadline."""


def tune_graph(graph: Any, index: int, settings: Mapping[str, Any]) -> list[Tuned]:
    """Measures the problems of the graph that have no measurement yet. Stores the results and makes later compilations
    follow them."""
    global _stopped
    found = table.table_of(index)
    stored = {problem for problem, row in found.choices.items() if not row.get("cut")}
    known = {t.problem for t in session} if again else {*stored, *found.shipped}
    cases = [
        (problem, problem_graph, choices)
        for problem, problem_graph, choices in _C.exec.tuning_cases(graph, index, dict(settings))
        if problem not in known and len(choices) > 1
    ]
    results: list[Tuned] = []
    with _progress(sum(len(choices) for _, _, choices in cases)) as progress:
        for number, (problem, problem_graph, choices) in enumerate(cases):
            if _stopped:
                log.warning("tuning stopped in this process: a kernel variant did not end")
                break
            now = time.monotonic()
            if now > until:
                left_out.add(problem)
                continue
            progress.describe(problem)
            end = now + (until - now) / (len(cases) - number)  # Each problem gets the same share of the time.
            try:
                tuned = _in_subprocess(
                    tune_case, found, problem, problem_graph, choices, index, settings, progress, end
                )
            except HangError:
                _stopped = True
                continue
            except (OclError, RuntimeError, VariantError) as error:
                # The compilation will raise the same error for the model's own variant.
                log.warning("%s is not tuned: %s", problem, error)
                continue
            row = {
                "choice": tuned.choice,
                "ms": tuned.ms,
                "model_choice": tuned.model_choice,
                "model_ms": tuned.model_ms,
                **({"cut": True} if tuned.cut else {}),
            }
            (left_out.add if tuned.cut else left_out.discard)(problem)
            table.save(found, problem, row)
            results.append(tuned)
            session.append(tuned)
    if cases:
        table.refresh(index)
    return results


def tune_case(
    found: Table,
    problem: str,
    problem_graph: Any,
    choices: Sequence[tuple[str, str]],
    index: int,
    settings: Mapping[str, Any],
    progress: Any = None,
    end: float = float("inf"),
) -> Tuned:
    """Finds the fastest correct choice for one problem, among those tried until `end`. VariantError or the compiler's error
    if the cost model's variant does not run. HangError if a candidate does not end."""
    progress = progress or _Silent()
    model_choice = choices[0][0]
    inputs = example_inputs(problem_graph, index)
    limit = tolerance(problem_graph)
    device = torch.device("ocl", index)
    before = torch.accelerator.current_stream(device)
    torch.accelerator.synchronize(index)
    torch.accelerator.set_stream(torch.Stream(device))
    plans: dict[str, Any] = {}
    times: dict[str, float] = {}
    try:
        reference = _run(_compile(problem_graph, index, settings, model_choice), inputs, index)
        plans[model_choice] = _compile(problem_graph, index, settings, model_choice)
        times[model_choice] = _time(plans[model_choice], inputs)
        progress.advance()

        def attempt(choice: str) -> None:
            if choice in found.disabled or choice in times:
                return
            try:
                with table.TrialMark(found, choice, problem):
                    plan = _compile(problem_graph, index, settings, choice)
                    _compare(_run(plan, inputs, index), reference, limit)
                    times[choice] = _time(plan, inputs)
                    plans[choice] = plan
            except VariantError as error:
                table.disable(found, choice, str(error), problem)
                if isinstance(error, HangError):
                    raise
            except torch.OutOfMemoryError:
                log.info("%s does not fit into memory for %s", choice, problem)
            except (OclError, RuntimeError) as error:
                reason = str(error).strip().splitlines()[0]
                table.disable(found, choice, f"it failed: {reason}", problem)

        cut = False
        for choice in attempts(choices, times):
            cut = cut or time.monotonic() > end
            if not cut:
                attempt(choice)
            progress.advance()
        for choice in combined(choices, times):
            if time.monotonic() <= end:
                attempt(choice)
        best = _final(plans, times, inputs, model_choice)
    finally:
        torch.accelerator.set_stream(before)
    return Tuned(problem, best, times[best], model_choice, times[model_choice], len(times), cut)


def attempts(choices: Sequence[tuple[str, str]], times: Mapping[str, float]) -> Iterator[str]:
    """Yields all choices but the cost model's, which is the first: the first ones of all templates, then those with a knob
    turned, of the fastest template first. `times` is read as it grows."""
    firsts = {choice.split(" ")[0]: choice for choice, knob in choices if not knob}
    yield from (choice for choice, knob in choices[1:] if not knob)
    turned = [choice for choice, knob in choices[1:] if knob]
    yield from sorted(turned, key=lambda choice: times.get(firsts.get(choice.split(" ")[0], ""), float("inf")))


def _in_subprocess(function: Callable[..., Tuned], *args: Any) -> Tuned:
    """Runs a function in a thread of its own, so that no mode of the caller (fake tensors, autocast, its stream)
    affects it."""
    with ThreadPoolExecutor(1, "ocl_tuning") as pool:
        return pool.submit(function, *args).result()


def combined(choices: Sequence[tuple[str, str]], times: Mapping[str, float]) -> list[str]:
    """Returns, for each template, the choice that combines the fastest option of every knob, if more than one option
    was faster than the first choice.
    """
    made = []
    for first, turned in choices:
        if turned or first not in times:
            continue
        template, *knobs = first.split(" ")
        setting = dict(knob.split("=") for knob in knobs)
        best = dict.fromkeys(setting, times[first])
        gains = 0
        for choice, knob in choices:
            if choice.split(" ")[0] != template or not knob or choice not in times:
                continue
            name, option = knob.split("=")
            if times[choice] < MAX_TIME_SHARE * best[name]:
                gains += best[name] == times[first]
                best[name], setting[name] = times[choice], option
        if gains > 1:
            made.append(" ".join([template, *(f"{name}={option}" for name, option in setting.items())]))
    return made


def _final(plans: dict[str, Any], times: dict[str, float], inputs: list[torch.Tensor], model_choice: str) -> str:
    """Returns the fastest of the few best candidates, measured in turn. It is the cost model's choice unless another
    one is clearly faster.
    """
    best = sorted(plans, key=lambda choice: times[choice])[:FINALISTS]
    finalists = [model_choice, *(c for c in best if c != model_choice)]
    rounds: dict[str, list[float]] = {choice: [] for choice in finalists}
    for _ in range(ROUNDS if len(finalists) > 1 else 0):
        for choice in finalists:
            rounds[choice].append(_time(plans[choice], inputs, SECONDS / ROUNDS))
    for choice, measured in rounds.items():
        if measured:
            times[choice] = statistics.median(measured)
    fastest = min(finalists, key=lambda choice: times[choice])
    return fastest if times[fastest] < MAX_TIME_SHARE * times[model_choice] else model_choice


def example_inputs(problem_graph: Any, index: int) -> list[torch.Tensor]:
    """Returns random tensors with the layouts of the graph's inputs: normally distributed floats, true for bool, zero
    for integers. One operand of attention's gradients (STATISTICS_OPERAND) instead gets a maximum and a sum of
    exponentials for each row of scores. Random numbers would not do for it, because the kernels take the logarithm of
    the sum.
    """
    device = torch.device("ocl", index)
    inputs: list[torch.Tensor] = []
    saved = {
        node.operands[STATISTICS_OPERAND].buffer
        for node in problem_graph.nodes
        if node.kind == "attention" and node.attention.kind != ir.AttentionKind.kForward
    }
    for position in problem_graph.inputs:
        buffer = problem_graph.buffers[position]
        sizes = [size.constant() for size in buffer.sizes]
        strides = [stride.constant() for stride in buffer.strides]
        dtype = TORCH_DTYPES[buffer.dtype]
        generator = torch.Generator().manual_seed(len(inputs))
        span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if dtype.is_floating_point:
            values = torch.randn(min(span, 1 << 20), generator=generator)
            values = values.to(dtype).repeat(-(-span // values.numel()))[:span]
        else:
            values = torch.full((span,), dtype is torch.bool, dtype=dtype)
        example = values.as_strided(sizes, strides)
        if position in saved:
            example[0], example[1] = 4.0, float(sizes[-1])
        inputs.append(values.to(device).as_strided(sizes, strides))
    return inputs


def tolerance(problem_graph: Any) -> float:
    dtypes = [TORCH_DTYPES[problem_graph.buffers[i].dtype] for i in problem_graph.inputs]
    reduced = any(node.reduced_precision for node in problem_graph.nodes)
    return max([REDUCED if reduced else 0.0, *(TOLERANCE.get(dtype, 0.0) for dtype in dtypes)])


def _compile(problem_graph: Any, index: int, settings: Mapping[str, Any], choice: str) -> Any:
    unwatched = {**settings, "check": False, "debug": False}  # They would wait for every launch.
    return _C.exec.compile(problem_graph, index, [], {**unwatched, "label": f"tuning of {choice}", "choice": choice})


def _marker(index: int) -> torch.Event:
    """Returns an event that completes when all work queued so far is done."""
    done = torch.Event(torch.device("ocl", index))
    done.record(torch.accelerator.current_stream(index))
    return done


def _run(plan: Any, inputs: list[torch.Tensor], index: int) -> list[torch.Tensor]:
    """Runs a plan once and waits until the deadline at most. HangError if it is not done; its results and inputs then
    stay allocated."""
    outputs: list[torch.Tensor] = plan.run(list(inputs))
    done = _marker(index)
    deadline = time.monotonic() + float(config.get("tune_deadline"))
    pause = 1e-4
    while not done.query():
        if time.monotonic() > deadline:
            _kept.append((plan, inputs, outputs, done))
            raise HangError(f"it still ran after {config.get('tune_deadline')} seconds")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return outputs


def _compare(results: list[torch.Tensor], reference: list[torch.Tensor], limit: float) -> None:
    """Raises VariantError if the results differ by more than rounding."""
    for result, expected in zip(results, reference, strict=True):
        got, right = result.cpu().double(), expected.cpu().double()
        if not torch.equal(got.isfinite(), right.isfinite()):
            raise VariantError("its result is wrong: it is not finite where the other is")
        scale = right.nan_to_num(0, 0, 0).abs().max().item() if right.numel() else 0.0
        error = (got - right).nan_to_num(0, 0, 0).abs().max().item() if right.numel() else 0.0
        if error > limit * scale:
            raise VariantError(f"its result is wrong: off by {error / (scale or 1):.1e} of the largest value")


def _time(plan: Any, inputs: list[torch.Tensor], seconds: float = SECONDS) -> float:
    """Returns the median time of one call in milliseconds on the device. Where the driver tells no times, it is the host's time,
    with the launches."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 2 or (time.perf_counter() - start < seconds and len(times) < 100):
        begin = time.perf_counter()
        recording = _C.exec.begin_recording(True)
        try:
            plan.run(list(inputs))
        finally:
            rows = _C.exec.end_recording(recording)
        took = 1e3 * (time.perf_counter() - begin)  # end_recording() has waited for the launches.
        has_times = any(row["end_ns"] for row in rows)
        times.append(sum(row["end_ns"] - row["start_ns"] for row in rows) / 1e6 if has_times else took)
    return statistics.median(times)


class _Silent:
    def describe(self, text: str) -> None:
        pass

    def advance(self) -> None:
        pass


class _Bar(_Silent):
    """A progress bar on standard error."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("tuning"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> _Bar:
        self.bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.bar.stop()

    def describe(self, text: str) -> None:
        self.bar.update(self.task, description=text)

    def advance(self) -> None:
        self.bar.advance(self.task)


def _progress(total: int) -> Any:
    import sys

    return _Bar(total) if total and sys.stderr.isatty() else nullcontext(_Silent())
