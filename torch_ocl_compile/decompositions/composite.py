# torch_ocl_compile/decompositions/composite.py: formulas of ops that PyTorch's decomposition table leaves whole.
"""Distances, bilinear forms, gated units and strided windows. Each function computes the formula of the op's eager
kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch._prims_common import are_strides_like_channels_last_or_false, canonicalize_dim

from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten
Tensor = torch.Tensor


@decompose(aten.glu.default)
def glu(x: Tensor, dim: int = -1) -> Tensor:
    a, b = x.chunk(2, dim)
    return a * b.sigmoid()


@decompose(aten.addbmm.default)
def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """Returns beta * x + alpha * sum over i of a[i] @ b[i].

    x is not read if beta is 0. For integer tensors, beta and alpha are truncated to integers, as eager PyTorch does.
    """
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        beta, alpha = int(beta), int(alpha)
    total = torch.bmm(a, b).sum(0, dtype=x.dtype)
    total = total if alpha == 1 else total * alpha
    return total if beta == 0 else total + (x if beta == 1 else x * beta)


@decompose(aten.lcm.default)
def lcm(a: Tensor, b: Tensor) -> Tensor:
    """Returns the least common multiple of integers; 0 where one of them is 0. As in C, short integers are multiplied as int32."""
    dtype = torch.promote_types(a.dtype, b.dtype)
    a, b = (x.to(torch.promote_types(dtype, torch.int32)) for x in (a, b))
    return (a.div(torch.gcd(a, b).clamp(min=1), rounding_mode="trunc") * b).abs().to(dtype)


@decompose(aten.linspace.default)
def linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **settings: Any) -> Tensor:
    """Returns `steps` evenly spaced numbers. For an integer dtype, both ends are converted to it first, as eager PyTorch does."""
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        start, end = int(start), int(end)
    if dtype is torch.uint8:
        start, end = start % 256, end % 256
    made: Tensor = torch._refs.linspace(start, end, steps, dtype=dtype, **settings)
    return made


@decompose(aten.eye.default, aten.eye.m)
def eye(n: Any, m: Any = None, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Returns ones on the diagonal of n x m, zeros elsewhere. PyTorch's own formula counts in uint16, which has no kernels."""
    rows, columns = (torch.arange(size, device=device) for size in (n, n if m is None else m))
    return (rows[:, None] == columns).to(torch.get_default_dtype() if dtype is None else dtype)


@decompose(aten._trilinear.default)
def trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Returns the sum of a * b * c over the dimensions `sumdim`.

    `expand1`, `expand2` and `expand3` are the positions at which a, b and c first get dimensions of size 1.
    """

    def expanded(x: Tensor, dims: Sequence[int]) -> Tensor:
        for dim in sorted(dims):
            x = x.unsqueeze(dim)
        return x

    product = expanded(a, expand1) * expanded(b, expand2) * expanded(c, expand3)
    return product.sum(list(sumdim), dtype=product.dtype) if sumdim else product


# Distances


def _norm(difference: Tensor, p: float) -> Tensor:
    if difference.shape[-1] == 0:
        return difference.sum(-1)
    result: Tensor = aten.linalg_vector_norm(difference, p, [-1])
    return result


@decompose(aten._cdist_forward.default)
def cdist_forward(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    return _norm(x.unsqueeze(-2) - y.unsqueeze(-3), p)


@decompose(aten._cdist_backward.default)
def cdist_backward(grad: Tensor, x: Tensor, y: Tensor, p: float, distance: Tensor) -> Tensor:
    """Returns the gradient of the first point set, x. Pairs whose distance is 0 contribute 0."""
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    return (grad.unsqueeze(-1) * _norm_derivative(difference, distance.unsqueeze(-1), p)).sum(-2)


def _norm_derivative(difference: Tensor, distance: Tensor, p: float) -> Tensor:
    """Returns the derivative of the p-norm by each component of the difference."""
    size, sign = difference.abs(), difference.sign()
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return sign
    if p == float("inf"):
        return torch.where(size == distance, sign, 0.0)
    if p == 2:
        return torch.where(distance == 0, 0.0, difference / distance)
    is_flat = (distance == 0) | (size == 0) if p < 1 else distance == 0
    return torch.where(is_flat, 0.0, sign * (size / distance) ** (p - 1))


def _pairs(n: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (first, second, position) of the pairs i < j of n points in PyTorch's order.

    `first` and `second` are the point numbers of each pair, [n (n - 1) / 2]. `position` is [n, n]: the number of the
    pair that (i, j) belongs to.
    """
    i = torch.arange(n, device=like.device)
    low, high = torch.minimum(i[:, None], i[None, :]), torch.maximum(i[:, None], i[None, :])
    position = low * (2 * n - low - 1) // 2 + high - low - 1
    pair = torch.arange(n * (n - 1) // 2, device=like.device)
    # PyTorch's triu_indices takes the root in float64. Here the root is of a number half a pair after an exact square, so no
    # rounding moves the result to another row.
    root = ((2 * n - 1) ** 2 - 4 - 8 * pair).to(torch.float32).sqrt()
    first = ((2 * n - 1 - root) / 2).to(torch.int64)
    second = pair - first * (2 * n - first - 1) // 2 + first + 1
    return first, second, position.clamp(min=0)


@decompose(aten._pdist_forward.default)
def pdist_forward(x: Tensor, p: float = 2.0) -> Any:
    n = x.shape[0]
    if not isinstance(n, int) or n > 64:
        return NotImplemented
    if n < 2:
        return x.new_zeros((0,))
    first, second, _ = _pairs(n, x)
    return _norm(x[first] - x[second], p)


@decompose(aten._pdist_backward.default)
def pdist_backward(grad: Tensor, x: Tensor, p: float, distance: Tensor) -> Any:
    """Returns the gradient of x. It is the gradient of cdist(x, x) with the diagonal left out.

    Every pair is computed twice, so that no two work-items write to the same element.
    """
    n = x.shape[0]
    if not isinstance(n, int) or n > 64:
        return NotImplemented
    if n < 2:
        return torch.zeros_like(x)
    i = torch.arange(n, device=x.device)
    position = _pairs(n, x)[2]
    grads = torch.where(i[:, None] != i[None, :], grad[position], 0.0)
    return cdist_backward(grads, x, x, p, distance[position])


# Strided windows


@decompose(aten.as_strided_copy.default)
def as_strided_copy(x: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Tensor:
    return torch.as_strided(x, size, stride, storage_offset).clone()


@decompose(aten.as_strided_scatter.default)
def as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> Any:
    """Returns x with `source` written to the window (size, stride, storage_offset) of its memory.

    x itself is a strided view of its memory too: the memory is copied, the window is written, and x is read back.
    """
    if any(step == 0 and extent > 1 for extent, step in zip(x.shape, x.stride(), strict=True)):
        # Elements that share memory get separate copies, and the window counts from the start of the copy.
        x, start = x.contiguous(), storage_offset or 0
    else:
        start = 0 if storage_offset is None else storage_offset - x.storage_offset()
    if x.is_contiguous() and start == 0:
        ramp = torch.arange(x.numel(), device=x.device)
        places = torch.as_strided(ramp, size, stride, 0).reshape(-1)
        return x.reshape(-1).scatter(0, places, source.reshape(-1)).view(x.shape)
    length = 1 + sum((s - 1) * step for s, step in zip(x.shape, x.stride(), strict=True))
    if x.numel() == 0 or source.numel() == 0:
        return x.clone()
    own, written = _memory_offsets(x, x.shape, x.stride()), _memory_offsets(x, size, stride) + start
    # Where no element of x lies, an element of the window goes to one extra element behind the copied memory.
    outside = (written < 0) | (written >= length)
    memory = x.new_zeros(length + 1).scatter(0, own.reshape(-1), x.reshape(-1))
    memory = memory.scatter(0, torch.where(outside, length, written).reshape(-1), source.reshape(-1))
    return memory[own]


def _memory_offsets(x: Tensor, size: Sequence[Any], stride: Sequence[Any]) -> Tensor:
    """Returns the memory offset of every element of a strided window, relative to its first element (int64, shape
    `size`)."""
    places = torch.zeros((), dtype=torch.int64, device=x.device)
    for extent, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(extent, device=x.device) * step
    return places


@decompose(aten.resize.default)
def resize(x: Tensor, size: Sequence[Any], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """Returns the elements of x in memory order, truncated or extended to `size`."""
    copy = x.clone()
    strides = copy.stride()
    order = sorted(range(x.dim()), key=lambda d: (-strides[d], d))
    flat, wanted = copy.permute(order).reshape(-1), math.prod(size)
    if wanted > x.numel():
        flat = torch.cat([flat, flat.new_full((wanted - x.numel(),), _uninitialised(x.dtype))])
    flat = flat[:wanted]
    if memory_format not in (torch.channels_last, torch.channels_last_3d):
        return flat.view(size)
    return flat.view([size[0], *size[2:], size[1]]).movedim(-1, 1)


@decompose(aten._new_zeros_with_same_feature_meta.default)
def zeros_of_layout(x: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """Returns zeros of x's type in the memory layout of `other`, once for each of x's first dimensions."""
    count = other.untyped_storage().nbytes() // other.element_size()
    batch = x.shape[:self_num_batch_dims]
    steps = [math.prod(batch[d + 1 :]) * count for d in range(self_num_batch_dims)]
    zeros = x.new_zeros((*batch, count))
    return zeros.as_strided((*batch, *other.shape), (*steps, *other.stride()), other.storage_offset())


def _uninitialised(dtype: torch.dtype) -> float | int | bool:
    """Returns the value that stands for uninitialised memory: 0, or PyTorch's fill value in deterministic mode."""
    deterministic: Any = torch.utils.deterministic
    if not (torch.are_deterministic_algorithms_enabled() and deterministic.fill_uninitialized_memory):
        return 0
    if dtype is torch.bool:
        return True
    return math.nan if dtype.is_floating_point else torch.iinfo(dtype).max


# Shifts


@decompose(aten.roll.default)
def roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Returns x rotated along the given dimensions, or along its elements in row-major order if none are given."""
    shifts, dims = ([v] if isinstance(v, (int, torch.SymInt)) else list(v) for v in (shifts, dims))
    if not shifts:
        raise RuntimeError("`shifts` required")
    if len(shifts) == 1 and not dims:
        return roll(x.reshape(-1), shifts, [0]).view(x.shape)
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if x.dim() == 0:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    if x.numel() == 0:
        return x.clone()
    for shift, dim in zip(shifts, dims, strict=True):
        x = _roll_along(x, shift, canonicalize_dim(x.dim(), dim))
    return x


def _roll_along(x: Tensor, shift: Any, dim: int) -> Tensor:
    """Rotates one dimension with a single gather.

    The result has the memory format that the concatenation of two pieces has in eager mode.
    """
    size = x.shape[dim]
    start = (size - shift) % size
    rolled = x.index_select(dim, (torch.arange(size, device=x.device) + start) % size)
    pieces = ([*x.shape[:dim], length, *x.shape[dim + 1 :]] for length in (size - start, start))
    if not all(are_strides_like_channels_last_or_false(piece, x.stride()) for piece in pieces):
        return rolled.contiguous()
    return rolled.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


@decompose(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Returns x with the channels of its groups interleaved. The result is new memory, as in eager PyTorch on the CPU.

    PyTorch's own decomposition gives a view of x, where the channels stay in their order.
    """
    made: Tensor = torch._refs.nn.functional.channel_shuffle(x, groups)
    return made if x.numel() == 0 else made.clone()


# Embedding tables and indices


@decompose(aten.embedding_renorm.default)
def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Returns weight [rows, columns], where each row that occurs in `indices` is scaled down to a norm of at most
    max_norm."""
    used = torch.zeros(weight.shape[0], dtype=torch.bool, device=weight.device).index_fill(0, indices.reshape(-1), True)
    norms: Tensor = aten.linalg_vector_norm(weight, norm_type, [1])
    scaled = weight * (max_norm / (norms + 1e-7)).unsqueeze(1)
    return torch.where((used & (norms > max_norm)).unsqueeze(1), scaled, weight)


@decompose(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Returns x with one number written at the positions `index` along `dim`.

    PyTorch's own decomposition, up to torch 2.11, copies into a tensor that it makes, so its graph is not
    functional.
    """
    if not isinstance(value, Tensor):
        value = torch.scalar_tensor(value, dtype=x.dtype, device=x.device)
    elif value.dim() != 0:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got one of {value.dim()} dimensions"
        )
    if x.dim() == 0:
        return index_fill(x.unsqueeze(0), 0, index, value).squeeze(0).clone()
    places = [None] * canonicalize_dim(x.dim(), dim) + [index.reshape(-1)]
    filled: Tensor = aten.index_put(x, places, value.to(device=x.device, dtype=x.dtype))
    return filled


@decompose(aten.nonzero_static.default)
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Returns the coordinates of the first `size` nonzero elements, [size, rank of x] int64.

    Rows beyond the number of nonzero elements hold fill_value.
    """
    if x.dim() == 0 or x.numel() == 0:
        return torch.full((size, x.dim()), fill_value, dtype=torch.int64, device=x.device)
    mask = x.reshape(-1) != 0
    rank = mask.cumsum(0)
    # All other elements share the slot `size`, which is cut off.
    slots = torch.where(mask & (rank <= size), rank - 1, size)
    places = torch.full((size + 1,), -1, dtype=torch.int64, device=x.device)
    places = places.scatter(0, slots, torch.arange(x.numel(), device=x.device))[:size]
    coordinates: list[Tensor] = []
    rest = places
    for extent in reversed(x.shape):
        coordinates.insert(0, rest % extent)
        rest = rest // extent
    return torch.where((places >= 0).unsqueeze(1), torch.stack(coordinates, 1), fill_value)


MOST_PAIRS = 1 << 18  # The most pairs of a source and a place of a scatter that multiplies: each pair is looked at.


@decompose(aten.scatter.reduce, aten.scatter.value_reduce)
def complex_scatter(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Any:
    """Returns x with the sources added to it, or multiplied with it, at their places. Real tensors have a lowering."""
    if not x.is_complex():
        return NotImplemented
    if not isinstance(source, Tensor):
        source = torch.full(index.shape, source, dtype=x.dtype, device=x.device)
    if reduce == "add":
        return torch.scatter_add(x, dim, index, source)
    is_static = all(isinstance(s, int) for s in (*x.shape, *index.shape))
    if reduce != "multiply" or not is_static or x.dim() == 0 or index.dim() == 0:
        return NotImplemented
    if index.numel() == 0:
        return x.clone()
    if index.numel() * x.shape[dim] > MOST_PAIRS:
        return NotImplemented
    source = source[tuple(slice(s) for s in index.shape)].movedim(dim, -1).unsqueeze(-2)
    places = torch.arange(x.shape[dim], device=x.device).unsqueeze(-1)
    factor = torch.where(index.movedim(dim, -1).unsqueeze(-2) == places, source, 1.0).prod(-1).movedim(-1, dim)
    # `index` may be shorter than x in the other dimensions.
    missing = [n for whole, have in zip(x.shape[::-1], factor.shape[::-1], strict=True) for n in (0, whole - have)]
    return x * F.pad(factor, missing, value=1.0)


@decompose(aten.logcumsumexp.default)
def complex_logcumsumexp(x: Tensor, dim: int) -> Any:
    """Real numbers have a scan of their own (lowering/reductions/scan.py)."""
    if not x.is_complex():
        return NotImplemented
    if x.dim() == 0 or x.numel() == 0:
        return x.clone()
    dim = canonicalize_dim(x.dim(), dim)
    rows = [math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])]
    parts = torch.ops.ocl.running_log_sum(*(part.contiguous().view(rows) for part in (x.real, x.imag)))
    return torch.complex(*parts).view(x.shape)
