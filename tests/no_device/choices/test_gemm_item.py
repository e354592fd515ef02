# tests/no_device/choices/test_gemm_item.py: how a product on a CPU reads its second operand, depending on its size.
from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import CAPS
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir


def product(m: int, n: int, k: int, dtype: torch.dtype = torch.float32, **caps: Any) -> list[str]:
    """Returns the texts of the kernels of an m x k by k x n product."""
    graphs: list[ir.Graph] = []
    with torch.no_grad():
        compiled(torch.mm, graphs, dynamic=False)(torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype))
    rendered = _C.exec.render(graphs[0], CAPS["cpu16"] | caps, True)
    return [kernel["text"] for kernel in rendered["kernels"]]


@pytest.mark.parametrize(
    ("sizes", "layout"),
    [
        # The layouts are values of B_IN_PLACE. 3: all of B fits in the L2 cache, so it is read in place.
        ((1024, 256, 256), 3),
        ((1024, 768, 256), 3),
        # 1: B fits, but its stride maps all rows to few sets of the cache, so the kernel copies panels of B.
        ((1024, 1024, 256), 1),
        ((48, 256, 256), 3),
        # A larger B is packed, by a separate launch (0) if many rows of A use it, else by the kernel (1).
        ((1024, 1024, 512), 0),
        ((256, 1024, 1024), 1),
        # The columns are no multiple of a tile.
        ((1024, 250, 256), 0),
    ],
)
def test_second_operand(sizes, layout):
    texts = product(*sizes)
    assert f"#define B_IN_PLACE {layout}" in texts[-1]
    assert len(texts) == (2 if layout == 0 else 1)


def test_prefetch_is_a_capability():
    assert "#define PREFETCH_A 1" in product(1024, 256, 256)[-1]
    text = product(256, 1024, 1024)[-1]
    assert "#define PREFETCHES 1" in text and "#define PREFETCH_A 1" not in text, "the hardware foresees long rows"
    for sizes in ((1024, 256, 256), (256, 1024, 1024)):
        text = product(*sizes, prefetch=False)[-1]
        assert "#define PREFETCHES 1" not in text and "#define PREFETCH_A 1" not in text


PAIRS = {"kernels": CAPS["words"]["kernels"]}


@pytest.mark.parametrize(
    ("rows", "dtype", "caps", "pairs"),
    [
        (5, torch.bfloat16, PAIRS, True),
        (4, torch.bfloat16, PAIRS, False),
        (17, torch.bfloat16, {}, False),
        (17, torch.float16, PAIRS, False),
        (17, torch.float32, PAIRS, False),
    ],
)
def test_pairs_of_bf16(rows, dtype, caps, pairs):
    """Products of pairs are for bf16, on processors that have the instruction."""
    [text] = product(rows, 64, 64, dtype, **caps)
    assert ("#define B_LAYOUT" in text) == pairs


@pytest.mark.parametrize(
    ("rows", "depth", "along_depth"), [(4, 8192, True), (16, 1024, True), (16, 1025, False), (17, 64, False)]
)
def test_few_rows_of_bf16(rows, depth, along_depth):
    """Both operands are read along the depth as long as the rows stay in the L1 cache."""
    graphs: list[ir.Graph] = []
    x, w = torch.randn(rows, depth, dtype=torch.bfloat16), torch.randn(64, depth, dtype=torch.bfloat16)
    with torch.no_grad():
        compiled(torch.nn.functional.linear, graphs, dynamic=False)(x, w)
    [kernel] = _C.exec.render(graphs[0], CAPS["words"], True)["kernels"]
    assert ("#define COLUMNS" in kernel["text"]) == along_depth
