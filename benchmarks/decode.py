# benchmarks/decode.py: tokens per second of a Llama-like model with weights of 4, 8, 16 and 32 bits, and the share of the memory bandwidth.
"""python -m benchmarks.decode --device ocl:0
python -m benchmarks.decode --device ocl:0 --model 1b --formats int4,int8,fp8,bf16,fp32 --save decode_h100.json

One sequence grows by a token at a time, so each token reads all weights. The model is written in plain PyTorch, with random weights and a
static cache of keys and values; one compiled graph computes a token. The share is that of the bytes of weights and cache, divided by the
time of a token, in the bandwidth of the faster of two kernels that read or copy a large tensor. Formats take turns in each of --rounds;
the median counts. `--device cuda --backend inductor` (or eager) measures PyTorch; its CUDA graphs: `--mode reduce-overhead`.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import torch_ocl_compile  # noqa: F401  registers the device
from benchmarks import turns
from benchmarks.harness.side import settings_in_effect
from benchmarks.harness.timing import seconds_of

GROUP = 128
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass
class Sizes:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    positions: int = 512

    @property
    def head(self) -> int:
        return self.hidden // self.heads


MODELS = {
    "1b": Sizes(16, 2048, 32, 8, 8192, 128256),
    "small": Sizes(4, 2048, 32, 8, 5632, 8192),
    "tiny": Sizes(1, 256, 4, 2, 512, 512, 64),
}


class Linear(nn.Module):
    """A linear layer without bias, whose weight has one of the formats."""

    def __init__(self, rows: int, depth: int, how: str, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self.how = how
        size = 0.02
        if how == "int4":
            weight = torch.randint(0, 256, (rows, depth // 2), dtype=torch.uint8, device=device)
            scale = torch.full((rows, depth // GROUP), size / 4, dtype=dtype, device=device)
        elif how == "int8":
            weight = torch.randint(-127, 128, (rows, depth), dtype=torch.int8, device=device)
            scale = torch.full((rows,), size / 64, dtype=dtype, device=device)
        else:
            weight = torch.randn(rows, depth, device=device)
            weight = weight.to(torch.float8_e4m3fn) if how == "fp8" else (weight * size).to(dtype)
            scale = torch.full((rows,), size, dtype=dtype, device=device)
        self.weight, self.scale = (nn.Parameter(t, requires_grad=False) for t in (weight, scale))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.weight
        if self.how == "int4":
            q = torch.stack([w & 15, w >> 4], -1).reshape(len(w), -1)
            grouped = (q.to(x.dtype) - 8).reshape(len(w), -1, GROUP) * self.scale[..., None]
            return F.linear(x, grouped.reshape(len(w), -1))
        if self.how in ("int8", "fp8"):
            return F.linear(x, w.to(x.dtype)) * self.scale
        return F.linear(x, w)

    @property
    def bytes(self) -> int:
        return self.weight.nbytes + (self.scale.nbytes if self.how in ("int4", "int8", "fp8") else 0)


class Layer(nn.Module):
    def __init__(self, sizes: Sizes, make: Callable[[int, int], Linear], dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self.sizes = sizes
        keys = sizes.kv_heads * sizes.head
        self.queries_keys_values = make(sizes.hidden + 2 * keys, sizes.hidden)
        self.out = make(sizes.hidden, sizes.hidden)
        self.gate_up, self.down = make(2 * sizes.inner, sizes.hidden), make(sizes.hidden, sizes.inner)
        self.norms = nn.ParameterList(torch.ones(sizes.hidden, dtype=dtype, device=device) for _ in range(2))
        shape = (2, 1, sizes.kv_heads, sizes.positions, sizes.head)
        self.register_buffer("cache", torch.zeros(shape, dtype=dtype, device=device))

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], at: torch.Tensor) -> torch.Tensor:
        s = self.sizes
        y = self.queries_keys_values(F.rms_norm(x, (s.hidden,), self.norms[0]))
        q, k, v = (t.view(1, 1, -1, s.head).transpose(1, 2) for t in y.split(self.splits(), -1))
        q, k = (t * turn[0] + torch.cat([-t[..., s.head // 2 :], t[..., : s.head // 2]], -1) * turn[1] for t in (q, k))
        for kept, new in zip(self.cache, (k, v), strict=True):
            kept.index_copy_(2, at, new)
        mask = (torch.arange(s.positions, device=x.device) <= at)[None, None, None]
        a = F.scaled_dot_product_attention(q, self.cache[0], self.cache[1], mask, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(1, 1, s.hidden))
        gate, up = self.gate_up(F.rms_norm(x, (s.hidden,), self.norms[1])).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def splits(self) -> list[int]:
        keys = self.sizes.kv_heads * self.sizes.head
        return [self.sizes.hidden, keys, keys]


class Model(nn.Module):
    def __init__(self, sizes: Sizes, how: str, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self.sizes = sizes

        def make(rows: int, depth: int) -> Linear:
            return Linear(rows, depth, how, dtype, device)

        self.embedding = nn.Parameter(torch.randn(sizes.vocabulary, sizes.hidden, dtype=dtype, device=device) * 0.02)
        self.layers = nn.ModuleList(Layer(sizes, make, dtype, device) for _ in range(sizes.layers))
        self.norm = nn.Parameter(torch.ones(sizes.hidden, dtype=dtype, device=device))
        self.head = make(sizes.vocabulary, sizes.hidden)
        angle = torch.outer(torch.arange(sizes.positions), 10000.0 ** (-torch.arange(0, sizes.head, 2) / sizes.head))
        angle = torch.cat([angle, angle], -1)
        self.register_buffer("turns", torch.stack([angle.cos(), angle.sin()]).to(device, dtype))

    def forward(self, token: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the token after the one at position `at`, and the next position. Both have one element."""
        x = self.embedding[token][None]
        turn = self.turns.index_select(1, at)
        for layer in self.layers:
            x = layer(x, (turn[0], turn[1]), at)
        logits = self.head(F.rms_norm(x, (self.sizes.hidden,), self.norm))
        return logits[0].argmax(-1), (at + 1) % self.sizes.positions

    @property
    def bytes(self) -> int:
        """The bytes that a token reads: all weights but the embedding, and the cache."""
        return sum(m.bytes for m in self.modules() if isinstance(m, Linear)) + sum(x.cache.nbytes for x in self.layers)


def bandwidth(device: str, mebibytes: int) -> float:
    """Returns bytes per second of the faster of a sum over a large tensor and a copy of it."""
    x = torch.ones(mebibytes << 18, device=device)
    place = torch.device(device)
    y, best = torch.empty_like(x), 0.0
    for call, moved in ((x.sum, x.nbytes), (lambda: y.copy_(x), 2 * x.nbytes)):
        call()
        best = max(best, *(moved / seconds_of(call, place, 4) for _ in range(5)))
    return best


class Side:
    """One format: the compiled model, and the state of its sequence."""

    def __init__(self, how: str, given: argparse.Namespace) -> None:
        self.how, self.device = how, torch.device(given.device)
        dtype = DTYPES.get(how) or DTYPES[given.dtype]
        torch.manual_seed(0)
        self.model = Model(MODELS[given.model], how, dtype, given.device)
        self.step: Any = self.model
        if given.backend != "eager":
            self.step = torch.compile(self.model, backend=given.backend, mode=given.mode, dynamic=False)
        self.state = (
            torch.ones(1, dtype=torch.int64, device=given.device),
            torch.zeros(1, dtype=torch.int64, device=given.device),
        )
        self.replays = given.mode == "reduce-overhead"

    def next(self) -> None:
        if self.replays:  # The outputs are the graph's own memory, which the next call writes.
            torch.compiler.cudagraph_mark_step_begin()
            self.state = tuple(x.clone() for x in self.state)
        self.state = self.step(*self.state)

    @torch.no_grad()
    def turn(self, tokens: int) -> float:
        return seconds_of(self.next, self.device, tokens)


def main() -> None:
    parser = turns.parser_of(__doc__, 5)
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--backend", default="ocl", help="ocl, inductor or eager")
    parser.add_argument("--mode", help="of torch.compile")
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--formats", type=turns.words, default=["int4", "int8", "fp8", "bf16", "fp32"])
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="of activations of int4, int8 and fp8")
    parser.add_argument("--tokens", type=int, default=16, help="of a turn")
    parser.add_argument("--mebibytes", type=int, default=512, help="of the tensor that measures the bandwidth")
    given = parser.parse_args()
    in_effect = settings_in_effect(given.backend, torch.device(given.device), "highest")
    speed = bandwidth(given.device, given.mebibytes)
    print(f"memory: {speed / 1e9:.1f} GB/s", flush=True)
    file = turns.ResultFile("decode", given, bandwidth=speed)
    sides = [Side(how, given) for how in given.formats]
    for side in sides:
        start = time.perf_counter()
        side.turn(2)
        print(f"{side.how}: compiled in {time.perf_counter() - start:.1f} s", flush=True)
    calls = {side.how: functools.partial(side.turn, given.tokens) for side in sides}
    for side, found in zip(sides, turns.in_turns(calls, given.rounds).values(), strict=True):
        seconds, moved = statistics.median(found), side.model.bytes
        row = {"side": given.backend, "model": given.model, "format": side.how, "tokens_per_second": 1 / seconds, "bytes": moved,
               "share": moved / seconds / speed, "spread": max(found) / min(found), "settings": in_effect}  # fmt: skip
        file.add(row)
        print(f"{side.how:5s} {1 / seconds:8.1f} tokens/s  {moved / 2**20:8.1f} MiB a token  {row['share']:6.1%} of the bandwidth"
              f"  (slowest / fastest turn {row['spread']:.2f})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
