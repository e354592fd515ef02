# benchmarks/harness/cases.py: the single operations to time: inputs, call, floating-point operations, bytes.
"""op_side.py runs the cases. Inputs are made on the CPU from a fixed seed. `call(*inputs)` runs the operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """An operation to time. `flops` counts a multiply-add as two. `bytes` is the least memory traffic in fp32: every input
    and output once."""

    name: str
    group: str
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., object]
    flops: float = 0
    bytes: float = 0
    images: bool = False  # Inputs with four dimensions may be channels-last.
    # If above 0, the last input has indices below it.
    classes: int = 0
    # Number of inputs at the end that are parameters of a model. They are the same tensors in every call.
    weights: int = 0

    def inputs(self, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        result = [torch.randn(s, generator=generator).to(dtype) for s in self.shapes]
        if self.classes:
            result[-1] = torch.randint(self.classes, self.shapes[-1], generator=generator)
        return result


# Forms of a matrix product: a function that gives the shapes of both operands, and the call. nt: the weight of a Linear
# layer, [N][K]. tn: the gradient of that weight.
FORMS: dict[str, tuple[Callable[..., Any], Callable[..., object]]] = {
    "": (lambda m, n, k: ((m, k), (k, n)), torch.mm),
    "nt": (lambda m, n, k: ((m, k), (n, k)), F.linear),
    "tn": (lambda m, n, k: ((k, m), (k, n)), lambda a, b: torch.mm(a.t(), b)),
    "bmm": (lambda b, m, n, k: ((b, m, k), (b, k, n)), torch.bmm),
    "bmm nt": (lambda b, m, n, k: ((b, m, k), (b, n, k)), lambda a, b: torch.bmm(a, b.transpose(1, 2))),
}


def gemm(*sizes: int, form: str = "", group: str = "gemm") -> Case:
    """A matrix product. `sizes` are M, N, K; forms of bmm have the batch in front."""
    shapes, call = FORMS[form]
    batch, (m, n, k) = (sizes[0] if len(sizes) == 4 else 1), sizes[-3:]
    name = "x".join(map(str, sizes)) + f" {form}".rstrip()
    flops, moved = 2.0 * batch * m * n * k, 4.0 * batch * (m * n + m * k + n * k)
    return Case(name, group, shapes(*sizes), call, flops, moved, weights=int(form == "nt"))


# Matrix products of transformers on a CPU: rows, columns, inner dimension. ViT-B/16 with batch 8, a GPT of width 256
# with 4 x 256 characters, and a head over a vocabulary. Then the products of attention (with batch), and decoding of
# few tokens.
LINEARS = [
    (1576, 2304, 768), (1576, 768, 768), (1576, 3072, 768), (1576, 768, 3072),
    (1024, 768, 256), (1024, 256, 256), (1024, 1024, 256), (1024, 256, 1024), (256, 32000, 768),
]  # fmt: skip
GRADIENTS = [(768, 3072, 1576), (2304, 768, 1576), (256, 1024, 1024)]
SCORES = [(96, 197, 197, 64), (16, 256, 256, 64), (96, 512, 512, 64)]
VALUES = [(96, 197, 64, 197), (16, 256, 64, 256), (96, 512, 64, 512)]
DECODES = [(m, n, k) for m in (1, 4, 8) for n, k in ((768, 768), (3072, 768), (768, 3072), (32000, 768))]


def transformer_products() -> list[Case]:
    cases = [gemm(*sizes, form=form) for sizes in LINEARS for form in ("nt", "")]
    cases += [gemm(*sizes, form="tn") for sizes in GRADIENTS]
    cases += [gemm(*sizes, form="bmm nt", group="bmm") for sizes in SCORES]
    cases += [gemm(*sizes, form="bmm", group="bmm") for sizes in VALUES]
    return cases + [gemm(*sizes, form="nt", group="decode") for sizes in DECODES]


# Convolutions of ResNet and VGG: image size, input channels, output channels, filter size, stride.
CONVOLUTIONS = [
    (56, 64, 64, 3, 1), (28, 128, 128, 3, 1), (14, 256, 256, 3, 1), (7, 512, 512, 3, 1),
    (56, 64, 256, 1, 1), (56, 256, 64, 1, 1), (14, 1024, 256, 1, 1), (14, 256, 1024, 1, 1),
    (56, 128, 128, 3, 2), (224, 64, 64, 3, 1), (112, 128, 128, 3, 1), (28, 512, 512, 3, 1),
]  # fmt: skip


def as_laid_out(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Returns `y`, channels-last if `x` is. Feature maps keep their layout inside a network, but the output of a graph
    may not."""
    last = torch.channels_last
    return y.contiguous(memory_format=last) if x.is_contiguous(memory_format=last) else y


# All 3x3 convolutions with stride 1 in resnet18 and vgg16 for images of 224x224. The first one of vgg16 has no data
# gradient.
CONVOLUTIONS_3X3 = [
    (size, c, k, 3, 1)
    for size, c, k in [
        (56, 64, 64), (28, 128, 128), (14, 256, 256), (7, 512, 512),
        (224, 3, 64), (224, 64, 64), (112, 64, 128), (112, 128, 128), (56, 128, 256), (56, 256, 256),
        (28, 256, 512), (28, 512, 512), (14, 512, 512),
    ]
]  # fmt: skip


def convolutions(batch: int, layers: list[tuple[int, int, int, int, int]], group: str) -> list[Case]:
    """Cases of the groups `group` (forward), `group`_data and `group`_weight (gradients)."""
    cases = []
    for size, c, k, r, stride in layers:
        out = (size + 2 * (r // 2) - r) // stride + 1
        x, w, y = (batch, c, size, size), (k, c, r, r), (batch, k, out, out)
        flops = 2.0 * batch * out * out * k * c * r * r
        moved = 4.0 * sum(torch.Size(s).numel() for s in (x, w, y))
        name = f"{size}x{size} {c}>{k} {r}x{r}" + (f" s{stride}" if stride > 1 else "")
        conv = (None, (stride, stride), (r // 2, r // 2), (1, 1), False, (0, 0), 1)

        def forward(x: Tensor, w: Tensor, conv: Any = conv) -> Tensor:
            return as_laid_out(x, torch.ops.aten.convolution(x, w, *conv))

        def data(dy: Tensor, x: Tensor, w: Tensor, conv: Any = conv) -> Tensor:
            return as_laid_out(dy, torch.ops.aten.convolution_backward(dy, x, w, *conv, (True, False, False))[0])

        def weight(dy: Tensor, x: Tensor, w: Tensor, conv: Any = conv) -> Any:
            return torch.ops.aten.convolution_backward(dy, x, w, *conv, (False, True, False))[1]

        cases.append(Case(name, group, (x, w), forward, flops, moved, images=True))
        if c > 3:
            cases.append(Case(name, f"{group}_data", (y, x, w), data, flops, moved, images=True))
        cases.append(Case(name, f"{group}_weight", (y, x, w), weight, flops, moved, images=True))
    return cases


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """A step of Adam. It uses abs(v) as the second moment, so that random inputs are valid."""
    m = torch.lerp(m, g, 0.1)
    v = v.abs() * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def memory_bound(rows: int, columns: int, images: int) -> list[Case]:
    shape, n = (rows, columns), 4.0 * rows * columns
    maps = (images, 64, 112, 112)
    return [
        Case("copy", "memory", (shape,), lambda x: x + 1.0, bytes=2 * n),
        Case("pointwise chain", "memory", (shape, shape), lambda a, b: F.gelu(a * b + a) - b, bytes=3 * n),
        Case("softmax", "memory", (shape,), lambda x: torch.softmax(x, -1), bytes=2 * n),
        Case("layer norm", "memory", (shape, (columns,), (columns,)), lambda x, w, b: F.layer_norm(x, w.shape, w, b), bytes=2 * n),
        Case("batch norm, training", "memory", (maps, (64,), (64,)),
             lambda x, w, b: F.batch_norm(x, None, None, w, b, True), bytes=3 * 4.0 * math.prod(maps), images=True),
        Case("adam", "memory", (shape,) * 4, adam, bytes=7 * n),
    ]  # fmt: skip


aten = torch.ops.aten

# Chains of pointwise ops over [rows, columns]: name, number of inputs, call, number of tensors that are read or
# written.
CHAINS: list[tuple[str, int, Callable[..., Tensor], int]] = [
    ("relu(a*b+a+1)", 2, lambda a, b: torch.relu(a * b + a + 1.0), 3),
    ("gelu_tanh(a)*b", 2, lambda a, b: F.gelu(a, approximate="tanh") * b, 3),
    ("gelu(a)*b", 2, lambda a, b: F.gelu(a) * b, 3),
    ("exp(a)+b", 2, lambda a, b: torch.exp(a) + b, 3),
    ("silu(a)*b", 2, lambda a, b: F.silu(a) * b, 3),
    ("tanh(a)+sigmoid(a)", 1, lambda a: torch.tanh(a) + torch.sigmoid(a), 2),
]  # fmt: skip
CHAIN_SHAPES = [(1024, 1024), (16384, 1024)]


def _norm_backward(dy: Tensor, x: Tensor, w: Tensor, b: Tensor, mean: Tensor, rstd: Tensor) -> Any:
    return aten.native_layer_norm_backward(dy, x, w.shape, mean, rstd, w, b, (True, True, True))


# Ops along the rows of a matrix: name, call, inputs, number of tensors that are read or written. An input is x (the
# matrix), c ([columns]), r ([rows, 1]) or i (column indices).
ROW_OPS: list[tuple[str, Callable[..., Any], str, int]] = [
    ("softmax", lambda x: torch.softmax(x, -1), "x", 2),
    ("log softmax", lambda x: torch.log_softmax(x, -1), "x", 2),
    ("layer norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b), "xcc", 2),
    ("softmax backward", lambda dy, y: aten._softmax_backward_data(dy, y, -1, dy.dtype), "xx", 3),
    ("layer norm backward", _norm_backward, "xxccrr", 3),
    ("cross entropy", F.cross_entropy, "xi", 1),
    ("column sums", lambda x: x.sum(0), "x", 1),
]  # fmt: skip
ROW_SHAPES = [(1024, 1024), (16384, 1024), (5320, 197), (256, 4096), (21, 50257), (333, 50257)]


def rows() -> list[Case]:
    cases = []
    for shape in CHAIN_SHAPES:
        size = 4.0 * shape[0] * shape[1]
        for name, count, call, moved in CHAINS:
            cases.append(Case(f"{name} {shape[0]}x{shape[1]}", "chains", (shape,) * count, call, bytes=moved * size))
    for shape in ROW_SHAPES:
        size = 4.0 * shape[0] * shape[1]
        one: dict[str, tuple[int, ...]] = {"x": shape, "c": shape[1:], "r": (shape[0], 1), "i": shape[:1]}
        for name, call, inputs, moved in ROW_OPS:
            cases.append(Case(f"{name} {shape[0]}x{shape[1]}", "rows", tuple(one[i] for i in inputs), call,
                              bytes=moved * size, classes=shape[1] if inputs[-1] == "i" else 0))  # fmt: skip
    for n in (64, 1024):
        cases.append(Case(f"batch norm statistics {n}x64x16x16", "rows", ((n, 64, 16, 16),), lambda x: torch.var_mean(x, (0, 2, 3)),
                          bytes=4.0 * n * 64 * 256, images=True))  # fmt: skip
    return cases


def attention(batch: int, heads: int, length: int, size: int, kind: str = "") -> list[Case]:
    """Attention and its gradients. `kind`: "" (no mask), "causal", or "mask" (a tensor that is added to the scores, the same
    for all heads)."""
    shape, mask = (batch, heads, length, size), (batch, 1, length, length)
    flops = 4.0 * batch * heads * length * length * size / (2 if kind == "causal" else 1)
    given = (shape,) * 3 + ((mask,) if kind == "mask" else ())
    moved = 4.0 * (4 * math.prod(shape) + (math.prod(mask) if kind == "mask" else 0))

    def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "causal")

    def backward(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
            return torch.autograd.grad(forward(q, k, v, mask), (q, k, v), dy)

    name = f"{batch}x{heads}x{length}x{size} {kind}".rstrip()
    return [
        Case(name, "attention", given, forward, flops, moved),
        Case(name, "attention_grad", (shape, *given), backward, 3.5 * flops, 2 * moved),
    ]


# Batch, heads, length and head size of ViT-B/16 and GPT-2, then of long sequences of language models.
ATTENTION = {
    "gpu": [(64, 12, 197, 64), (8, 12, 512, 64), (8, 12, 2048, 64), (4, 16, 2048, 128)],
    "cpu": [(8, 12, 512, 64), (8, 4, 256, 64), (8, 12, 197, 64), (1, 8, 2048, 64)],
}


def all_cases(batch: int = 64) -> list[Case]:
    gpu = batch >= 32
    sizes = (1024, 2048, 4096, 8192) if gpu else (512, 1024, 2048, 4096)
    cases = [gemm(n, n, n) for n in sizes]
    # Products of a transformer layer of width 768 with `tokens` tokens, and a classifier's head.
    tokens = 4096 if gpu else 1024
    cases += [
        gemm(tokens, 2304, 768),
        gemm(tokens, 3072, 768),
        gemm(tokens, 768, 3072),
        gemm(64, 4096, 9216, form="nt"),
    ]
    if not gpu:
        cases += transformer_products()
    cases += convolutions(batch, CONVOLUTIONS, "conv") + convolutions(batch, CONVOLUTIONS_3X3, "conv3")
    # On a GPU with some TB/s, even 64 MB take little longer than a launch. Tensors must be larger to measure bandwidth.
    cases += memory_bound(65536, 1024, 128) if gpu else memory_bound(1024, 1024, 64)
    for sizes in ATTENTION["gpu" if gpu else "cpu"]:
        for kind in ("", "causal", "mask"):
            cases += attention(*sizes, kind)
    if not gpu:
        cases += rows()
    return cases


def chosen(batch: int, groups: list[str], parts: list[str]) -> list[Case]:
    """The cases of `groups` whose names contain one of `parts`. An empty list stands for all."""
    wanted = [c for c in all_cases(batch) if not groups or c.group in groups]
    return [c for c in wanted if not parts or any(part in c.name for part in parts)]
