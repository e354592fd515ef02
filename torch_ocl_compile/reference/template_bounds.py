# torch_ocl_compile/reference/template_bounds.py: products, convolutions and attention in fp64, with bounds of a kernel's error.
"""See error_bounds.py for what a bound is. Operands are exact or have bounds of their own. `low` is the largest relative
error of rounding operands and probabilities on tensor cores; it is 0 for other kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.reference.attention import Scores
from torch_ocl_compile.reference.error_bounds import Error, added, finite, normalized_bound
from torch_ocl_compile.reference.interpreter import convolve
from torch_ocl_compile.reference.interpreter import fft as interpreter_fft
from torch_ocl_compile.reference.reduction_bounds import Bounded, growth, reduce
from torch_ocl_compile.reference.reductions import merged

Tensor = torch.Tensor


def contract(a: Bounded, b: Bounded, unit: float, low: float) -> Bounded:
    x, y = a[0].double(), b[0].double()
    size = torch.matmul(finite(x), finite(y))
    passed: Error = None
    if a[1] is not None:
        passed = added(passed, torch.matmul(a[1].expand(x.shape), y.abs()))
    if b[1] is not None:
        passed = added(passed, torch.matmul(x.abs(), b[1].expand(y.shape)))
    return torch.matmul(x, y), normalized_bound(added(passed, size * (growth(x.shape[-1]) * unit + 2 * low)))


def convolution(
    node: Any, sizes: list[int], operands: Sequence[Bounded], unit: float, low: float, mixed: bool
) -> Bounded:
    """Returns the result of a Convolve node and its bound. `mixed`: the kernel is Winograd's, whose transforms mix the
    pixels of a tile.
    """
    x, y, *bias = (v.double() for v, _ in operands)
    result = convolve(node, sizes, x, y, *bias)
    attrs = node.convolve
    of_x, of_y = finite(x), finite(y)
    if mixed:
        of_x = torch.nn.functional.max_pool2d(of_x, (5, 9), 1, (2, 4))  # a patch has at most 4 x 6 pixels
        if attrs.kind == ir.ConvolveKind.kWeight:
            of_y = torch.nn.functional.max_pool2d(of_y, 3, 1, 1)
    size = convolve(node, sizes, of_x, of_y, *(b.abs() for b in bias))
    n = math.prod(y.shape[1:]) if attrs.kind == ir.ConvolveKind.kForward else (
        math.prod(y.shape) // y.shape[1] // attrs.groups if attrs.kind == ir.ConvolveKind.kData else x.shape[0] * math.prod(y.shape[2:])
    )  # fmt: skip
    passed: Error = None
    for k, (_, error) in enumerate(operands):
        if error is not None:
            others = [v.double().abs() for v, _ in operands]
            if k == 2:
                passed = added(passed, error.expand(others[k].shape).view(1, -1, 1, 1))
                continue
            others[k] = error.expand(others[k].shape)
            passed = added(passed, convolve(node, sizes, others[0], others[1]))
    return result, normalized_bound(added(passed, size * (growth(n) * unit + 2 * low)))


def attention(attrs: Any, operands: Sequence[Tensor], unit: float, low: float) -> list[Bounded]:
    """Returns the results of an Attention node with exact operands."""
    forward = attrs.kind == ir.AttentionKind.kForward
    given = [x.double() if x.is_floating_point() else x for x in operands]
    a = Scores(attrs, given, forward)
    scores = torch.matmul(finite(a.q), finite(a.k).mT) * abs(attrs.scale)
    if attrs.masked:
        mask = given[3 if forward else 6]
        scores = scores + (finite(mask) if mask.is_floating_point() else 0.0)
    seen = a.p > 0
    score_error = scores * (growth(a.q.shape[-1]) * unit + 2 * low) + 4 * unit * attrs.cap
    worst = torch.where(seen, score_error, 0.0).amax(-1, keepdim=True) if seen.shape[-1] else score_error
    top = a.sums[0].unsqueeze(-1)
    # The relative error of p is the sum of the errors of the score, of the maximum, of exp and of the sum.
    relative = score_error + worst + unit * (40 + growth(seen.shape[-1]) + 4 * (scores + finite(top)))
    # Below this, a probability may be 0.
    tiny = 2.0**-126
    kept = a.p * a.keep
    if forward:
        weights = kept * (2 * relative + low) + tiny
        size = torch.matmul(finite(kept), finite(a.v)) * (growth(seen.shape[-1]) * unit + low)
        out_error = torch.matmul(weights.nan_to_num(nan=0.0), finite(a.v)) + size
        spread = (a.p * relative).sum(-1) * a.sums[1] + a.sums[1] * (growth(seen.shape[-1]) * unit + worst.squeeze(-1))
        sums_error = torch.stack([worst.squeeze(-1) + unit * finite(a.sums[0]), spread.nan_to_num(nan=0.0)])
        return [(torch.matmul(kept, a.v), normalized_bound(out_error)), (a.sums, normalized_bound(sums_error))]
    ds = a.score_gradient() * a.slope * attrs.scale
    products = torch.matmul(finite(a.grad), finite(a.v).mT) * a.keep
    grown = growth(a.grad.shape[-1]) * unit + 2 * low
    ds_error = finite(ds) * (relative + low) + a.p * abs(attrs.scale) * (
        products * grown + 4 * unit * finite(a.delta).unsqueeze(-1)
    )
    ds_error = ds_error + tiny

    def summed(error: Tensor, left: Tensor, right: Tensor) -> Tensor:
        own = torch.matmul(finite(left), finite(right)) * (growth(left.shape[-1]) * unit + low)
        return torch.matmul(error.nan_to_num(nan=0.0), finite(right)) + own

    results = []
    if attrs.kind != ir.AttentionKind.kKeyValue:
        results.append((torch.matmul(ds, a.k), normalized_bound(summed(ds_error, ds, a.k))))
    if attrs.kind == ir.AttentionKind.kQuery:
        return results
    kept_error = kept * (2 * relative + low) + tiny
    return [
        *results,
        (a.grouped(torch.matmul(ds.mT, a.q)), normalized_bound(a.grouped(summed(ds_error.mT, ds.mT, a.q)))),
        (a.grouped(torch.matmul(kept.mT, a.grad)), normalized_bound(a.grouped(summed(kept_error.mT, kept.mT, a.grad)))),
    ]


def fft(attrs: Any, operands: Sequence[Bounded], unit: float) -> Bounded:
    """Returns the result of an Fft node and its bound. Each step adds the rounding errors of its radix to all numbers of a line."""
    parts = [v.double() for v, _ in operands]
    x = torch.complex(parts[0], parts[1] if len(parts) == 2 else torch.zeros_like(parts[0]))
    size = torch.stack([finite(part) for part in parts]).sum(0)
    growing = 4 * (math.log2(x.shape[1]) + 4) * unit
    total = size.sum(1, keepdim=True) * growing
    if attrs.form == ir.FftForm.kToReal:  # Half of the numbers are not given.
        total = total * 2
    for _, error in operands:
        if error is not None:
            total = total + error.expand(size.shape).sum(1, keepdim=True)
    result, (outer, _, p, q) = interpreter_fft(attrs, x), size.shape
    bound = (total * abs(attrs.scale))[..., None].expand(outer, result.shape[1] // (2 * p * q), p, q, 2)
    return result, normalized_bound(bound.flatten(1))


def merged_statistics(slices: Tensor, whole: Tensor, error: Error) -> dict[str, tuple[Tensor, Tensor, Error]]:
    """Merges the slices [3, n, k] of mean, m2 and count that a convolution stores, for each channel. Returns name ->
    (merged, expected, bound), where the expected statistics come from the convolution's result `whole` [b, k, h, w].
    """
    mean, spread, n = merged("welford", list(slices.transpose(1, 2)))
    channels = whole.double().transpose(0, 1).flatten(1)
    bounds = None if error is None else error.expand(whole.shape).transpose(0, 1).flatten(1)
    unit = 2.0**-24
    (expected, mean_error), (expected_spread, spread_error) = reduce("welford", "whole", [(channels, bounds)], unit)
    extra = growth(slices.shape[1]) * unit
    return {
        "the mean": (mean, expected, normalized_bound(added(mean_error, extra * finite(channels).mean(-1)))),
        "m2": (spread, expected_spread, normalized_bound(added(spread_error, extra * expected_spread))),
        "the count": (n, torch.full_like(n, float(channels.shape[1])), None),
    }
