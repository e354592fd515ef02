# torch_ocl_compile/fx/ops.py: ops of our own for FX graphs, where aten has no suitable one.
"""This file has schemas, fake results and eager forms. Lowerings: lowering/elementwise/random.py, lowering/layers/pooling.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.fx.own_op import LIBRARY, own_op
from torch_ocl_compile.reference.philox import philox_bits, philox_normal, philox_uniform

aten = torch.ops.aten

# Number of different uniform numbers in a 16-bit type: as many as it can hold exactly.
UNIFORM_STEPS = {torch.float16: 2**11, torch.bfloat16: 2**8}

LIBRARY.define("rng_reserve(Device device, int streams) -> Tensor")
# In the graph of an eager op, this op stands for a number that is computed from sizes. meta["val"] has the number. The
# op is never called.
LIBRARY.define("number(str expression) -> Scalar")


def reserve(device: torch.device, streams: int) -> torch.Tensor:
    """Reserves `streams` streams of the device's generator. Returns its (seed, offset) as a tensor on the device, and
    advances its offset."""
    # Without a device, as in tests of the lowering, any reproducible state is good enough.
    if device.type == "cpu":
        return torch.randint(0, 2**31, (2,))
    state = _C.reserve_philox(-1 if device.index is None else device.index, streams)
    return torch.tensor(state, dtype=torch.int64).to(device, non_blocking=True)


def _numbers(make: Any, state: torch.Tensor, size: Sequence[int], stream: int, dtype: torch.dtype) -> torch.Tensor:
    seed, offset = state.cpu().tolist()
    made: torch.Tensor = make(seed, offset + stream, list(size))
    return made.to(device=state.device, dtype=dtype)


def uniform(state: torch.Tensor, size: Sequence[int], stream: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.view_as_complex(uniform(state, [*size, 2], stream, dtype.to_real()))
    drawn = _numbers(philox_uniform, state, size, stream, torch.float32)
    steps = UNIFORM_STEPS.get(dtype)
    return (drawn if steps is None else torch.floor(drawn * steps) / steps).to(dtype)


def randint(
    state: torch.Tensor, size: Sequence[int], stream: int, dtype: torch.dtype, low: int, high: int
) -> torch.Tensor:
    return _numbers(lambda *call: low + (philox_bits(*call) & (2**63 - 1)) % (high - low), state, size, stream, dtype)


def normal(state: torch.Tensor, size: Sequence[int], stream: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:  # The parts share the variance.
        return torch.view_as_complex(normal(state, [*size, 2], stream, dtype.to_real()) * math.sqrt(0.5))
    return _numbers(philox_normal, state, size, stream, dtype)


def max_pool_backward(
    grad: torch.Tensor,
    offsets: torch.Tensor,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    prims, spatial = torch.ops.prims, len(kernel)
    plane = size[-spatial:]
    indices = prims._low_memory_max_pool_offsets_to_indices(offsets, kernel, plane, stride, padding, dilation)
    backward = aten.max_pool3d_with_indices_backward if spatial == 3 else aten.max_pool2d_with_indices_backward
    result: torch.Tensor = backward(grad, grad.new_empty(size), kernel, stride, padding, dilation, False, indices)
    return result


def row_sums(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    largest = x.amax(dim, keepdim=True)
    return largest, (x - largest).exp().sum(dim, keepdim=True)


def cross_entropy_backward(
    grad: torch.Tensor, x: torch.Tensor, largest: torch.Tensor, total: torch.Tensor, *rest: Any
) -> torch.Tensor:
    *loss_arguments, dtype = rest
    log_softmax = x - largest - total.log()
    backward = aten.nll_loss2d_backward if x.dim() == 4 else aten.nll_loss_backward
    return aten._log_softmax_backward_data(backward(grad, log_softmax, *loss_arguments), log_softmax, 1, dtype)  # type: ignore[no-any-return]


def rng_stream(state: torch.Tensor, stream: int) -> torch.Tensor:
    return state + torch.tensor([0, stream]).to(state.device)


def _fake_numbers(state: torch.Tensor, size: Sequence[Any], stream: int, dtype: torch.dtype, *_: Any) -> torch.Tensor:
    return state.new_empty(size, dtype=dtype)


def fake_reserve(device: torch.device, streams: int) -> torch.Tensor:
    return torch.empty(2, dtype=torch.int64, device=device)


torch.library.register_fake("ocl::places", lambda numbers, like: torch.empty_like(like), lib=LIBRARY)
torch.library.register_fake("ocl::put_distinct", lambda rows, *_: torch.empty_like(rows), lib=LIBRARY)
LIBRARY.impl("rng_reserve", reserve, "BackendSelect")
torch.library.register_fake("ocl::rng_reserve", fake_reserve, lib=LIBRARY)
# Returns (seed, offset + stream), from which an op with a stream of its own draws.
own_op("rng_stream(Tensor state, int stream) -> Tensor", rng_stream, lambda state, stream: torch.empty_like(state))
_DRAWN = "(Tensor state, SymInt[] size, int stream, ScalarType dtype"
own_op(f"uniform{_DRAWN}) -> Tensor", uniform, _fake_numbers)
own_op(f"normal{_DRAWN}) -> Tensor", normal, _fake_numbers)
own_op(f"randint{_DRAWN}, SymInt low, SymInt high) -> Tensor", randint, _fake_numbers)
# max_pool{2,3}d_with_indices_backward with the size of the input instead of the input, so that backward need not
# keep the input.
own_op(
    "max_pool_backward(Tensor grad, Tensor offsets, SymInt[] size, int[] kernel, int[] stride, int[] padding,"
    " int[] dilation) -> Tensor",
    max_pool_backward,
    lambda grad, offsets, size, *_: grad.new_empty(size),
)
# The largest element m of each row along `dim`, and the sum of exp(x - m). Both keep `dim` with one element.
own_op("row_sums(Tensor x, int dim) -> (Tensor, Tensor)", row_sums, row_sums)
# x. With the checks of lowering/graphs/index_checks.py, an error with this message is raised if a fault is not 0.
own_op("checked(Tensor x, Tensor faults, str message) -> Tensor", *[lambda x, faults, message: x.clone()] * 2)
# The gradient of nll_loss(log_softmax(x, 1), ...) with respect to x, from the row sums of x. Other arguments: nll_loss_backward.
own_op(
    "cross_entropy_backward(Tensor grad, Tensor x, Tensor largest, Tensor total, Tensor target, Tensor? weight,"
    " int reduction, SymInt ignore, Tensor total_weight, ScalarType dtype) -> Tensor",
    cross_entropy_backward,
    lambda grad, x, *rest: torch.empty_like(x, dtype=rest[-1]),
)
