# torch_ocl_compile/device/jagged_attention.py: scaled_dot_product_attention of jagged tensors on ocl devices.
"""torch chooses among CUDA's and the CPU's kernels for jagged tensors. On ocl there are two ways:

- The rows of all sequences are one long sequence, and a mask hides the others' rows. Kernels skip blocks of it. In compiled code, where
  this mask has no more elements than there are scores of padded sequences: where lengths differ much.
- The sequences are padded to the longest one, with a mask over the padding of the keys, and the result is packed again."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F

from torch_ocl_compile.compile import blocks_of

aten = torch.ops.aten
Tensor = torch.Tensor


def register_with(module: ModuleType) -> None:
    """Changes `module`, torch.nested._internal.ops."""
    name = "jagged_scaled_dot_product_attention"
    plain: Any = module.__dict__.get(name)
    if plain is None:
        return

    @functools.wraps(plain)
    def attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        given = (query, key, value)
        if query.device.type != "ocl" or not all(_is_jagged_in_rows(x) for x in given):
            return plain(query, key, value, *args, **kwargs)
        return _attention(query, key, value, *args, **kwargs)

    module.__dict__[name] = attention


def _is_jagged_in_rows(x: Any) -> bool:
    """True for [batch, heads, rows, width] without gaps between the sequences."""
    ours = getattr(x, "_ragged_idx", None) == 2 and x.dim() == 4 and x.device.type == "ocl"
    return ours and x.lengths() is None


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    from torch.nested._internal.sdpa import _autocast, _validate_sdpa_input

    query, key, value, attn_mask = _autocast(query, key, value, attn_mask)
    _validate_sdpa_input(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if torch.compiler.is_compiling() and _is_shorter_together(query, key):
        return _together(query, key, value, dropout_p, is_causal, scale)
    q, k, v = (_padded(x) for x in (query, key, value))
    rows, keys = q.shape[-2], k.shape[-2]
    mask = None
    # A query before its sequence's end sees no padding if it sees earlier keys only.
    if not (is_causal and query.offsets() is key.offsets()):
        column = torch.arange(keys, device=k.device)
        mask = (column < key.offsets().diff()[:, None])[:, None, None, :]
        if is_causal:
            mask = mask & (column <= torch.arange(rows, device=k.device)[:, None])
    out = F.scaled_dot_product_attention(
        q, k, v, mask, dropout_p, is_causal and mask is None, scale=scale, enable_gqa=enable_gqa
    )
    return _packed(out, query)


def _is_shorter_together(query: Any, key: Any) -> bool:
    """True if all rows together have no more scores, hidden ones included, than the padded sequences."""
    together = query.values().shape[1] * key.values().shape[1]
    return bool(together <= query.shape[0] * query._get_max_seqlen() * key._get_max_seqlen())


def _together(query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Any:
    """Attention of all rows as one sequence each of queries and keys, [1, heads, total, width]."""
    q, k, v = (x.transpose(1, 2).values().transpose(0, 1)[None] for x in (query, key, value))
    (rows, place), (keys, key_place) = (_sequences(x) for x in (query, key))
    mask = rows[:, None] == keys
    if is_causal:
        mask = mask & (key_place <= place[:, None])
    mask = mask[None, None]
    out = torch.ops.ocl.attention(q, k, v, mask, None, blocks_of.seen(mask), p=dropout_p, scale=scale)[0]
    return _with_sequences(out[0].transpose(0, 1), query)


def _sequences(x: Any) -> tuple[Tensor, Tensor]:
    """Returns for each row of a jagged tensor the number of its sequence and its place there, int64 [total]."""
    offsets = x.offsets()
    row = torch.arange(x.values().shape[1], device=offsets.device)
    number = torch.bucketize(row, offsets[1:], right=True)
    return number, row - offsets[number]


def _padded(x: Any) -> Tensor:
    """Returns [batch, heads, longest, width]."""
    values = x.transpose(1, 2).values()  # [total, heads, width]
    heads, width = values.shape[1:]
    padded: Any = _Sequences.apply(values.reshape(-1, heads * width), x.offsets(), x._get_max_seqlen())  # type: ignore[no-untyped-call]
    made: Tensor = padded.unflatten(-1, (heads, width)).transpose(1, 2)
    return made


# PyTorch's two ops have no gradients. Each is the gradient of the other.
class _Rows(torch.autograd.Function):
    """Returns the rows of [batch, longest, width] that are no padding: [total, width]."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, offsets: Tensor, total: Any) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.longest = padded.shape[1]
        made: Tensor = aten._padded_dense_to_jagged_forward(padded, [offsets], total)
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _Sequences.apply(grads[0], *ctx.saved_tensors, ctx.longest), None, None  # type: ignore[no-untyped-call]


class _Sequences(torch.autograd.Function):
    """Returns the rows [total, width] as [batch, longest, width], padded with zeros."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, offsets: Tensor, longest: Any) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.total = rows.shape[0]
        made: Tensor = aten._jagged_to_padded_dense_forward(rows, [offsets], [longest])
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _Rows.apply(grads[0], *ctx.saved_tensors, ctx.total), None, None  # type: ignore[no-untyped-call]


def _packed(out: Tensor, like: Any) -> Any:
    """Returns [batch, heads, rows, width] as a jagged tensor with the sequences of `like`."""
    heads, width = out.shape[1], out.shape[3]
    total = like.values().shape[1]
    values: Any = _Rows.apply(out.transpose(1, 2).flatten(2), like.offsets(), total)  # type: ignore[no-untyped-call]
    return _with_sequences(values.view(-1, heads, width), like)


def _with_sequences(values: Tensor, like: Any) -> Any:
    """Returns the rows [total, heads, width] as a jagged tensor [batch, heads, rows, width] with the sequences of `like`."""
    from torch.nested._internal.nested_tensor import nested_view_from_values_offsets

    bounds = {"min_seqlen": like._maybe_min_seqlen, "max_seqlen": like._maybe_max_seqlen}
    return nested_view_from_values_offsets(values, like.offsets(), **bounds).transpose(1, 2)
