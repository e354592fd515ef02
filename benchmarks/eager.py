# benchmarks/eager.py: the time of ops called eagerly, as a training loop calls them around a compiled model, beside torch's.
"""python benchmarks/eager.py --sides cpu,ocl --elements 1048576 --save eager.json

Sides (cpu, cuda, ocl) take turns (turns.py). Backward on CUDA fails in a process that has used ocl before (torch 2.11), so on a GPU
run the sides one by one: `--sides cuda`, then `--sides ocl`.
"""

from __future__ import annotations

import argparse
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import turns
from torch import Tensor

import torch_ocl_compile  # noqa: F401  registers the device

WORDS = 50257  # Of GPT-2's vocabulary: rows at no multiple of a vector's bytes.
# Kind of an input -> its shape for n elements.
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "line": lambda n: (n,),
    "square": lambda n: (math.isqrt(n), math.isqrt(n)),
    "rows": lambda n: (max(n // 4096, 1), 4096),
    "scale": lambda n: (4096,),
    "logits": lambda n: (max(n // WORDS, 1), WORDS),
    "padded": lambda n: (max(n // WORDS, 1), WORDS + 47),
    "heads": lambda n: (max(n // 2**20, 1), 1024, 16, 64),
    "images": lambda n: (max(n // (256 * 56 * 56), 1), 256, 56, 56),
    "filters": lambda n: (256, 256, 3, 3),
    "pixels": lambda n: (256, 256, 1, 1),
    "channels": lambda n: (256,),
    "table": lambda n: (WORDS, 1024),
    "vectors": lambda n: (max(n // 1024, 1), 1024),
}
LAST = torch.channels_last
HALF = torch.bfloat16
# Name -> (kinds of the inputs, function). A kind "a<b" is a tensor of the shape of kind a with integers below the rows of kind b.
FORWARD: dict[str, tuple[str, Callable[..., Any]]] = {
    "to bfloat16": ("line", lambda x: x.to(HALF)),
    "to float32": ("line", lambda x: x.to(torch.float32, copy=True)),
    "to int64": ("line", lambda x: x.to(torch.int64)),
    "clone": ("line", torch.clone),
    "transposed copy": ("square", lambda x: x.t().contiguous()),
    "channels_last": ("images", lambda x: x.contiguous(memory_format=LAST)),
    "swapped heads": ("heads", lambda x: x.transpose(1, 2).contiguous()),
    "rows of a padded matrix": ("padded", lambda x: x[:, :WORDS].contiguous()),
    "expanded copy": ("square", lambda x: x[:, :1].expand(x.shape).contiguous()),
    "fill": ("line", lambda x: x.fill_(2.0)),
    "add": ("line line", torch.add),
    "gelu": ("line", F.gelu),
    "where": ("line line", lambda x, y: torch.where(x > y, x, y)),
    "masked_fill": ("line line", lambda x, y: x.masked_fill(y > 0, 0.0)),
    "cat": ("square square", lambda x, y: torch.cat([x, y])),
    "cat of columns": ("square square", lambda x, y: torch.cat([x, y], 1)),
    "sum": ("line", torch.sum),
    "sum of rows": ("square", lambda x: x.sum(1)),
    "sum of columns": ("square", lambda x: x.sum(0)),
    "norm": ("line", torch.linalg.vector_norm),
    "isfinite": ("line", lambda x: x.isfinite().all()),
    "argmax": ("logits", lambda x: x.argmax(-1)),
    "softmax": ("rows", lambda x: x.softmax(-1)),
    "log_softmax": ("logits", lambda x: x.log_softmax(-1)),
    "dropout": ("line", lambda x: F.dropout(x, 0.1)),
    "embedding": ("table vectors<table", lambda w, i: F.embedding(i[:, 0], w)),
    "index_select": ("vectors vectors<vectors", lambda x, i: x.index_select(0, i[:, 0])),
    "gather": ("rows rows<scale", lambda x, i: x.gather(1, i)),
    "scatter_add": ("rows rows<scale", lambda x, i: torch.zeros_like(x).scatter_add(1, i, x)),
    "mm": ("square square", torch.mm),
    "conv2d 3x3": ("images filters", lambda x, w: F.conv2d(x, w, padding=1)),
}
# Name -> (kinds of the inputs, function whose gradients of floating-point inputs are computed as well).
TRAINED: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "cross_entropy": ("logits", lambda x: F.cross_entropy(x, x.detach().argmin(-1))),
    "mse_loss": ("line line", F.mse_loss),
    "bce_with_logits": ("line line", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid())),
    "layer_norm": ("rows scale scale", lambda x, w, b: F.layer_norm(x, (4096,), w, b)),
    "batch_norm": ("images channels channels", lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    "embedding": ("table vectors<table", lambda w, i: F.embedding(i[:, 0], w)),
    "max_pool2d": ("images", lambda x: F.max_pool2d(x, 3, 2, 1)),
    "avg_pool2d": ("images", lambda x: F.avg_pool2d(x, 2)),
    "conv2d 3x3": ("images filters", lambda x, w: F.conv2d(x, w, padding=1)),
    "conv2d 1x1": ("images pixels", F.conv2d),
}
LAYERS = ((768, 3072), (3072, 768), (768, 2304), (768, 768), (768,), (3072,)) * 4
OPTIMIZERS: dict[str, Callable[[list[Tensor]], Callable[[], Any]]] = {
    "AdamW": lambda p: torch.optim.AdamW(p, foreach=True).step,
    "AdamW fused": lambda p: torch.optim.AdamW(p, fused=True).step,
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9).step,
    "clip_grad_norm_": lambda p: lambda: torch.nn.utils.clip_grad_norm_(p, 1e9),
}


def inputs_of(kinds: str, n: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    generator, made = torch.Generator().manual_seed(1), []
    for kind in kinds.split():
        shape, _, below = kind.partition("<")
        size = SHAPES[shape](n)
        if below:
            made.append(torch.randint(SHAPES[below](n)[0], size, generator=generator).to(device))
        else:
            made.append(torch.randn(size, generator=generator).to(dtype).to(device))
    return made


def call_of(
    name: str, way: str, given: argparse.Namespace, dtype: torch.dtype, device: torch.device
) -> Callable[[], Any]:
    """Returns the call that is measured. way: forward, trained (with gradients) or optimizer."""
    if way == "optimizer":
        weights = [torch.nn.Parameter(torch.randn(shape).to(device)) for shape in LAYERS]
        for weight in weights:
            weight.grad = torch.full_like(weight, 1e-3)
        return OPTIMIZERS[name](weights)
    kinds, function = (FORWARD if way == "forward" else TRAINED)[name]
    inputs = inputs_of(kinds, given.elements, dtype, device)
    if way == "forward":
        return functools.partial(function, *inputs)
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    gradient = torch.ones_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), leaves, gradient, allow_unused=True)


def measure(name: str, way: str, dtype: str, given: argparse.Namespace) -> list[turns.Row]:
    devices = {side: torch.device(given.ocl_device if side == "ocl" else side) for side in given.sides}
    calls = {
        side: (device, call_of(name, way, given, getattr(torch, dtype), device)) for side, device in devices.items()
    }
    return turns.measure(calls, None, given, function=name, way=way, dtype=dtype, elements=given.elements)


def main() -> None:
    parser = turns.parser_of_sides(__doc__, ["cpu", "ocl"], seconds=0.05)
    parser.add_argument("--elements", type=int, default=2**26)
    parser.add_argument("--dtypes", type=turns.words, default=["float32", "bfloat16"])
    parser.add_argument("--match", default="", help="a regular expression; only the ops whose names contain it")
    given = parser.parse_args()
    ways = [
        ("forward", given.dtypes, FORWARD),
        ("trained", given.dtypes, TRAINED),
        ("optimizer", ["float32"], OPTIMIZERS),
    ]
    cases = {
        f"{name} {way} {dtype}": functools.partial(measure, name, way, dtype, given)
        for way, dtypes, names in ways
        for name in names
        for dtype in dtypes
        if re.search(given.match, name)
    }
    turns.run("eager", cases, given)


if __name__ == "__main__":
    main()
