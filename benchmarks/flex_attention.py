# benchmarks/flex_attention.py: the time and the error of compiled FlexAttention, beside Inductor's on the CPU or on CUDA.
"""taskset -c 0 python benchmarks/flex_attention.py --sides inductor,ocl --threads 1
python benchmarks/flex_attention.py --sides inductor,ocl --device cuda --save h100_flex_attention.json

Sides take turns (turns.py), and errors are relative to PyTorch's definition in float64. Block masks are made before.
`--threads` is for the side `inductor`; to give an OpenCL CPU device the same cores, start the program with taskset.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import torch
import turns
from torch import Tensor
from torch._higher_order_ops.flex_attention import sdpa_dense
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torch_ocl_compile  # noqa: F401  registers the device
from torch_ocl_compile.bench import results
from torch_ocl_compile.bench.origin import origin
from torch_ocl_compile.bench.side import settings_in_effect

BATCH, HEADS, LENGTH, DEPTH = 1, 8, 1024, 64
WINDOW, DOCUMENTS, CAP = 256, 6, 20.0

Mod = Callable[..., Tensor]
Captured = dict[str, Tensor]


def captured() -> Captured:
    """Returns the slopes of ALiBi, and the number of each token's document."""
    generator = torch.Generator().manual_seed(2)
    ends = torch.randperm(LENGTH, generator=generator)[: DOCUMENTS - 1].sort().values
    return {
        "slopes": torch.tensor([2.0 ** -(h + 1) for h in range(HEADS)]),
        "document": (torch.arange(LENGTH)[:, None] >= ends).sum(1),
    }


def documents(x: Captured) -> Mod:
    return lambda b, h, i, j: x["document"][i] == x["document"][j]


def alibi(x: Captured) -> Mod:
    return lambda s, b, h, i, j: s + x["slopes"][h] * (j - i)


# name -> (score_mod, mask_mod), each made of the captured tensors
CASES: dict[str, tuple[Callable[[Captured], Mod] | None, Callable[[Captured], Mod] | None]] = {
    "plain": (None, None),
    "causal": (None, lambda x: lambda b, h, i, j: i >= j),
    "sliding window": (None, lambda x: lambda b, h, i, j: (i >= j) & (i - j < WINDOW)),
    "documents": (None, documents),
    "ALiBi": (alibi, None),
    "ALiBi, causal": (alibi, lambda x: lambda b, h, i, j: i >= j),
    "soft cap": (lambda x: lambda s, b, h, i, j: CAP * torch.tanh(s / CAP), None),
    "soft cap, causal": (
        lambda x: lambda s, b, h, i, j: CAP * torch.tanh(s / CAP),
        lambda x: lambda b, h, i, j: i >= j,
    ),
}


class Side:
    def __init__(self, name: str, device: str, case: str, tensors: list[Tensor], dtype: torch.dtype) -> None:
        self.device = torch.device(device)
        score_mod, mask_mod = CASES[case]
        found = {key: x.to(self.device) for key, x in captured().items()}
        self.inputs = [x.to(self.device, dtype) for x in tensors]
        mask = None
        if mask_mod:
            mask = create_block_mask(mask_mod(found), None, None, LENGTH, LENGTH, device=str(self.device))
        mod = score_mod(found) if score_mod else None

        def attend(q: Tensor, k: Tensor, v: Tensor, block_mask: Any) -> Any:
            return flex_attention(q, k, v, mod, block_mask)

        self.mask = mask
        self.function = torch.compile(attend, backend=name, dynamic=False)

    def call(self) -> Any:
        return self.function(*self.inputs, self.mask)


def definition(case: str, tensors: list[Tensor]) -> Tensor:
    score_mod, mask_mod = CASES[case]
    found = {key: x.double() if x.is_floating_point() else x for key, x in captured().items()}
    mod = score_mod(found) if score_mod else lambda s, *_: s
    mask = mask_mod(found) if mask_mod else lambda *_: torch.tensor(True)
    return sdpa_dense(*(x.double() for x in tensors), mod, (mask,), 1 / math.sqrt(DEPTH), {})[0]


def measure(case: str, given: argparse.Namespace) -> list[turns.Row]:
    torch._dynamo.reset()
    dtype = getattr(torch, given.dtype)
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(BATCH, HEADS, LENGTH, DEPTH, generator=generator).to(dtype) for _ in range(3)]
    exact = definition(case, tensors)
    devices = {"ocl": given.ocl_device, "inductor": given.device}
    sides: dict[str, turns.Call] = {}
    rows: dict[str, turns.Row] = {}
    with torch.no_grad():
        for name in given.sides:
            side = Side(name, devices[name], case, tensors, dtype)
            sides[name] = side.device, side.call
            rows[name] = {"case": case, "shape": [BATCH, HEADS, LENGTH, DEPTH], "dtype": given.dtype, "side": name}
            rows[name]["error"] = turns.error(side.call(), exact)
            rows[name]["settings"] = settings_in_effect(name, side.device, "highest")
        turns.measure(sides, rows, given)
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=lambda text: text.split(","), default=["inductor", "ocl"], help="inductor, ocl")
    parser.add_argument("--cases", type=lambda text: text.split(";"), default=list(CASES), help="separated by ;")
    parser.add_argument("--device", default="cpu", help="of the side inductor: cpu or cuda")
    parser.add_argument("--dtype", default="float32")
    turns.add_options(parser, seconds=0.1)
    given = parser.parse_args()
    source, found = origin(), []
    torch.set_num_threads(given.threads)
    for case in given.cases:
        rows = measure(case, given)
        found += rows
        print(f"{case:18s} {turns.line(rows)}", flush=True)
    if given.save:
        results.write(results.result(source, turns.settings_of(given), flex_attention=found), given.save)


if __name__ == "__main__":
    main()
