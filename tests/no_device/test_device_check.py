# tests/no_device/test_device_check.py: emulated kernels pass the check of csrc/checks that a device must pass.
"""Before a plan uses tensor cores, csrc/checks runs their kernels on the device, and compares with expected results.

These tests run the same cases in the emulator.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.no_device.test_emulated_kernels import CLANG, PRELUDE, emulated, execute
from tests.no_device.test_emulated_matrix import matrix_cases
from torch_ocl_compile import _C

pytestmark = [
    pytest.mark.skipif(CLANG is None, reason="needs clang, which compiles OpenCL C for the host"),
    pytest.mark.sampled(first=48),
]
GUARD = 64  # The number of floats before and behind the results, which a kernel must not change.

CASE = """#include <string>
static std::vector<char> file(const std::string& name) {
  std::vector<char> bytes;
  FILE* f = std::fopen(name.c_str(), "rb");
  std::fseek(f, 0, SEEK_END);
  bytes.resize(std::ftell(f));
  std::rewind(f);
  if (std::fread(bytes.data(), 1, bytes.size(), f) != bytes.size()) std::abort();
  return bytes;
}
extern "C" void checked_kernel(PARAMETERS);
int run_case(int, char** argv) {
  std::vector<std::vector<char>> in;
  for (int i = 0; i < INPUTS; ++i) in.push_back(file(argv[1] + ("/" + std::to_string(i) + ".bin")));
  const auto exact = file(argv[1] + std::string("/exact.bin")), sizes = file(argv[1] + std::string("/sizes.bin"));
  const double *want = reinterpret_cast<const double*>(exact.data()), *size = reinterpret_cast<const double*>(sizes.data());
  const size_t count = exact.size() / 8;
  std::vector<float> y(count + 2 * GUARD, -1e30f);
  launch(GROUPS, LOCAL, [&] { checked_kernel(OPERANDS, ARGUMENTS, y.data(), GUARD); });
  for (size_t i = 0; i < y.size(); ++i) {
    const bool inside = i >= GUARD && i < GUARD + count;
    const bool right = inside ? std::fabs(y[i] - want[i - GUARD]) <= ERROR * size[i - GUARD] : y[i] == -1e30f;
    if (!right) return std::printf("%zu: %g\\n", i, y[i]), 1;
  }
  return 0;
}
"""
TYPES = {"fp32": "TERMS=3", "tf32": "TERMS=1", "bf16": "IN_BF16=1", "fp16": "IN_HALF=1"}
# Kernel -> type -> which of its cases run.
CASES = {
    "gemm_warp": {"fp32": (0, 3), "tf32": (7,)},
    "conv_warp": {"fp32": (1,), "bf16": (2,), "fp16": (3,)},
    "conv_weight_warp": {"bf16": (0, 1), "fp16": (2,)},
    "attention_warp": {"fp32": (2, 6), "bf16": (0, 5), "tf32": (8,), "fp16": (7,)},
    "attention_gradient_warp": {"fp32": (1, 4), "bf16": (3, 13)},
    "conv_statistics_warpgroup": {"fp32": (0, 3), "bf16": (1, 3), "tf32": (1,), "fp16": (2,)},
    "gemm_warpgroup": {"fp32": (0,), "bf16": (3,)},
    "conv_warpgroup": {"tf32": (1,)},
    "conv_weight_warpgroup": {"fp16": (0,)},
    "attention_warpgroup": {"bf16": (3,)},
    "conv_statistics_warp": {"fp32": (0, 3), "bf16": (1, 4), "tf32": (3,), "fp16": (2,)},
}


@pytest.mark.parametrize(
    "kernel, kind, number",
    [(kernel, kind, number) for kernel, types in CASES.items() for kind, some in types.items() for number in some],
)
def test_correct_kernels_pass(tmp_path: Path, kernel: str, kind: str, number: int) -> None:
    check(tmp_path, kernel, kind, number)


@pytest.mark.parametrize("kernel, matrix, kind, number", [
    (f"{kernel}_subgroup_matrix", matrix, kind, number)
    for matrix, kind in (
        ("dpas8", "fp16"), ("dpas16", "bf16"), ("wmma11", "bf16"), ("wmma12", "fp16"), ("mfma2", "bf16"), ("mfma4", "fp16"),
        ("mfma4", "fp32"),
    )
    for kernel in ("gemm", "conv", "conv_weight", "attention", "attention_gradient") for number in range(matrix_cases(kernel, matrix, kind))
])  # fmt: skip
def test_correct_kernels_of_subgroups_pass(tmp_path: Path, kernel: str, matrix: str, kind: str, number: int) -> None:
    check(tmp_path, kernel, kind, number, matrix)


@pytest.mark.parametrize("kernel, kind, number", [
    (kernel, kind, number) for kernel, kind, numbers in (
        ("gemm_warpgroup", "fp32", (2, 9, 20)), ("gemm_warp", "bf16", (4, 23)), ("conv_warpgroup", "fp32", (1, 2, 7)),
        ("conv_warp", "fp16", (3, 4)), ("conv_weight_warp", "bf16", (1, 3)),
    ) for number in numbers
])  # fmt: skip
def test_correct_kernels_pass_with_the_tiles_of_a_graph(tmp_path: Path, kernel: str, kind: str, number: int) -> None:
    check(tmp_path, kernel, kind, number, every=True)


def check(tmp_path: Path, kernel: str, kind: str, number: int, matrix: str = "mfma4", every: bool = False) -> None:
    """Runs a case of the check in the emulator, whose program compares the results."""
    [product] = _C.exec.check_cases(kernel, kind, only=number, matrix=matrix, every=every)
    for i, given in enumerate(product["inputs"]):
        (tmp_path / f"{i}.bin").write_bytes(given)
    for results in ("exact", "sizes"):
        np.array(product[results], dtype=np.float64).tofile(tmp_path / f"{results}.bin")
    kinds = ["long" if wide else "int" for _, wide in product["arguments"]]
    filled = {
        "PARAMETERS": ", ".join(["void*", "ulong"] * len(product["inputs"]) + kinds + ["float*", "ulong"]),
        "ARGUMENTS": ", ".join(str(value) for value, _ in product["arguments"]),
        "OPERANDS": ", ".join(f"in[{i}].data(), {product['offset']}" for i in range(len(product["inputs"]))),
        "INPUTS": str(len(product["inputs"])),
        "GROUPS": ", ".join(map(str, product["groups"])),
        "LOCAL": str(product["local"]),
        "ERROR": str(product["tolerance"]),
        "GUARD": str(GUARD),
    }
    case = CASE
    for word, value in filled.items():
        case = case.replace(word, value)
    (tmp_path / "case.h").write_text(case)
    head = [line.split(" ", 1) for line in product["defines"]]
    defines = [f"{macro}={value}" for macro, value in head]
    text = PRELUDE + emulated(product["text"])
    execute(tmp_path, {"k": text}, tmp_path / "case.h", defines, TYPES[kind], (tmp_path,))
