# tests/no_device/choices/test_tensor_core_choice.py: which tensor core kernel is chosen for a product or a convolution.
"""Graphs are scheduled for capabilities with tensor cores, without a device.

test_emulated_kernels.py and tests/device check what the kernels compute.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.no_device.kernels.test_emulated_kernels import CLANG
from tests.no_device.scheduling import CAPS, Seen, collecting
from torch_ocl_compile import _C
from torch_ocl_compile.lowering.core.context import allows_tf32

ALLOWED: dict[str, Callable[[], None]] = {
    "set_float32_matmul_precision": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "allow_tf32": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "fp32_precision": lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "fp32_precision of everything": lambda: allow_everywhere(),
}


def allow_everywhere() -> None:
    torch.backends.cuda.matmul.fp32_precision = "none"  # Products then follow torch.backends.fp32_precision.
    torch.backends.fp32_precision = "tf32"


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Restores PyTorch's settings of fp32 precision after a test.

    PyTorch has an older and a newer interface for them, and reading the older one fails until both agree. If a test has
    imported PyTorch's test helpers, these settings can be changed only inside this context.
    """
    with getattr(torch.backends, "__allow_nonbracketed_mutation")():
        convolutions = torch.backends.cudnn.conv.fp32_precision
        yield
        torch.backends.fp32_precision = "none"
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.conv.fp32_precision = convolutions


def kernels(
    call: Callable[..., Any], inputs: list[torch.Tensor], device: str = "warpgroup", **caps: Any
) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns the log lines about choices, and the kernels of all graphs that the call runs."""
    seen: list[Seen] = []
    collecting(call, seen, dynamic=False)(*inputs)
    log, texts = [], []
    for graph in seen:
        rendered = _C.exec.render(graph.graph, CAPS[device] | caps, True)
        log += [line for line in rendered["log"] if "warp" in line or "group" in line]
        texts += rendered["kernels"]
    return log, texts


def macros(kernel: dict[str, Any]) -> str:
    """Returns the macros that the launch defines, without the files that follow."""
    return str(kernel["text"]).split("// kernels/")[0]


def test_highest_is_exact() -> None:
    assert allows_tf32() == (False, False)
    log, texts = kernels(torch.mm, [torch.randn(256, 256), torch.randn(256, 256)])
    assert "split tf32" in log[0] and "#define TERMS 3" in macros(texts[0])


@pytest.mark.parametrize("how", ALLOWED)
def test_tf32_is_the_users_choice(how: str) -> None:
    ALLOWED[how]()
    log, texts = kernels(lambda a, b: torch.relu(a @ b), [torch.randn(256, 256), torch.randn(256, 256)])
    assert log[0].endswith(" tf32") and "split" not in log[0] and "#define TERMS 1" in macros(texts[0])
    log, texts = kernels(F.conv2d, [torch.randn(2, 64, 14, 14), torch.randn(64, 64, 3, 3)])
    assert log[0].endswith(" tf32") and "split" not in log[0] and any("#define TERMS 1" in macros(k) for k in texts)


def test_convolutions_can_forbid_tf32() -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    assert allows_tf32() == (True, False)
    log, _ = kernels(F.conv2d, [torch.randn(2, 64, 14, 14), torch.randn(64, 64, 3, 3)])
    assert "split tf32" in log[0]


def test_a_setting_is_seen_by_a_compiled_function() -> None:
    seen: list[Seen] = []
    product = collecting(torch.mm, seen, dynamic=False)
    inputs = [torch.randn(64, 64), torch.randn(64, 64)]
    product(*inputs)
    torch.set_float32_matmul_precision("high")
    product(*inputs)
    assert [graph.graph.nodes[0].reduced_precision for graph in seen] == [False, True]


@pytest.mark.parametrize("dtype, name", [(torch.bfloat16, "bf16"), (torch.float16, "f16")])
def test_halves(dtype: torch.dtype, name: str) -> None:
    a, b = torch.randn(1024, 384).to(dtype), torch.randn(2048, 384).to(dtype)
    log, texts = kernels(lambda a, b: a @ b.t(), [a, b])
    assert f"128x256 {name}" in log[0] or f"128x128 {name}" in log[0]
    assert len(texts) == 1 and "#define B_K_MAJOR 1" in macros(texts[0]) and "#define A_K_MAJOR 1" in macros(texts[0])
    log, texts = kernels(lambda a, b: a.t() @ b, [a[:, :256].contiguous(), torch.randn(1024, 64).to(dtype)])
    assert log[0].endswith(name) or "slices" in log[0]
    assert "#define B_K_MAJOR 0" in macros(texts[0]) and "#define A_K_MAJOR 0" in macros(texts[0])


@pytest.mark.parametrize("rows, columns, depth, turns", [(4096, 3072, 768, True), (12608, 768, 3072, False)])
def test_consumers_take_turns_where_stores_would_take_long(rows: int, columns: int, depth: int, turns: bool) -> None:
    """Little depth: while one consumer of a work-group stores a tile, the other multiplies. Deep products load less for a
    tile that both consumers share."""
    inputs = [torch.empty(size, dtype=torch.bfloat16) for size in ((rows, depth), (columns, depth), (columns,))]

    def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, w, b))

    log, texts = kernels(layer, inputs)
    assert ("-turns bf16" in log[0]) == turns and ("#define TURNS 1" in macros(texts[0])) == turns
    assert len(texts) == 1
    log, texts = kernels(layer, inputs, disable="gemm_turns")
    assert "turns" not in log[0] and "#define BOXES 1" in macros(texts[0])


@pytest.mark.parametrize("name", ["erf of fp32", "gradient of gelu"])
def test_slow_epilogues_have_tiles_with_fewer_sums(name: str) -> None:
    x, w, h = (torch.empty(size, dtype=torch.bfloat16) for size in ((12608, 768), (768, 3072), (12608, 3072)))

    def epilogue(x: torch.Tensor, w: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return (
            torch.erf((x @ w).float()).bfloat16() if name == "erf of fp32" else torch.ops.aten.gelu_backward(x @ w, h)
        )

    log, texts = kernels(epilogue, [x, w, h])
    assert "128x128-turns bf16" in log[0] and len(texts) == 1
    log, _ = kernels(torch.mm, [x, w])
    assert "128x192-turns bf16" in log[0]


def test_rows_that_are_not_aligned_are_copied() -> None:
    """Rows of 50257 16-bit elements do not begin at multiples of 16 bytes. The matrix is copied with longer rows, in
    its own order."""
    a, b = torch.randn(64, 50257).bfloat16(), torch.randn(50257, 128).bfloat16()
    log, texts = kernels(lambda a, b: (a @ b).float(), [a, b])
    assert "bf16" in log[0] and len(texts) == 2
    assert any("50264" in str(k) for k in texts)
    log, texts = kernels(lambda g, x: g.t() @ x, [torch.randn(512, 50257).bfloat16(), torch.randn(512, 128).bfloat16()])
    assert len(texts) == 2 and "#define A_K_MAJOR 0" in macros(texts[1])


@pytest.mark.parametrize("channels", [3, 64])
def test_convolutions_of_halves(channels: int) -> None:
    x, w = torch.randn(2, channels, 16, 16).bfloat16(), torch.randn(64, channels, 3, 3).bfloat16()

    def step(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = torch.ops.aten.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        return y, *torch.ops.aten.convolution_backward(
            y, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, (channels > 3, True, False)
        )[:2]

    log, _ = kernels(lambda x, w: [t for t in step(x, w) if t is not None], [x, w])
    assert len(log) == (3 if channels > 3 else 2)
    assert all("warpgroup" in line and "bf16" in line for line in log), log


@pytest.mark.parametrize(
    "channels, filters, size, tile, kept",
    [
        (16, 96, 56, "64x96*3", 1), (24, 144, 56, "64x160*3", 1), (32, 16, 56, "128x32*3", 1), (144, 24, 56, "128x32*3", 3),
        (64, 256, 56, "64x64*4", 1), (256, 1024, 28, "64x64*4", 0), (384, 64, 28, "128x64", 0),
    ],
)  # fmt: skip
def test_shallow_products_of_pixels(channels: int, filters: int, size: int, tile: str, kept: int) -> None:
    """Their tiles have few columns that nobody stores, and a work-group keeps its filters: `kept` steps of them."""
    x = torch.randn(16, channels, size, size).bfloat16().to(memory_format=torch.channels_last)
    w = torch.randn(filters, channels, 1, 1).bfloat16()
    log, rendered = kernels(lambda x, w: F.relu(F.conv2d(F.relu(x), w)), [x, w])
    assert any(line.endswith(f"conv_warpgroup {tile} bf16") for line in log), log
    [conv] = [kernel for kernel in rendered if kernel["kind"] == "conv_forward"]
    assert ("#define B_STEPS" in macros(conv)) == bool(kept)
    assert not kept or f"#define B_STEPS {kept}\n" in macros(conv)
    # The number of work-groups is a multiple of the number of tiles in a row of them.
    columns = int(tile.split("x")[1].split("*")[0])
    assert not kept or int(conv["groups"][0]) % -(-filters // columns) == 0


def test_large_operands_are_packed() -> None:
    """Each large operand is packed by a launch of its own, if that takes less time than it saves."""
    a = torch.empty(2048, 2048)
    log, texts = kernels(lambda a, b: torch.relu(a @ b.t()), [a, a])
    assert "split f16 packed" in log[0] and len(texts) == 2  # One text packs both.
    assert [("#define PAIRS 1" in macros(kernel)) for kernel in texts] == [True, False]
    torch.set_float32_matmul_precision("high")
    log, texts = kernels(lambda a, b: a.t() @ b, [a, a])
    assert "tf32 packed" in log[0] and "split" not in log[0] and any("#define TILE_N 256" in macros(k) for k in texts)
    assert "packed" not in kernels(torch.mm, [a, a], disable="gemm_packed:tf32")[0][0]
    half = torch.empty(4096, 4096).bfloat16()
    log, texts = kernels(lambda a, b: a @ b, [half, half])
    assert "packed" not in log[0] and len(texts) == 1  # Operands of 16 bits are read in place.
    log, texts = kernels(torch.mm, [torch.empty(512, 512), torch.empty(512, 512)])
    assert "packed" not in log[0] and len(texts) == 1


def test_long_depths_of_packed_operands_are_split() -> None:
    log, texts = kernels(lambda g, x: g.t() @ x, [torch.empty(12608, 3072), torch.empty(12608, 768)])
    assert "packed in" in log[0] and len(texts) == 4  # Two launches pack, one multiplies, one adds the slices.


def test_batches_share_a_packed_weight() -> None:
    inputs = [torch.empty(4, 2048, 2048), torch.empty(2048, 2048)]
    log, texts = kernels(lambda x, w: torch.bmm(w.expand(4, 2048, 2048), x), inputs)
    assert "packed" in log[0]
    assert [kernel["groups"][2] for kernel in texts if kernel["kind"] == "pack"] == ["1", "4"]


def test_what_a_check_rules_out_is_not_used() -> None:
    a = torch.randn(256, 256)
    log, _ = kernels(torch.mm, [a.bfloat16(), a.bfloat16()], disable="gemm_warpgroup:bf16")
    assert "gemm_group" in log[0]
    log, _ = kernels(torch.mm, [torch.randn(4096, 4096).bfloat16()] * 2, disable="gemm_wide:bf16,gemm_turns")
    assert "128x128 bf16" in log[0]
    torch.set_float32_matmul_precision("high")
    log, _ = kernels(torch.mm, [a, a], disable="warpgroup:tf32")
    assert "split tf32" in log[0]
    log, _ = kernels(torch.mm, [a, a], disable="warpgroup:tf32,warpgroup:fp32")
    assert "gemm_group" in log[0]


@pytest.mark.parametrize(
    "dtype, kind, name",
    [(torch.float32, "fp32", "split tf32"), (torch.bfloat16, "bf16", "bf16"), (torch.float16, "fp16", "f16")],
)
def test_warp_tensor_cores(dtype: torch.dtype, kind: str, name: str) -> None:
    """Without warpgroup tensor cores, the warp kernel is chosen, and reads operands in place. If it is disabled, or A
    has few rows, the portable kernel is chosen."""
    a = torch.randn(300, 256).to(dtype)
    inputs = [a, torch.randn(256, 264).to(dtype)]
    log, texts = kernels(lambda a, b: torch.relu(a @ b), inputs, "warp")
    assert "gemm_warp " in log[0] and log[0].endswith(name) and len(texts) == 1
    assert "mma.sync" in texts[0]["text"] and "wgmma.mma_async" not in texts[0]["text"]
    rows, columns, *warps = (
        int(n) for n in re.findall(r"#define (?:TILE_M|TILE_N|WARP_M|WARP_N) (\d+)", macros(texts[0]))
    )
    assert texts[0]["local"] == [rows // warps[0] * (columns // warps[1]) * 32, 1, 1]
    assert texts[0]["groups"] == [str(-(-300 // rows) * -(-264 // columns)), "1", "1"]
    assert "gemm_warpgroup" in kernels(torch.mm, inputs, "warp", kernels=f"warp,warpgroup:{kind}")[0][0]
    assert "gemm_group" in kernels(torch.mm, inputs, "warp", disable=f"warp:{kind}")[0][0]
    assert "gemm_group" in kernels(torch.mm, [a[:16], inputs[1]], "warp")[0][0]


def test_tf32_on_warp_tensor_cores() -> None:
    torch.set_float32_matmul_precision("high")
    inputs = [torch.randn(256, 256), torch.randn(256, 256)]
    log, texts = kernels(torch.mm, inputs, "warp")
    assert log[0].endswith(" tf32") and "split" not in log[0] and "#define TERMS 1" in macros(texts[0])
    assert "split tf32" in kernels(torch.mm, inputs, "warp", disable="gemm_warp:tf32")[0][0]


@pytest.mark.parametrize("dtype, name", [(torch.float32, "split tf32"), (torch.bfloat16, "bf16")])
def test_convolutions_on_warp_tensor_cores(dtype: torch.dtype, name: str) -> None:
    """Compiles forward and both gradients. The weight gradient is not split into slices: it sums over 128 pixels
    only."""
    x, w = torch.randn(2, 64, 16, 16).to(dtype), torch.randn(72, 64, 3, 3).to(dtype)

    def step(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = torch.ops.aten.convolution(x, w, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1)
        return y, *torch.ops.aten.convolution_backward(
            y, x, w, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1, (True, True, False)
        )[:2]

    log, texts = kernels(step, [x, w], "warp")
    assert sum("conv_warp " in line and line.endswith(name) for line in log) == 2
    weight = next(line for line in log if "conv_weight_warp " in line)
    assert name in weight and "slices" not in weight and len(log) == 3
    on_tensor_cores = [macros(k) for k in texts if "mma.sync" in k["text"]]
    assert sorted("#define DATA_GRADIENT 1" in text for text in on_tensor_cores) == [False, False, True]
    assert any("#define DY_DENSE 1" in text for text in on_tensor_cores)
    assert all("warpgroup" in line for line in kernels(step, [x, w])[0])


@pytest.mark.parametrize("channels, stored", [(64, False), (3, True)])
def test_weight_gradients_on_warp_tensor_cores(channels: int, stored: bool) -> None:
    """The sum over many pixels is split into slices, which a second kernel adds. 3 channels are padded to a chunk."""
    x, dy = torch.randn(8, channels, 56, 56), torch.randn(8, 64, 56, 56)
    weight = torch.randn(64, channels, 3, 3)

    def gradient(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.convolution_backward(
            dy, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, (False, True, False)
        )[1]

    log, texts = kernels(gradient, [x, dy], "warp")
    assert "conv_weight_warp " in log[0] and "slices" in log[0]
    of = next(macros(k) for k in texts if "mma.sync" in k["text"])
    assert ("#define STORED_C 3" in of) == stored and "#define DY_DENSE 1" in of
    assert "conv_weight_group" in kernels(gradient, [x, dy], "warp", disable="warp:fp32")[0][0]


def test_few_tiles_of_warps_are_split() -> None:
    log, texts = kernels(lambda a, b: a.t() @ b, [torch.empty(8192, 256), torch.empty(8192, 256)], "warp")
    assert "gemm_warp " in log[0] and "slices" in log[0] and len(texts) == 2
    assert "#define A_K_MAJOR 0" in macros(texts[0]) and "#define B_K_MAJOR 0" in macros(texts[0])


def network(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Products with epilogues such as a bias, odd columns, a convolution, attention, and all their gradients."""
    y = F.gelu(x @ w) + x
    q = y.view(4, 128, 4, 64).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(512, 256)
    z = F.conv2d(y.view(2, 256, 16, 16), c, padding=1).relu()
    return (y @ v).float().sum() + z.float().square().sum()


def assert_valid(folder: Path, rendered: list[dict[str, Any]]) -> None:
    """Asserts that Clang compiles the kernels' texts for NVIDIA's target."""
    for number, kernel in enumerate(rendered):
        file = folder / f"{number}.cl"
        file.write_text(kernel["text"])
        command = [str(CLANG), "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header"]
        command += ["-target", "nvptx64-nvidia-cuda", "-w", "-Dasm=__asm__", "-fsyntax-only", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.sampled(first=12)
@pytest.mark.skipif(CLANG is None, reason="needs clang, which reads OpenCL C")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("level, groups", [("warpgroup", 100), ("warp", 200)])
def test_statistics(tmp_path: Path, level: str, groups: int, bias: bool, dtype: torch.dtype) -> None:
    """The kernel is persistent, and each of its work-groups stores one slice of the statistics.

    The warpgroup kernel has 200 tiles, and 132 work-groups are resident. 100 work-groups with two tiles each take as
    long as 132, and store fewer slices. The warp kernel has 400 narrower tiles, 264 resident work-groups, and uses 200.
    No statistics are stored if the device check failed, or if the user disables them.
    """

    def block(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(F.conv2d(x, w, b if bias else None), None, None, training=True)

    inputs = [torch.zeros(size, dtype=dtype) for size in ((16, 64, 40, 40), (256, 64, 1, 1), (256,))]
    _, rendered = kernels(block, inputs, level)
    launched = next(k for k in rendered if "#define STATISTICS 1" in macros(k))
    assert int(launched["groups"][0]) == groups
    assert ("#define BIAS 1" in macros(launched)) == bias
    assert_valid(tmp_path, rendered)
    kind = "fp32" if dtype == torch.float32 else "bf16"
    for name in (f"conv_statistics_{level}:{kind}", "conv_statistics"):
        _, rendered = kernels(block, inputs, level, disable=name)
        assert not any("#define STATISTICS 1" in macros(k) for k in rendered)


@pytest.mark.sampled(first=6)
@pytest.mark.skipif(CLANG is None, reason="needs clang, which reads OpenCL C")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("device, name, least", [("warpgroup", "wgmma.mma_async", 8), ("warp", "mma.sync", 8)])
def test_kernels_are_valid(
    tmp_path: Path, dtype: torch.dtype, precision: str, device: str, name: str, least: int
) -> None:
    torch.set_float32_matmul_precision(precision)
    shapes = ((512, 256), (256, 256), (256, 259), (96, 256, 3, 3))
    _, rendered = kernels(
        lambda *xs: network(*xs).backward(), [torch.zeros(s, dtype=dtype).requires_grad_() for s in shapes], device
    )
    assert sum(name in kernel["text"] for kernel in rendered) >= least
    assert_valid(tmp_path, rendered)


def test_what_products_share_is_made_once() -> None:
    x, weights = torch.empty(4096, 2048), [torch.empty(2048, 2048) for _ in range(3)]
    _, texts = kernels(lambda x, a, b, c: (x @ a, x @ b, x @ c), [x, *weights])
    assert [k["kind"] for k in texts].count("pack") == 4

    def gradients(a: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = (a * 2).permute(1, 0, 2).reshape(300, 128)
        return rows @ w, rows.t() @ y

    _, texts = kernels(gradients, [torch.empty(2, 300, 64), torch.empty(128, 70), torch.empty(300, 50)])
    [copy] = [k for k in texts if k["kind"] == "pointwise"]
    assert "out0[" in copy["text"] and "out1[" not in copy["text"]
