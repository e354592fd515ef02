# torch_ocl_compile/lowering/products/attention.py: scaled dot-product attention, forward and backward, as Attention nodes.
"""Operands are views with four dimensions [batch, heads, length, head size]. Shared heads of keys and values are not
expanded, and masks are broadcast by strides.

What the attention kernels do not take (float64, symbolic or very large head sizes, empty tensors), and the gradient
of a float mask, are computed unfused: a product, a softmax and a second product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.attention_ops import Settings
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.products.contraction import contract

aten = torch.ops.aten

KERNEL_TYPES = (ir.DType.kF32, ir.DType.kF16, ir.DType.kBF16)


def as_4d(c: Context, x: ir.Value) -> ir.Value:
    """Returns x [..., h, l, d] as [b, h, l, d]."""
    rank = len(x.sizes)
    for _ in range(4 - rank):
        x = c.builder.unsqueeze(x, 0)
    return x if rank <= 4 else c.builder.reshape(x, [c.numel(x.sizes[: rank - 3]), *x.sizes[rank - 3 :]])


@dataclass
class Attention:
    """The operands and settings of one attention. All operands have four dimensions."""

    c: Context
    q: ir.Value
    k: ir.Value
    v: ir.Value
    mask: ir.Value | None
    state: ir.Value | None
    blocks: ir.Value | None
    settings: Settings  # With a scale.

    @property
    def shape(self) -> list[ir.IndexExpr]:
        """Returns the shape of the scores, [b, h, lq, lk]."""
        return [*self.q.sizes[:3], self.k.sizes[2]]

    @property
    def scale(self) -> float:
        assert self.settings.scale is not None
        return self.settings.scale

    @property
    def wide(self) -> ir.DType:
        dtype: ir.DType = ir.compute_type(self.q.dtype)
        return dtype

    def fits_kernels(self) -> bool:
        sizes = [s for x in (self.q, self.k, self.v) for s in x.sizes]
        depths = [self.q.sizes[3], self.v.sizes[3]]
        return (
            self.q.dtype in KERNEL_TYPES
            and all(d.is_const() and d.constant() <= _C.exec.LARGEST_HEAD_SIZE for d in depths)
            and not any(s.is_const(0) for s in sizes)
        )

    def node(self, kind: ir.AttentionKind, *more: ir.Value) -> list[ir.Value]:
        attrs = self.settings.attributes(kind, self.mask is not None, self.blocks is not None)
        extra = [x for x in (self.mask, self.state, self.blocks) if x is not None]
        return self.c.builder.attention([self.q, self.k, self.v, *more, *extra], attrs)

    # Unfused attention

    def flat(self, x: ir.Value) -> ir.Value:
        """Returns x [b, h, l, d] as [b * heads of q, l, d]; each shared head of keys or values is repeated for its
        query heads."""
        b, heads, rows, depth = x.sizes
        wanted = self.q.sizes[1]
        if heads != wanted:
            group = ir.floordiv(wanted, heads)
            up = self.c.builder.expand(self.c.builder.unsqueeze(x, 2), [b, heads, group, rows, depth])
            return self.c.builder.reshape(up, [b * wanted, rows, depth])
        return self.c.builder.reshape(x, [b * heads, rows, depth])

    def unflat(self, x: ir.Value) -> ir.Value:
        return self.c.builder.reshape(x, [*self.q.sizes[:2], *x.sizes[1:]])

    def product(self, a: ir.Value, b: ir.Value, transpose_a: bool = False, transpose_b: bool = False) -> ir.Value:
        """Returns the batched matrix product a b as [b, h, ., .] in the compute type."""
        left, right = self.flat(a), self.flat(b)
        left = self.c.builder.permute(left, [0, 2, 1]) if transpose_a else left
        right = self.c.builder.permute(right, [0, 2, 1]) if transpose_b else right
        return self.unflat(contract(self.c, left, right, self.wide))

    def scores(self) -> ir.Value:
        s = self.product(self.q, self.k, transpose_b=True)
        nest = self.c.nest(self.shape)
        x = nest.load(s, nest.i) * self.scale
        if self.settings.cap > 0:
            x = t.call("tanh", x / self.settings.cap) * self.settings.cap
        if self.mask is not None:
            m = nest.load_broadcast(self.mask, nest.sizes, nest.i)
            x = t.where(m, x, -math.inf) if self.mask.dtype == ir.DType.kBool else x + m.cast(x.dtype)
        if self.settings.causal:
            x = t.where(nest.index(nest.i[3]) <= nest.index(nest.i[2]), x, -math.inf)
        return nest.store((x, self.wide))[0]

    def sums(self, s: ir.Value) -> list[ir.Value]:
        """Returns (largest score m, sum of exp(score - m)) of each row, both [b, h, l, 1]; 0 for a row without visible
        keys."""
        largest, total = self.c.builder.reduce("softmax", s, [3], True, self.wide)
        row_sums = [largest, total]
        return [
            self.c.pointwise(lambda m, x: t.where(m.eq(-math.inf), 0.0, x), largest, x, dtype=self.wide)
            for x in row_sums
        ]

    def probabilities(self, s: ir.Value, sums: list[ir.Value]) -> ir.Value:
        def row(x: t.Term, row_max: t.Term, total: t.Term) -> t.Term:
            return t.where(total.eq(0.0), math.nan if self.settings.nan_rows else 0.0, t.exp(x - row_max) / total)

        return self.c.pointwise(row, s, *sums, dtype=self.wide)

    def dropped(self, x: ir.Value) -> ir.Value:
        """Returns x [b, h, lq, lk] with dropout applied: each element is multiplied by 0 or by 1 / (1 - p)."""
        p = self.settings.p
        if p <= 0:
            return x
        assert self.state is not None
        nest = self.c.nest(self.shape)
        b, h, i, j = nest.i
        element = ((b * self.shape[1] + h) * self.shape[2] + i) * (ir.ceildiv(self.shape[3], 4) * 4) + j
        seed, offset = nest.load(self.state, [0]), nest.load(self.state, [1])
        u = t.call("philox_lane", seed, offset, nest.index(element))
        kept = nest.load(x, nest.i) * (1 / (1 - p) if p < 1 else 0.0)
        return nest.store((t.where(u < p, 0.0, kept), self.wide))[0]

    def forward_unfused(self) -> tuple[ir.Value, ir.Value]:
        s = self.scores()
        sums = self.sums(s)
        out = self.product(self.dropped(self.probabilities(s, sums)), self.v)
        whole = self.c.builder.concat([self.c.builder.squeeze(self.c.builder.unsqueeze(x, 0), [4]) for x in sums], 0)
        return self.c.cast(out, self.q.dtype), whole

    def score_gradient(self, grad: ir.Value, delta: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Returns (probabilities, gradient of the masked scores), both [b, h, lq, lk]."""
        s = self.scores()
        p = self.probabilities(s, self.sums(s))
        gp = self.dropped(self.product(grad, self.v, transpose_b=True))
        delta = self.c.builder.unsqueeze(delta, 3)
        return p, self.c.pointwise(lambda x, g, d: x * (g - d), p, gp, delta, dtype=self.wide)

    def before_cap(self, gs: ir.Value) -> ir.Value:
        """Returns the gradient of q k^T, from that of the scores."""
        cap = self.settings.cap
        if cap <= 0:
            return self.c.pointwise(lambda x: x * self.scale, gs, dtype=self.wide)
        products = self.product(self.q, self.k, transpose_b=True)

        def slope(g: t.Term, x: t.Term) -> t.Term:
            bounded = t.call("tanh", x * (self.scale / cap))
            return g * (1.0 - bounded * bounded) * self.scale

        result = self.c.pointwise(slope, gs, products, dtype=self.wide)
        return result

    def of_group(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Returns x [b, heads of q, l, d] summed over the query heads that share one head of `like`."""
        b, heads, rows, depth = x.sizes
        wanted = like.sizes[1]
        if heads != wanted:
            grouped = self.c.builder.reshape(x, [b, wanted, ir.floordiv(heads, wanted), rows, depth])
            x = self.c.builder.reduce("sum", grouped, [2], False, self.wide)[0]
        return self.c.cast(x, like.dtype)


def _attention(
    c: Context,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    mask: ir.Value | None,
    settings: Settings,
    state: ir.Value | None = None,
    blocks: ir.Value | None = None,
) -> Attention | None:
    """Collects the operands of an attention. None if the dtype or the scale (through the head size) rules out a
    lowering."""
    if settings.scale is None:
        if not q.sizes[-1].is_const() or q.sizes[-1].is_const(0):
            return None
        settings = settings.for_heads(q.sizes[-1].constant())
    if not isinstance(settings.scale, (int, float)) or not ir.is_floating(q.dtype):
        return None
    if mask is not None:
        if mask.dtype not in (ir.DType.kBool, ir.DType.kF32, q.dtype):
            mask = c.cast(mask, ir.compute_type(q.dtype))
        mask = as_4d(c, c.builder.expand(mask, [*q.sizes[:-1], k.sizes[-2]]))
    q, k, v = as_4d(c, q), as_4d(c, c.cast(k, q.dtype)), as_4d(c, c.cast(v, q.dtype))
    if blocks is not None:
        sizes = [*q.sizes[:2], *(ir.ceildiv(x.sizes[2], settings.block_size) for x in (q, k))]
        blocks = as_4d(c, blocks)
        blocks = c.builder.expand(blocks, [n if b.is_const(1) else b for b, n in zip(blocks.sizes, sizes, strict=True)])
    return Attention(c, q, k, v, mask, state if settings.p > 0 else None, blocks, settings)


def forward(c: Context, shape: Sequence[ir.IndexExpr], a: Attention) -> tuple[ir.Value, ir.Value]:
    """Returns (output of the given shape, row sums [2, b, h, lq] in float32, or float64 for such operands: the
    largest score and the sum of exponentials)."""
    out, sums = a.node(ir.AttentionKind.kForward) if a.fits_kernels() else a.forward_unfused()
    return c.builder.reshape(out, list(shape)), c.cast(sums, a.wide)


def backward(
    c: Context,
    a: Attention,
    grad: ir.Value,
    out: ir.Value,
    sums: ir.Value,
    wanted: Sequence[bool],
    mask_shape: Any,
    grad_sums: ir.Value | None,
) -> list[ir.Value | None]:
    """Returns the gradients of q, k and v with four dimensions, and the gradient of the mask in `mask_shape`; None if
    not wanted.
    """
    grad = c.cast(grad, a.q.dtype)
    products = c.pointwise(lambda g, y: g * y, grad, out, dtype=a.wide)
    delta = c.builder.reduce("sum", products, [3], False, a.wide)[0]
    total = c.builder.select(sums, 0, ir.IndexExpr(1))
    if grad_sums is not None:  # The gradient of the sum n of exponentials is n * p for each score.
        grad_total = c.builder.select(grad_sums, 0, ir.IndexExpr(1))
        delta = c.pointwise(lambda d, n, g: d - t.where(n.eq(0.0), 0.0, n * g), delta, total, grad_total, dtype=a.wide)
    fills_rows = a.settings.nan_rows and a.mask is not None and a.mask.dtype == ir.DType.kBool
    # The scores of a row without visible keys are constants, so no gradient flows back to queries and keys.
    if fills_rows:
        a = replace(a, settings=replace(a.settings, nan_rows=False))
        delta = c.pointwise(lambda d, n: t.where(n.eq(0.0), 0.0, d), delta, total, dtype=a.wide)
    gq = gk = gv = gm = None
    unfused = not a.fits_kernels()
    if unfused or wanted[3]:
        p, gs = a.score_gradient(grad, delta)
        if wanted[3] and mask_shape is not None:
            gm = _summed_to(c, gs, mask_shape, a.wide)
    if unfused:
        scaled = a.before_cap(gs)
        gq = c.cast(a.product(scaled, a.k), a.q.dtype)
        gk = a.of_group(a.product(scaled, a.q, transpose_a=True), a.k)
        gv = a.of_group(a.product(a.dropped(p), grad, transpose_a=True), a.v)
    else:
        if wanted[0]:
            gq = a.node(ir.AttentionKind.kQuery, grad, sums, delta)[0]
        if wanted[1] or wanted[2]:
            gk, gv = a.node(ir.AttentionKind.kKeyValue, grad, sums, delta)
    if fills_rows and gv is not None and wanted[2]:
        gv = _with_nan_rows(c, a, gv, total)
    return [gq, gk, gv, gm]


def _with_nan_rows(c: Context, a: Attention, gv: ir.Value, total: ir.Value) -> ir.Value:
    """Returns the gradient of v, NaN for all keys of a head that has a query row without visible keys.

    The attention weights of such a row are NaN.
    """
    rows = c.pointwise(lambda n: t.where(n.eq(0.0), math.nan, 0.0), total, dtype=a.wide)
    heads = c.builder.unsqueeze(c.builder.reduce("sum", rows, [2], True, a.wide)[0], 3)
    return c.pointwise(lambda g, n: g + n, gv, a.of_group(heads, gv), dtype=gv.dtype)


def _summed_to(c: Context, x: ir.Value, shape: Sequence[ir.IndexExpr], wide: ir.DType) -> ir.Value:
    """Returns the gradient of a tensor of `shape` that was broadcast to the shape of x."""
    extra = len(x.sizes) - len(shape)
    dims = [
        d for d in range(len(x.sizes)) if d < extra or (shape[d - extra].is_const(1) and not x.sizes[d].is_const(1))
    ]
    if dims:
        x = c.builder.reduce("sum", x, dims, True, wide)[0]
    return c.builder.reshape(x, list(shape))


def _log_sum(c: Context, sums: ir.Value, shape: Sequence[ir.IndexExpr]) -> ir.Value:
    row_max, total = (c.builder.select(sums, 0, ir.IndexExpr(n)) for n in (0, 1))
    lse = c.pointwise(lambda m, n: m + t.log(n), row_max, total, dtype=ir.DType.kF32)
    return c.builder.reshape(lse, list(shape))


def _from_log_sum(c: Context, lse: ir.Value, sizes: Sequence[ir.IndexExpr]) -> ir.Value:
    """Returns row sums [2, b, h, lq] as (logsumexp, 1), and (0, 0) for a row without visible keys."""
    nest = c.nest([2, *sizes])
    x = nest.load(c.builder.reshape(lse, list(sizes)), nest.i[1:])
    known = t.where(nest.index(nest.i[0]).eq(0), x, 1.0)
    return nest.store((t.where(x.eq(-math.inf), 0.0, known), ir.DType.kF32))[0]


@lower("aten._scaled_dot_product_fused_attention_overrideable.default")
def fused_attention(
    c: Context,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    bias: ir.Value | None = None,
    p: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Lowers PyTorch's fused attention in graphs without backward and without dropout.

    In all other graphs lowering/elementwise/random.py has replaced it by ocl::attention.
    """
    a = _attention(c, q, k, v, bias, Settings(p, causal, scale=scale))
    if a is None or p > 0 or debug:
        return NotImplemented
    out, sums = forward(c, c.shape(c.val[0].shape), a)
    zero = c.constant(0, ir.DType.kI64)
    lse = _log_sum(c, sums, c.shape(c.val[1].shape))
    return out, lse, None, None, c.val[4], c.val[5], zero, zero, None


@lower("aten._scaled_dot_product_fused_attention_overrideable_backward.default")
def fused_attention_backward(
    c: Context,
    grad: ir.Value,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    bias: ir.Value | None,
    wanted: Sequence[bool],
    out: ir.Value,
    lse: ir.Value,
    cum_q: Any,
    cum_k: Any,
    max_q: Any,
    max_k: Any,
    p: float,
    causal: bool,
    seed: Any,
    offset: Any,
    *,
    scale: float | None = None,
) -> Any:
    sums = _from_log_sum(c, lse, as_4d(c, q).sizes[:3])
    a = _attention(c, q, k, v, bias, Settings(p, causal, scale=scale))
    return gradients(c, a, (q, k, v, bias), grad, out, sums, wanted)


def gradients(
    c: Context,
    a: Attention | None,
    inputs: tuple[ir.Value, ir.Value, ir.Value, ir.Value | None],
    grad: ir.Value,
    out: ir.Value,
    sums: ir.Value,
    wanted: Sequence[bool],
    grad_sums: ir.Value | None = None,
) -> Any:
    """Returns the gradients of q, k, v and mask in the shapes of the op's arguments; NotImplemented without a lowering."""
    if a is None or (a.settings.p > 0 and a.state is None):
        return NotImplemented
    mask = inputs[3]
    shape = None if mask is None else mask.sizes
    rows = [ir.IndexExpr(2), *a.q.sizes[:3]]
    sums = c.builder.reshape(sums, rows)
    grad_sums = None if grad_sums is None else c.builder.reshape(grad_sums, rows)
    made = backward(c, a, as_4d(c, grad), as_4d(c, out), sums, wanted, shape, grad_sums)
    shaped = [None if g is None else c.builder.reshape(g, x.sizes) for g, x in zip(made[:3], inputs[:3], strict=True)]
    gm = None if made[3] is None or mask is None else c.cast(made[3], mask.dtype)
    return *(g if w else None for g, w in zip(shaped, wanted, strict=False)), gm


@lower("ocl.attention.default")
def attention(
    c: Context,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    mask: ir.Value | None,
    state: ir.Value | None,
    blocks: ir.Value | None = None,
    **settings: Any,
) -> Any:
    a = _attention(c, q, k, v, mask, Settings(**settings), state, blocks)
    if a is None or (a.settings.p > 0 and state is None):
        return NotImplemented
    out, sums = forward(c, c.shape(c.val[0].shape), a)
    sums = c.builder.reshape(sums, c.shape(c.val[1].shape))
    # Without dropout no random number was drawn, and the state is zeros.
    if state is None:
        state = c.builder.expand(c.constant(0, ir.DType.kI64, [ir.IndexExpr(1)]), [ir.IndexExpr(2)])
    return out, sums, state


@lower("ocl.attention_backward.default")
def attention_backward(
    c: Context,
    grad: ir.Value,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    out: ir.Value,
    sums: ir.Value,
    mask: ir.Value | None,
    state: ir.Value | None,
    blocks: ir.Value | None = None,
    grad_sums: ir.Value | None = None,
    *,
    wanted: Sequence[bool],
    **settings: Any,
) -> Any:
    a = _attention(c, q, k, v, mask, Settings(**settings), state, blocks)
    return gradients(c, a, (q, k, v, mask), grad, out, sums, wanted, grad_sums)
