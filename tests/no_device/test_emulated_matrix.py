# tests/no_device/test_emulated_matrix.py: the kernels of the level subgroup_matrix, with DPAS, WMMA and MFMA in software.
"""The GPUs with these instructions are not at hand, so this is where the kernels run.

emulator_matrix.h computes each instruction from the vendors' descriptions of which lane has which element. Sums of products
of numbers with few digits are exact in fp32, so the results are compared bit by bit with sums in double precision.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.no_device.test_emulated_kernels import ATTENTION_ERRORS, CLANG, CONVOLUTIONS, run, widest

pytestmark = [
    pytest.mark.skipif(CLANG is None, reason="needs clang, which compiles OpenCL C for the host"),
    pytest.mark.sampled(first=12),
]

# Instructions -> tiles (work-group/subgroup), as in csrc/schedule/families/tiles.def.
TILES = {
    "DPAS=8": ("128x128/32x16", "128x64/16x16", "64x64/16x16"),
    "DPAS=16": ("128x128/32x32", "128x64/32x32", "64x64/32x16", "128x64/32x16"),
    "WMMA=11": ("128x128/64x32", "128x64/32x32", "64x64/32x32"),
    "WMMA=12": ("128x128/64x32", "128x64/32x32", "64x64/32x32"),
    "MFMA=2": ("128x128/64x64", "128x64/64x32", "64x64/32x32"),
    "MFMA=4": ("128x128/64x64", "128x64/64x32", "64x64/32x32"),
}
# Convolutions have tiles with at most 32 sums of a work-item with DPAS.
CONVOLUTION_TILES = TILES | {"DPAS=8": TILES["DPAS=8"][1:], "DPAS=16": TILES["DPAS=16"][2:]}
# (number of the tile, type, K contiguous in A and B, (M, N, K, padded stride, offset, 0))
GEMMS = [
    (0, "IN_BF16", 1, 0, (130, 136, 100, 8, 0, 0)), (0, "IN_HALF", 0, 1, (137, 129, 65, 8, 8, 0)),
    (1, "IN_HALF", 1, 1, (70, 72, 33, 8, 0, 0)), (1, "IN_BF16", 0, 0, (140, 66, 64, 8, 0, 0)),
    (2, "IN_BF16", 1, 1, (66, 65, 77, 0, 3, 0)), (2, "IN_HALF", 0, 0, (65, 66, 9, 0, 5, 0)),
]  # fmt: skip
FLOATS = [
    (0, 1, 0, (132, 140, 300, 4, 0, 0)), (1, 0, 1, (132, 66, 36, 4, 0, 0)),
    (2, 1, 1, (66, 65, 33, 0, 1, 0)), (2, 0, 0, (66, 68, 31, 0, 1, 0)),
]  # fmt: skip

# Instructions -> tiles of attention for heads up to 64 and 128: rows of a work-group, of a subgroup, columns, parts. The last
# one is for floats.
ATTENTION_TILES = {
    "DPAS=8": ((64, 8, 16, 4), (64, 8, 16, 8)),
    "DPAS=16": ((64, 16, 16, 2), (64, 16, 16, 8)),
    "WMMA=11": ((128, 32, 32, 1), (64, 16, 32, 1)),
    "WMMA=12": ((64, 16, 64, 1), (64, 16, 32, 1)),
    "MFMA=2": ((64, 32, 32, 1), (64, 32, 32, 1)),
    "MFMA=4": ((128, 32, 64, 1), (64, 32, 32, 1), (64, 32, 32, 1)),
}
GRADIENT_TILES = {
    "WMMA=11": ((64, 16, 32, 1), (32, 16, 32, 2)),
    "WMMA=12": ((64, 16, 32, 1), (32, 16, 32, 2)),
    "MFMA=2": ((64, 32, 32, 1), (32, 32, 32, 1)),
    "MFMA=4": ((64, 32, 32, 1), (32, 32, 32, 1), (32, 32, 32, 1)),
}
LARGE = {"DEPTH": 128, "DEPTH_TILE": 128}
# (number of the tile, type, macros, (batch, heads, heads of q per head of k, queries, keys, offset))
ATTENTIONS = [
    (0, "IN_BF16", {"CAUSAL": 1, "DEPTH": 40, "WIDTH": 24}, (1, 2, 2, 70, 90, 8)), (0, "IN_HALF", {"MASK": 1}, (2, 1, 1, 66, 67, 0)),
    (0, "IN_BF16", {"MASK": 3, "DIRECT": 0}, (1, 1, 1, 66, 67, 3)), (0, "IN_HALF", {"DROPOUT": 1}, (1, 2, 2, 35, 70, 0)),
    (1, "IN_HALF", LARGE | {"WIDTH": 96}, (1, 1, 1, 34, 70, 0)),
]  # fmt: skip
FLOAT_ATTENTIONS = [
    (2, "", {"CAUSAL": 1, "DEPTH": 36, "WIDTH": 20}, (1, 2, 2, 66, 70, 4)), (2, "", {"MASK": 3, "DROPOUT": 1}, (1, 2, 2, 35, 70, 0)),
]  # fmt: skip
GRADIENTS = [
    (0, "IN_BF16", {"PASS": 1, "CAUSAL": 1, "DEPTH": 40, "DEPTH2": 24}, (1, 2, 2, 70, 90, 8)),
    (0, "IN_HALF", {"PASS": 2, "CAUSAL": 1, "DROPOUT": 1}, (1, 2, 2, 66, 67, 0)),
    (0, "IN_BF16", {"PASS": 2, "MASK": 1, "DIRECT": 0}, (2, 2, 2, 35, 66, 3)),
    (0, "IN_HALF", {"PASS": 1, "MASK": 3, "DROPOUT": 1}, (1, 2, 1, 35, 66, 0)),
    (1, "IN_HALF", LARGE | {"PASS": 2, "DEPTH2": 96}, (1, 1, 1, 70, 34, 0)),
    (1, "IN_BF16", LARGE | {"PASS": 1, "DEPTH": 80}, (1, 1, 1, 34, 70, 0)),
]  # fmt: skip
FLOAT_GRADIENTS = [
    (2, "", {"PASS": 1, "DEPTH": 36, "DEPTH2": 20, "CAUSAL": 1}, (1, 2, 2, 66, 67, 4)),
    (2, "", {"PASS": 2, "MASK": 3, "DROPOUT": 1}, (1, 2, 2, 35, 66, 0)),
]  # fmt: skip


def matrix_cases(kernel: str, matrix: str, kind: str) -> int:
    """Returns the number of the kernel's cases in the check on the device, for instructions such as "dpas8"."""
    if kernel == "attention":
        return 4 if kind == "fp32" else 6 if matrix.startswith("dpas") else 8
    if kernel == "attention_gradient":
        return 8 if kind == "fp32" else 0 if matrix.startswith("dpas") else 12
    tiles = TILES if kernel == "gemm" else CONVOLUTION_TILES
    number = len(next(of for name, of in tiles.items() if name.replace("=", "").lower() == matrix))
    return number if kernel == "conv_weight" else 2 * number


def macros_of(instructions: str, tile: str) -> list[str]:
    """Returns the macros of the instructions, of the work-group's tile and of the subgroup's tile."""
    values = tile.replace("/", "x").split("x")
    names = ("TILE_M", "TILE_N", "SUB_M", "SUB_N")
    return [f"MATRIX_{instructions}", *(f"{name}={value}" for name, value in zip(names, values, strict=True))]


def product(
    folder: Path, instructions: str, tile: int, types: str, a: int, b: int, sizes: tuple[int, ...], more: list[str]
) -> None:
    defines = [*macros_of(instructions, TILES[instructions][tile]), f"A_K_MAJOR={a}", f"B_K_MAJOR={b}"]
    defines += [f"{name}={int(sizes[3] != 0)}" for name in ("A_VEC4", "B_VEC4")]
    defines += [f"{types}=1"] if types else []
    defines.append(f"VW={widest(types) if sizes[1] % 4 == 0 else 2}")
    run(folder, "gemm_subgroup_matrix", "emulator_case_gemm.h", defines + more, sizes, types)


@pytest.mark.parametrize("instructions", TILES)
@pytest.mark.parametrize("tile, types, a, b, sizes", GEMMS)
def test_gemm(tmp_path: Path, instructions: str, tile: int, types: str, a: int, b: int, sizes: tuple[int, ...]) -> None:
    long_stores = ["LONG_STORES=1"] if tile == 1 else []
    product(tmp_path, instructions, tile, types, a, b, sizes, long_stores)


@pytest.mark.parametrize("tile, a, b, sizes", FLOATS)
def test_gemm_of_floats(tmp_path: Path, tile: int, a: int, b: int, sizes: tuple[int, ...]) -> None:
    """Only MFMA multiplies floats. The operands have all digits; the error is that of sums in fp32."""
    product(tmp_path, "MFMA=4", tile, "", a, b, sizes, ["DIGITS=1"])


def convolve(folder: Path, instructions: str, number: int, kind: str, types: str) -> None:
    """Runs a row of CONVOLUTIONS with one of the tiles."""
    tiles = CONVOLUTION_TILES[instructions]
    defines = [*macros_of(instructions, tiles[number % len(tiles)]), f"VW={widest(types)}"]
    defines += [f"{types}=1"] if types else []
    defines.append("WEIGHT=1" if kind == "weight" else f"DATA_GRADIENT={int(kind == 'data')}")
    kernel = "conv_weight_subgroup_matrix" if kind == "weight" else "conv_subgroup_matrix"
    run(folder, kernel, "emulator_case_conv.h", defines, CONVOLUTIONS[number], types)


@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize("instructions", TILES)
@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_convolution(tmp_path: Path, number: int, instructions: str, kind: str) -> None:
    convolve(tmp_path, instructions, number, kind, ("IN_BF16", "IN_HALF")[number % 2])


@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_convolution_of_floats(tmp_path: Path, number: int, kind: str) -> None:
    convolve(tmp_path, "MFMA=4", number, kind, "")


def attend(
    folder: Path, instructions: str, tile: tuple[int, ...], types: str, macros: dict[str, int], sizes: tuple[int, ...]
) -> None:
    """Compares with double precision, and allows for rounding weights to the operands' type. PASS selects a gradient."""
    rows, sub, columns, parts = tile
    defines = {
        "TILE_M": rows, "SUB_M": sub, "TILE_C": columns, "TILE_N": columns * parts, "SUB_N": columns, "DIRECT": 1, "CAUSAL": 0,
        "DEPTH": 64, "DEPTH2": 64, "WIDTH": 64, "DEPTH_TILE": 64, "VW": widest(types),
    }  # fmt: skip
    named = [f"MATRIX_{instructions}", *([f"{types}=1"] if types else [])]
    named += [f"{name}={value}" for name, value in (defines | macros).items()]
    named.append(f"TOLERANCE={ATTENTION_ERRORS[types or 'TERMS=3']}")
    kernel = "attention_gradient" if "PASS" in macros else "attention"
    run(folder, f"{kernel}_subgroup_matrix", f"emulator_case_{kernel}.h", named, sizes, types)


@pytest.mark.parametrize("instructions, tile, types, macros, sizes", [
    *((name, tiles[number], *case) for number, *case in ATTENTIONS for name, tiles in ATTENTION_TILES.items()),
    *((name, tiles[number], *case) for number, *case in GRADIENTS for name, tiles in GRADIENT_TILES.items()),
    *(("MFMA=4", ATTENTION_TILES["MFMA=4"][number], *case) for number, *case in FLOAT_ATTENTIONS),
    *(("MFMA=4", GRADIENT_TILES["MFMA=4"][number], *case) for number, *case in FLOAT_GRADIENTS),
])  # fmt: skip
def test_attention(
    tmp_path: Path,
    instructions: str,
    tile: tuple[int, ...],
    types: str,
    macros: dict[str, int],
    sizes: tuple[int, ...],
) -> None:
    attend(tmp_path, instructions, tile, types, macros, sizes)
