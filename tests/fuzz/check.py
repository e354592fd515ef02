# tests/fuzz/check.py: runs one program on one device, compares with PyTorch on the CPU, and returns the verdict.
from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.fuzz.execute import Kept, Seen, View, arguments, call, function, given, look
from tests.fuzz.judge import Finding, compare
from tests.fuzz.program import COMPILE, TORCH, Program
from tests.fuzz.reference import Native, fake, fake_strides, same

OK, SKIPPED = "ok", "skipped"
INTERNAL, EXCEPTION, MISSING, REPEAT = "InternalError", "other exception", "missing exception", "not repeatable"
# Only on the CPU does index_put with a mask convert the dtype of a number; elsewhere, the number has to be on the CPU. Autocast
# makes some dtypes different only on the device, and a program that has flex_attention cannot be traced to tell.
OTHER_DTYPE = (
    "Index put requires the source and destination dtypes match",
    "self and source expected to have the same dtype",
    "carried_inputs to have same metadata but found",
)
STRUCTURE = ("wrong alias", "wrong stride", "wrong dtype or shape", "wrong requires_grad")


@dataclass
class Verdict:
    kind: str
    text: str = ""
    call: int = 0
    output: int | None = None
    # The number of elements whose value rounding alone may change, so that they prove nothing.
    unstable: int = 0
    fallbacks: list[str] = field(default_factory=list)


def check(program: Program, device: str, *, oracle: bool = True) -> Verdict:
    """Runs and judges a program. `oracle`: on a failure, also find out whether torch's compiler alone makes the same
    mistake."""
    natives = [Native(program, n, k) for k, n in enumerate(program.settings.calls)]
    for native in natives:
        if native.undefined:
            return Verdict(SKIPPED, native.undefined)
        if (native.error is not None) != program.raises:
            return Verdict(SKIPPED, f"PyTorch: {native.error!r}")
    before = fallbacks()
    verdict = _run(program, device, natives, compiled(program, "ocl"))
    verdict.fallbacks = [op for op, times in fallbacks().items() if times > before.get(op, 0)]
    if verdict.kind not in (OK, SKIPPED) and program.settings.mode == COMPILE and oracle:
        if verdict.kind == "wrong stride" and wrong_when_traced(natives[verdict.call]):
            return Verdict(TORCH, f"traced by PyTorch on the CPU too: {verdict.text}", fallbacks=verdict.fallbacks)
        for backend in (
            "aot_eager",
            *(["aot_eager_decomp_partition"] if verdict.kind in ("wrong stride", EXCEPTION) else []),
        ):
            alone = _run(program, "cpu", natives, compiled(program, backend))
            alike = alone.kind == verdict.kind and (alone.output == verdict.output or alone.kind == EXCEPTION)
            # A lost alias may appear as another stride, and a program that torch alone cannot compile has no structure.
            if alike or (verdict.kind in STRUCTURE and alone.kind in (EXCEPTION, *STRUCTURE)):
                return Verdict(TORCH, f"{alone.kind} with {backend} too: {verdict.text}", fallbacks=verdict.fallbacks)
    return verdict


def wrong_when_traced(native: Native) -> bool:
    """Returns whether PyTorch's tracing on the CPU predicts other strides than eager mode has."""
    views = [v for v in native.seen.views if isinstance(v, View)]
    traced = fake_strides(native)
    return traced is not None and any(
        a != b and size > 1
        for view, strides in zip(views, traced, strict=True)
        for a, b, size in zip(view.stride, strides, view.shape, strict=True)
    )


def with_weights(program: Program) -> Callable[..., Any]:
    """Returns the program as a function, or as a module if it has weights."""
    weights, made = program.weights(), function(program)
    return Kept(made, [name for name, _ in program.inputs], weights) if weights else made


def compiled(program: Program, backend: str) -> Callable[..., Any]:
    made: Callable[..., Any] = with_weights(program)
    if program.settings.mode != COMPILE:
        return made
    settings: dict[str, Any] = {"backend": backend}
    if program.settings.dynamic == "all":
        settings["dynamic"] = True
    if program.settings.verify and backend == "ocl":
        settings["options"] = {"verify": True}
    return torch.compile(made, **settings)


def _run(program: Program, device: str, natives: list[Native], run: Callable[..., Any]) -> Verdict:
    unstable = 0
    calls = list(enumerate(program.settings.calls))
    last: Seen | None = None
    torch._dynamo.reset()
    # The last call is made twice: the first call with new sizes compiles a plan, and the next one with them uses it.
    for count, (k, n) in enumerate([*calls, calls[-1]]):
        again = count == len(calls)
        try:
            got = call(program, run, device, n, k)
        except Exception as error:
            if program.raises:
                return Verdict(INTERNAL, text_of(error), k) if is_internal(error) else Verdict(OK)
            if any(text in str(error) for text in OTHER_DTYPE) or refused_on_device(program, device, n, k):
                return Verdict(SKIPPED, "PyTorch refuses the program on this device")
            if operands_of_fused_op(program, error):
                return Verdict(SKIPPED, "the gradient of a fused op reads what the program writes to")
            if is_view_of_pool(program, error):
                return Verdict(SKIPPED, "max_pool1d gives a view on every device but the CPU")
            if lacks_float64(device, error):
                return Verdict(SKIPPED, "the device has no float64")
            return Verdict(INTERNAL if is_internal(error) else EXCEPTION, text_of(error), k)
        if program.raises:
            return Verdict(MISSING, f"PyTorch raises {first_line(natives[k].error)}", k)
        if again:
            return _repeats(last, got, unstable)
        last = got
        start = look(given(program, arguments(program, "cpu", n, k)), [])
        promised = types_under_autocast(program, device, natives[k]) if program.settings.autocast else None
        findings, some = compare(natives[k], got, start, promised)
        if promised and any(f.kind == "wrong dtype or shape" for f in findings):
            for others in types_of_other_runs(program, device, natives[k]):
                promised = also(promised, others)
            findings, some = compare(natives[k], got, start, promised)
        unstable += some
        if findings:
            worst = min(findings, key=lambda f: (f.kind in STRUCTURE, f.output is None))
            return Verdict(worst.kind, all_texts(findings), k, worst.output, unstable)
    return Verdict(OK, unstable=unstable)


def lacks_float64(device: str, error: Exception) -> bool:
    """Returns whether an error says that the device has no float64, and this is so."""
    said = any(text in str(error) for text in ("has no float64", "computes in float64, which"))
    return said and not torch.ocl.get_device_properties(device).has_fp64  # type: ignore[attr-defined]


def types_under_autocast(program: Program, device: str, native: Native) -> list[Any] | None:
    """Returns the dtypes and shapes of arguments and results under autocast.

    A dtype is left open where only a run tells it, because autocast has other lists of ops on the CPU.
    """
    if device == "cpu":
        return None
    views = [v for v in native.seen.views if isinstance(v, View)]
    untraced = fails_without_data(program, native.n, native.k)  # Some jagged tensors cannot be made of fake ones.
    found = None if untraced else fake(program, device, native.n, native.k)
    return [((dtype,), shape) for dtype, shape in found] if found else [((), v.shape) for v in views]


def types_of_other_runs(program: Program, device: str, native: Native) -> list[list[Any]]:
    """Returns dtypes and shapes from other ways of running the program.

    These are PyTorch's compiler alone, and line by line on the device, or on the CPU if that is the device under
    test. Where PyTorch decomposes an op, autocast sees its parts, so the dtypes depend on who decomposes it and
    when.
    """
    plain = with_weights(program)
    ways = [(torch.compile(plain, backend="aot_eager"), device)]
    ways.append((plain, device) if program.settings.mode == COMPILE else (plain, "cpu"))
    found = []
    for run, where in ways:
        try:
            with torch.autocast("cpu", getattr(torch, program.settings.autocast)):
                seen = call(program, run, where, native.n, native.k)
        except Exception:
            continue
        found.append([(v.dtype, v.shape) for v in seen.views if isinstance(v, View)])
    return found


def also(promised: list[Any], others: list[Any]) -> list[Any]:
    """Returns `promised` with the dtypes of another run added as alternatives."""
    return [
        ((*dtypes, dtype) if dtypes and there == shape else dtypes, shape)
        for (dtypes, shape), (dtype, there) in zip(promised, others, strict=True)
    ]


def _repeats(first: Seen | None, got: Seen, unstable: int) -> Verdict:
    """Checks that repeating the last call gives the same bits."""
    assert first is not None
    for i, (a, b) in enumerate(zip(first.storages, got.storages, strict=True)):
        if i < first.of_inputs and not (a.shape == b.shape and bool(same(a, b).all())):
            return Verdict(REPEAT, f"storage {i} differs between two calls with equal arguments", unstable=unstable)
    for x, y in zip(first.views, got.views, strict=True):
        if hasattr(x, "storage") and not bool(same(first.tensor(x), got.tensor(y)).all()):
            return Verdict(REPEAT, f"{x.name} differs between two calls with equal arguments", unstable=unstable)
    return Verdict(OK, unstable=unstable)


def fallbacks() -> dict[str, int]:
    """Returns the ops that ran eagerly or on the CPU so far, with counts."""
    from torch_ocl_compile import _C

    found: Counter[str] = Counter()
    for refused, times in _C.refusals():
        kind = "compiled" if refused.place == _C.Refused.Place.GRAPH else "eager"
        found[f"{kind}: {refused.op}"] += times
    return found


def refused_on_device(program: Program, device: str, n: int, k: int) -> bool:
    """Returns whether PyTorch's own rules refuse the program on the device, although the CPU runs it.

    Mixed devices, caused by `torch.tensor(2)` without a device, and dtypes that autocast makes different show only there.
    """
    try:
        fake(program, device, n, k)
    except Exception as error:
        if fails_without_data(program, n, k):
            return False
        return not any("torch_ocl_compile" in frame.filename for frame in traceback.extract_tb(error.__traceback__))
    return False


def fails_without_data(program: Program, n: int, k: int) -> bool:
    """Returns whether PyTorch cannot trace a program even for the CPU, which runs it."""
    try:
        fake(program, "cpu", n, k)
    except Exception:
        return True
    return False


def operands_of_fused_op(program: Program, error: Exception) -> bool:
    """Returns whether the error is that a tensor was overwritten before backward that only a fused op saves.

    The gradients of PyTorch's fused attention read all operands, also on the CPU, where layouts decide whether it uses
    a fused kernel; the gradients of products and a softmax read fewer. On all devices but the CPU, cells of recurrent
    networks are fused.
    """
    fused = any(word in line for line in program.statements for word in ("scaled_dot_product_attention", "_cell("))
    return fused and "modified by an inplace operation" in str(error)


def is_view_of_pool(program: Program, error: Exception) -> bool:
    """Whether a view was to be detached in place. The result of max_pool1d is one; on the CPU it is none where no gradient is
    wanted."""
    return any("max_pool1d(" in line for line in program.statements) and "Can't detach views in-place" in str(error)


def is_internal(error: BaseException | None) -> bool:
    from torch_ocl_compile.errors import InternalError

    while error is not None:
        if isinstance(
            error, (InternalError, AssertionError, KeyError, IndexError, AttributeError, StopIteration, TypeError)
        ) and ours(error):
            return True
        if isinstance(error, InternalError) or "InternalError" in first_line(error):
            return True
        error = error.__cause__ or getattr(error, "inner_exception", None) or error.__context__
    return False


def ours(error: BaseException) -> bool:
    """Returns whether the innermost frame of the error is in our files."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "torch_ocl_compile" in frames[-1].filename


def first_line(error: BaseException | None) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def text_of(error: BaseException) -> str:
    """Returns the first lines of an error, or those of its cause if it has one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' | '.join(lines[:4])}"[:600]


def all_texts(findings: list[Finding]) -> str:
    return "; ".join(f"{f.kind}: {f.text}" for f in findings[:4])
