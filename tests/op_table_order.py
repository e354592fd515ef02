# tests/op_table_order.py: rows of the op table for scans, sorts, searches, scatters and embeddings.
# ruff: noqa: E501  (a table: a row is a line)
"""Positions among equal elements are compared only where PyTorch promises them (stable sorts, cummax, scatters without
duplicates). Elsewhere the rows compare values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.op_row import FLOAT, NUMBERS, Op, Sample, fixed, labels, make

HALVES = (torch.float32, torch.float16, torch.bfloat16)
SORTABLE = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)


def distinct(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns a tensor whose elements are all distinct."""
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
    return ((order - count // 2).view(shape) / (16 if dtype.is_floating_point else 1)).to(dtype)


def tied(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns a tensor with many equal elements, NaN and both zeros among them."""
    x = make(*shape, dtype=dtype)
    if dtype is torch.bool:
        return x
    if not dtype.is_floating_point:
        return x % 5
    x = (x * 2).round()
    x[make(*shape) > 1.7] = float("nan")
    return torch.where(make(*shape) < -1.5, -0.0, x.float()).to(dtype)


def _rows(make_one: Callable[..., torch.Tensor]) -> Callable[[torch.dtype], list[Sample]]:
    """Returns samples of one tensor: short rows, three dimensions, one element, long rows with stride 2."""

    def samples(dtype: torch.dtype) -> list[Sample]:
        return [(make_one(*s, dtype=dtype),) for s in ((3, 7), (2, 5, 4), (1,))] + [
            (make_one(700, 2, dtype=dtype).t(),)
        ]

    return samples


def _scans() -> list[Op]:
    def long(scale: float, offset: float) -> Callable[[torch.dtype], list[Sample]]:
        return fixed(lambda: (make(2, 3000) * scale + offset,), lambda: (make(1500, 3) * scale + offset,))

    def both(name: str) -> Callable[..., Any]:
        f = getattr(torch, name)
        return lambda a: (f(a, -1), f(a, 0))

    return [
        Op("cumsum", both("cumsum"), _rows(make), (*HALVES, torch.int64)),
        Op("cumsum_dtype", lambda a: (a.cumsum(0, dtype=torch.float32), (a > 0).cumsum(-1)), _rows(make), (torch.int64, torch.float16), False),
        Op("cumsum_long", both("cumsum"), long(1, 0)),
        Op("cumprod", both("cumprod"), _rows(make), (torch.float32, torch.int64), rtol=1e-4, atol=1e-5),
        Op("cumprod_long", both("cumprod"), long(0.02, 1), gradient=False, rtol=1e-4, atol=1e-5),
        Op("cummax", both("cummax"), _rows(tied), (*HALVES, torch.int64, torch.bool), False),
        Op("cummin", both("cummin"), _rows(tied), (*HALVES, torch.int64, torch.bool), False),
        Op("cummax_gradient", lambda a: a.cummax(-1)[0] + a.cummin(0)[0], _rows(distinct)),
        Op("cummax_columns", lambda a: (*a.cummax(0), *a.cummin(0)), lambda d: [(tied(4, 28, dtype=d),)], (torch.uint8, torch.int16, torch.int64, torch.float64), False),
        Op("cummax_long", both("cummax"), fixed(lambda: (tied(2, 3000),))),
        Op("logcumsumexp", both("logcumsumexp"), _rows(make)),
        Op("logcumsumexp_infinite", lambda a: a.logcumsumexp(0), fixed(lambda: (torch.tensor([-torch.inf, -torch.inf, 1.0, torch.inf, 2.0]),)), gradient=False),
        Op("logcumsumexp_long", both("logcumsumexp"), long(3, 0), rtol=2e-5, atol=2e-4),
        Op("scan_empty", lambda a: (a.cumsum(0), a.cumsum(1), a.cummax(1)[0]), fixed(lambda: (make(0, 3),))),
        Op("scan_scalar", lambda a: (a.cumsum(0), *a.cummin(0), a.logcumsumexp(0)), fixed(lambda: (make(),))),
    ]  # fmt: skip


def _sorts() -> list[Op]:
    def stable(a: Any) -> Any:
        return (*a.sort(stable=True), *a.sort(stable=True, dim=0, descending=True))

    def values(a: Any) -> Any:
        return a.sort(-1)[0], a.sort(0, descending=True)[0], a.msort(), a.gather(-1, a.argsort(-1))

    def best(a: Any) -> Any:
        return (*a.topk(1), a.topk(min(5, a.shape[-1]))[0], *a.topk(a.shape[0], 0, largest=False))

    def middle(a: Any) -> Any:
        return (*a.median(-1), *a.nanmedian(0), a.median(), a.nanmedian(), *a.kthvalue(1, 0), a.kthvalue(1, 0, True)[0])

    def middles_of_ties(a: Any) -> Any:
        return a.median(-1)[0], a.nanmedian(0)[0], a.median(), a.nanmedian(), a.nanmedian(-1, True)[0]

    def mode(a: Any) -> Any:
        return a.mode(-1)[0], a.mode(0, True)[0], a.gather(-1, a.mode(-1, True)[1])

    return [
        Op("sort_stable", stable, _rows(tied), SORTABLE, False),
        Op("sort", values, _rows(distinct), (torch.float32, torch.int64), programs="distinct"),
        Op("sort_two_levels", stable, fixed(lambda: (tied(5000, 2).t(),)), gradient=False),
        Op("sort_two_levels_int", stable, lambda d: [(tied(2, 5000, dtype=d) - 2**40,)], (torch.int64,), False),
        Op("topk", best, _rows(distinct), (torch.float32, torch.int64), programs="distinct"),
        Op("topk_long", lambda a: (*a.topk(7), *a.topk(100), *a.topk(3, largest=False)), fixed(lambda: (distinct(2, 4000),)), programs="distinct"),
        Op("topk_nan", lambda a: (a.topk(9)[0], a.topk(9, largest=False)[0]), fixed(lambda: (tied(3, 50),)), gradient=False),
        Op("median", middle, _rows(distinct), (torch.float32, torch.int64), programs="distinct"),
        Op("median_ties", middles_of_ties, _rows(tied), (torch.float32, torch.float16), False),
        Op("mode", mode, _rows(lambda *s, dtype: make(*s, dtype=dtype).round()), NUMBERS, False),
        Op("mode_long", mode, fixed(lambda: (make(2, 3000).mul(9).round(),)), gradient=False),
        Op("sort_scalar", lambda a: (*a.sort(), *a.topk(1), *a.median(0), *a.kthvalue(1)), fixed(lambda: (make(),)), programs="distinct"),
        Op("sort_empty", lambda a: (*a.sort(0), *a.sort(1), *a.topk(0)), fixed(lambda: (make(3, 0),)), gradient=False, programs="distinct"),
        Op("searchsorted", lambda e, x: (torch.searchsorted(e, x), torch.searchsorted(e, x, right=True, out_int32=True)),
           lambda d: [(tied(3, 40).nan_to_num(0).to(d).sort(-1)[0], tied(3, 9).nan_to_num(0).to(d)), (tied(1000).nan_to_num(0).to(d).sort()[0], tied(2, 5).nan_to_num(0).to(d))], NUMBERS, False, programs="none"),
        Op("searchsorted_sorter", lambda e, x: torch.searchsorted(e, x, sorter=e.argsort(-1)), fixed(lambda: (distinct(3, 40), make(3, 9))), gradient=False, programs="none"),
        Op("bucketize", lambda x, e: (torch.bucketize(x, e), torch.bucketize(x, e, right=True)), fixed(lambda: (special_values(), torch.tensor([-1.0, 0, 0, 1, 2]))), gradient=False, programs="none"),
        Op("histc", lambda a: (a.histc(10, -2, 2), a.histc(7)), fixed(lambda: (make(50, 30),), lambda: (make(9),)), gradient=False),
    ]  # fmt: skip


def special_values() -> torch.Tensor:
    return torch.tensor([[0.0, -0.0, 1.0, -1.0], [float("inf"), -float("inf"), float("nan"), 0.5]])


MODES = ("sum", "prod", "mean", "amax", "amin")


def _many(dtype: torch.dtype) -> list[Sample]:
    return [(make(300, 4, dtype=dtype), labels(2500, 4, classes=300), make(2500, 4, dtype=dtype))]


def _places(a: Any, *rows: Any) -> Any:
    return torch.tensor(rows, device=a.device)


def _scatter_reductions() -> list[Op]:
    def few(dtype: torch.dtype) -> list[Sample]:
        return [(make(6, 8, dtype=dtype), labels(4, 5, classes=6), make(4, 5, dtype=dtype))]

    def reduce(mode: str, itself: bool) -> Callable[..., Any]:
        return lambda a, i, s: a.scatter_reduce(0, i, s, mode, include_self=itself)

    def index_reduce(mode: str, itself: bool) -> Callable[..., Any]:
        return lambda a, i, s: a.index_reduce(0, i[:, 0], s[:, :3], mode, include_self=itself)

    rows = [
        Op(f"scatter_{m}{'' if itself else '_alone'}", reduce(m, itself), few, (torch.float32, torch.float16, torch.int64) if m != "prod" else NUMBERS, False)
        for m in MODES for itself in (True, False)
    ]  # fmt: skip
    rows += [
        Op(
            f"scatter_{m}_many",
            reduce(m, False),
            _many,
            NUMBERS if m in ("sum", "amax") else FLOAT,
            False,
            rtol=1e-4,
            atol=1e-5,
        )
        for m in MODES
        if m != "prod"
    ]
    rows += [
        Op(f"index_reduce_{m}", index_reduce(m, itself), lambda d: [(make(6, 3, dtype=d), labels(4, 5, classes=6), make(4, 5, dtype=d))], NUMBERS, False)
        for m in MODES[1:] for itself in (True, False)
    ]  # fmt: skip

    def scalars(dtype: torch.dtype) -> list[Sample]:
        empty = (make(6, 3, dtype=dtype), labels(0, classes=6), make(0, 3, dtype=dtype))
        return [(make(dtype=dtype), torch.tensor(0), make(dtype=dtype)), empty]

    rows += [
        Op(f"index_reduce_{m}_few", lambda a, i, s, m=m: a.index_reduce(0, i, s, m), scalars, FLOAT, False)
        for m in MODES[1:]
    ]
    renorm = lambda w, i: torch.nn.functional.embedding(i, w.clone(), max_norm=0.9, norm_type=1.5)  # noqa: E731
    rows.append(
        Op(
            "embedding_renorm",
            renorm,
            fixed(lambda: (make(7, 4), labels(5, classes=7))),
            FLOAT,
            False,
            rtol=1e-6,
            atol=1e-7,
        )
    )
    return rows


def _places_by_number() -> list[Op]:
    """Returns rows whose functions make the index tensors themselves, from numbers, on the device of the operand."""
    two = lambda: (make(6, 8), make(2, 3))  # noqa: E731
    calls: dict[str, Callable[..., Any]] = {
        "scatter": lambda a, s: a.scatter(1, _places(a, [3, 1, 0], [2, 7, 5]), s),
        "scatter_value": lambda a, s: a.scatter(0, _places(a, [3, 1, 3], [2, 5, 5]), 2.5),
        "scatter_add_wide": lambda a, s: a.scatter_add(1, _places(a, [3, 3, 0], [2, 7, 2]), s),
        "index_put": lambda a, s: a.index_put((_places(a, 3, 1), _places(a, 4, -1)), s[0, :2]),
        "index_put_rows": lambda a, s: a.index_put((_places(a, 3, -1),), s.repeat(1, 3)[:, :8]),
        "index_put_columns": lambda a, s: torch.ops.aten.index_put(a, [None, _places(a, 0, 7, 2)], s[0]),
        "index_put_one": lambda a, s: a.index_put((_places(a, 3),), s[0, :1]),
        "index_put_accumulate": lambda a, s: a.index_put((_places(a, 3, 1, 3),), s[0].view(3, 1), accumulate=True),
        "index_put_mask": lambda a, s: a.index_put((a > 0,), s[0, 0]),
        "index_add": lambda a, s: a.index_add(1, _places(a, 3, 0, 3), s.repeat(3, 1), alpha=2),
        "index_copy": lambda a, s: a.index_copy(1, _places(a, 3, 0, 7), s.repeat(3, 1)),
        "index_copy_one": lambda a, s: a.index_copy(0, _places(a, 2), s.repeat(1, 3)[:1, :8]),
        "index_fill": lambda a, s: a.index_fill(1, _places(a, 3, 0), 1.5),
        "put": lambda a, s: (a.put(_places(a, 3, 40), s[0, :2]), a.put(_places(a, 3, 3), s[1, :2], accumulate=True)),
        "take": lambda a, s: a.take(_places(a, 3, -1, 3)) + s,
        "take_along_dim": lambda a, s: a.take_along_dim(a.argsort(1), 1),
        "masked_fill_tensor": lambda a, s: a.masked_fill(a > 0, s[0, 0]),
        "as_strided_scatter": lambda a, s: torch.as_strided_scatter(a, s, (2, 3), (8, 2), 1),
        "gather_gradient": lambda a, s: a.gather(1, _places(a, [3, 3, 0, 1], [2, 2, 2, 2])) * 2,
        "index_gradient": lambda a, s: a[_places(a, 3, 3, -1)] * 2 + a[:, _places(a, 1, 1, 1)].sum(),
        "index_select_gradient": lambda a, s: a.index_select(1, _places(a, 3, 3, 0)) * 2,
    }
    return [Op(n, f, fixed(two)) for n, f in calls.items()]


def _scatters_of_many() -> list[Op]:
    return [
        Op("unsafe_masked_index", lambda a, m, i: torch.ops.aten._unsafe_masked_index(a, m, [i], 0.5), fixed(lambda: (make(6, 8), make(5, 1) > 0, labels(5, classes=6)))),
        Op("scatter_add_many", lambda a, i, s: a.scatter_add(0, i, s), _many, rtol=1e-4, atol=1e-5),
        Op("scatter_add_line", lambda a, i, s: a.scatter_add(1, i, s), fixed(lambda: (make(3, 700), labels(3, 900, classes=700), make(3, 900))), rtol=1e-4, atol=1e-5),
        Op("scatter_add_few_places", lambda a, i, s: a.scatter_add(1, i, s), fixed(lambda: (make(3, 17), labels(3, 20000, classes=17), make(3, 20000))), rtol=1e-4, atol=2e-4),
        Op("scatter_expanded", lambda a, i, s: a.scatter(1, i.argsort(1)[:, :, None].expand_as(s), s), fixed(lambda: (make(3, 40, 5), distinct(2, 30), make(2, 30, 4))), programs="distinct"),
        Op("scatter_add_expanded", lambda a, i, s: a.scatter_add(1, i[:, :, None].expand_as(s), s), fixed(lambda: (make(3, 40, 5), labels(3, 700, classes=40), make(3, 700, 4)), lambda: (make(2, 7, 65), labels(1, 2000, classes=7), make(1, 2000, 64))), rtol=1e-4, atol=5e-5),
        *(Op(f"scatter_{m}_expanded", lambda a, i, s, m=m: a.scatter_reduce(0, i[:, None].expand_as(s), s, m, include_self=False), fixed(lambda: (make(300, 9), labels(2500, classes=300), make(2500, 8))), gradient=False, rtol=1e-4, atol=1e-5) for m in MODES if m != "prod"),
        Op("scatter_many_distinct", lambda a, s: a.scatter(0, s.argsort(0), s), fixed(lambda: (make(2000, 2), distinct(2000, 2))), programs="distinct"),
        Op("scatter_scalar", lambda a, s: (a.scatter(0, torch.zeros((), dtype=torch.int64, device=a.device), s), a.scatter_add(0, torch.zeros(1, dtype=torch.int64, device=a.device)[0], s)), fixed(lambda: (make(), make(1)[0]))),
        Op("masked_scatter", lambda a, s: a.masked_scatter(a > 0, s), fixed(lambda: (make(6, 8), make(50)), lambda: (make(40, 50), make(2000)))),
        Op("masked_scatter_broadcast", lambda a, s: a.masked_scatter(a[:, :1] > 0, s), fixed(lambda: (make(6, 8), make(50)))),
        Op("index_put_mask_values", lambda a, m, s: a.index_put((m,), s), fixed(lambda: (make(6, 8), make(6, 8) > 0, make(int((make(6, 8) > 0).sum())))), gradient=False),
    ]  # fmt: skip


def _embeddings() -> list[Op]:
    def bag(mode: str, **settings: Any) -> Callable[..., Any]:
        return lambda i, w, o: F.embedding_bag(i, w, o, mode=mode, **settings)

    def samples(dtype: torch.dtype) -> list[Sample]:
        return [
            (labels(12), make(10, 6, dtype=dtype), torch.tensor([0, 3, 3, 9])),
            (labels(2000, classes=90), make(90, 6, dtype=dtype), torch.arange(0, 2000, 7)),
        ]

    rows = [
        Op(f"embedding_bag_{m}", bag(m), samples, rtol=1e-4, atol=1e-5, programs="none") for m in ("sum", "mean", "max")
    ]
    rows += [
        Op(f"embedding_bag_{m}_padded", bag(m, padding_idx=3), samples, rtol=1e-4, atol=1e-5, programs="none")
        for m in ("sum", "mean", "max")
    ]
    return [
        *rows,
        Op("embedding_bag_2d", lambda i, w: F.embedding_bag(i, w, mode="mean"), fixed(lambda: (labels(3, 4), make(10, 6)))),
        Op("embedding_bag_last", bag("sum", include_last_offset=True), fixed(lambda: (labels(12), make(10, 6), torch.tensor([0, 3, 3, 12]))), programs="none"),
        Op("embedding_bag_weighted", lambda i, w, o, p: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p),
           fixed(lambda: (labels(12), make(10, 6), torch.tensor([0, 3, 3, 9]), make(12))), programs="none"),
        Op("embedding_many", F.embedding, lambda d: [(labels(1700, classes=400), make(400, 5, dtype=d))], rtol=1e-4, atol=1e-5),
        Op("embedding_padded", lambda i, w: F.embedding(i, w, padding_idx=3, scale_grad_by_freq=True), fixed(lambda: (labels(3, 40), make(10, 6)))),
    ]  # fmt: skip


def _segments_and_bins() -> list[Op]:
    def every(x: torch.Tensor, **settings: Any) -> Any:
        reductions = ("sum", "mean", "prod", "max", "min")
        return [torch.segment_reduce(x, r, initial=i, **settings) for r in reductions for i in (None, 0.5)]

    def samples(dtype: torch.dtype) -> list[Sample]:
        tied = torch.tensor([1.0, 1.0, 0.0, 2.0, 0.0, -1.0, 3.0], dtype=dtype)
        return [(tied, torch.tensor([2, 0, 4, 1])), (make(7, 2, dtype=dtype), torch.tensor([7], dtype=torch.int32))]

    def histogram(x: torch.Tensor, w: torch.Tensor) -> Any:
        edges = torch.tensor([-1.5, 0.0, 0.0, 1.5], device=x.device)
        return (
            torch.histogram(x, 7),
            torch.histogram(x, 3, range=(-1, 1), weight=w, density=True),
            torch.histogram(x, edges),
        )

    def histogramdd(x: torch.Tensor) -> Any:
        return torch.histogramdd(x, [3, 4]), torch.histogramdd(x, [2, 3], range=[-1, 1, 0, 0], density=True)

    offsets = torch.tensor([[0, 2, 2, 7], [0, 1, 6, 7]])
    return [
        Op("segment_reduce", lambda x, n: every(x, lengths=n), samples, (torch.float32, torch.bfloat16), programs="none"),
        Op("histogram", histogram, fixed(lambda: (make(9, 5), make(9, 5, low=0))), gradient=False, programs="none"),
        Op("histogramdd", histogramdd, fixed(lambda: (make(5, 9, 2),)), gradient=False, programs="none"),
        Op("segment_reduce_offsets", lambda x, n: every(x, offsets=n, axis=1), fixed(lambda: (make(2, 7, 3), offsets)), programs="none"),
    ]  # fmt: skip


ORDER_OPS: list[Op] = [
    *_scans(),
    *_sorts(),
    *_scatter_reductions(),
    *_places_by_number(),
    *_scatters_of_many(),
    *_embeddings(),
    *_segments_and_bins(),
]
