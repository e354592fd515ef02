# tests/op_table_nn.py: rows of the op table for torch.nn.functional: convolutions, pools, resampling, norms, losses, RNNs.
# ruff: noqa: E501, SIM905  (a table: a row is a line)
"""Every row runs forward and backward; rows with `half` run in fp16 and bf16 as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map_only

from tests.op_row import FLOAT, Op, Sample, labels, make

HALF = (torch.float32, torch.float16, torch.bfloat16)
LOOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


def typed(*samples: Callable[[], Sample]) -> Callable[[torch.dtype], list[Sample]]:
    """Returns the samples with their floating-point tensors converted to the row's dtype."""

    def converted(dtype: torch.dtype) -> list[Sample]:
        def one(x: torch.Tensor) -> torch.Tensor:
            return x.to(dtype) if x.is_floating_point() else x

        return [tree_map_only(torch.Tensor, one, s()) for s in samples]

    return converted


def on(f: Callable[..., Any], *args: Any, **settings: Any) -> Callable[..., Any]:
    """Returns a function of tensors that calls `f` with the tensors, then `args` and `settings`."""
    return lambda *tensors: f(*tensors, *args, **settings)


def row(name: str, call: Callable[..., Any], *samples: Callable[[], Sample], half: bool = False, **settings: Any) -> Op:
    return Op(
        name,
        call,
        typed(*samples),
        HALF if half else FLOAT,
        **{**LOOSE, **settings},
    )


def _convolutions() -> list[Op]:
    line, image, volume = (lambda: make(2, 4, 11)), (lambda: make(2, 4, 9, 7)), (lambda: make(2, 4, 5, 6, 7))
    w1, w2, w3 = (lambda: make(6, 4, 3)), (lambda: make(6, 4, 3, 3)), (lambda: make(6, 4, 3, 2, 3))
    t1, t2, t3 = (lambda: make(4, 6, 3)), (lambda: make(4, 6, 3, 3)), (lambda: make(4, 6, 2, 3, 3))

    def padded(cls: Any, mode: str) -> Callable[..., Any]:
        """Returns a convolution module's call with the given padding_mode and weights."""

        def call(x: Any, w: Any, b: Any) -> Any:
            conv = cls(w.shape[1], w.shape[0], w.shape[2:], padding=1, padding_mode=mode, device="meta")
            return torch.func.functional_call(conv, {"weight": w, "bias": b}, (x,))

        return call

    nn, b = torch.nn, lambda: make(6)
    rows = [
        row("conv1d_half", on(F.conv1d, stride=2, padding=1), lambda: (line(), w1(), b()), half=True),
        row("conv2d_half", on(F.conv2d, stride=2, padding=1), lambda: (image(), w2(), b()), half=True),
        row("conv3d_settings", on(F.conv3d, stride=(2, 1, 2), padding=(1, 0, 1)), lambda: (volume(), w3(), b()), half=True),
        row("conv3d_plain", F.conv3d, lambda: (volume(), w3(), b()), lambda: (volume()[0], w3(), b())),
        row("conv3d_dilated", on(F.conv3d, padding=2, dilation=(2, 1, 2)), lambda: (volume(), w3(), b())),
        row("conv3d_grouped", on(F.conv3d, padding=1, groups=2), lambda: (volume(), make(6, 2, 3, 3, 3), b())),
        row("conv3d_depthwise", on(F.conv3d, padding=1, groups=4), lambda: (volume(), make(4, 1, 3, 3, 3))),
        row("conv3d_1x1", F.conv3d, lambda: (volume(), make(6, 4, 1, 1, 1), b())),
        row("conv2d_unbatched", F.conv2d, lambda: (image()[0], w2(), b())),
        row("conv1d_grouped", on(F.conv1d, padding=2, dilation=2, groups=2), lambda: (line(), make(6, 2, 3))),
        row("conv_transpose1d_settings", on(F.conv_transpose1d, stride=2, padding=1, output_padding=1, dilation=2), lambda: (line(), t1(), b()), half=True),
        row("conv_transpose2d_half", on(F.conv_transpose2d, stride=2, padding=1, output_padding=1), lambda: (image(), t2(), b()), half=True),
        row("conv_transpose2d_grouped", on(F.conv_transpose2d, None, 2, 1, 1, 2), lambda: (image(), make(4, 3, 3, 3))),
        row("conv_transpose3d", on(F.conv_transpose3d, stride=2, padding=1, output_padding=1), lambda: (volume(), t3(), b()), half=True),
        row("conv_transpose3d_plain", F.conv_transpose3d, lambda: (volume(), t3(), b())),
        row("conv_transpose3d_grouped", on(F.conv_transpose3d, None, 1, 1, 0, 2, 2), lambda: (volume(), make(4, 3, 3, 3, 3))),
        row("conv_strided_input", F.conv2d, lambda: (make(2, 9, 7, 4).permute(0, 3, 1, 2), w2(), b())),
        row("conv_double", F.conv2d, lambda: (image().double(), w2().double(), b().double())),
        Op("conv2d_f64", on(F.conv2d, padding=1), typed(lambda: (image(), w2(), b())), (torch.float64,)),
        Op("conv2d_int", on(F.conv2d, padding=1), lambda d: [(make(2, 4, 9, 7, dtype=d), make(6, 4, 3, 3, dtype=d))], (torch.int64,), False),
    ]  # fmt: skip
    rows += [
        row(f"conv{d}d_{p}", on(f, padding=p), lambda x=x, w=w: (x(), w(), b()))
        for d, f, x, w in ((1, F.conv1d, line, w1), (2, F.conv2d, image, w2), (3, F.conv3d, volume, w3))
        for p in ("same", "valid")
    ]
    shapes = {1: (nn.Conv1d, line, w1), 2: (nn.Conv2d, image, w2), 3: (nn.Conv3d, volume, w3)}
    return rows + [
        row(f"conv{d}d_padding_{mode}", padded(cls, mode), lambda x=x, w=w: (x(), w(), b()))
        for d, (cls, x, w) in shapes.items()
        for mode in ("zeros", "reflect", "replicate", "circular")
    ]


def _pools() -> list[Op]:
    line, image, volume = (lambda: (make(2, 3, 11),)), (lambda: (make(2, 3, 9, 8),)), (lambda: (make(2, 3, 6, 7, 5),))
    settings: dict[str, dict[str, Any]] = {
        "plain": {"kernel_size": 2},
        "overlap": {"kernel_size": 3, "stride": 2, "padding": 1},
        "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    }
    rows: list[Op] = []
    for d, sample in ((1, line), (2, image), (3, volume)):
        largest, mean = getattr(F, f"max_pool{d}d"), getattr(F, f"avg_pool{d}d")
        adaptive_mean, adaptive_max = getattr(F, f"adaptive_avg_pool{d}d"), getattr(F, f"adaptive_max_pool{d}d")
        for name, s in settings.items():
            rows.append(row(f"max_pool{d}d_{name}_nd", on(largest, **s), sample, half=name == "overlap"))
            rows.append(row(f"avg_pool{d}d_{name}_nd", on(mean, **s), sample, half=name == "overlap"))
        rows += [
            row(f"max_pool{d}d_dilated_nd", on(largest, kernel_size=2, stride=1, dilation=2), sample),
            row(f"max_pool{d}d_indices_nd", on(largest, kernel_size=3, stride=2, padding=1, return_indices=True), sample),
            row(f"avg_pool{d}d_exclude_nd", on(mean, kernel_size=3, stride=2, padding=1, count_include_pad=False), sample),
            row(f"avg_pool{d}d_ceil_padded", on(mean, kernel_size=3, stride=2, padding=1, ceil_mode=True), sample),
            row(f"adaptive_avg_pool{d}d_uneven_nd", on(adaptive_mean, output_size=(4, 3, 2)[:d]), sample, half=True),
            row(f"adaptive_avg_pool{d}d_up_nd", on(adaptive_mean, output_size=(12, 9, 7)[:d]), sample),
            row(f"adaptive_avg_pool{d}d_one_nd", on(adaptive_mean, output_size=1), sample),
            row(f"adaptive_max_pool{d}d_uneven", on(adaptive_max, output_size=(4, 3, 2)[:d]), sample, half=True),
            row(f"adaptive_max_pool{d}d_indices", on(adaptive_max, output_size=(2, 3, 4)[:d], return_indices=True), sample),
            row(f"lp_pool{d}d", on(getattr(F, f"lp_pool{d}d"), 2.0, kernel_size=2), sample),
            row(f"max_pool{d}d_unbatched", on(largest, kernel_size=2), lambda sample=sample: (sample()[0][0],)),
            row(f"avg_pool{d}d_unbatched", on(mean, kernel_size=2), lambda sample=sample: (sample()[0][0],)),
            row(f"adaptive_max_pool{d}d_unbatched", on(adaptive_max, output_size=2), lambda sample=sample: (sample()[0][0],)),
            row(f"max_unpool{d}d", _unpooled(largest, getattr(F, f"max_unpool{d}d")), sample),
        ]  # fmt: skip

    def fractional(d: int, **given: Any) -> Callable[..., Any]:
        pool = getattr(F, f"fractional_max_pool{d}d")
        return lambda x, places: pool(x, 2, return_indices=True, _random_samples=places, **given)

    def random(d: int) -> torch.Tensor:
        return make(2, 3, d, low=0, high=1)

    return [
        *rows,
        row(
            "fractional_max_pool2d",
            fractional(2, output_size=(4, 5)),
            lambda: (*image(), random(2)),
            lambda: (torch.full((2, 3, 9, 8), float("nan")), random(2)),
            constants=(1,),
            programs="none",
        ),
        row(
            "fractional_max_pool3d",
            fractional(3, output_ratio=(0.5, 0.5, 0.3)),
            lambda: (volume()[0][0], random(3)[:1]),
            constants=(1,),
            programs="none",
        ),
        row("avg_pool3d_divisor", on(F.avg_pool3d, kernel_size=2, divisor_override=3), volume),
        row("max_pool_large_window", on(F.max_pool2d, kernel_size=(9, 8)), image, lambda: (make(1, 2, 13, 14),)),
        row("max_pool_window_of_144", on(F.max_pool2d, kernel_size=12, stride=3), lambda: (make(1, 2, 17, 15),)),
        row("max_pool_nan", on(F.max_pool2d, kernel_size=2), lambda: (_with_nan(),)),
        Op(
            "max_pool_int",
            on(F.max_pool2d, kernel_size=2),
            lambda d: [(make(2, 3, 6, 6, dtype=d),)],
            (torch.int64,),
            False,
        ),
    ]


def _with_nan() -> torch.Tensor:
    x = make(1, 2, 6, 6)
    x[0, 0, 1, 1] = float("nan")
    x[0, 1] = -float("inf")
    return x


def _unpooled(pool: Callable[..., Any], unpool: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any) -> Any:
        y, indices = pool(x, 2, 2, return_indices=True)
        return unpool(y * 2, indices, 2, 2, output_size=x.shape[2:])

    return call


def _resampling() -> list[Op]:
    line, image, volume = (lambda: (make(2, 3, 7),)), (lambda: (make(2, 3, 6, 5),)), (lambda: (make(1, 2, 4, 5, 3),))
    by_rank = {1: (line, ["nearest", "nearest-exact", "linear"]),
               2: (image, ["nearest", "nearest-exact", "bilinear", "bicubic"]),
               3: (volume, ["nearest", "nearest-exact", "trilinear"])}  # fmt: skip
    rows: list[Op] = []
    for d, (sample, modes) in by_rank.items():
        for mode in modes:
            name, f = f"interpolate{d}d_{mode.replace('-', '_')}", F.interpolate
            rows.append(row(f"{name}_size", on(f, size=(9, 3, 7)[:d], mode=mode), sample, half=True))
            rows.append(row(f"{name}_scale", on(f, scale_factor=1.7, mode=mode), sample))
            rows.append(row(f"{name}_down", on(f, scale_factor=0.6, mode=mode, recompute_scale_factor=True), sample))
            if not mode.startswith("nearest"):
                rows.append(row(f"{name}_corners", on(f, size=(9, 3, 7)[:d], mode=mode, align_corners=True), sample))
    for mode in ("bilinear", "bicubic"):
        rows.append(
            row(f"interpolate_{mode}_antialias", on(F.interpolate, size=(3, 4), mode=mode, antialias=True), image)
        )
    grids = {2: ((lambda: (make(2, 3, 6, 5), make(2, 4, 7, 2, low=-1.3, high=1.3))), ["bilinear", "nearest", "bicubic"]),
             3: ((lambda: (make(2, 3, 4, 5, 6), make(2, 3, 4, 2, 3, low=-1.3, high=1.3))), ["bilinear", "nearest"])}  # fmt: skip
    for d, (sample, modes) in grids.items():
        for mode in modes:
            for padding in ("zeros", "border", "reflection"):
                for corners in (False, True):
                    name = f"grid_sample{d}d_{mode}_{padding}" + ("_corners" if corners else "")
                    call = on(F.grid_sample, mode=mode, padding_mode=padding, align_corners=corners)
                    rows.append(row(name, call, sample, rtol=1e-4, atol=3e-5))
    rows += [
        row("affine_grid", on(F.affine_grid, (2, 3, 4, 5), align_corners=False), lambda: (make(2, 2, 3),)),
        row("affine_grid3d", on(F.affine_grid, (2, 3, 4, 5, 3), align_corners=True), lambda: (make(2, 3, 4),)),
        row("pixel_shuffle", on(F.pixel_shuffle, 2), lambda: (make(2, 8, 3, 4),)),
        row("pixel_unshuffle", on(F.pixel_unshuffle, 2), lambda: (make(2, 3, 4, 6),)),
        row("channel_shuffle", on(F.channel_shuffle, 3), lambda: (make(2, 6, 3, 4),)),
        row("unfold_im2col", on(F.unfold, (3, 2), (2, 1), (1, 0), (1, 2)), lambda: (make(2, 3, 8, 7),), half=True),
        row("fold_col2im", on(F.fold, (8, 7), (3, 2), (2, 1), (1, 0), (1, 2)), lambda: (make(2, 12, 18),), half=True),
        row("unfold_unbatched", on(F.unfold, 2), lambda: (make(3, 4, 5),)),
        row("fold_unbatched", on(F.fold, (4, 5), 2), lambda: (make(12, 12),)),
        row("zero_pad_all", on(F.pad, (1, 2, 0, 3, 2, 0)), lambda: (make(2, 3, 4, 5),), half=True),
        Op("pad_int", on(F.pad, (1, 2), value=7), lambda d: [(make(3, 4, dtype=d),)], (torch.int64, torch.bool), False),
    ]
    for mode in ("reflect", "replicate", "circular"):
        rows += [
            row(f"pad1d_{mode}", on(F.pad, (3, 2), mode=mode), lambda: (make(2, 3, 5),), half=True),
            row(f"pad2d_{mode}", on(F.pad, (3, 1, 0, 2), mode=mode), lambda: (make(2, 3, 4, 5),)),
            row(f"pad3d_{mode}", on(F.pad, (2, 1, 0, 2, 1, 1), mode=mode), lambda: (make(2, 3, 3, 4, 5),)),
            row(f"pad2d_{mode}_unbatched", on(F.pad, (1, 1, 2, 0), mode=mode), lambda: (make(3, 4, 5),)),
        ]
    return rows


def _norms() -> list[Op]:
    image = lambda: make(3, 4, 5, 6)  # noqa: E731
    wide = lambda: (make(4), make(4, low=0.5), make(4), make(4) * 0.5)  # noqa: E731

    def running(x: Any, m: Any, v: Any, w: Any, b: Any, momentum: float = 0.3, norm: Any = F.batch_norm) -> Any:
        m, v = m.clone(), v.clone()
        y = norm(x, m, v, w, b, True, momentum, 1e-3)
        return y, m, v

    def module(make_module: Callable[[], torch.nn.Module], training: bool = True) -> Callable[..., Any]:
        """Returns a function that calls a new module twice, and returns the sum of outputs and the module's buffers."""

        def call(x: Any) -> Any:
            m = make_module().to(x.device, x.dtype).train(training)
            y = m(x) + m(x * 2)
            return y, [b.clone() for b in m.buffers() if b.is_floating_point()]

        return call

    nn = torch.nn
    return [
        row("batch_norm_half", running, lambda: (image(), *wide()), constants=(1, 2), half=True),
        row("batch_norm_1d", running, lambda: (make(6, 4), *wide()), lambda: (make(3, 4, 7), *wide()), constants=(1, 2)),
        row("batch_norm_3d", running, lambda: (make(2, 4, 3, 4, 2), *wide()), constants=(1, 2)),
        row("batch_norm_strided", lambda x: F.batch_norm(x, None, None, training=True).permute(0, 2, 3, 1) * 2,
            lambda: (make(3, 5, 6, 4).permute(0, 3, 1, 2),), half=True),
        row("batch_norm_no_stats_affine", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda: (image(), make(4), make(4)), half=True),
        row("batch_norm_eval_half", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), lambda: (image(), *wide()), constants=(1, 2), half=True),
        row("batch_norm_expanded_gradient", lambda x, w: F.batch_norm(x, None, None, w, None, True).sum((2, 3)), lambda: (image(), make(4))),
        row("instance_norm_running", on(running, norm=lambda x, m, v, w, b, t, mo, e: F.instance_norm(x, m, v, w, b, True, mo, e)),
            lambda: (image(), *wide()), constants=(1, 2)),
        row("instance_norm_affine", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), lambda: (image(), make(4), make(4)), half=True),
        row("instance_norm_eval", lambda x, m, v, w, b: F.instance_norm(x, m, v, w, b, False), lambda: (image(), *wide()), constants=(1, 2)),
        row("instance_norm1d", F.instance_norm, lambda: (make(3, 4, 9),)),
        row("instance_norm3d", F.instance_norm, lambda: (make(2, 4, 3, 4, 5),)),
        row("layer_norm_half", lambda x, w, b: F.layer_norm(x, (5, 6), w, b), lambda: (image(), make(5, 6), make(5, 6)), half=True),
        row("layer_norm_plain", on(F.layer_norm, (6,)), lambda: (image(),)),
        row("layer_norm_no_bias", lambda x, w: F.layer_norm(x, (6,), w), lambda: (image(), make(6))),
        row("group_norm_half", lambda x, w, b: F.group_norm(x, 2, w, b), lambda: (image(), make(4), make(4)), half=True),
        row("group_norm_plain", on(F.group_norm, 2), lambda: (image(),), lambda: (make(3, 4),), lambda: (make(3, 4, 7),)),
        row("rms_norm_half", lambda x, w: F.rms_norm(x, (6,), w), lambda: (image(), make(6)), half=True),
        row("rms_norm_plain", on(F.rms_norm, (5, 6)), lambda: (image(),)),
        row("local_response_norm", on(F.local_response_norm, 3), lambda: (image(),), lambda: (make(2, 5, 7),), half=True),
        row("normalize", F.normalize, lambda: (image(),), half=True),
        row("normalize_p1", on(F.normalize, p=1.0, dim=2), lambda: (image(),)),
        row("cosine_similarity", on(F.cosine_similarity), lambda: (make(5, 7), make(5, 7).flip(0)), half=True),
        row("pairwise_distance", on(F.pairwise_distance, p=2.0), lambda: (make(5, 7), make(5, 7).flip(0))),
        row("pairwise_distance_p1", on(F.pairwise_distance, p=1.0), lambda: (make(5, 7), make(5, 7).flip(0))),
        row("cdist", torch.cdist, lambda: (make(5, 7), make(4, 7).flip(0))),
        row("pdist", F.pdist, lambda: (make(5, 7),)),
        row("batch_norm_module", module(lambda: nn.BatchNorm2d(4)), lambda: (image(),)),
        row("batch_norm_momentum_none", module(lambda: nn.BatchNorm2d(4, momentum=None)), lambda: (image(),)),
        row("batch_norm_module_eval", module(lambda: nn.BatchNorm2d(4), False), lambda: (image(),)),
        row("batch_norm_no_tracking", module(lambda: nn.BatchNorm2d(4, track_running_stats=False), False), lambda: (image(),)),
        row("weight_norm", lambda x, g, v: F.linear(x, torch._weight_norm(v, g, 0)), lambda: (make(5, 7), make(3, 1), make(3, 7))),
        row("weight_norm_dim1", lambda g, v: torch._weight_norm(v, g, 1), lambda: (make(1, 7, 1), make(3, 7, 2))),
    ]  # fmt: skip


def _losses() -> list[Op]:
    x, y, p = (lambda: make(5, 4)), (lambda: make(5, 4).flip(0)), (lambda: make(5, 4, low=0.05, high=0.95))
    sign = lambda: (labels(5, classes=2) * 2 - 1).float()  # noqa: E731
    classes = lambda: make(5, 10)  # noqa: E731
    image, plane = (lambda: make(2, 10, 3, 4)), (lambda: labels(2, 3, 4))
    weights = lambda: make(10, low=0.1)  # noqa: E731
    soft = lambda: make(5, 10).softmax(1)  # noqa: E731

    def on_lengths(logits: Any, targets: Any, *lengths: Any) -> Any:
        return [F.ctc_loss(logits.log_softmax(2), targets, *lengths, 5, "sum", z) for z in (False, True)]

    def ctc(logits: Any, targets: Any) -> Any:
        lengths = torch.full((3,), 12, dtype=torch.long), torch.tensor([3, 4, 2])
        return F.ctc_loss(logits.log_softmax(2), targets, *lengths)

    rows = [
        row("cross_entropy_rows", F.cross_entropy, lambda: (make(2008, 20), labels(2008, classes=20)), rtol=1e-5, atol=1e-6),
        row("cross_entropy_half", F.cross_entropy, lambda: (classes(), labels(5)), half=True),
        row("cross_entropy_soft", F.cross_entropy, lambda: (classes(), soft()), half=True),
        row("cross_entropy_soft_smooth", on(F.cross_entropy, label_smoothing=0.2), lambda: (classes(), soft())),
        row("cross_entropy_weighted", lambda a, t, w: F.cross_entropy(a, t, w, ignore_index=2, label_smoothing=0.1),
            lambda: (classes(), labels(5), weights()), constants=(2,)),
        row("cross_entropy_2d_weighted", lambda a, t, w: F.cross_entropy(a, t, w, ignore_index=2), lambda: (image(), plane(), weights()), constants=(2,)),
        row("cross_entropy_2d_smooth", on(F.cross_entropy, label_smoothing=0.1), lambda: (image(), plane())),
        row("cross_entropy_3d", F.cross_entropy, lambda: (make(2, 10, 2, 3, 2), labels(2, 2, 3, 2))),
        row("cross_entropy_unbatched", F.cross_entropy, lambda: (make(10), labels())),
        row("nll_2d", lambda a, t, w: F.nll_loss(a, t, w, ignore_index=3, reduction="sum"), lambda: (image(), plane(), weights()), constants=(2,)),
        row("nll_2d_none", lambda a, t, w: F.nll_loss(a, t, w, ignore_index=3, reduction="none"), lambda: (image(), plane(), weights()), constants=(2,)),
        row("binary_cross_entropy", F.binary_cross_entropy, lambda: (p(), p().flip(0)), constants=(1,), half=True),
        row("binary_cross_entropy_weighted", lambda a, b, w: F.binary_cross_entropy(a, b, w), lambda: (p(), p().flip(0), p().flip(1)), constants=(1, 2)),
        row("bce_with_logits_weighted", lambda a, b, w, q: F.binary_cross_entropy_with_logits(a, b, w, pos_weight=q),
            lambda: (x(), p(), p(), make(4, low=0.5)), constants=(1, 2, 3), half=True),
        row("hinge_embedding", F.hinge_embedding_loss, lambda: (x(), (labels(5, 4, classes=2) * 2 - 1).float()), constants=(1,)),
        row("cosine_embedding", F.cosine_embedding_loss, lambda: (x(), y(), sign()), constants=(2,)),
        row("margin_ranking", F.margin_ranking_loss, lambda: (make(5), make(5).flip(0), sign()), constants=(2,)),
        row("multilabel_margin", F.multilabel_margin_loss, lambda: (x(), torch.tensor([[3, 0, 1, 0]]).expand(5, 4).contiguous()),
            lambda: (x(), torch.tensor([[3, 0, -1, 0], [-1, 0, 1, 2], [1, -1, 2, 3], [2, 1, 0, -1], [0, 1, 2, 3]]))),
        row("multilabel_soft_margin", F.multilabel_soft_margin_loss, lambda: (x(), labels(5, 4, classes=2).float()), constants=(1,)),
        row("multi_margin", F.multi_margin_loss, lambda: (classes(), labels(5))),
        row("multi_margin_weighted", lambda a, t, w: F.multi_margin_loss(a, t, p=2, margin=0.7, weight=w), lambda: (classes(), labels(5), weights()), constants=(2,)),
        row("soft_margin", F.soft_margin_loss, lambda: (x(), (labels(5, 4, classes=2) * 2 - 1).float()), constants=(1,)),
        row("triplet_margin", F.triplet_margin_loss, lambda: (x(), y(), x().flip(1))),
        row("triplet_margin_swap", on(F.triplet_margin_loss, swap=True, p=1.0), lambda: (x(), y(), x().flip(1))),
        row("triplet_margin_with_distance", F.triplet_margin_with_distance_loss, lambda: (x(), y(), x().flip(1))),
        row("poisson_nll", F.poisson_nll_loss, lambda: (x(), p() * 4)),
        row("poisson_nll_full", on(F.poisson_nll_loss, log_input=False, full=True), lambda: (p(), p() * 4), constants=(1,)),
        row("gaussian_nll", F.gaussian_nll_loss, lambda: (x(), y(), p())),
        row("gaussian_nll_full", on(F.gaussian_nll_loss, full=True), lambda: (x(), y(), p()[:, :1])),
        row("kl_div_log_target", on(F.kl_div, reduction="batchmean", log_target=True), lambda: (x(), y())),
        row("huber_delta", on(F.huber_loss, delta=0.4), lambda: (x(), y()), half=True),
        row("smooth_l1_beta", on(F.smooth_l1_loss, beta=0.3), lambda: (x(), y()), half=True),
        row("smooth_l1_beta_zero", on(F.smooth_l1_loss, beta=0.0), lambda: (x(), y())),
        row("mse_weighted", lambda a, b, w: F.mse_loss(a, b, weight=w), lambda: (x(), y(), p()), constants=(2,)),
        row("ctc_loss", ctc, lambda: (make(12, 3, 6), labels(3, 4, classes=5) + 1)),
        row("ctc_loss_impossible", on_lengths, lambda: (make(9, 4, 6), labels(4, 5, classes=5), torch.tensor([9, 2, 0, 7]), torch.tensor([5, 5, 0, 0])), programs="none"),
    ]  # fmt: skip
    for reduction in ("sum", "none"):
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss"):  # fmt: skip
            call = on(getattr(F, name), reduction=reduction)
            rows.append(row(f"{name}_{reduction}", call, lambda: (x(), p()), constants=(1,), half=reduction == "none"))
    return rows


def _activations() -> list[Op]:
    x = lambda: (make(4, 6),)  # noqa: E731
    inf = float("inf")
    infinite = lambda: (torch.tensor([[inf, 1, 2, 3] * 9, [-inf, 1, 2, 3] * 9, [-inf] * 36]),)  # noqa: E731
    names = (
        "gelu silu relu6 hardtanh leaky_relu elu selu celu hardswish hardsigmoid softplus mish logsigmoid softsign tanhshrink"
        " hardshrink softshrink"
    ).split()
    return [
        *(row(f"{n}_half", getattr(F, n), x, half=True) for n in names),
        row("softmin", on(F.softmin, dim=1), x, half=True),
        row("softmax_infinite", lambda x: (F.softmax(x, -1), F.log_softmax(x, -1)), infinite, gradient=False),
        row("softmax_half", on(F.softmax, dim=0), x, half=True),
        row("log_softmax_half", on(F.log_softmax, dim=1), x, half=True),
        row("softmax_to_float", on(F.softmax, dim=1, dtype=torch.float32), x, half=True),
        row("softmax2d", torch.nn.Softmax2d(), lambda: (make(2, 3, 4, 5),)),
        row("glu", on(F.glu, dim=1), x, half=True),
        row("rrelu_eval", F.rrelu, x),
        row("prelu_half", F.prelu, lambda: (make(2, 3, 4), make(3)), half=True),
        row("prelu_single", F.prelu, lambda: (make(2, 3, 4), make(1))),
        row("gelu_tanh_half", on(F.gelu, approximate="tanh"), x, half=True),
        row("dropout_eval", on(F.dropout, training=False), x),
        row("bilinear", F.bilinear, lambda: (make(5, 3), make(5, 4), make(2, 3, 4), make(2)), half=True),
        row("hardtanh_bounds", on(F.hardtanh, -0.3, 0.8), x),
    ]


def _recurrent() -> list[Op]:
    def network(kind: str, **settings: Any) -> tuple[Callable[..., Any], Callable[[], Sample]]:
        """Returns a recurrent network as a function of input and weights, and a sample of both."""
        shapes = [p.shape for p in getattr(torch.nn, kind)(3, 4, **settings).parameters()]

        def call(x: Any, *weights: Any) -> Any:
            module = getattr(torch.nn, kind)(3, 4, **settings, device="meta")
            names = [n for n, _ in module.named_parameters()]
            return torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (x,))

        return call, lambda: (make(5, 2, 3), *(make(*s) * 0.5 for s in shapes))

    variants: dict[str, dict[str, Any]] = {
        "plain": {},
        "deep": {"num_layers": 2, "bidirectional": True},
        "first": {"batch_first": True, "bias": False},
    }
    rows = [
        row(f"{kind.lower()}_{name}", *network(kind, **settings), half=name == "deep")
        for kind in ("RNN", "LSTM", "GRU")
        for name, settings in variants.items()
    ]
    rows.append(row("rnn_relu", *network("RNN", nonlinearity="relu")))
    rows.append(row("lstm_projected", *network("LSTM", proj_size=2)))

    def cell(name: str, gates: int) -> Op:
        state = (lambda: (make(2, 4), make(2, 4) * 0.5)) if name == "lstm_cell" else (lambda: make(2, 4))
        weights = lambda: (make(4 * gates, 3), make(4 * gates, 4), make(4 * gates), make(4 * gates))  # noqa: E731

        def call(x: Any, *rest: Any) -> Any:
            hidden = (rest[0], rest[1]) if name == "lstm_cell" else rest[0]
            return getattr(torch, name)(x, hidden, *rest[-4:])

        def sample() -> Sample:
            s = state()
            return (make(2, 3), *(s if isinstance(s, tuple) else (s,)), *weights())

        return row(name, call, sample, half=True)

    return [*rows, cell("lstm_cell", 4), cell("gru_cell", 3), cell("rnn_tanh_cell", 1), cell("rnn_relu_cell", 1)]


NN_OPS: list[Op] = [
    *_convolutions(),
    *_pools(),
    *_resampling(),
    *_norms(),
    *_losses(),
    *_activations(),
    *_recurrent(),
]
