# tests/no_device/schedule/test_few_rows.py: products of few rows become sums over the rows of the matrix.
from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.no_device.schedule.test_golden import packed_weight
from tests.no_device.schedule.test_schedule import assert_scheduled_equals_unscheduled
from tests.no_device.scheduling import Seen, collecting, render


def lowered(function: Any, *inputs: torch.Tensor) -> Seen:
    seen: list[Seen] = []
    with torch.no_grad():
        collecting(function, seen, dynamic=False)(*inputs)
    return seen[0]


def kinds(seen: Seen, caps: str) -> list[str]:
    return [kernel["kind"] for kernel in render(seen.graph, caps)["kernels"]]


@pytest.mark.parametrize("caps", ["cpu16", "gpu"])
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_packed_weight(rows: int, caps: str) -> None:
    packed, scale = torch.randint(0, 256, (24, 128), dtype=torch.uint8), torch.rand(24, 2)
    seen = lowered(packed_weight, torch.randn(rows, 256), packed, scale)
    assert_scheduled_equals_unscheduled(seen, caps, of_scale=1e-5)
    found = kinds(seen, caps)
    assert (found.count("reduction") == 1 and "gemm" not in found) == (rows < 9), found
    if caps == "gpu" and rows < 9:  # A row's elements are read in pairs where they are.
        assert found == ["reduction"], found


def test_depth_of_any_size() -> None:
    seen: list[Seen] = []
    inputs = torch.randn(2, 256), torch.randint(0, 256, (24, 128), dtype=torch.uint8), torch.rand(24, 2)
    with torch.no_grad():
        collecting(packed_weight, seen, dynamic=True)(*inputs)
    assert seen[0].graph.symbols > 0
    assert_scheduled_equals_unscheduled(seen[0], "cpu16", of_scale=1e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_bytes_become_floats_by_permutations_where_the_device_has_them(dtype: torch.dtype) -> None:
    w = torch.randint(0, 100, (512, 2048)).to(dtype)
    seen = lowered(lambda x, w: F.linear(x, w.bfloat16()), torch.randn(1, 2048).bfloat16(), w)
    (texts, others) = ([k["text"] for k in render(seen.graph, caps)["kernels"]] for caps in ("warpgroup", "gpu"))
    name = "u8" if dtype == torch.uint8 else "i8"
    assert len(texts) == 1 and "prmt.b32" in texts[0] and f"= op_{name}_value_f32x8(v" in texts[0]
    assert "convert_float8" not in texts[0] and "convert_float8" in "".join(others) and "prmt" not in "".join(others)


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_large_plain_weight_on_a_gpu(rows: int) -> None:
    x, w = torch.randn(rows, 512), torch.randn(512, 512)
    seen = lowered(lambda x, w: F.linear(x, w).relu(), x, w)
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=1e-5)
    assert ("gemm" in kinds(seen, "gpu")) == (rows > 4) and "gemm" in kinds(seen, "cpu16")
    assert "gemm" in kinds(lowered(torch.mm, x, w), "gpu")  # Columns of w are not contiguous.
    assert "gemm" in kinds(lowered(lambda x, w: F.linear(x, w), x, w[:100].contiguous()), "gpu")  # Too small.


def test_norm_of_one_row_is_one_launch() -> None:
    seen = lowered(lambda x, w: F.rms_norm(x, (2048,), w), torch.randn(1, 2048), torch.randn(2048))
    assert kinds(seen, "warpgroup") == ["reduction"]
    long = lowered(lambda x: x.sum(-1), torch.randn(1, 8192))
    assert kinds(long, "warpgroup") == ["reduction"] * 2


def of_groups(q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (q.reshape(len(q), 2, -1) * scale[..., None]).reshape(len(q), -1)


def pair(packed: torch.Tensor) -> torch.Tensor:
    return torch.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)


# How a weight of int4 is written, and whether the byte and its lower half are read.
INT4: dict[str, tuple[Any, bool]] = {
    "a zero": (lambda p, s, z: of_groups(pair(p).float() - 8, s), True),
    "no zero": (lambda p, s, z: of_groups(pair(p).float(), s), True),
    "a zero in integers": (lambda p, s, z: of_groups((pair(p).to(torch.int8) - 8).float(), s), True),
    "a zero for each group": (lambda p, s, z: of_groups((pair(p).float().reshape(24, 2, -1) - z[..., None]), s), True),
    "an added zero": (lambda p, s, z: of_groups(z[:, :1] + pair(p).float(), s), True),
    "halves of a row": (lambda p, s, z: torch.cat([p & 15, (p >> 4) & 15], -1).float() - 8, True),
    "halves of a row, other scales": (lambda p, s, z: of_groups(torch.cat([p & 15, p >> 4], -1).float(), s), False),
    "high before low": (lambda p, s, z: torch.stack([p >> 4, p & 15], -1).reshape(24, -1).float() - 8, True),
    "other bits": (lambda p, s, z: torch.stack([p & 15, p >> 3], -1).reshape(24, -1).float() - 8, False),
    "other zeros": (lambda p, s, z: torch.stack([(p & 15).float() - 8, (p >> 4).float()], -1).reshape(24, -1), False),
    "signed": (lambda p, s, z: pair(p.view(torch.int8)).float(), False),
}


@pytest.mark.parametrize("how", INT4)
def test_two_int4_in_a_byte(how: str) -> None:
    weight, rewritten = INT4[how]
    packed = torch.randint(0, 256, (24, 64), dtype=torch.uint8)
    seen = lowered(
        lambda x, *w: F.linear(x, weight(*w)), torch.randn(2, 128), packed, torch.rand(24, 2), torch.rand(24, 2)
    )
    for caps in ("cpu16", "gpu"):
        assert_scheduled_equals_unscheduled(seen, caps, of_scale=1e-5)
        text = render(seen.graph, caps)["schedule"]
        assert ("the byte and its lower half" in text) == rewritten, text
        assert caps == "cpu16" or kinds(seen, caps) == ["reduction"] or not rewritten


def test_products_of_one_row_share_a_launch() -> None:
    """If none of them would wait for something that the others do not read."""

    def function(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.softmax(x, -1)
        a, b, c = (F.linear(y, w.float()) for w in weights[:3])
        return a, b, F.linear(torch.softmax(c, -1), weights[3].float())

    rows = (768, 1024, 512, 640)
    weights = [torch.randint(-128, 128, (n, 512), dtype=torch.int8) for n in rows]
    seen = lowered(function, torch.randn(1, 512), *weights)
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=1e-5)
    assert kinds(seen, "gpu") == ["reduction", "batch", "reduction", "reduction"]
    batch = render(seen.graph, "gpu")["kernels"][1]["text"]
    assert batch.count("char4") >= 3 * 4  # Each product has whole vectors.


def test_small_norms_share_a_launch() -> None:
    seen = lowered(lambda x, y: (torch.softmax(x, -1), torch.softmax(y, -1)), torch.randn(16, 64), torch.randn(4, 128))
    assert kinds(seen, "gpu") == ["batch"] and kinds(seen, "cpu16") == ["reduction"] * 2
    large = lowered(
        lambda x, y: (torch.softmax(x, -1), torch.softmax(y, -1)), torch.randn(64, 512), torch.randn(4, 128)
    )
    assert kinds(large, "gpu") == ["reduction"] * 2


def test_a_long_product_waits_for_no_small_group() -> None:
    """The long product may run with the first small one, but the second, which reads another row, is in that launch."""

    def function(x: torch.Tensor, y: torch.Tensor, *weights: torch.Tensor) -> list[torch.Tensor]:
        x, y = (torch.softmax(F.linear(row, weights[3].float()), -1) for row in (x, y))
        return [F.linear(row, w.float()) for row, w in zip((x, y, x), weights[:3], strict=True)]

    rows = torch.randn(1, 512), torch.randn(1, 512)
    weights = [torch.randint(-128, 128, (n, 512), dtype=torch.int8) for n in (64, 48, 768, 512)]
    text = render(lowered(function, *rows, *weights).graph, "gpu")["schedule"]
    assert re.search(r"member 0: loops row \[64\].*\n( .*\n)*  member 1: loops row \[48\]", text), text
    assert re.search(r"^group \d+: loops row \[768\] over", text, re.MULTILINE), text
