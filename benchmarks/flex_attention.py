# benchmarks/flex_attention.py: the time and the error of compiled FlexAttention, beside Inductor's on the CPU or on CUDA.
"""taskset -c 0 python -m benchmarks.flex_attention --sides inductor,ocl --threads 1
python -m benchmarks.flex_attention --sides inductor,ocl --device cuda --save h100_flex_attention.json

Sides (inductor, ocl) take turns (turns.py). Errors are those of the last 1024 queries, relative to PyTorch's definition in
float64. Block masks are made before.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import sdpa_dense
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torch_ocl_compile  # noqa: F401  registers the device
from benchmarks import turns

BATCH, HEADS, DEPTH = 1, 8, 64
DOCUMENTS, CAP = 6, 20.0
COMPARED = 1024  # The last queries, of which errors are measured.

Mod = Callable[..., Tensor]
Captured = dict[str, Tensor]


def captured(length: int) -> Captured:
    """Returns the slopes of ALiBi, and the number of each token's document."""
    generator = torch.Generator().manual_seed(2)
    ends = torch.randperm(length, generator=generator)[: DOCUMENTS - 1].sort().values
    return {
        "slopes": torch.tensor([2.0 ** -(h + 1) for h in range(HEADS)]),
        "document": (torch.arange(length)[:, None] >= ends).sum(1),
    }


def sliding_window(x: Captured) -> Mod:
    window = max(256, len(x["document"]) // 16)
    return lambda b, h, i, j: (i >= j) & (i - j < window)


def documents(x: Captured) -> Mod:
    return lambda b, h, i, j: x["document"][i] == x["document"][j]


def alibi(x: Captured) -> Mod:
    return lambda s, b, h, i, j: s + x["slopes"][h] * (j - i)


# name -> (score_mod, mask_mod), each made of the captured tensors
CASES: dict[str, tuple[Callable[[Captured], Mod] | None, Callable[[Captured], Mod] | None]] = {
    "plain": (None, None),
    "causal": (None, lambda x: lambda b, h, i, j: i >= j),
    "sliding window": (None, sliding_window),
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
    length = tensors[0].shape[2]
    found = {key: x.to(device) for key, x in captured(length).items()}
    mask = create_block_mask(mask_mod(found), None, None, length, length, device=str(device)) if mask_mod else None
    mod = score_mod(found) if score_mod else None

    def attend(q: Tensor, k: Tensor, v: Tensor, block_mask: Any) -> Any:
        return flex_attention(q, k, v, mod, block_mask)

    function = torch.compile(attend, backend=backend, dynamic=False)
    q, k, v = (x.to(device) for x in tensors)
    return lambda: function(q, k, v, mask)[:, :, -COMPARED:]


def definition(case: str, tensors: list[Tensor]) -> Tensor:
    score_mod, mask_mod = CASES[case]
    length = tensors[0].shape[2]
    found = {key: x.double() if x.is_floating_point() else x for key, x in captured(length).items()}
    q, k, v = (x.double() for x in tensors)
    first = max(length - COMPARED, 0)
    mod = score_mod(found) if score_mod else lambda s, *_: s
    mask = mask_mod(found) if mask_mod else lambda *_: torch.tensor(True)

    def moved(function: Any) -> Mod:  # q begins at the query `first`
        return lambda *at: function(*at[:-2], at[-2] + first, at[-1])

    return sdpa_dense(q[:, :, first:], k, v, moved(mod), (moved(mask),), 1 / math.sqrt(DEPTH), {})[0]


def measure(case: str, length: int, given: argparse.Namespace) -> list[turns.Row]:
    torch._dynamo.reset()
    shape = [BATCH, HEADS, length, DEPTH]
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
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in turns.words(text)], default=[1024])
    given = parser.parse_args()
    cases = {
        f"{case} {length}": functools.partial(measure, case, length, given)
        for length in given.lengths
        for case in given.cases
    }
    turns.run("flex_attention", cases, given)


if __name__ == "__main__":
    main()
