# tests/no_device/choices/test_conv_item.py: the tile of a convolution on a CPU, the order in which it writes its result, and what
# it prefetches.
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import CAPS
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir


def convolution(
    channels: tuple[int, int], kernel: int, size: int = 12, function: Callable[[Any], Any] = F.relu, **caps: Any
) -> str:
    """Returns the text of a convolution to which a tensor and a bias are added, and then a function is applied."""
    graphs: list[ir.Graph] = []
    x, w = torch.randn(2, channels[0], size, size), torch.randn(channels[1], channels[0], kernel, kernel)
    x = x.contiguous(memory_format=torch.channels_last)

    def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
        return function(F.conv2d(x, w, stride=2) + b[:, None, None] + r)

    with torch.no_grad():
        result = F.conv2d(x, w, stride=2)
        given = [x, w, torch.randn(channels[1]), torch.randn_like(result, memory_format=torch.channels_last)]
        compiled(layer, graphs, dynamic=False)(*given)
    rendered = _C.exec.render(graphs[0], CAPS["cpu16"] | caps, True)
    return next(k["text"] for k in rendered["kernels"] if "kernels/conv/item.cl" in k["text"])


def test_a_tile_prefetches_what_its_epilogue_touches():
    text = convolution((64, 64), 1)
    function = text[text.index("void epilogue_p(") : text.index("#define PREFETCHV(")]
    loaded, stored = re.findall(r"PREFETCH\((.*)\)", function), re.findall(r"PREFETCH_TO_WRITE\((.*)\)", function)
    assert len(loaded) == 1 and len(stored) == 1, (
        "the added tensor and the result, but not the bias, which stays in caches"
    )
    addresses = re.findall(r"vload16\(0, (e_in\d+ \+ .*)\);", text) + re.findall(r"vstore16\(.*, 0, (e_out.*)\);", text)
    assert loaded[0] in addresses and stored[0] in addresses
    assert "PREFETCHES 1" in text


def test_without_the_instruction_nothing_is_prefetched():
    text = convolution((64, 64), 1, prefetch=False)
    assert "#define PREFETCHV" not in text and "PREFETCHES 1" not in text


def test_channels_come_first_if_the_caches_keep_the_filters():
    assert "#define CHANNELS_FIRST 1" in convolution((64, 256), 1)
    assert "#define CHANNELS_FIRST 0" in convolution((256, 512), 3)


def test_only_a_short_epilogue_is_called_from_registers():
    assert "#define LONG_STORES 1" not in convolution((64, 64), 1)
    assert "#define LONG_STORES 1" in convolution((64, 64), 1, function=F.gelu)


def test_short_sums_have_many_tiles_in_a_work_item():
    def tiles(channels: int) -> int:
        text = convolution((channels, 64), 1, size=64, units=1)
        return int(re.search(r"#define MT (\d+)", text)[1])  # type: ignore[index]

    assert tiles(16) > tiles(64) > tiles(320)


def test_24_channels_fill_a_tile_with_8_wide_vectors():
    text = convolution((144, 24), 1, vector_floats=8)
    assert "#define NV 3\n" in text and "#define MR 4\n" in text


def test_panels_share_the_pixels_of_a_product():
    """If there is one tap, and the filters of all panels stay in the L1 cache."""

    def panels(channels: tuple[int, int], kernel: int = 1) -> int:
        return int(re.search(r"#define PANELS (\d+)", convolution(channels, kernel))[1])  # type: ignore[index]

    assert panels((16, 128)) == panels((64, 256)) == 2 and panels((256, 256)) == panels((16, 128), 3) == 1


def test_panels_prefetch_only_what_the_epilogue_loads():
    text = convolution((64, 256), 1)
    function = text[text.index("void epilogue_l(") : text.index("#define PREFETCHV_LOADED(")]
    assert function.count("PREFETCH(") == 1 and "PREFETCH_TO_WRITE(" not in function
