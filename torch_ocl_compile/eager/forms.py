# torch_ocl_compile/eager/forms.py: functions that are traced in place of an eager op.
"""torch calls some ops on a private device by names or schemas of their own. Others have no functional form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_ocl_compile.decompositions import nn, optimizers, random  # noqa: F401  (they register forms too)
from torch_ocl_compile.decompositions.forms import FORMS, form
from torch_ocl_compile.decompositions.registry import DECOMPOSITIONS
from torch_ocl_compile.decompositions.table import ocl_decomp_table

aten = torch.ops.aten


def form_of(op: Any) -> Callable[..., Any]:
    """Returns the function to trace for an overload: its form, or the overload itself."""
    found: Callable[..., Any] = FORMS.get(str(op), op)
    return found


def form_of_numbers(op: Any) -> Callable[..., Any]:
    """Returns the function to trace where floats are symbols. torch's dispatcher would make each float that a schema takes a
    constant; an op's decomposition in Python does not.
    """
    decomposition = ocl_decomp_table().get(functional_of(op) or op)
    takes_floats = any("float" in str(a.type) for a in op._schema.arguments)
    if str(op) in FORMS or decomposition is None or not takes_floats:
        return form_of(op)

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        outs = {a.name: kwargs.pop(a.name) for a in op._schema.arguments if a.is_out}
        made = decomposition(*args, **kwargs)
        if made is NotImplemented:
            return op(*args, **kwargs, **outs)
        if not outs:
            return made
        results = made if isinstance(made, tuple) else (made,)
        return tuple(out.copy_(result) for out, result in zip(outs.values(), results, strict=True))

    return decomposed


def functional_of(op: Any) -> Any:
    """Returns the overload without out= that takes the same other arguments. None if there is none, or if `op` has no out=."""
    if not any(a.is_out for a in op._schema.arguments):
        return None
    found = (getattr(op.overloadpacket, name) for name in op.overloadpacket.overloads())
    same = (o for o in found if not any(a.is_out for a in o._schema.arguments) and inputs_of(o) == inputs_of(op))
    return next((o for o in same if not o._schema.is_mutable), None)


def inputs_of(op: Any) -> dict[str, str]:
    """Returns the types of the arguments that are not out=, by name."""
    return {a.name: str(a.type) for a in op._schema.arguments if not a.is_out}


@form("aten.convolution_overrideable.default")
def convolution(*args: Any) -> Any:
    return aten.convolution(*args)


@form("aten.convolution_backward_overrideable.default")
def convolution_backward(
    grad: Any, x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any, groups: int,
    mask: Any,
) -> Any:  # fmt: skip
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    return aten.convolution_backward(
        grad, x, weight, [outputs], stride, padding, dilation, transposed, extra, groups, mask
    )


@form("aten.native_batch_norm.default")
def batch_norm(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """A momentum that changes, as that of BatchNorm2d(momentum=None), needs ops that take numbers as arguments."""
    op = aten._native_batch_norm_legit.no_stats if running_mean is None else aten._native_batch_norm_legit.default
    stats = () if running_mean is None else (running_mean, running_var)
    varies = training and isinstance(momentum, torch.SymFloat)
    function: Any = torch._decomp.decomposition_table[op] if varies else op
    return function(x, weight, bias, *stats, training, momentum, eps)


@form("aten._index_put_impl_.default")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    return aten.index_put_(x, indices, values, accumulate)


@form("ocl.ramp_.default")
def ramp(out: Any, start: Any, step: Any) -> Any:
    kind = torch.float32 if out.dtype in (torch.float16, torch.bfloat16) else out.dtype
    positions = torch.arange(out.numel(), dtype=kind, device=out.device)
    return out.copy_((positions * step + start).view(out.shape))


@form("ocl.put_distinct_.default")
def put_distinct(rows: Any, place: Any, values: Any) -> None:
    rows.copy_(torch.ops.ocl.put_distinct(rows, place, values))


def _numbered(starts: Any) -> Any:
    return starts.cumsum(0, dtype=torch.int32 if starts.numel() < 2**31 else torch.int64)


@form("ocl.numbers_of_true.default")
def numbers_of_true(x: Any) -> Any:
    """Returns how many elements up to each one are not 0."""
    return _numbered(x != 0)


@form("ocl.numbers_of_runs.default")
def numbers_of_runs(rows: Any) -> Any:
    """Returns how many runs of equal rows have begun at each row."""
    differs = rows[1:] != rows[:-1]
    if rows.dim() > 1:
        differs = differs.any(1)
    return _numbered(torch.cat([differs.new_ones(1), differs]))


def _into_two(op: Any) -> Callable[..., Any]:
    """Returns a form of an op that writes its two results and returns nothing."""

    def write(x: Any, values: Any, indices: Any, dim: int) -> None:
        for target, result in zip((values, indices), op(x, dim), strict=True):
            target.copy_(result)

    return write


form("aten._cummax_helper.default")(_into_two(aten.cummax))
form("aten._cummin_helper.default")(_into_two(aten.cummin))


@form("aten._logcumsumexp.default")
def logcumsumexp(x: Any, dim: int) -> Any:
    return aten.logcumsumexp(x, dim)


def _in_type_of_out(op: Any) -> Callable[..., Any]:
    """Returns a form of a reduction that computes in the type of `out`. The functional form would compute in the type
    of `x`.
    """
    has_dtype = any(a.name == "dtype" for a in op._schema.arguments)

    def reduce(x: Any, *args: Any, out: Any, **named: Any) -> Any:
        if has_dtype:
            named["dtype"] = named["dtype"] or out.dtype
        elif x.is_floating_point() and torch.promote_types(x.dtype, out.dtype) == out.dtype:
            x = x.to(out.dtype)
        return op(x, *args, out=out, **named)

    return reduce


for _op in (
    aten.sum.IntList_out, aten.nansum.out, aten.mean.out, aten.prod.int_out, aten.var.correction_out, aten.std.correction_out,
    aten.logsumexp.out,
):  # fmt: skip
    form(str(_op))(_in_type_of_out(_op))


# The workspace of a cell holds what backward needs, along the last dimension. csrc/torch/nn_ops.cpp uses the same.
CELLS = (
    aten._thnn_fused_lstm_cell.default,
    aten._thnn_fused_lstm_cell_backward_impl.default,
    aten._thnn_fused_gru_cell.default,
    aten._thnn_fused_gru_cell_backward.default,
)
for _cell in CELLS:
    form(str(_cell))(DECOMPOSITIONS[_cell])
