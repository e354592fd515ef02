# torch_ocl_compile/decompositions/fractional.py: fractional max pooling, whose windows lie at random places.
"""A random number for each plane and dimension decides where its windows begin. The windows are gathered, and the largest element
of each is found like any maximum. Source of the places: Graham, "Fractional Max-Pooling", 2014, in PyTorch's form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten
Tensor = torch.Tensor


def _starts(sample: Tensor, size: int, outputs: int, window: int) -> Tensor:
    """Returns where the windows of a dimension begin: [.., outputs] for random numbers [..]."""
    last = torch.full((*sample.shape, 1), size - window, dtype=torch.int64, device=sample.device)
    if outputs == 1:
        return last
    step = (size - window) / (outputs - 1)
    place = torch.arange(outputs - 1, device=sample.device)
    sample = sample[..., None]
    first = ((place + sample) * step).to(torch.int64) - (sample * step).to(torch.int64)
    return torch.cat([first, last], -1)


def _places(samples: Tensor, plane: Sequence[int], outputs: Sequence[int], window: Sequence[int]) -> Tensor:
    """Returns the positions of the elements of all windows in their plane: [.., *outputs, elements of a window]."""
    spatial, lead = len(plane), samples.dim() - 1
    places = torch.zeros((), dtype=torch.int64, device=samples.device)
    for d in range(spatial):
        starts = _starts(samples[..., d], plane[d], outputs[d], window[d])
        along = starts[..., None] + torch.arange(window[d], device=samples.device)
        shape = [*along.shape[:lead], *[1] * (2 * spatial)]
        shape[lead + d], shape[lead + spatial + d] = outputs[d], window[d]
        places = places * plane[d] + along.reshape(shape)
    return places.reshape(*samples.shape[:-1], *outputs, math.prod(window))


def _pooling(spatial: int) -> Callable[..., Any]:
    def fractional_max_pool(x: Tensor, kernel_size: Any, output_size: Any, random_samples: Tensor) -> Any:
        """Returns (the largest element of each window, its position in the plane)."""
        plane = x.shape[-spatial:]
        batched = x.dim() > spatial + 1
        # In two dimensions the first random number is that of the columns.
        samples = (random_samples.flip(-1) if spatial == 2 else random_samples)[: x.shape[0] if batched else 1]
        places = _places(samples if batched else samples[0], plane, output_size, kernel_size)
        windows = torch.gather(x.flatten(-spatial), -1, places.flatten(-spatial - 1)).reshape(places.shape)
        largest, chosen = windows.max(-1)
        # Of several NaNs, ATen's kernels take the last one.
        last_nan = torch.where(windows.isnan(), torch.arange(windows.shape[-1], device=x.device), -1).amax(-1)
        chosen = torch.where(last_nan >= 0, last_nan, chosen)
        return largest, torch.gather(places, -1, chosen[..., None])[..., 0]

    return fractional_max_pool


def _gradient(spatial: int) -> Callable[..., Any]:
    def fractional_max_pool_backward(
        grad: Tensor, x: Tensor, kernel_size: Any, output_size: Any, indices: Tensor
    ) -> Any:
        made = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(-spatial)
        return made.scatter_add(-1, indices.flatten(-spatial), grad.flatten(-spatial)).reshape(x.shape)

    return fractional_max_pool_backward


for _spatial in (2, 3):
    decompose(f"aten.fractional_max_pool{_spatial}d.default")(_pooling(_spatial))
    decompose(f"aten.fractional_max_pool{_spatial}d_backward.default")(_gradient(_spatial))
