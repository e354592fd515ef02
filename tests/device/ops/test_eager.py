# tests/device/ops/test_eager.py: ops in eager mode: compiled, with few plans for many calls; without kernels, on the CPU.
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.device.own_process import run_python
from torch_ocl_compile import config
from torch_ocl_compile.eager import compile as eager
from torch_ocl_compile.eager import reasons
from torch_ocl_compile.errors import BuildError, InternalError


def to(value: Any, device: str) -> Any:
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), value)


def check(call: Any, *args: Any, device: str, falls_back: bool = False) -> None:
    """Compares `call` on the device with the CPU, and checks whether an op ran as a fallback."""
    torch.ocl.reset_fallback_counts()
    torch.testing.assert_close(to(call(*to(args, device)), "cpu"), call(*args))
    counts = torch.ocl.fallback_counts()
    assert bool(counts) == falls_back, (counts, reasons())


X, Y = torch.linspace(-2, 2, 12).view(3, 4), torch.linspace(3, -1, 12).view(3, 4)

LARGE = torch.tensor([0.0, -0.0, 1.5, 1e-30, -3e38, float("inf")])
POWERS = torch.tensor([-2000, -150, -3, 127, 128, 200, 2000])


def in_place(call: Any) -> Any:
    """Returns a function that runs `call` on a copy of its first argument and returns that copy."""

    def run(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        x = x.clone()
        call(x, *rest)
        return x

    return run


@pytest.fixture
def compiler_is_asked() -> Iterator[None]:
    """Switches the cache off, so that each op is compiled. For tests that change the compiler."""
    with config.override(cache_size_mb=0):
        yield


def strided(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(4, 6, device=x.device)
    out[:, 1:4].t().add_(x).mul_(y.t().contiguous().t())
    return out


COUNTED = torch.tensor([3, 1, 1, 0, 3])
CASES = {
    "add": (torch.add, X, Y),
    "number": (lambda x: x * 2.5 - 1, X),
    "integers and a float": (lambda x: x * 2.5, torch.arange(5)),
    "a float in front": (lambda x: 1 / x, Y + 5),
    "scalars": (lambda x: x.sum() / 3 + 0.5, X),
    "half scalars": (lambda x: x.half().sum() * 1.5, X),
    "numbers of ops that take none": (lambda x: (x.fmod(1.5), x.sum().half().fmod(0.75), torch.arange(5).to(x.device).fmod(3)), X),
    "alpha": (lambda x, y: torch.add(x, y, alpha=0.3), X, Y),
    "broadcast": (lambda x, y: x + y, X, Y[0]),
    "twice the same": (lambda x: x.add_(x).mul_(x), X.clone()),
    "add_": (in_place(lambda x, y: x.add_(y, alpha=2)), X, Y),
    "relu_": (in_place(lambda x: x.relu_()), X),
    "strided": (strided, X, Y),
    "out": (lambda x, y: torch.add(x, y, out=torch.empty(3, 4, device=x.device)), X, Y),
    "out to resize": (lambda x, y: torch.mul(x, y, out=torch.empty(0, device=x.device)), X, Y),
    "out of another dtype": (lambda x, y: torch.add(x, y, out=torch.empty(3, 4, device=x.device, dtype=torch.half)), X, Y),
    "two results": (lambda x: torch.max(x, 1), X),
    "list results": (lambda x, y: torch._foreach_mul([x, y], 2.0), X, Y),
    "list in place": (in_place(lambda x, y: torch._foreach_add_([x], [y], alpha=0.5)), X, Y),
    "reduction": (lambda x: (x.sum(), x.mean(0), x.amax(1)), X),
    "softmax": (lambda x: x.softmax(-1), X),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), X),
    "matmul": (lambda x, y: x @ y.t(), X, Y),
    "where": (lambda x, y: torch.where(x > 0, x, y), X, Y),
    "cat": (lambda x, y: torch.cat([x, y], 1), X, Y),
    "arange": (lambda x: x + torch.arange(4, device=x.device), X),
    "ldexp": (lambda x, y: [torch.ldexp(a, b) for a in (x, x.half(), x.int()) for b in (y.int(), y.half(), y.half()[0, 0])], X, Y),
    "ldexp by large powers": (lambda x, y: [torch.ldexp(a[:, None], y) for a in (x, x.half())], LARGE, POWERS),
    "ldexp_": (in_place(lambda x, y: x.ldexp_(y)), X, torch.arange(-2, 2)),
    "ldexp out": (lambda x, y: torch.ldexp(x, y, out=torch.empty(0, device=x.device)), X, torch.arange(-2, 2)),
    "addcmul of integers": (lambda x: torch.addcmul(x, x, x, value=1.7), torch.arange(5)),
    "linspace of integers": (lambda x: x + torch.linspace(0.5, 9.7, 3, dtype=torch.int32, device=x.device), torch.arange(3)),
    "number of another dtype where a mask is true": (lambda x: x.half().index_put((x > 0,), torch.tensor(2.0)), X),
    "no elements": (lambda x: x[:0] * 2, X),
    "conv": (F.conv2d, torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)),
    "nonzero": (torch.nonzero, X > 0),
    "masked_select": (lambda x: x.masked_select(x > 0), X),
    "bincount": (lambda n: (n.bincount(), n.bincount(minlength=7), n[:0].bincount(), n[:0].int().bincount(minlength=2)), COUNTED),
    "bincount with weights": (lambda n, w: (n.bincount(w), n.byte().bincount(w, 9)), COUNTED, torch.rand(5)),
    "eigenvalues of a large matrix": (torch.linalg.eigvals, torch.eye(40)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_op(name: str, ocl_device: str) -> None:
    call, *args = CASES[name]
    check(call, *args, device=ocl_device, falls_back=name == "eigenvalues of a large matrix")


def test_gradients(ocl_device: str) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        return torch.autograd.grad((F.gelu(x @ y.t()) * x.sum(1)).square().mean(), (x, y))

    check(run, X, Y, device=ocl_device)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_modes(mode: Any, ocl_device: str) -> None:
    with mode():
        check(lambda x: (x * 3).exp_().sum(), X, device=ocl_device)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Returns a list to which each compilation of an op appends (op, level)."""
    made, original = list[tuple[str, str]](), eager._recipe

    def spy(name: str, overload: str, args: Any, same: Any, level: eager.Level, **fixed: bool) -> Any:
        plan = original(name, overload, args, same, level, **fixed)
        if not fixed:  # The second try of the same compilation.
            made.append((f"{name}.{overload}", level.name))
        return plan

    monkeypatch.setattr(eager, "_recipe", spy)
    return made


def test_sizes_become_arguments(ocl_device: str, compiled: list[tuple[str, str]]) -> None:
    for n in range(2, 30):
        x = torch.randn(n, 2 * n + 1, dtype=torch.float16)
        check(lambda x: torch.atan2(x, x[:1]), x, device=ocl_device)
    levels = [level for name, level in compiled if "atan2" in name]
    assert levels == ["EXACT"] * 4 + ["SIZES"]


def test_a_growing_tensor_needs_few_plans(ocl_device: str, compiled: list[tuple[str, str]]) -> None:
    """A decoder of a language model appends to its mask and its positions at every token."""
    grown = torch.arange(5, device=ocl_device)[None].expand(3, -1)
    for _ in range(60):
        grown = torch.cat([grown, grown[:, -1:] + 1], dim=-1)
    assert torch.equal(grown.cpu(), torch.arange(65).expand(3, -1))
    levels = [level for name, level in compiled if "cat" in name]
    assert levels.count("EXACT") <= 6 and levels.count("SIZES") <= 2, levels


def test_wrong_arguments_log_nothing(tmp_path: Path) -> None:
    status, out, err = run_python(
        "import torch\ntry: torch.cat([torch.ones(2, 3, device='ocl'), torch.ones(3, 2, device='ocl')], 1)\n"
        "except RuntimeError as error: print(error)",
        TORCH_OCL_CACHE_DIR=str(tmp_path),
    )
    assert status == 0 and "Sizes of tensors must match" in out
    assert "Traceback" not in err and "failed while" not in err, err


def test_numbers_become_arguments(ocl_device: str, compiled: list[tuple[str, str]]) -> None:
    for n in range(20):
        value = 0.1 * n + 0.05
        check(in_place(lambda x, y, v=value: x.addcdiv_(x, y, value=v)), X, Y + 9, device=ocl_device)
        check(lambda x, v=value: x.fmod(v), torch.arange(12), device=ocl_device)
    levels = [level for name, level in compiled if "addcdiv" in name]
    assert levels == ["EXACT"] * 3 + ["NUMBERS"]
    levels = [level for name, level in compiled if "fmod" in name]
    assert levels == ["EXACT"] * 3 + ["NUMBERS"]


def test_expanded_targets_and_wrong_sizes_raise(ocl_device: str) -> None:
    """Writes to an expanded tensor raise, and so do operands whose sizes do not match."""
    x = torch.arange(6.0, device=ocl_device)
    with pytest.raises(RuntimeError, match="memory location"):
        x[:1].expand(3).add_(1)
    with pytest.raises(RuntimeError):
        torch.add(x[1:], torch.ones(4, device=ocl_device))


WRITES_TO_ITSELF = {
    "copy_": lambda x, y: x.copy_(y),
    "copy_ of another type": lambda x, y: x.copy_(y.int()),
    "copy_ from the host": lambda x, y: x.copy_(y.cpu()),
    "fill_ with a tensor": lambda x, y: x.fill_(y[0]),
    "a number": lambda x, y: x.__setitem__(slice(1, 3), 5.0),
    "a slice": lambda x, y: x.__setitem__(slice(1, 3), y[:2]),
    "cumsum_": lambda x, y: x.cumsum_(0),
    "nan_to_num_": lambda x, y: x.nan_to_num_(),
    "mul_": lambda x, y: x.mul_(y),
    "out=": lambda x, y: torch.add(y, 1, out=x),
}


@pytest.mark.parametrize("name", WRITES_TO_ITSELF)
def test_writes_to_a_tensor_that_overlaps_itself(ocl_device: str, name: str) -> None:
    """Writes to an expanded tensor raise as on the CPU, and write nothing."""
    for device in ("cpu", ocl_device):
        x, y = torch.ones(1, device=device), torch.arange(4.0, device=device)
        with pytest.raises(
            RuntimeError, match="more than one element of the written-to tensor refers to a single memory"
        ):
            WRITES_TO_ITSELF[name](x.expand(4), y)
        assert x.item() == 1, device


REFUSED_BY_TYPE = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "sigmoid": lambda x, out: torch.sigmoid(x, out=out),
    "var": lambda x, out: torch.var(x, 0, out=out),
    "norm": lambda x, out: torch.linalg.vector_norm(x, dim=0, out=out),
    "where": lambda x, out: torch.where(x > 0, x, x, out=out),
    "gather": lambda x, out: torch.gather(x, 0, (x[:1] < 0).long(), out=out),
    "mm": lambda x, out: torch.mm(x, x.t(), out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
}


@pytest.mark.parametrize("name", REFUSED_BY_TYPE)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
def test_results_that_out_cannot_hold(ocl_device: str, name: str) -> None:
    """Ops raise as on the CPU if the type of `out` cannot hold the result, and write nothing."""
    for device in ("cpu", ocl_device):
        out = torch.full((6, 4), 7, device=device)
        with pytest.raises((RuntimeError, TypeError), match="type"):
            REFUSED_BY_TYPE[name](X.to(device), out)
        assert bool((out == 7).all()), device


@pytest.mark.parametrize("reduce", [torch.sum, torch.prod])
def test_out_that_is_the_operand_and_is_resized(ocl_device: str, reduce: Callable[..., torch.Tensor]) -> None:
    """`out` is the empty operand and gets one element. The reduction must still be over no elements."""
    for device in ("cpu", ocl_device):
        x = torch.full((1,), 7.0, device=device).resize_(0)
        reduce(x, 0, out=x)
        assert x.shape == () and x.item() == (1 if reduce is torch.prod else 0), device


INTEGERS, DOUBLE = [torch.int64, torch.uint8], [torch.float64]
REDUCTIONS = {"sum": INTEGERS + DOUBLE, "prod": INTEGERS + DOUBLE} | dict.fromkeys(
    ["mean", "nansum", "var", "std", "logsumexp"], DOUBLE
)


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, dtypes in REDUCTIONS.items() for dtype in dtypes])
def test_reductions_in_the_type_of_out(ocl_device: str, name: str, dtype: torch.dtype) -> None:
    """PyTorch casts the elements to the type of `out` before it adds them, not the sum."""

    def run(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(0, dtype=dtype, device=x.device)
        return getattr(torch, name)(x, -2, out=out)

    check(run, torch.tensor([[1.6, 3.3, 0.9], [1.6, 2.9, 0.8]]), device=ocl_device)


WRITES_THAT_PYTORCH_ALLOWS = {
    "masked_fill_": lambda x, y, i: x.masked_fill_(y > 1, 5.0),
    "masked_fill_ with a tensor": lambda x, y, i: x.masked_fill_(y > 9, y[1]),
    "index_fill_": lambda x, y, i: x.index_fill_(0, i, 5.0),
    "index_put_": lambda x, y, i: x.index_put_((i,), y[:2]),
    "index_put_, added": lambda x, y, i: x.index_put_((i,), y[2:], accumulate=True),
    "a mask": lambda x, y, i: x.__setitem__(y > 2, 5.0),
    "rows": lambda x, y, i: x[None].expand(3, 4).index_put_((i, i), y[1:3]),
}


@pytest.mark.parametrize("name", WRITES_THAT_PYTORCH_ALLOWS)
@pytest.mark.filterwarnings("ignore:Use of:UserWarning", "ignore:.*runs on the CPU:UserWarning")
def test_writes_to_an_expanded_tensor_that_pytorch_allows(ocl_device: str, name: str) -> None:
    """PyTorch warns of these writes. The element that remains is the one that the CPU writes last."""
    found = []
    for device in ("cpu", ocl_device):
        x, y, i = torch.ones(2, device=device), torch.arange(4.0, device=device), torch.tensor([0, 2], device=device)
        WRITES_THAT_PYTORCH_ALLOWS[name](x[1:].expand(4), y, i)
        found.append(x.cpu())
    assert torch.equal(*found)


@pytest.mark.parametrize("kind", [InternalError, BuildError, KeyError])
@pytest.mark.usefixtures("compiler_is_asked")
def test_errors_of_the_compiler_are_raised(ocl_device: str, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    """An error in the compiler is raised; only a missing kernel causes a fallback to the CPU."""
    from torch_ocl_compile import _C

    def broken(*_: Any, **__: Any) -> None:
        raise kind("made up")

    x = torch.ones(3, 19, device=ocl_device)
    torch.ocl.reset_fallback_counts()
    _C.forget_eager_plans()
    with monkeypatch.context() as patched:
        patched.setattr(eager, "lower_for_device", broken)
        with pytest.raises(kind, match="made up"):
            torch.erfc(x)
    assert torch.ocl.fallback_counts() == {}
    # Without the fault, the next call compiles the op again.
    torch.testing.assert_close(torch.erfc(x).cpu(), torch.erfc(torch.ones(3, 19)))


@pytest.mark.usefixtures("compiler_is_asked")
def test_mistakes_in_a_trace_are_internal_errors(ocl_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python error in our code is an InternalError. A RuntimeError in the trace of an op causes a fallback."""
    from torch_ocl_compile.decompositions import forms

    ours: dict[str, Any] = {"__name__": "torch_ocl_compile.made_up"}
    exec("def mistake(a, *, out): return a.no_such_method()", ours)
    exec("def refusal(a, *, out): raise RuntimeError('not for these arguments')", ours)
    x = torch.ones(3, 23, device=ocl_device)
    monkeypatch.setitem(forms.FORMS, "aten.lgamma.out", ours["mistake"])
    with pytest.raises(InternalError, match=r"aten.lgamma.out.*no_such_method"):
        torch.lgamma(x)
    monkeypatch.setitem(forms.FORMS, "aten.lgamma.out", ours["refusal"])
    check(torch.lgamma, torch.ones(3, 23), device=ocl_device, falls_back=True)


def test_option_cpu(ocl_device: str) -> None:
    program = f"""
        import torch
        x = torch.ones(3, device="{ocl_device}")
        assert (x + x).tolist() == [2, 2, 2]
        assert torch.ocl.fallback_counts() == {{"aten::add.out": 1}}, torch.ocl.fallback_counts()
    """
    status, _, err = run_python(program, TORCH_OCL_EAGER="cpu")
    assert status == 0, err


def test_under_other_modes(ocl_device: str) -> None:
    """Autocast, vmap, grad and torch.device() around an op do not change how the op is traced."""
    x = X.to(ocl_device)
    with torch.autocast("ocl", dtype=torch.bfloat16):
        assert (x.view(12) * 7.25).dtype == torch.float32
        assert (x @ x.t()).dtype == torch.bfloat16
    torch.testing.assert_close(torch.func.vmap(lambda v: v.asinh() + 1)(x).cpu(), X.asinh() + 1)
    torch.testing.assert_close(torch.func.grad(lambda v: v.sinh().sum())(x).cpu(), X.cosh())
    with torch.device(ocl_device):
        assert (torch.ones(3) * 5.5).cpu().tolist() == [5.5] * 3


def test_threads(ocl_device: str) -> None:
    import concurrent.futures

    x = torch.arange(32.0)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda k: ((x.to(ocl_device) + k).exp2() - 1).cpu(), [k % 3 for k in range(24)]))
    for k, got in enumerate(results):
        torch.testing.assert_close(got, (x + k % 3).exp2() - 1)


@pytest.mark.usefixtures("compiler_is_asked")
def test_other_threads_while_an_op_is_traced(ocl_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an op is traced, another thread can run a compiled function. The trace does not patch nn.Module."""
    import concurrent.futures

    from torch_ocl_compile.decompositions import forms

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2 + 1, backend="ocl")
    x = torch.arange(6.0).to(ocl_device)
    expected, call = compiled(x), torch.nn.Module.__call__
    seen: list[Any] = []
    torch.ocl.reset_fallback_counts()

    def form(a: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(compiled, x).result(60))
        assert torch.nn.Module.__call__ is call
        return out.copy_(torch.sinh(a))

    monkeypatch.setitem(forms.FORMS, "aten.sinh.out", form)
    torch.testing.assert_close((x.view(2, 3)).sinh().cpu(), torch.arange(6.0).view(2, 3).sinh())
    assert "aten::sinh.out" not in reasons() and len(seen) == 1
    torch.testing.assert_close(seen[0].cpu(), expected.cpu())


def test_compiled_functions_beside_first_calls_of_ops(ocl_device: str) -> None:
    """Four threads call one compiled module. Between these calls, each runs ops with sizes that are not compiled
    yet."""
    import concurrent.futures

    torch._dynamo.reset()
    module = torch.nn.Sequential(torch.nn.Linear(9, 7), torch.nn.ReLU(), torch.nn.Linear(7, 5))
    x = torch.randn(3, 9)
    with torch.no_grad():
        expected = module(x)
        compiled = torch.compile(module.to(ocl_device), backend="ocl")
        given = x.to(ocl_device)
        compiled(given)

        def work(thread: int) -> None:
            with torch.no_grad():
                for k in range(8):
                    torch.testing.assert_close(compiled(given).cpu(), expected)
                    n = 11 + 8 * thread + k
                    op = (torch.asinh, torch.atan, torch.expm1, torch.erf)[k % 4]
                    torch.testing.assert_close(op(torch.ones(n).to(ocl_device)).cpu(), op(torch.ones(n)))

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(work, thread) for thread in range(4)]:
                done.result(120)


def test_results_may_be_written(ocl_device: str) -> None:
    """Autograd forbids writes to views that custom functions return. Results with permuted strides are none."""
    x = torch.ones(2, 1, 3, device=ocl_device)
    w = torch.ones(1, 2, 3, device=ocl_device, requires_grad=True)
    y = torch.compile(lambda: (x * w).sum(0, keepdim=True).transpose(0, 1), backend="ocl")()
    v = torch.compile(lambda: torch.conv_transpose1d(x[:1], w[:, :1], None, 2), backend="ocl")()
    for result in (y, v):
        assert not result._is_view()
        result.mul_(2)
        torch.autograd.grad(result.sum(), w)


def test_lists_whose_entries_share_memory(ocl_device):
    """Lists are computed entry by entry, as on the CPU: a later entry sees what an earlier one wrote."""

    def change(a, b, c):
        torch._foreach_add_([a, a, b], 1)
        torch._foreach_mul_([a, b, a], [2.0, 3.0, 4.0])
        torch._foreach_add_([b, c], [c, b], alpha=2)
        torch._foreach_sub_([c[:2], c[1:], c], [a[:2], a[1:], a])
        torch._foreach_add_([a, b], [a, b])

    given = [torch.arange(3.0) + i for i in range(3)]
    wanted, got = [x.clone() for x in given], [x.to(ocl_device) for x in given]
    torch.ocl.reset_fallback_counts()
    change(*wanted)
    change(*got)
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x.cpu(), y)
    assert not torch.ocl.fallback_counts()
