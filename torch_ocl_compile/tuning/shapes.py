# torch_ocl_compile/tuning/shapes.py: reads shapes to tune, in the form that users write: "gemm:512x512x512".
from __future__ import annotations

import re
from collections.abc import Callable

import torch
import torch.nn.functional as F

from torch_ocl_compile.errors import ConfigError

# What `tune --quick` measures without a target: products of a small transformer and of classifiers, the convolutions of
# ResNet-18 and the wide ones of ResNet-50, one attention.
STANDARD = (
    "gemm:1024x1024x1024",
    "conv:8x64x56x56,64x3x3",
    "conv:8x128x28x28,128x3x3",
    "gemm:1024x3072x768",
    "conv:8x256x14x14,256x3x3",
    "conv:8x64x56x56,256x1x1",
    "gemm:64x1000x512",
    "conv:8x512x7x7,512x3x3",
    "conv:8x128x56x56,128x3x3,stride=2",
    "conv:8x3x224x224,64x7x7,stride=2",
    "attention:8x8x256x64",
)

Job = tuple[Callable[..., torch.Tensor], list[torch.Tensor]]


def is_shape(text: str) -> bool:
    """True if a text is meant as a shape, even if it is wrong."""
    return text.partition(":")[0] in ("gemm", "conv", "attention")


def job(text: str, device: torch.device, dtype: torch.dtype) -> Job:
    """Returns a function and its inputs for a shape such as "gemm:512x512x512". ConfigError if it is no valid shape."""
    kind, _, shapes = text.partition(":")
    first, *rest = shapes.split(",")
    settings = dict(part.split("=", 1) for part in rest if re.fullmatch(r"\w+=\d+", part))
    sizes = [_numbers(part) for part in [first, *(part for part in rest if part.split("=")[0] not in settings)]]

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype).to(device).requires_grad_()

    form = (kind, [len(s) for s in sizes])
    if form == ("gemm", [3]):
        ((m, n, k),) = sizes
        return torch.mm, [randn(m, k), randn(k, n)]
    if form == ("conv", [4, 3]):
        (n, c, h, w), (k, r, s) = sizes
        stride, groups = (int(settings.pop(name, 1)) for name in ("stride", "groups"))
        padding = int(settings.pop("padding", r // 2))
        if not settings:
            x = randn(n, c, h, w).detach().contiguous(memory_format=torch.channels_last).requires_grad_()
            # A function of this package would not do, because Dynamo skips functions of this package.
            conv = torch.nn.Conv2d(c, k, (r, s), stride, padding, groups=groups, bias=False)
            return conv.to(dtype).to(device), [x]
    if form == ("attention", [4]):
        return F.scaled_dot_product_attention, [randn(*sizes[0]) for _ in range(3)]
    raise ConfigError(
        f"{text!r} is no shape to tune.\n  do: options, then gemm:MxNxK, conv:NxCxHxW,KxRxS[,stride=2]"
        "[,padding=1][,groups=1] or attention:BxHxLxD, sizes as numbers"
    )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split("x")] if re.fullmatch(r"\d+(x\d+)*", text) else []


def run(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], gradients: bool) -> None:
    """Compiles and runs a job, with or without its gradients."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="ocl", dynamic=False, mode="max-autotune")
    if gradients:
        compiled(*inputs).sum().backward()
    else:
        with torch.no_grad():
            compiled(*inputs)
    torch.accelerator.synchronize()
