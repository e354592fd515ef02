# tests/offline/rows.py: problems for which the compiler takes each hand-written kernel of GPUs, with each of its tiles.
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from tests.offline.rendering import CAPS, LARGE, LIMITS, TYPES, Kernel, kernels, trace, with_every_choice

ROOT = Path(__file__).resolve().parents[2]
# Packing is for tensor cores and fp32, but its kernel is portable.
TENSOR_CORES = {**LARGE, "units": 132, "kernels": "warpgroup"}

Tensor = torch.Tensor


@dataclass(frozen=True)
class Problem:
    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    caps: dict[str, Any]
    types: tuple[str, ...] = tuple(TYPES)

    def inputs(self, dtype: torch.dtype) -> list[Tensor]:
        return [torch.zeros(s, dtype=dtype, requires_grad=True) for s in self.shapes]


def linear_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.linear(x, w, b))


def linear_residual(x: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
    return y + F.linear(x, w, b)


def conv_relu(x: Tensor, w: Tensor, b: Tensor, **settings: Any) -> Tensor:
    return F.conv2d(x, w, b, **settings).relu()


def attend(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, **settings)


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask.detach())


def gemm(m: int, n: int, k: int, function: Any = torch.mm) -> Problem:
    if function is torch.mm:
        return Problem(function, ((m, k), (k, n)), CAPS)
    more = ((m, n),) if function is linear_residual else ()
    return Problem(function, ((m, k), (n, k), (n,), *more), CAPS)


def conv(
    channels: int, filters: int, size: int, filter: int = 3, groups: int = 1, caps: Any = CAPS, **settings: Any
) -> Problem:
    settings = {"padding": filter // 2, "groups": groups, **settings}
    shapes = ((4, channels, size, size), (filters, channels // groups, filter, filter), (filters,))
    return Problem(partial(conv_relu, **settings), shapes, caps)


def winograd(channels: int, filters: int) -> Problem:
    return replace(conv(channels, filters, 112, caps=LARGE), types=("fp32",))


def attention(queries: int, keys: int, depth: int, function: Any = attend) -> Problem:
    q, k = (2, 4, queries, depth), (2, 4, keys, depth)
    return Problem(function, (q, k, k, *([(2, 1, queries, keys)] if function is masked else [])), CAPS)


def power_spectrum(x: Tensor, dim: int = -1) -> Tensor:
    return torch.fft.rfft(x, dim=dim).abs()


def sorted_rows(x: Tensor) -> Tensor:
    return x.sort().values


PROBLEMS: dict[str, Problem] = {
    "gemm large": gemm(1024, 1024, 1024),
    "gemm wide": gemm(512, 2048, 256),
    "gemm low": gemm(14, 4096, 4096),
    "gemm few rows": gemm(30, 1000, 512),
    "gemm unaligned": gemm(301, 203, 105),
    "gemm long unaligned": gemm(111, 77, 5003),
    "linear and gelu": gemm(512, 1024, 256, linear_gelu),
    "linear and residual": gemm(512, 256, 1024, linear_residual),
    "conv 3x3": conv(64, 64, 56),
    "conv 3x3 in little local memory": conv(64, 64, 56, caps={**CAPS, "local_bytes": 16 * 1024}),
    "conv 3x3 to many": conv(64, 128, 28),
    "conv 3x3 to very few": conv(64, 12, 28),
    "conv 3x3 of few pixels": conv(256, 512, 7),
    "conv 3x3 strided": conv(64, 128, 28, stride=2),
    "conv 3x3 dilated": conv(64, 64, 28, dilation=2, padding=2),
    "conv 3x3 unaligned": conv(30, 26, 28),
    "conv 1x1": conv(256, 64, 28, 1),
    "conv 1x1 to few": conv(96, 24, 56, 1),
    "conv 7x7 of colours": conv(3, 64, 112, 7, stride=2),
    "conv 3x3 of colours": conv(3, 16, 112, 3, stride=2),
    "conv 5x5 in groups": conv(64, 128, 28, 5, groups=4),
    "conv 3x3 in groups of 4": conv(64, 64, 28, groups=16),
    "depthwise 3x3": conv(96, 96, 28, groups=96),
    "depthwise 3x3 strided": conv(96, 96, 28, groups=96, stride=2),
    "depthwise 5x5": conv(48, 48, 14, 5, groups=48),
    "depthwise 7x7": conv(33, 33, 14, 7, groups=33),
    "winograd": winograd(64, 64),
    "winograd unaligned": winograd(66, 70),
    "attention of 16": attention(64, 64, 16),
    "attention of 32": attention(512, 512, 32),
    "attention of 64": attention(512, 512, 64),
    "attention of 64, causal": attention(512, 512, 64, partial(attend, is_causal=True)),
    "attention of 64, masked": attention(70, 90, 64, masked),
    "attention of 64, dropout": attention(96, 96, 64, partial(attend, dropout_p=0.25)),
    "attention of 64, one query": attention(1, 300, 64),
    "attention of 80": attention(100, 100, 80),
    "attention of 128": attention(256, 256, 128),
    "attention of 256": attention(256, 256, 256),
    "fft of rows": Problem(power_spectrum, ((64, 1000),), CAPS, ("fp32",)),
    "fft of columns": Problem(partial(power_spectrum, dim=0), ((512, 100),), CAPS, ("fp32",)),
    "sort of rows": Problem(sorted_rows, ((8, 3000),), CAPS, ("fp32",)),
    "sort of a long row": Problem(sorted_rows, ((1, 30000),), CAPS, ("fp32",)),
    "median of a long row": Problem(torch.median, ((30000,),), CAPS, ("fp32",)),
    "pack": Problem(torch.mm, ((4096, 4096), (4096, 4096)), TENSOR_CORES, ("fp32",)),
    "pack unaligned": Problem(torch.mm, ((4099, 4101), (4101, 4103)), TENSOR_CORES, ("fp32",)),
}  # fmt: skip


def render(name: str, type: str) -> Iterator[Kernel]:
    """Yields the portable hand-written kernels of a problem: as tuning tries them, and fused as a plan has them."""
    problem = PROBLEMS[name]
    for graph in trace(problem.function, *problem.inputs(TYPES[type])):
        found = [*kernels(graph, type, name, problem.caps)]
        if problem.caps is not TENSOR_CORES:
            found += with_every_choice(graph, type, name, problem.caps)
        yield from (kernel for kernel in found if kernel.row.split(" ")[0].split(",")[0] in files())


def files() -> set[str]:
    """Returns the files of kernels.def's rows of level `group`, without their suffix."""
    text = (ROOT / "kernels/kernels.def").read_text(encoding="utf-8")
    rows = re.findall(r"^OCL_KERNEL\(\w+, \w+, group,.*?FILES\(([^)]*)\)", text, re.MULTILINE | re.DOTALL)
    return {re.findall(r'"([^"]+)"', row)[-1] for row in rows}


def tiles(family: str, macro: str) -> list[str]:
    """Returns the tiles of a family's tiles.def for which the chips have registers, as rows name them: "128x64 by 8x4"."""
    text = (ROOT / f"csrc/schedule/families/{family}/tiles.def").read_text(encoding="utf-8")
    found = []
    for line in re.findall(rf"^{macro}\((.*)\)$", text, re.MULTILINE):
        tile = dict(re.findall(r"\.(\w+) = (\d+)", line))
        if int(tile.get("registers", 0)) <= max(registers for registers, _ in LIMITS):
            found.append(f"{tile['rows']}x{tile['columns']} by {tile['item_rows']}x{tile['item_columns']}")
    return found


def expected() -> list[str]:
    """Returns patterns of rows that the problems must reach: every kernel, with every tile."""
    found = [f"gemm/group {tile}" for tile in tiles("gemm", "GROUP_TILE")]
    found += [f"conv/weight_group {tile}" for tile in tiles("conv", "WEIGHT_GROUP_TILE")]
    for pass_ in ("forward", "data gradient"):
        found += [f"conv/group {tile}, {pass_}" for tile in tiles("conv", "GROUP_TILE")]
        found.append(f"conv/group .* flat, {pass_}")
    found += [f"depthwise/group, {pass_}" for pass_ in ("forward", "data gradient", "weight gradient")]
    for names, heads in ((("64x64", "32x64"), (16, 32, 64)), (("32x128", "16x128"), (80, 128)), (("16x256",), (256,))):
        found += [f"attention/group {tile} heads of {d}, {pass_}" for tile in names for d in heads
                  for pass_ in ("forward", "query gradient", "key and value gradient")]  # fmt: skip
    found.append("attention/few_rows_group heads of 64, forward")
    return found + sorted(file for file in files() if not any(row.startswith(file) for row in found))


def missing(found: Iterable[Kernel]) -> list[str]:
    """Returns what `expected` wants and no kernel is."""
    rows = {kernel.row for kernel in found}
    return [pattern for pattern in expected() if not any(re.fullmatch(pattern, row) for row in rows)]
