# tests/op_table.py: one row per op, with the function and its inputs, for tests and for random programs.
# ruff: noqa: E501, SIM905  (a table: a row is a line)
"""Large families have separate tables, op_table_<family>.py, which are concatenated into OPS at the end."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.op_row import ALL, FLOAT, NUMBERS, Op, Sample, fixed, labels, make, one, special, two
from tests.op_table_attention import attention_rows
from tests.op_table_linalg import LINALG_OPS
from tests.op_table_nn import NN_OPS
from tests.op_table_order import ORDER_OPS
from tests.op_table_special import OPS as SPECIAL

UNARY = (
    "abs acos asin asinh atan ceil cos cosh erf erfc exp exp2 expm1 floor frac isfinite isinf isnan log1p neg relu round sgn"
    " sigmoid sign signbit sin sinh square tan tanh trunc nan_to_num"
)
POSITIVE = "log log10 log2 sqrt rsqrt reciprocal lgamma digamma acosh"
BINARY = "add sub mul maximum minimum fmax fmin atan2 hypot logaddexp eq ne lt le gt ge"
LOGICAL = "logical_and logical_or logical_xor"
ACTIVATIONS = (
    "gelu silu relu6 hardtanh leaky_relu elu selu celu hardswish hardsigmoid softplus mish logsigmoid softsign tanhshrink"
    " hardshrink softshrink threshold"
)
INTEGER_UNARY = "abs neg sgn sign square bitwise_not ceil floor relu"
NO_GRADIENT = set("isfinite isinf isnan signbit eq ne lt le gt ge".split())


def _threshold(x: torch.Tensor) -> torch.Tensor:
    return F.threshold(x, 0.1, 20.0)


def _pointwise() -> list[Op]:
    rows = []
    for name in UNARY.split():
        reach = 1.0 if name in ("acos", "asin") else 2.0
        rows.append(Op(name, getattr(torch, name), one(-0.99 * reach, 0.99 * reach), gradient=name not in NO_GRADIENT))
    rows += [Op(n, getattr(torch, n), one(1.1, 3.0)) for n in POSITIVE.split()]
    rows += [Op(f"{n}_int", getattr(torch, n), one(), (torch.int64,), False) for n in INTEGER_UNARY.split()]
    for name in BINARY.split():
        integer = name not in ("atan2", "hypot", "logaddexp")
        rows.append(Op(name, getattr(torch, name), two(), NUMBERS if integer else FLOAT, name not in NO_GRADIENT))
    rows += [Op(n, getattr(torch, n), two(), ALL, False) for n in LOGICAL.split()]
    for name in ACTIVATIONS.split():
        rows.append(Op(name, _threshold if name == "threshold" else getattr(F, name), one()))
    return rows


def _formulas() -> list[Op]:
    x, y = (lambda: make(3, 5)), (lambda: make(3, 5, low=0.5, high=2))
    return [
        Op("add_bool", lambda a, b: a + b, two(), (torch.bool,), False),
        Op("mul_bool", lambda a, b: a * b, two(), (torch.bool,), False),
        Op("add_alpha", lambda a, b: torch.add(a, b, alpha=3), two(), NUMBERS),
        Op("rsub", lambda a: 2.5 - a, one()),
        Op("int_plus_float", lambda a: a + 1.5, one(), (torch.int64,), False),
        Op("div", torch.div, fixed(lambda: (x(), y()), lambda: (x(), 3))),
        Op("div_int", torch.div, lambda d: [(make(3, 5, dtype=d), make(3, 5, dtype=d).abs() + 1)], (torch.int64,), False),
        Op("div_floor", lambda a, b: torch.div(a, b, rounding_mode="floor"), _nonzero, NUMBERS, False),
        Op("div_trunc", lambda a, b: torch.div(a, b, rounding_mode="trunc"), _nonzero, NUMBERS, False),
        Op("floor_divide", torch.floor_divide, _nonzero, NUMBERS, False),
        Op("fmod", torch.fmod, _nonzero, NUMBERS, False),
        Op("remainder", torch.remainder, _nonzero, NUMBERS, False),
        Op("pow_tensor", torch.pow, fixed(lambda: (y(), x()))),
        Op("pow_scalar", lambda a: a**2 + a**0.5 + a**-1 + a**3 + a**1.7, fixed(lambda: (y(),))),
        Op("pow_base", lambda a: 0.9**a, one()),
        Op("pow_int", lambda a: a**3, one(), (torch.int64,), False),
        Op("where", lambda a, b: torch.where(a > 0, a, b), two(), NUMBERS),
        Op("where_scalar", lambda a: torch.where(a > 0, a, 0.0), one()),
        Op("clamp", lambda a: torch.clamp(a, -0.5, 1), one(), NUMBERS),
        Op("clamp_one_side", lambda a: a.clamp(min=0.25) + a.clamp(max=1.0), one()),
        Op("clamp_tensor", lambda a, b: torch.clamp(a, max=b), two()),
        Op("lerp", lambda a, b: torch.lerp(a, b, 0.3) + torch.lerp(a, b, a), two()),
        Op("addcmul", lambda a, b: torch.addcmul(a, a, b, value=0.5), two()),
        Op("addcdiv", lambda a, b: torch.addcdiv(a, a, b.abs() + 1, value=0.5), two()),
        Op("bitwise", lambda a, b: (a & b) | (a ^ b), two(), (torch.int64, torch.bool), False),
        Op("gcd_lcm", lambda a, b: torch.lcm(a * 12, b * 18) + torch.gcd(a * 12, b * 18), two(), (torch.int64, torch.uint8), False),
        Op("shift", lambda a: (a.abs() << 2) + (a >> 1), one(), (torch.int64,), False),
        Op("copysign", torch.copysign, two()),
        Op("xlogy", torch.xlogy, fixed(lambda: (x().abs(), y()))),
        Op("prelu", F.prelu, fixed(lambda: (make(2, 3, 4), make(3)))),
        Op("special_values", lambda a: (a + 1, a * 0, a.exp(), a > 0, a.maximum(a.new_zeros(())), a.sign(), a.relu()),
           fixed(lambda: (special(),)), gradient=False),
        Op("half_rounds_once", lambda a: (a * 3 + 1).exp() * 0.1, one(), (torch.float16, torch.bfloat16), False),
        Op("cast", lambda a: (a.int(), a.bool(), a.half().float()), one(), gradient=False),
        Op("cast_float64", lambda a: (a.int(), a.float().double(), a.half()), one(), (torch.float64,), gradient=False),
        Op("masked_fill", lambda a: a.masked_fill(a > 0, 3.0), one()),
        Op("full_arange", lambda a: a + torch.arange(5, device=a.device) + torch.full((5,), 2.0, device=a.device),
           fixed(lambda: (x(),))),
        Op("arange_float", lambda a: a + torch.arange(0, 1, 0.2, device=a.device), fixed(lambda: (x(),))),
    ]  # fmt: skip


def _nonzero(dtype: torch.dtype) -> list[Sample]:
    y = make(3, 5, dtype=dtype, low=0.5, high=2)
    return [(make(3, 5, dtype=dtype), y), (make(3, 5, dtype=dtype), -y), (make(3, 5, dtype=dtype), 3)]


def _views() -> list[Op]:
    x = lambda: (make(4, 6, 5),)  # noqa: E731
    calls: dict[str, Callable[..., Any]] = {
        "reshape": lambda a: a.reshape(8, 15) * 2,
        "view_of_transposed": lambda a: a.transpose(0, 1).reshape(-1) + 1,
        "permute": lambda a: a.permute(2, 0, 1) * 2,
        "transpose_output": lambda a: a.transpose(0, 2),
        "expand": lambda a: a[:, :1].expand(4, 3, 5) + 1,
        "slice": lambda a: a[1:3, ::2, -3:] + 1,
        "slice_outside": lambda a: a[2:100, -50:3] + 1,
        "select": lambda a: a[1, :, -1] + 1,
        "squeeze": lambda a: a[:1].squeeze(0) + a[:1, :1].squeeze(),
        "unsqueeze": lambda a: a.unsqueeze(1).unsqueeze(-1) * 2,
        "split": lambda a: [p + 1 for p in a.split(4, 1)] + list(a.chunk(2, 0)),
        "unbind": lambda a: [p * 2 for p in a.unbind(1)],
        "flip": lambda a: a.flip(0, 2) + 1,
        "roll": lambda a: a.roll(2, 1) + 1,
        "cat": lambda a: torch.cat([a, a * 2, a[:, :0]], 1),
        "stack": lambda a: torch.stack([a, a + 1], 2),
        "repeat": lambda a: a.repeat(2, 1, 3) + 1,
        "diagonal": lambda a: a.diagonal(1, 1, 2) + 1,
        "diag_embed": lambda a: torch.diag_embed(a[0]),
        "unfold": lambda a: a.unfold(1, 3, 2) * 1,
        "as_strided": lambda a: a.as_strided((3, 4), (1, 7), 2) + 1,
        "pad": lambda a: F.pad(a, (1, 2, -1, 1), value=2.5),
        "reflection_pad": lambda a: F.pad(a, (2, 1), mode="reflect"),
        "tril": lambda a: a.tril(1) + a.triu(),
        "select_scatter": lambda a: torch.select_scatter(a, a[0] * 0, 0, 2),
        "slice_scatter": lambda a: torch.slice_scatter(a, a[:, 1:3] * 2, 1, 0, 4, 2),
        "diagonal_scatter": lambda a: torch.diagonal_scatter(a, a[:, 0, :4] * 0, 1, 1, 2),
        "clone_output": lambda a: (a.clone(), a.t() if a.dim() == 2 else a.mT),
        "alias_outputs": lambda a: (lambda y: (y, y.view(-1)))(a * 2),
        "index": lambda a: a[torch.tensor([2, 0, -1], device=a.device), 1:3],
        "index_two": lambda a: a[
            :, torch.tensor([[0], [1]], device=a.device), torch.tensor([1, 2, 4], device=a.device)
        ],
        "index_apart": lambda a: a[torch.tensor([0, 1], device=a.device), :, torch.tensor([1, 2], device=a.device)],
        "index_select": lambda a: a.index_select(1, torch.tensor([3, 0, 3], device=a.device)),
        "gather": lambda a: a.gather(1, torch.tensor([0, 3, 2, 1], device=a.device).view(4, 1, 1).expand(4, 2, 5)),
    }
    rows = [Op(name, call, fixed(x)) for name, call in calls.items()]
    weight = lambda: (labels(3, 4), make(10, 6))  # noqa: E731
    return [
        *rows,
        Op("embedding", F.embedding, fixed(weight)),
        Op("one_hot", lambda t: F.one_hot(t, 10), fixed(lambda: (labels(7),)), gradient=False),
    ]


def _reductions() -> list[Op]:
    def dims(dtype: torch.dtype) -> list[Sample]:
        return [
            (make(3, 4, 5, dtype=dtype),),
            (make(1, 70, dtype=dtype),),
            (make(6, 4, 3, dtype=dtype).permute(2, 0, 1),),
        ]

    calls: dict[str, Callable[..., Any]] = {
        "sum": lambda a: (a.sum(), a.sum(1), a.sum((0, -1), keepdim=True)),
        "mean": lambda a: (a.mean(), a.mean(-1), a.mean((0, 1), keepdim=True)),
        "prod": lambda a: (a.prod(), a.prod(1)),
        "amax": lambda a: (a.amax(), a.amax(1), a.amin((0, 1), keepdim=True)),
        "max": lambda a: (a.max(), a.min()),
        "max_dim": lambda a: (*a.max(1), *a.min(0, keepdim=True)),
        "argmax": lambda a: (a.argmax(), a.argmax(1), a.argmin(0, keepdim=True)),
        "any": lambda a: ((a > 1).any(), (a > 0).any(1), (a > -1).all(1), a.all()),
        "var": lambda a: (a.var(), a.var(1), a.var(0, correction=0), a.std(-1, keepdim=True)),
        "var_mean": lambda a: torch.var_mean(a, 1),
        "norm": lambda a: (a.norm(), a.norm(dim=1), a.norm(p=1, dim=0), a.norm(p=float("inf")), a.norm(p=3)),
        "logsumexp": lambda a: (a.logsumexp(1), a.logsumexp((0, 1))),
        "softmax": lambda a: (a.softmax(1), a.softmax(-1), a.softmax(0)),
        "log_softmax": lambda a: (a.log_softmax(1), a.log_softmax(-1)),
        "nansum": lambda a: a.nansum(),
        "count_nonzero": lambda a: (a > 0).sum(),
    }
    integers = {"sum", "prod", "amax", "max", "max_dim", "argmax"}
    without = {"argmax", "any", "count_nonzero"}
    rows = [Op(n, f, dims, NUMBERS if n in integers else FLOAT, n not in without) for n, f in calls.items()]
    empty = lambda: (make(0, 3),)  # noqa: E731
    return [*rows, Op("sum_empty", lambda a: (a.sum(), a.sum(0), a.mean(0)), fixed(empty))]


def _contractions() -> list[Op]:
    image, kernel = (lambda: make(2, 4, 9, 7)), (lambda: make(6, 4, 3, 3))
    return [
        Op("mm", torch.mm, fixed(lambda: (make(5, 7), make(7, 3)), lambda: (make(7, 5).t(), make(3, 7).t()),
                                 lambda: (make(1, 1), make(1, 4)), lambda: (make(3, 0), make(0, 2)))),
        Op("mm_int", torch.mm, lambda d: [(make(5, 7, dtype=d), make(7, 3, dtype=d))], (torch.int64,), False),
        Op("addmm", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), fixed(lambda: (make(3), make(5, 7), make(7, 3)))),
        Op("bmm", torch.bmm, fixed(lambda: (make(2, 5, 7), make(2, 7, 3)))),
        Op("baddbmm", torch.baddbmm, fixed(lambda: (make(2, 5, 3), make(2, 5, 7), make(2, 7, 3)))),
        Op("bmm_one_matrix", lambda a, b: torch.bmm(a.mT, b.expand(3, 7, 5)), fixed(lambda: (make(3, 7, 4), make(7, 5)))),
        Op("baddbmm_one_matrix", lambda x, a, b: torch.baddbmm(x, a, b.expand(3, 7, 5)),
           fixed(lambda: (make(3, 4, 5), make(3, 4, 7), make(7, 5)))),
        Op("linear", F.linear, fixed(lambda: (make(2, 5, 7), make(3, 7), make(3)), lambda: (make(4, 7), make(3, 7)))),
        Op("mv", torch.mv, fixed(lambda: (make(5, 7), make(7)))),
        Op("dot", torch.dot, fixed(lambda: (make(33), make(33)))),
        Op("einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), fixed(lambda: (make(2, 5, 7), make(2, 3, 7)))),
        Op("conv2d", lambda x, w, b: F.conv2d(x, w, b, 2, 1), fixed(lambda: (image(), kernel(), make(6)))),
        Op("conv2d_dilated", lambda x, w: F.conv2d(x, w, None, 1, (2, 1), (2, 1)), fixed(lambda: (image(), kernel()))),
        Op("conv2d_grouped", lambda x, w: F.conv2d(x, w, padding=1, groups=2), fixed(lambda: (image(), make(6, 2, 3, 3))), rtol=1e-4, atol=1e-4),
        Op("conv2d_depthwise", lambda x, w: F.conv2d(x, w, groups=4), fixed(lambda: (image(), make(4, 1, 3, 3)))),
        Op("conv2d_3x3", lambda x, w: F.conv2d(x, w, padding=1), fixed(lambda: (make(2, 16, 12, 12), make(32, 16, 3, 3))), rtol=1e-4, atol=1e-4),
        Op("conv2d_vectors", lambda x, w: F.conv2d(x, w, stride=2), fixed(lambda: (make(2, 32, 9, 9), make(16, 32, 3, 3))), rtol=1e-4, atol=1e-4),
        Op("conv2d_1x1", F.conv2d, fixed(lambda: (image(), make(8, 4, 1, 1), make(8)))),
        Op("conv1d", lambda x, w, b: F.conv1d(x, w, b, 2, 1), fixed(lambda: (make(2, 4, 11), make(6, 4, 3), make(6)))),
        Op("conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1),
           fixed(lambda: (image(), make(4, 5, 3, 3), make(5)))),
        Op("conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, None, 2), fixed(lambda: (make(2, 4, 6), make(4, 3, 3)))),
        Op("conv3d", F.conv3d, fixed(lambda: (make(1, 2, 4, 5, 6), make(3, 2, 2, 2, 2)))),
    ]  # fmt: skip


def _networks() -> list[Op]:
    image = lambda: make(2, 3, 8, 6)  # noqa: E731
    parameters = lambda: (make(3, low=-0.5), make(3, low=0.5), make(3), make(3))  # noqa: E731

    def pool(f: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
        return lambda x: f(x, **settings)

    def norm_training(x: Any, m: Any, v: Any, w: Any, b: Any) -> Any:
        m, v = m.clone(), v.clone()
        y = F.batch_norm(x, m, v, w, b, True, 0.3, 1e-5)
        return y, m, v

    ones = fixed(lambda: (image(),))
    return [
        Op("batch_norm_eval", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), fixed(lambda: (image(), *parameters())), constants=(1, 2)),
        Op("batch_norm_train", norm_training, fixed(lambda: (image(), *parameters())), constants=(1, 2), rtol=1e-4, atol=1e-5),
        Op("batch_norm_plain", lambda x: F.batch_norm(x, None, None, training=True), ones, rtol=1e-4, atol=1e-5),
        Op("instance_norm", F.instance_norm, ones, rtol=1e-4, atol=1e-5),
        Op("layer_norm", lambda x, w: F.layer_norm(x, (6,), w, w), fixed(lambda: (image(), make(6))), rtol=1e-4, atol=1e-5),
        Op("group_norm", lambda x, w: F.group_norm(x, 3, w, w), fixed(lambda: (image(), make(3))), rtol=1e-4, atol=1e-5),
        Op("rms_norm", lambda x, w: F.rms_norm(x, (6,), w), fixed(lambda: (image(), make(6)))),
        Op("max_pool2d", pool(F.max_pool2d, kernel_size=2), ones),
        Op("max_pool2d_overlap", pool(F.max_pool2d, kernel_size=3, stride=2, padding=1), ones),
        Op("max_pool2d_ceil", pool(F.max_pool2d, kernel_size=3, stride=2, ceil_mode=True), ones),
        Op("max_pool2d_dilated", pool(F.max_pool2d, kernel_size=2, stride=1, dilation=2), ones),
        Op("max_pool2d_indices", pool(F.max_pool2d, kernel_size=3, stride=2, return_indices=True), ones),
        Op("max_pool1d", pool(F.max_pool1d, kernel_size=3, stride=2), fixed(lambda: (make(2, 3, 9),))),
        Op("avg_pool2d", pool(F.avg_pool2d, kernel_size=2), ones),
        Op("avg_pool2d_padded", pool(F.avg_pool2d, kernel_size=3, stride=2, padding=1), ones),
        Op("avg_pool2d_exclude", pool(F.avg_pool2d, kernel_size=3, stride=2, padding=1, count_include_pad=False), ones),
        Op("avg_pool2d_ceil", pool(F.avg_pool2d, kernel_size=3, stride=2, ceil_mode=True), ones),
        Op("avg_pool2d_divisor", pool(F.avg_pool2d, kernel_size=3, divisor_override=2), ones),
        Op("adaptive_avg_pool2d", pool(F.adaptive_avg_pool2d, output_size=(4, 3)), ones),
        Op("adaptive_avg_pool2d_uneven", pool(F.adaptive_avg_pool2d, output_size=(3, 4)), ones),
        Op("adaptive_avg_pool2d_up", pool(F.adaptive_avg_pool2d, output_size=(10, 7)), ones),
        Op("adaptive_avg_pool2d_one", pool(F.adaptive_avg_pool2d, output_size=1), ones),
        Op("upsample_nearest", pool(F.interpolate, scale_factor=2), ones),
        Op("cross_entropy", F.cross_entropy, fixed(lambda: (make(5, 10), labels(5)))),
        Op("cross_entropy_2d", F.cross_entropy, fixed(lambda: (make(2, 10, 3, 4), labels(2, 3, 4)))),
        Op("cross_entropy_smooth", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), fixed(lambda: (make(5, 10), labels(5)))),
        Op("nll_loss_weighted", lambda x, t, w: F.nll_loss(x, t, w, ignore_index=3),
           fixed(lambda: (make(5, 10), labels(5), make(10, low=0.1))), constants=(2,)),
        Op("nll_loss_none", lambda x, t: F.nll_loss(x, t, reduction="none"), fixed(lambda: (make(5, 10), labels(5)))),
        Op("nll_loss_sum", lambda x, t: F.nll_loss(x, t, reduction="sum"), fixed(lambda: (make(10), labels()))),
        Op("mse_loss", F.mse_loss, fixed(lambda: (make(5, 4), make(5, 4) * 2))),
        Op("l1_loss", F.l1_loss, fixed(lambda: (make(5, 4), make(5, 4) * 2))),
        Op("smooth_l1_loss", F.smooth_l1_loss, fixed(lambda: (make(5, 4), make(5, 4) * 2))),
        Op("huber_loss", F.huber_loss, fixed(lambda: (make(5, 4), make(5, 4) * 2))),
        Op("bce_with_logits", F.binary_cross_entropy_with_logits, fixed(lambda: (make(5, 4), make(5, 4, low=0, high=1)))),
        Op("kl_div", lambda x, y: F.kl_div(x, y, reduction="batchmean"), fixed(lambda: (make(5, 4), make(5, 4, low=0.1, high=1)))),
        Op("eigvalsh_fallback", lambda x: torch.linalg.eigvalsh(torch.eye(129, device=x.device) + x[0, 0, 0, :3].sum()).sum(), ones, fallback=True),
    ]  # fmt: skip


_OWN = [*_pointwise(), *_formulas(), *_views(), *_reductions(), *_contractions(), *_networks()]
ATTENTION_OPS = attention_rows()
OPS: list[Op] = [*_OWN, *SPECIAL, *NN_OPS, *ORDER_OPS, *LINALG_OPS, *ATTENTION_OPS]
# Rows that fail on CPU tensors: tracing decomposes ldexp into ops whose result dtypes differ from eager mode.
_NOT_ON_CPU_TENSORS = ("ldexp_types",)
# The rows that tests without a device run. Of some families they are a sixth, because the interpreter is slow.
INTERPRETED: list[Op] = [
    *_OWN,
    *(op for op in SPECIAL if op.name not in _NOT_ON_CPU_TENSORS),
    *ATTENTION_OPS,
    *(op for op in [*NN_OPS, *ORDER_OPS] if zlib.crc32(op.name.encode()) % 6 == 0),
]
