# benchmarks/eager_side.py: runs ops of eager.py on one side, in a process of its own.
"""Reads lines of JSON: ["prepare", name, way, dtype], ["time"] and ["settings"], and answers each with one.

torch has one accelerator per process, so only the process of ocl imports torch_ocl_compile."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.side import device_of, set_up, settings_in_effect
from benchmarks.harness.timing import seconds_of

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


def call_of(name: str, way: str, elements: int, dtype: torch.dtype, device: torch.device) -> Callable[[], Any]:
    """Returns the call that is measured. way: forward, trained (with gradients) or optimizer."""
    if way == "optimizer":
        weights = [torch.nn.Parameter(torch.randn(shape).to(device)) for shape in LAYERS]
        for weight in weights:
            weight.grad = torch.full_like(weight, 1e-3)
        return OPTIMIZERS[name](weights)
    kinds, function = (FORWARD if way == "forward" else TRAINED)[name]
    inputs = inputs_of(kinds, elements, dtype, device)
    if way == "forward":
        return functools.partial(function, *inputs)
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    gradient = torch.ones_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), leaves, gradient, allow_unused=True)


class Worker:
    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self.device = given, device_of(given["side"], given["ocl_device"])
        self.seconds_of = seconds_of
        self.settings = functools.partial(settings_in_effect, given["side"], self.device, "highest")
        set_up(given["side"], given["threads"], "highest", freezing=False)

    def prepare(self, name: str, way: str, dtype: str) -> None:
        self.call = call_of(name, way, self.given["elements"], getattr(torch, dtype), self.device)
        self.seconds_of(self.call, self.device, 2)
        self.calls = max(1, int(self.given["seconds"] / self.seconds_of(self.call, self.device)))

    def time(self) -> float:
        return self.seconds_of(self.call, self.device, self.calls)  # type: ignore[no-any-return]


def main() -> None:
    sys.stdout, answers = sys.stderr, sys.stdout  # Output of libraries must not mix with the answers.
    worker = Worker(json.loads(sys.argv[1]))
    commands: dict[str, Callable[..., Any]] = {
        "prepare": worker.prepare,
        "time": worker.time,
        "settings": worker.settings,
    }
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(commands[command](*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
