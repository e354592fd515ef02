# tests/device/ops/test_eager_rows.py: each overload of an op is compiled in eager mode, with and without out=.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._ops import OpOverload

from tests.device.ops.recorded_ops import recorded
from tests.device.ops.test_eager import check
from torch_ocl_compile.eager.compile import compile_op

# Overloads that no plan computes. Those of the first line have kernels in C++ (counted_ops.cpp, checked_ops.cpp), or are for
# the host.
WITHOUT_PLAN = {
    *("masked_select", "cholesky", "equal", "unique_consecutive", "_unique2", "bincount", "nonzero", "allclose"),
    *("_local_scalar_dense", "_linalg_check_errors", "_to_sparse"),
    *("gcd", "lcm", "hash_tensor", "_ctc_loss_backward"),
}
COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "PrivateUse1")


def out_overloads(op: OpOverload) -> Iterator[OpOverload]:
    """Returns the overloads with out= arguments that take the other arguments of `op`, and that are compiled as they are. PyTorch
    or C++ makes the others of `op`."""
    for name in op.overloadpacket.overloads():
        found = getattr(op.overloadpacket, name)
        arguments = [(a.name, str(a.type)) for a in found._schema.arguments if not a.is_out]
        if len(arguments) == len(found._schema.arguments) or arguments != [
            (a.name, str(a.type)) for a in op._schema.arguments
        ]:
            continue
        if not any(torch._C._dispatch_has_kernel_for_dispatch_key(found.name(), key) for key in COMPOSITE):
            yield found


def refusal(op: OpOverload, arguments: list[Any]) -> str:
    leaves = [leaf for a in arguments for leaf in (a if isinstance(a, (list, tuple)) else [a])]
    return compile_op(op._schema.name, op._schema.overload_name, arguments, list(range(len(leaves))), 0).reason


@pytest.mark.parametrize("part", range(4))
def test_no_overload_runs_on_the_cpu(ocl_device: str, part: int) -> None:
    refused = {}
    for op, call in list(recorded().items())[part::4]:
        if op._opname in WITHOUT_PLAN:
            continue
        arguments, outs = call.on(ocl_device), list(out_overloads(op))
        if not outs:
            refused[str(op)] = refusal(op, arguments)
        for out in outs:
            for empty in (False, True):
                rest = iter(arguments)
                made = iter(
                    torch.empty(0, dtype=t.dtype, device=ocl_device)
                    if empty
                    else torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=ocl_device)
                    for t in call.results
                )
                refused[f"{out}, empty: {empty}"] = refusal(
                    out, [next(made) if a.is_out else next(rest) for a in out._schema.arguments]
                )
    assert not {name: reason for name, reason in refused.items() if reason}
    assert len(refused) > 100


def with_gradient(call: Any) -> Any:
    """Returns a function that gives the result of `call` and the gradient of its first argument."""

    def run(x: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
        x = x.detach().requires_grad_()
        made = call(x, *rest)
        weights = torch.arange(made.numel(), device=x.device).view(made.shape) % 7 - 2.0
        return made, *torch.autograd.grad(made, x, weights.to(made.dtype))

    return run


def interpolated(mode: str, **how: Any) -> tuple[Any, torch.Tensor]:
    rank = {"linear": 1, "trilinear": 3}.get(mode, 2)
    size = {"size": (8, 3, 9)[:rank]} if not how.pop("scaled", False) else {"scale_factor": (1.7, 0.6, 2.0)[:rank]}
    return with_gradient(lambda x: F.interpolate(x, mode=mode, **size, **how)), IMAGE[
        (slice(None), slice(None), *[0] * (3 - rank))
    ]


def outs(call: Any, *sizes: int, dtype: torch.dtype = torch.float32) -> Any:
    """Returns a function that calls `call` with out= tensors of these sizes."""

    def run(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = [torch.empty(n, dtype=dtype, device=args[0].device) for n in sizes]
        call(*args, out=given[0] if len(given) == 1 else tuple(given))
        return (*given, *[torch.tensor(t.stride()) for t in given])

    return run


def margin_loss(p: int) -> Any:
    return lambda x, labels, weight: F.multi_margin_loss(x, labels, p=p, weight=weight, margin=0.7)


IMAGE = torch.randn(2, 3, 5, 6, 7, generator=torch.Generator().manual_seed(1))
X, LABELS = IMAGE[0, 0, :4, :5, 0].contiguous(), torch.tensor([0, 3, 4, 1])
SETS = torch.tensor([[1, 0, -1, 2, 3], [-1] * 5, [0, 1, 2, 3, 4], [2, 2, -1, 0, 0]])
INTEGERS, FILTER = (IMAGE * 9).long(), (IMAGE[:1, :, :3, :2, :3].transpose(0, 1) * 5).long()
STEPS: dict[str, Any] = {"stride": 2, "padding": 1, "output_padding": 1, "dilation": (1, 2, 1)}
MODES, SCALED = ("linear", "bilinear", "trilinear", "bicubic"), ("bilinear", "bicubic", "nearest", "nearest-exact")
CASES = {
    **{f"{mode} {corners}": interpolated(mode, align_corners=corners) for mode in MODES for corners in (True, False)},
    **{f"{mode} scaled": interpolated(mode, scaled=True) for mode in SCALED},
    "half": (lambda x: F.interpolate(x.half(), size=(8, 3), mode="bilinear").float().round(decimals=1), IMAGE[..., 0]),
    **{f"multi_margin_loss {p}": (with_gradient(margin_loss(p)), X, LABELS, X[0].abs()) for p in (1, 2)},
    "multi_margin_loss of a row": (with_gradient(lambda x, y: F.multi_margin_loss(x, y, reduction="none")), X[0], LABELS[1]),
    "multilabel_margin_loss": (with_gradient(lambda x, y: F.multilabel_margin_loss(x, y, reduction="none")), X, SETS),
    "shrinks": (with_gradient(lambda x: F.softshrink(x) * F.hardshrink(x)), X),
    "cummax": (lambda x: (x.cummax(1), x.cummin(0)), X),
    "transposed convolution": (lambda x, w: [F.conv_transpose3d(x[:, :2], w[:2], groups=g, **STEPS) for g in (1, 2)], INTEGERS, FILTER),
    "out of no elements": (outs(lambda x, out: torch.exp(x[:0].t(), out=out), 0), X),
    "out of fewer elements": (outs(lambda x, out: torch.exp(x[:, :2].t(), out=out), 30), X),
    "nonzero out": (outs(lambda x, out: torch.nonzero(x > 0, out=out), 0, dtype=torch.int64), X),
    "masked_select out": (outs(lambda x, out: torch.masked_select(x, x > 0, out=out), 1), X),
    "mode out": (lambda x: torch.mode(x, 1, out=(x.new_empty(0), x.new_empty(0, dtype=torch.int64))), X.round()),
    "geqrf out": (outs(lambda x, out: torch.geqrf(x, out=out), 0, 4), X),
    "histogram out": (outs(lambda x, out: torch.histogram(x.view(-1), 5, out=out), 0, 0), X),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
def test_values(ocl_device: str, name: str) -> None:
    call, *args = CASES[name]
    check(call, *args, device=ocl_device)


def test_out_of_the_wrong_type(ocl_device: str) -> None:
    for device in ("cpu", ocl_device):
        with pytest.raises(RuntimeError, match="type"):
            torch.nonzero(X.to(device), out=torch.empty(0, device=device))
