# tests/device/kernels/test_attention.py: attention kernels of both families: edge sizes, errors, dropout, symbolic lengths, patterns.
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F

from tests.device.exact import assert_as_exact
from torch_ocl_compile.compile import debug

Tensor = torch.Tensor
sdpa: Any = F.scaled_dot_product_attention
FAMILIES = ["item", "group"]
KINDS = {"attention", "attention_query_gradient", "attention_key_gradient"}


def compiled(function: Any, family: str | None = None, **settings: Any) -> Any:
    torch._dynamo.reset()
    options = {"fallback": "error"} | ({"kernel_family": family} if family else {})
    return torch.compile(function, backend="ocl", options=options, **{"dynamic": False, **settings})


def run(function: Any, tensors: Sequence[Tensor], device: str, dtype: torch.dtype | None = None) -> list[Tensor]:
    """Returns the result and the gradients of the floating-point tensors, on the CPU."""
    moved = [x.detach().to(device, dtype if x.is_floating_point() else None) for x in tensors]
    leaves = [x.requires_grad_() for x in moved if x.is_floating_point()]
    out = function(*moved)
    weight = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out)
    return [x.detach().cpu() for x in (out, *torch.autograd.grad(out, leaves, weight))]


def as_exact_as_torch(function: Any, family: str | None, tensors: list[Tensor], device: str) -> None:
    """Allows twice the error of PyTorch's fp32 against fp64 (root mean square), and a few roundings for sums near 0."""
    exact = run(function, tensors, "cpu", torch.float64)
    theirs, ours = run(function, tensors, "cpu"), run(compiled(function, family), tensors, device)
    for want, a, b in zip(exact, theirs, ours, strict=True):
        assert b.dtype is torch.float32

        def error(x: Tensor, want: Tensor = want) -> float:
            return (x.double() - want).square().mean().sqrt().item()

        assert error(b) <= 2 * error(a) + 3e-7


def tensors_of(q: tuple[int, ...], keys: int, heads: int | None = None, v: int | None = None) -> list[Tensor]:
    torch.manual_seed(sum(q) + keys)
    k = (q[0], heads or q[1], keys, q[3])
    return [torch.randn(q), torch.randn(k), torch.randn(*k[:3], v or q[3])]


# (queries [b, h, l, d], keys, heads of k, head size of v, causal)
SIZES = [
    ((1, 1, 1, 8), 1, None, None, False),
    ((1, 2, 7, 16), 129, None, None, False),
    ((2, 2, 129, 64), 7, None, None, True),
    ((1, 2, 65, 80), 129, None, 24, True),
    ((1, 4, 40, 128), 50, 2, None, False),
    ((1, 1, 70, 256), 300, None, None, True),
    ((1, 2, 150, 64), 197, None, None, False),
    ((1, 4, 140, 40), 200, 2, 64, True),
]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 4e-3), (torch.float16, 5e-4)])
@pytest.mark.parametrize(("queries", "size", "masked"), [(1, 64, True), (8, 40, False), (3, 20, True)])
def test_few_queries(ocl_device, dtype, bound, queries, size, masked):
    """As in decoding: the keys are a part of a cache, and the mask hides its end."""
    torch.manual_seed(queries)
    q = torch.randn(2, 4, queries, size)
    cache = torch.randn(2, 2, 2, 700, size)
    mask = (torch.arange(650) < 601).expand(1, 1, queries, 650) if masked else None

    def attend(q: Tensor, cache: Tensor, mask: Tensor | None) -> Tensor:
        return sdpa(q, cache[0, :, :, :650], cache[1, :, :, :650], mask, enable_gqa=True)

    given = [q.to(dtype), cache.to(dtype)]
    want = attend(*(x.double() for x in given), mask)
    with torch.no_grad():
        got = compiled(attend, "group")(
            *(x.to(ocl_device) for x in given), None if mask is None else mask.to(ocl_device)
        )
    assert ((got.cpu().double() - want).square().mean() / want.square().mean()).sqrt() < bound


@pytest.mark.sampled(first=4, every=24)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("q", "keys", "heads", "v", "causal"), SIZES, ids=str)
def test_sizes(ocl_device, family, q, keys, heads, v, causal):
    def attend(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return sdpa(a, b, c, is_causal=causal, enable_gqa=heads is not None)

    as_exact_as_torch(attend, family, tensors_of(q, keys, heads, v), ocl_device)


@pytest.mark.sampled(first=2, every=18)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mask", ["bool", "float", "rows"])
def test_masks(ocl_device, family, mask):
    torch.manual_seed(1)
    seen = torch.rand(2, 1, 33, 70) > 0.4
    # The result of a query without visible keys is 0.
    seen[0, 0, 3] = False
    given = {"bool": seen, "float": torch.randn(33, 70), "rows": torch.rand(2, 1, 1, 70) > 0.4}[mask]
    as_exact_as_torch(sdpa, family, [*tensors_of((2, 2, 33, 16), 70), given], ocl_device)


@pytest.mark.sampled(first=2, every=18)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
def test_halves(ocl_device, family, dtype):
    tensors = [x.to(dtype).float() for x in tensors_of((1, 2, 33, 24), 70)]
    want = run(sdpa, tensors, "cpu", torch.float64)
    got = run(compiled(sdpa, family), tensors, ocl_device, dtype)
    eps = torch.finfo(dtype).eps
    for a, b in zip(want, got, strict=True):
        assert b.dtype is dtype
        assert (b.double() - a).abs().max() <= 2 * eps * a.abs().max()


@pytest.mark.sampled(first=2, every=12)
@pytest.mark.parametrize("family", FAMILIES)
def test_dropout(ocl_device, family):
    """With v = 1 each result is the share of its row that dropout kept; with v = identity it shows the dropped
    probabilities."""
    p, length = 0.25, 61

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, dropout_p=p)

    function = compiled(attend, family)
    zeros, v = torch.zeros(2, 4, length, length), torch.eye(length).expand(2, 4, length, length)
    torch.manual_seed(5)
    moved = [x.contiguous().to(ocl_device).requires_grad_() for x in (zeros, zeros, v)]
    out = function(*moved)
    kept = out.detach().cpu() * length * (1 - p)  # Each element is 0 or 1, for (query, key).
    assert ((kept - kept.round()).abs() < 1e-4).all()
    kept = kept.round()
    assert 0.72 < kept.mean() < 0.78
    # The mask does not repeat along batch, heads, queries or keys.
    for dim in (0, 1, 2, 3):
        assert not torch.equal(kept.narrow(dim, 0, 1), kept.narrow(dim, 1, 1))
    # Backward uses the same mask: the gradient of v is the transposed matrix of dropped probabilities.
    weight = torch.randn(out.shape)
    gv = torch.autograd.grad(out, moved, weight.to(ocl_device))[2].cpu()
    torch.testing.assert_close(gv, (kept / length / (1 - p)).mT @ weight, rtol=1e-4, atol=1e-5)
    again = function(*moved).detach().cpu()
    assert not torch.equal(again, out.detach().cpu())
    torch.manual_seed(5)
    assert torch.equal(function(*moved).detach().cpu(), out.detach().cpu())


@pytest.mark.sampled(first=2, every=12)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_under_dropout(ocl_device, family):
    """Compares with the formula, using the mask that the kernel drew."""
    length, p = 37, 0.5
    q, k, v = tensors_of((1, 2, length, 16), length)

    def attend(a: Tensor, b: Tensor, c: Tensor, eye: Tensor) -> Tensor:
        torch.manual_seed(3)
        return sdpa(a, b, torch.cat((c, eye), -1), dropout_p=p)

    def both(a: Tensor, b: Tensor, c: Tensor, eye: Tensor) -> Tensor:
        return sdpa(a, b, torch.cat((c, eye), -1), dropout_p=p)

    torch.manual_seed(3)
    eye = torch.eye(length).expand(1, 2, length, length).contiguous()
    leaves = [x.to(ocl_device).requires_grad_() for x in (q, k, v)]
    out = compiled(both, family)(*leaves, eye.to(ocl_device))
    keep = (out.detach().cpu()[..., 16:] != 0).float() / (1 - p)
    weight = torch.randn(1, 2, length, 16)
    got = torch.autograd.grad(out[..., :16], leaves, weight.to(ocl_device))
    want = [x.double().requires_grad_() for x in (q, k, v)]
    s = torch.softmax(want[0] @ want[1].mT / 4, -1) * keep.double()
    for a, b in zip(torch.autograd.grad(s @ want[2], want, weight.double()), got, strict=True):
        torch.testing.assert_close(b.cpu().double(), a, rtol=1e-4, atol=1e-5)


def test_one_launch_each(ocl_device):
    """Transposed operands and the layout of the result need no copies; on GPUs nothing is packed, either."""

    def block(x: Tensor) -> Tensor:
        q, k, v = (y.view(2, 20, 4, 16).transpose(1, 2) for y in x.split(64, -1))
        return sdpa(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 20, 64)

    x = torch.randn(2, 20, 192)
    function = compiled(block, "group")
    moved = x.to(ocl_device).requires_grad_()
    # Launches that run while it is compiled do not count.
    function(moved)
    with torch.ocl.record() as launches:
        out = function(moved)
    assert [(launch.kind, launch.origin) for launch in launches if launch.kind != "attention"] == []
    assert len(launches) == 1
    with torch.ocl.record() as launches:
        out.sum().backward()
    assert [launch.kind for launch in launches if launch.kind in KINDS] == sorted(KINDS - {"attention"}, reverse=True)

    def own(x: Tensor) -> list[Tensor]:
        x = x.detach().requires_grad_()
        return [block(x), *torch.autograd.grad(block(x).sum(), x)]

    assert_as_exact([out, moved.grad], own, x)


@pytest.mark.parametrize("family", FAMILIES)
def test_symbolic_lengths(ocl_device, family):
    counter = torch._dynamo.testing.CompileCounterWithBackend("ocl")
    debug.fallback_counts()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, is_causal=True)

    function = torch.compile(attend, backend=counter, dynamic=True)
    for batch, length in ((2, 9), (3, 33), (5, 70)):
        tensors = tensors_of((batch, 2, length, 16), length)
        assert_as_exact(run(function, tensors, ocl_device), lambda *x: run(attend, x, "cpu"), *tensors)
    assert counter.frame_count <= 2


# Spelled-out attention of models

MASK = torch.rand(12, 12, generator=torch.Generator().manual_seed(0)) > 0.3


def written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(16), dim=-1) @ v


def filled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = (q @ k.mT).mul(0.25).masked_fill(MASK.to(q.device).logical_not(), -math.inf)
    return torch.matmul(F.dropout(s.softmax(-1), 0.3, training=False), v)


def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    bias = torch.arange(12, device=q.device) * 0.1
    return torch.matmul(
        F.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.25 + bias, -1, dtype=torch.float32).type_as(q), v
    )


@pytest.mark.parametrize("function", [written, filled, biased])
def test_written_out_attention_runs_fused(ocl_device, function):
    tensors = tensors_of((2, 3, 12, 16), 12)
    with torch.ocl.record() as launches:
        got = run(compiled(function), tensors, ocl_device)
    assert {launch.kind for launch in launches} >= KINDS
    assert_as_exact(got, lambda *x: run(function, x, "cpu"), *tensors)


def test_weights_that_are_returned_stay(ocl_device):
    def both(q: Tensor, k: Tensor, v: Tensor) -> Any:
        p = torch.softmax(q @ k.mT, -1)
        return p @ v, p

    tensors = tensors_of((2, 3, 12, 16), 12)
    with torch.ocl.record() as launches:
        got = compiled(both)(*(x.to(ocl_device) for x in tensors))
    assert not {launch.kind for launch in launches} & KINDS
    assert_as_exact(got, both, *tensors)


def test_dropout_written_out(ocl_device):
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.dropout(torch.softmax(q @ k.mT, -1), 0.5) @ v

    function = compiled(attend)
    zeros, eye = torch.zeros(1, 2, 48, 48, device=ocl_device), torch.eye(48, device=ocl_device).expand(1, 2, 48, 48)
    with torch.ocl.record() as launches:
        kept = function(zeros, zeros, eye).cpu() * 24
    assert "attention" in {launch.kind for launch in launches}
    assert ((kept - kept.round()).abs() < 1e-4).all()
    assert 0.45 < kept.mean() < 0.55


def test_checkpointed_dropout(ocl_device):
    """A checkpointed region recomputes the same dropout mask."""
    from torch.utils.checkpoint import checkpoint

    eye = torch.eye(40).expand(1, 1, 40, 40).contiguous()

    def attend(q: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, q, v, dropout_p=0.5).sin()

    function = compiled(lambda q, v: checkpoint(attend, q, v, use_reentrant=False))
    q, v = (x.to(ocl_device).requires_grad_() for x in (torch.zeros(1, 1, 40, 40), eye))
    out = function(q, v)
    dropped = torch.asin(out.detach()).cpu()
    (gv,) = torch.autograd.grad(out.sum(), v)
    torch.testing.assert_close(gv.cpu(), dropped.mT @ dropped.cos(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("which", ["query", "key", "mask"])
def test_an_operand_that_is_detached_in_place(ocl_device, which):
    """Where the CPU has separate products, it saves other tensors for the gradient, and detaching an operand is no error."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        operands = {"query": q * 2, "key": k * 3, "mask": q[..., :7] * 0.5}
        out = sdpa(operands["query"], operands["key"], v, attn_mask=operands["mask"])
        operands[which].detach_()
        return out * operands[which].sum()

    tensors = tensors_of((2, 3, 7, 16), 7)
    got = run(compiled(attend), tensors, ocl_device)
    assert_as_exact(got, lambda *x: run(attend, x, "cpu"), *tensors)
