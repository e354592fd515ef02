# torch_ocl_compile/decompositions/draws.py: distributions that are drawn by rejection, and the derivatives of drawn numbers.
"""The kernels are in user_kernel/draws.py and draw_gradients.py. 16-bit types are computed in float32."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile.decompositions.forms import form
from torch_ocl_compile.decompositions.random import _checked, _draw_type
from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten


def _flat(*tensors: Any) -> list[Any]:
    """Returns contiguous rows of the type in which numbers are drawn."""
    return [x.to(_draw_type(x.dtype)).reshape(-1).contiguous() for x in tensors]


def _keys(x: Any) -> Any:
    return torch.randint(0, 2**63 - 1, (x.numel(),), dtype=torch.int64, device=x.device)


def _shaped(made: Any, x: Any) -> Any:
    return made.view(x.shape).to(x.dtype)


@decompose(aten.poisson.default)
@form("aten.poisson.default")
def poisson(rates: Any, generator: Any = None) -> Any:
    if not rates.is_floating_point():
        return NotImplemented
    checked = _checked("poisson", rates, "rates of at least 0", ~(rates < 0))
    return _shaped(torch.ops.ocl.poisson(*_flat(checked), _keys(rates)), rates)


@decompose(aten.binomial.default)
@form("aten.binomial.default")
def binomial(count: Any, prob: Any, generator: Any = None) -> Any:
    if not (count.is_floating_point() and count.dtype == prob.dtype):
        return NotImplemented
    count, prob = torch.broadcast_tensors(count, prob)
    return _shaped(torch.ops.ocl.binomial(*_flat(count, prob), _keys(count)), count)


@decompose(aten._standard_gamma.default)
@form("aten._standard_gamma.default")
def standard_gamma(alpha: Any, generator: Any = None) -> Any:
    """Returns positive numbers, as PyTorch does: those that are too small for the type become its smallest normal one."""
    if not alpha.is_floating_point():
        return NotImplemented
    made = torch.ops.ocl.standard_gamma(*_flat(alpha), _keys(alpha), 0)
    return _shaped(made, alpha).clamp_min(torch.finfo(alpha.dtype).tiny)


@decompose(aten._sample_dirichlet.default)
@form("aten._sample_dirichlet.default")
def sample_dirichlet(alpha: Any, generator: Any = None) -> Any:
    """Returns gamma numbers divided by their sum, from their logarithms: with small alphas, numbers differ by many magnitudes."""
    if not alpha.is_floating_point() or alpha.dim() == 0:
        return NotImplemented
    logs = torch.ops.ocl.standard_gamma(*_flat(alpha), _keys(alpha), 1).view(alpha.shape)
    limits = torch.finfo(alpha.dtype)
    return logs.softmax(-1).to(alpha.dtype).clamp(limits.tiny, 1 - limits.eps / 2)


@decompose(aten._standard_gamma_grad.default)
@form("aten._standard_gamma_grad.default")
def standard_gamma_grad(alpha: Any, drawn: Any) -> Any:
    if not (alpha.is_floating_point() and alpha.dtype == drawn.dtype):
        return NotImplemented
    alpha, drawn = torch.broadcast_tensors(alpha, drawn)
    return _shaped(torch.ops.ocl.gamma_grad(*_flat(alpha, drawn)), alpha)


@decompose(aten._dirichlet_grad.default)
@form("aten._dirichlet_grad.default")
def dirichlet_grad(x: Any, alpha: Any, total: Any) -> Any:
    if not (x.is_floating_point() and x.dtype == alpha.dtype == total.dtype):
        return NotImplemented
    x, alpha, total = torch.broadcast_tensors(x, alpha, total)
    return _shaped(torch.ops.ocl.dirichlet_grad(*_flat(x, alpha, total)), x)
