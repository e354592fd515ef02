# tests/device/kernels/test_decoding_group.py: a decoder's step of one token in the kernels for GPUs: few launches, right results.
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks import decode
from tests.device.kernels.test_quantized import int4_stacked, weights

Tensor = torch.Tensor
OPTIONS: dict[str, Any] = {"fallback": "error", "kernel_family": "group"}


def ran(function: Callable[..., Any], device: str, *tensors: Tensor) -> tuple[Any, int]:
    """Returns the results of the kernels for GPUs, and the number of launches of a call."""
    compiled = torch.compile(function, backend="ocl", dynamic=False, options=OPTIONS)
    with torch.no_grad():
        compiled(*tensors)
        with torch.ocl.record() as launches:
            result = compiled(*tensors)
    return result, len(launches)


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_int4_of_a_byte_read_the_row_in_place(ocl_device: str, dtype: torch.dtype, start: int) -> None:
    weight, scales = weights(int4_stacked)
    x = torch.randn(1, 260, dtype=dtype)[:, start : start + 256]
    held = torch.zeros(1, 260, dtype=dtype, device=ocl_device)
    held[:, start : start + 256] = x.to(ocl_device)
    exact = int4_stacked(x.double(), weight, scales.to(dtype).double())
    got, launches = ran(
        int4_stacked, ocl_device, held[:, start : start + 256], weight.to(ocl_device), scales.to(ocl_device, dtype)
    )
    assert launches == 1
    assert (got.cpu() - exact).abs().max() <= (1e-5 if dtype == torch.float32 else 2e-2) * exact.abs().max()


def decoded(step: Callable[..., Any], device: str) -> tuple[list[Tensor], int]:
    """Returns the logits of three tokens after each other, and the launches of the last."""
    found, at = [], torch.zeros(1, dtype=torch.int64, device=device)
    for token in (3, 1, 2):
        with torch.no_grad(), torch.ocl.record() as launches:
            logits, at = step(torch.tensor([token], device=device), at)
        found.append(logits.cpu().double())
    return found, len(launches)


class Logits(torch.nn.Module):
    """The benchmark's model, which returns logits in place of a token."""

    def __init__(self, model: decode.Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        m = self.model
        x, turn = m.embedding[token][None], m.turns.index_select(1, at)
        for layer in m.layers:
            x = layer(x, (turn[0], turn[1]), at)
        return m.head(F.rms_norm(x, (m.sizes.hidden,), m.norm)), at + 1


class Separate(decode.Layer):
    """Queries, keys and values are three products, and so are gate and up. The caches are two tensors."""

    def __init__(self, sizes: decode.Sizes, make: Callable[[int, int], decode.Linear], *where: Any) -> None:
        super().__init__(sizes, make, *where)
        del self.queries_keys_values, self.gate_up
        self.parts = torch.nn.ModuleList(
            make(rows, sizes.hidden) for rows in (*self.splits(), sizes.inner, sizes.inner)
        )
        self.keys, self.values = (torch.nn.Buffer(x.clone()) for x in self.cache)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], at: Tensor) -> Tensor:
        s = self.sizes
        y = F.rms_norm(x, (s.hidden,), self.norms[0])
        q, k, v = (part(y).view(1, 1, -1, s.head).transpose(1, 2) for part in self.parts[:3])
        q, k = self.heads(q), self.heads(k)
        q, k = (t * turn[0] + torch.cat([-t[..., s.head // 2 :], t[..., : s.head // 2]], -1) * turn[1] for t in (q, k))
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        mask = (torch.arange(s.positions, device=x.device) <= at)[None, None, None]
        a = F.scaled_dot_product_attention(q, self.keys, self.values, mask, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(1, 1, s.hidden))
        y = F.rms_norm(x, (s.hidden,), self.norms[1])
        return x + self.down(F.silu(self.parts[3](y)) * self.parts[4](y))

    def heads(self, t: Tensor) -> Tensor:
        return t


class NormedHeads(Separate):
    """Each head of queries and keys is normalised, which takes one more launch."""

    def heads(self, t: Tensor) -> Tensor:
        return F.rms_norm(t, (self.sizes.head,), eps=1e-6)


@pytest.mark.parametrize(
    ("how", "dtype", "layer"),
    [
        ("int4", torch.bfloat16, decode.Layer),
        ("int8", torch.float32, decode.Layer),
        ("int4", torch.float32, Separate),
        ("fp8", torch.bfloat16, Separate),
        ("int8", torch.float32, NormedHeads),
    ],
)
def test_launches_of_a_decoding_step(
    ocl_device: str, how: str, dtype: torch.dtype, layer: type[decode.Layer], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(decode, "Layer", layer)
    model = Logits(decode.Model(decode.Sizes(2, 512, 4, 2, 512, 64, 32), how, dtype, "cpu"))
    model.model.embedding.data *= 50  # The number that a norm adds depends on the dtype, and shall not matter.
    exact, _ = decoded(copy.deepcopy(model).double(), "cpu")
    on_device = model.to(ocl_device)
    found, launches = decoded(torch.compile(on_device, backend="ocl", dynamic=False, options=OPTIONS), ocl_device)
    for a, b in zip(found, exact, strict=True):
        assert (a - b).norm() <= (1e-5 if dtype == torch.float32 else 2e-2) * b.norm()
    assert (
        launches <= 2 * (6 if layer is NormedHeads else 5) + 3
    )  # Of the layers; the others are for the embedding, the positions and the logits.


@pytest.mark.parametrize("family", ["auto", "group"])
@pytest.mark.parametrize("queries", [1, 7])
def test_repeated_heads_are_not_copied(ocl_device: str, queries: int, family: str) -> None:
    """Keys and values are repeated for the heads of queries, as models do, with gradients."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (t[:, :, None].expand(2, 3, 2, 20, 16).reshape(2, 6, 20, 16) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    torch.manual_seed(0)
    tensors = [torch.randn(2, heads, rows, 16) for heads, rows in ((6, queries), (3, 20), (3, 20))]
    ours = [t.to(ocl_device).requires_grad_() for t in tensors]
    exact = [t.double().requires_grad_() for t in tensors]
    options = OPTIONS | {"kernel_family": family}
    compiled = torch.compile(attend, backend="ocl", dynamic=False, options=options)
    with torch.no_grad():
        compiled(*ours)
        with torch.ocl.record() as launches:
            compiled(*ours)
    assert {launch.kind for launch in launches} <= {"pack", "attention"}
    out, wanted = compiled(*ours), attend(*exact)
    out.sin().sum().backward()
    wanted.sin().sum().backward()
    for a, b in zip([out, *(t.grad for t in ours)], [wanted, *(t.grad for t in exact)], strict=True):
        torch.testing.assert_close(a.detach().cpu().double(), b.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("depth", "keys", "start"), [(64, 1500, 0), (128, 700, 0), (80, 301, 0), (64, 600, 1)])
def test_one_query_over_several_steps(ocl_device: str, dtype: torch.dtype, depth: int, keys: int, start: int) -> None:
    """Teams of work-items that see no key, keys that end within a step, and rows that begin at an odd element."""
    torch.manual_seed(0)
    q = torch.randn(1, 4, 1, depth, dtype=dtype)
    memory = torch.randn(2, 2 * keys * depth + start, dtype=dtype)
    mask = torch.arange(keys)[None, None, None] >= keys - 40
    mask = torch.cat([mask, torch.arange(keys)[None, None, None] % 32 == 5], 1).repeat(1, 2, 1, 1)

    def attend(q: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        k, v = memory[:, start:].view(2, 1, 2, keys, depth)
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)

    arguments = [t.to(ocl_device) for t in (q, memory, mask)]
    got, launches = ran(attend, ocl_device, *arguments)
    again, _ = ran(attend, ocl_device, *arguments)
    assert launches == 1 and torch.equal(got.cpu(), again.cpu())
    exact = attend(q.double(), memory.double(), mask)
    assert (got.cpu() - exact).abs().max() <= (1e-5 if dtype == torch.float32 else 2e-2) * exact.abs().max()
