# benchmarks/flex_attention.py: the time and the error of compiled FlexAttention, beside Inductor's on the CPU or on CUDA.
"""taskset -c 0 python benchmarks/flex_attention.py --sides inductor,ocl --threads 1
python benchmarks/flex_attention.py --sides inductor,ocl --device cuda --save h100_flex_attention.json

Sides (inductor, ocl) take turns (turns.py), and errors are relative to PyTorch's definition in float64. Block masks are made before.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import turns
from torch import Tensor
from torch._higher_order_ops.flex_attention import sdpa_dense
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torch_ocl_compile  # noqa: F401  registers the device

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


def compiled(backend: str, device: torch.device, case: str, tensors: list[Tensor]) -> Callable[[], Tensor]:
    """Returns a call of a case on a device."""
    score_mod, mask_mod = CASES[case]
    found = {key: x.to(device) for key, x in captured().items()}
    mask = create_block_mask(mask_mod(found), None, None, LENGTH, LENGTH, device=str(device)) if mask_mod else None
    mod = score_mod(found) if score_mod else None

    def attend(q: Tensor, k: Tensor, v: Tensor, block_mask: Any) -> Any:
        return flex_attention(q, k, v, mod, block_mask)

    function = torch.compile(attend, backend=backend, dynamic=False)
    return functools.partial(function, *(x.to(device) for x in tensors), mask)


def definition(case: str, tensors: list[Tensor]) -> Tensor:
    score_mod, mask_mod = CASES[case]
    found = {key: x.double() if x.is_floating_point() else x for key, x in captured().items()}
    mod = score_mod(found) if score_mod else lambda s, *_: s
    mask = mask_mod(found) if mask_mod else lambda *_: torch.tensor(True)
    return sdpa_dense(*(x.double() for x in tensors), mod, (mask,), 1 / math.sqrt(DEPTH), {})[0]


def measure(case: str, given: argparse.Namespace) -> list[turns.Row]:
    torch._dynamo.reset()
    shape = [BATCH, HEADS, LENGTH, DEPTH]
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(shape, generator=generator).to(getattr(torch, given.dtype)) for _ in range(3)]
    devices = {"ocl": torch.device(given.ocl_device), "inductor": torch.device(given.device)}
    calls = {side: (devices[side], compiled(side, devices[side], case, tensors)) for side in given.sides}
    with torch.no_grad():
        return turns.measure(calls, definition(case, tensors), given, case=case, shape=shape, dtype=given.dtype)


def main() -> None:
    parser = turns.parser_of_sides(__doc__, ["inductor", "ocl"], seconds=0.1)
    parser.add_argument("--cases", type=lambda text: text.split(";"), default=list(CASES), help="separated by ;")
    parser.add_argument("--device", default="cpu", help="of the side inductor: cpu or cuda")
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    turns.run("flex_attention", {case: functools.partial(measure, case, given) for case in given.cases}, given)


if __name__ == "__main__":
    main()
