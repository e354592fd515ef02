# tests/no_device/test_emulated_matrix.py: the kernels of the level subgroup_matrix, with DPAS, WMMA and MFMA in software.
"""The GPUs with these instructions are not at hand, so this is where the kernels run.

emulator_matrix.h computes each instruction from the vendors' descriptions of which lane has which element. Sums of products
of numbers with few digits are exact in fp32, so the results are compared bit by bit with sums in double precision.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.no_device.test_emulated_kernels import CLANG, CONVOLUTIONS, run, widest

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


def matrix_cases(kernel: str, matrix: str) -> int:
    """Returns the number of the kernel's cases in the check on the device, for instructions such as "dpas8"."""
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
