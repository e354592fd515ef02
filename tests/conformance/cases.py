# tests/conformance/cases.py: the entries of PyTorch's op_db and module_db as test cases, and how a case is run.
"""A case is an entry and a dtype. Its samples come from PyTorch.

Each sample runs eagerly on the CPU and compiled on a device: first without gradients ("forward"), then, if the entry
has a derivative, with gradients ("backward").
"""

from __future__ import annotations

import copy
import itertools
import random
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy
import torch
from torch.utils._pytree import tree_flatten, tree_map

from tests.conformance import positions
from tests.conformance.judge import difference, real_parts, tensors

DTYPES = (
    *(torch.float32, torch.float16, torch.bfloat16, torch.float64),
    *(torch.int64, torch.int32, torch.uint8, torch.bool),
)
ON_REQUEST = ("complex64",)  # Types that a run has only if they are asked for.
WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
FORWARD, BACKWARD = "forward", "backward"
SAMPLES = {FORWARD: 4, BACKWARD: 3}
CONSIDERED = 64  # The number of samples of an entry among which a plain run chooses.
ON_THE_HOST = {"tensor_split"}  # Entries whose integer tensors PyTorch requires on the CPU, whatever the device.
# Entries whose result vectors are unique only up to their sign (for equal values, up to a rotation). PyTorch's samples
# come with a function that computes the unique part of the result; it is compared in the forward direction as well.
UP_TO_SIGN = {"svd", "svd_lowrank", "pca_lowrank", "linalg.svd", "linalg.eig", "linalg.eigh"}
MEMORY_ONLY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


@dataclass(frozen=True)
class Case:
    kind: str  # "op" or "module"
    entry: str
    dtype: torch.dtype

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.entry}:{str(self.dtype).removeprefix('torch.')}"

    @property
    def has_gradient(self) -> bool:
        info = entries(self.kind)[self.entry]
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            return False
        return self.kind == "module" or (info.supports_autograd and self.dtype in info.supported_backward_dtypes("cpu"))


@dataclass
class Outcome:
    """The outcome of one direction of a case.

    `status` is "pass", "fail" or "skip" (PyTorch itself does not run the case). `eager` counts, by name, the ops that
    did not run on the device. `graphs` is the number of compiled graphs. `samples` ran, of `made` that PyTorch has.
    """

    case: str
    direction: str
    status: str
    reason: str = ""
    samples: int = 0
    made: int = 0
    graphs: int = 0
    eager: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Sample:
    """A sample. `make(move)` returns a function and its arguments, whose tensors are moved by `move`, a result of
    to_device(). The values are the same every time."""

    text: str
    make: Callable[[Callable[[Any], Any]], tuple[Callable[..., Any], tuple[Any, ...]]]


@cache
def entries(kind: str) -> dict[str, Any]:
    if kind == "module":
        from torch.testing._internal.common_modules import module_db

        return {m.name: m for m in module_db}
    from torch.testing._internal import common_methods_invocations

    # op_db wraps random ops so that they seed the generator inside of the compiled function. `seed` does this outside.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    op_db = common_methods_invocations.op_db
    return {op.full_name: op for op in op_db}


def cases(fp64: bool = True, requested: Sequence[str] = ()) -> Iterator[Case]:
    """Yields all cases; those of float64 only if `fp64`, and those of further types if they are `requested` by name."""
    dtypes = [*DTYPES, *(getattr(torch, name) for name in requested if name in ON_REQUEST)]
    for kind in ("op", "module"):
        for entry, info in entries(kind).items():
            for dtype in dtypes:
                if (fp64 or dtype != torch.float64) and dtype in info.supported_dtypes("cpu"):
                    yield Case(kind, entry, dtype)


def find(name: str) -> Case:
    kind, entry, dtype = name.split(":")
    return Case(kind, entry, getattr(torch, dtype))


# Samples


def seed() -> None:
    torch.manual_seed(1234)
    random.seed(1234)
    numpy.random.seed(1234)


def samples(case: Case, gradient: bool, most: int | None) -> tuple[list[Sample], int]:
    """Returns at most `most` of PyTorch's samples, spread evenly over the first ones; all if `most` is None. And how many PyTorch
    has."""
    seed()
    made = (module_samples if case.kind == "module" else op_samples)(case, gradient)
    found = list(itertools.islice(made, None if most is None else CONSIDERED))
    number = len(found) + sum(1 for _ in made)
    if most is None or len(found) <= most:
        return found, number
    return [found[k * (len(found) - 1) // (most - 1)] for k in range(most)], number


def op_samples(case: Case, gradient: bool) -> Iterator[Sample]:
    op = entries("op")[case.entry]
    for given in op.sample_inputs("cpu", case.dtype, requires_grad=gradient):
        args, kwargs = (given.input, *given.args), dict(given.kwargs)

        def make(move: Callable[[Any], Any], args: Any = args, kwargs: Any = kwargs, given: Any = given) -> Any:
            inputs, settings = tree_map(move, (args, kwargs))
            if not any(isinstance(x, torch.Tensor) for x in tree_flatten((args, kwargs))[0]):
                settings["device"] = move("cpu")
            finish = in_the_open(given.output_process_fn_grad) if gradient or case.entry in UP_TO_SIGN else _same
            return opened(op.get_op(), finish), (inputs, settings)

        yield Sample(describe(args, kwargs), make)


def module_samples(case: Case, gradient: bool) -> Iterator[Sample]:
    info = entries("module")[case.entry]
    for training in (True, False) if info.train_and_eval_differ else (True,):
        made = info.module_inputs_func(info, device="cpu", dtype=case.dtype, requires_grad=gradient, training=training)
        for given in made:
            built, forward = given.constructor_input, given.forward_input
            if forward is None:
                continue
            with torch.random.fork_rng(devices=[]):
                module = info.module_cls(*built.args, **built.kwargs).to(case.dtype).train(training)

            def make(move: Callable[[Any], Any], module: Any = module, forward: Any = forward) -> Any:
                mine = copy.deepcopy(module)
                with torch.no_grad():
                    for owner in mine.modules():
                        for name, p in owner._parameters.items():
                            owner._parameters[name] = (
                                None if p is None else torch.nn.Parameter(move(p), p.requires_grad)
                            )
                        for name, b in owner._buffers.items():
                            owner._buffers[name] = None if b is None else move(b)
                inputs, settings = tree_map(move, (forward.args, forward.kwargs))
                return Called(mine), (inputs, settings)

            yield Sample(f"{module!r}".replace("\n", " "), make)


class Called:
    """A module as a function of (args, kwargs)."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, args: Any, kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


def _same(x: Any) -> Any:
    return x


def opened(function: Callable[..., Any], finish: Callable[[Any], Any]) -> Callable[..., Any]:
    function = in_the_open(function)

    def run(args: Any, kwargs: Any) -> Any:
        return finish(function(*args, **kwargs))

    return run


def in_the_open(function: Any) -> Any:
    """Returns a copy of the function with this file as its source file: Dynamo does not trace files of
    torch.testing."""
    code = getattr(function, "__code__", None)
    if not isinstance(function, types.FunctionType) or code is None or "torch/testing" not in code.co_filename:
        return function
    copied = types.FunctionType(
        code.replace(co_filename=__file__),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def describe(args: Any, kwargs: Any) -> str:
    def one(x: Any) -> Any:
        return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" if isinstance(x, torch.Tensor) else x

    listed, named = tree_map(one, (args, kwargs))
    text = ", ".join([*map(str, listed), *(f"{k}={v}" for k, v in named.items())])
    return text if len(text) <= 200 else text[:200] + "..."


# Moving samples to a device


def to_device(device: str, entry: str = "") -> Callable[[Any], Any]:
    """Returns a function that moves a leaf to the device, with strides and offsets of views; "cpu" becomes the device."""
    target = torch.device(device)

    def move(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if entry in ON_THE_HOST and not x.is_floating_point() and x.dim() <= 1:
                return moved(x, torch.device("cpu"))
            return moved(x, target)
        if (isinstance(x, torch.device) and x.type == "cpu") or (isinstance(x, str) and x == "cpu"):
            return target
        return x

    return move


def moved(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    if x.layout != torch.strided or x.is_conj() or x.is_neg() or x.is_quantized:
        return x.detach().to(device, copy=True).requires_grad_(x.requires_grad)
    plain = x.detach()
    base = torch.empty(0, dtype=x.dtype).set_(plain.untyped_storage()).to(device, copy=True)
    return base.as_strided(x.shape, x.stride(), x.storage_offset()).requires_grad_(x.requires_grad)


def widened(x: Any) -> Any:
    """Converts a leaf of a sample to fp64."""
    if isinstance(x, torch.Tensor):
        return x.detach().to(WIDER.get(x.dtype, x.dtype), copy=True).requires_grad_(x.requires_grad)
    return WIDER.get(x, x) if isinstance(x, torch.dtype) else x


def nudged(pattern: int) -> Callable[[Any], Any]:
    """Returns a function that moves every element of a leaf, or both of its parts, by one ulp of its dtype, up or down.

    The change of the result shows how precise a result can be.
    """

    def move(x: Any) -> Any:
        wide = widened(x)
        if not isinstance(x, torch.Tensor) or not (x.is_floating_point() or x.is_complex()):
            return wide
        numbers = real_parts(wide.detach()) if x.is_complex() else wide.detach()
        places = torch.arange(numbers.numel(), dtype=torch.float64).view(numbers.shape)
        sign = (places * (2.4 + pattern) + pattern).sin().sign()
        made = numbers * (1 + torch.finfo(x.dtype).eps * sign)
        return (torch.view_as_complex(made) if x.is_complex() else made).requires_grad_(x.requires_grad)

    return move


# Running cases


def gradients(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Returns (results, gradients of all leaves) of a weighted sum of the results, with fixed weights.

    Leaves are arguments that require a gradient, and parameters of a module.
    """
    inputs = [x for x in tree_flatten(args)[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    owner = getattr(function, "module", None)
    inputs += [p for p in owner.parameters() if p.requires_grad] if owner is not None else []
    outputs = tree_flatten(function(*args))[0]
    wanted = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if not inputs or not wanted:
        return outputs, []
    weights = [(torch.arange(o.numel()) % 7 + 1).view(o.shape).to(o.dtype).to(o.device) for o in wanted]
    return outputs, list(torch.autograd.grad(wanted, inputs, weights, allow_unused=True))


def evaluate(function: Callable[..., Any], args: tuple[Any, ...], gradient: bool) -> tuple[Any, Any]:
    seed()
    if gradient:
        return gradients(function, args)
    with torch.no_grad():
        return function(*args), []


class Eager(dict):  # type: ignore[type-arg]
    """Counts, within the block, ops that ran outside of our kernels, and compiled graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __enter__(self) -> Eager:
        self.before, self.graphs = self._counts(), -self._graphs()
        return self

    def __exit__(self, *_: Any) -> None:
        self.graphs += self._graphs()
        for name, count in self._counts().items():
            if count > self.before.get(name, 0):
                self[name] = self.get(name, 0) + count - self.before.get(name, 0)

    def _graphs(self) -> int:
        from torch_ocl_compile.compile import debug

        return int(debug.compiled_graphs() + debug.loaded_graphs())

    def _counts(self) -> dict[str, int]:
        from torch_ocl_compile.compile import debug

        found = {f"eager {op}": count for op, count in torch.ocl.fallback_counts().items()}
        for reason, count in debug.fallback_counts().items():
            line = reason.partition("\n")[0]
            found[line] = found.get(line, 0) + count
        return found


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    if isinstance(function, Called):
        made = Called(function.module)
        compiled_module = torch.compile(function.module, backend="ocl", dynamic=False)
        object.__setattr__(made, "module", compiled_module)
        return made
    return torch.compile(function, backend="ocl", dynamic=False)


def run(case: Case, direction: str, device: str, *, most: int | None = 0) -> Outcome:
    """Runs one direction of a case. `most` is the number of samples; 0: the usual number, None: all."""
    started = time.perf_counter()
    outcome = Outcome(case.name, direction, "pass")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _run(case, outcome, device, SAMPLES[direction] if most == 0 else most)
        finally:
            torch._dynamo.reset()
    outcome.seconds = round(time.perf_counter() - started, 2)
    return outcome


def _run(case: Case, outcome: Outcome, device: str, most: int | None) -> None:
    gradient = outcome.direction == BACKWARD
    try:
        chosen, outcome.made = samples(case, gradient, most)
    except Exception as error:
        outcome.status, outcome.reason = "skip", f"PyTorch makes no samples: {first_line(error)}"
        return
    usable, why = 0, "PyTorch has no samples"
    for sample in chosen:
        try:
            expected = evaluate(*sample.make(to_device("cpu")), gradient)
        except Exception as error:
            why = f"PyTorch itself fails: {first_line(error)}"
            continue
        usable += 1
        wrong = one_sample(case, outcome, sample, expected, device)
        if wrong:
            outcome.status, outcome.reason = "fail", f"{wrong} [{sample.text}]"
            break
    outcome.samples = usable
    if not usable:
        outcome.status, outcome.reason = "skip", why


def one_sample(case: Case, outcome: Outcome, sample: Sample, expected: tuple[Any, Any], device: str) -> str:
    gradient = outcome.direction == BACKWARD
    eager = Eager()
    try:
        function, args = sample.make(to_device(device, case.entry))
        with eager:
            got = evaluate(compiled(function), args, gradient)
        got = tensors(got[0]), tensors(got[1])
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    finally:
        outcome.graphs += eager.graphs
        for name, count in eager.items():
            outcome.eager[name] = outcome.eager.get(name, 0) + count

    def judged(which: int, what: str) -> str:
        def reference() -> list[Any]:
            try:
                return [evaluate(*sample.make(f), gradient)[which] for f in (widened, *map(nudged, range(3)))]
            except Exception:
                return []

        wrong = difference(got[which], expected[which], reference, values=case.entry not in MEMORY_ONLY)
        return f"{what}: {wrong}" if wrong else ""

    wrong = judged(0, "value") or (judged(1, "gradient") if gradient else "")
    if wrong and positions.agree(case.entry, sample.make(to_device("cpu"))[1], got, expected):
        return ""
    if wrong and is_random(sample, expected, gradient):
        wrong = difference(got, expected, lambda: [], values=False)
    return wrong


def is_random(sample: Sample, expected: Any, gradient: bool) -> bool:
    """Returns whether PyTorch's result depends on the random generator. Then results of two devices differ."""
    for state in range(4):
        function, args = sample.make(to_device("cpu"))
        torch.manual_seed(state)
        try:
            with torch.set_grad_enabled(gradient):
                other = function(*args)
        except Exception:
            return False
        if difference(other, expected[0], lambda: []):
            return True
    return False


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("backend=")]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= 240 else text[:240] + "..."
