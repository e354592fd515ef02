# tests/no_device/choices/test_matrix_choice.py: which products run on matrix instructions of a subgroup, and with which macros.
from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from tests.no_device.choices.test_tensor_core_choice import kernels, macros

# Name of the instructions -> the macro that selects them, and the lanes of a subgroup.
INSTRUCTIONS = {
    "dpas8": ("MATRIX_DPAS 8", 8), "dpas16": ("MATRIX_DPAS 16", 16), "wmma11": ("MATRIX_WMMA 11", 32),
    "wmma12": ("MATRIX_WMMA 12", 32), "mfma2": ("MATRIX_MFMA 2", 64), "mfma4": ("MATRIX_MFMA 4", 64),
}  # fmt: skip


@pytest.mark.parametrize("dtype, kind", [(torch.float16, "fp16"), (torch.bfloat16, "bf16")])
@pytest.mark.parametrize("matrix", INSTRUCTIONS)
def test_products_of_16_bits(matrix: str, dtype: torch.dtype, kind: str) -> None:
    """The epilogue is fused, operands are read in place. If the type is disabled, or A has few rows, the portable kernel is chosen."""
    macro, lanes = INSTRUCTIONS[matrix]
    a, b = torch.randn(300, 256).to(dtype), torch.randn(256, 264).to(dtype)
    log, texts = kernels(lambda a, b: torch.relu(a @ b), [a, b], "matrix", matrix=matrix)
    assert "gemm_subgroup_matrix " in log[0] and len(texts) == 1, log
    assert f"#define {macro}\n" in macros(texts[0])
    rows, columns, *subs = (
        int(n) for n in re.findall(r"#define (?:TILE_M|TILE_N|SUB_M|SUB_N) (\d+)", macros(texts[0]))
    )
    assert texts[0]["local"] == [rows // subs[0] * (columns // subs[1]) * lanes, 1, 1]
    assert texts[0]["groups"] == [str(-(-300 // rows) * -(-264 // columns)), "1", "1"]
    assert "asm" not in texts[0]["text"]
    assert "gemm_group" in kernels(torch.mm, [a, b], "matrix", matrix=matrix, disable=f"subgroup_matrix:{kind}")[0][0]
    assert "gemm_group" in kernels(torch.mm, [a[:16], b], "matrix", matrix=matrix)[0][0]


@pytest.mark.parametrize("matrix", ["dpas16", "mfma4"])
def test_products_of_floats(matrix: str) -> None:
    """fp32 operands are multiplied with the accuracy of floats. A product that may be less accurate is no faster."""
    inputs = [torch.randn(256, 256), torch.randn(256, 256)]
    log, texts = kernels(torch.mm, inputs, "matrix", matrix=matrix, kernels="subgroup_matrix")
    assert log[0].endswith(" f32") and f"#define {INSTRUCTIONS[matrix][0]}\n" in macros(texts[0])
    assert "gemm_group" in kernels(torch.mm, inputs, "matrix")[0][0]


@pytest.mark.parametrize("matrix", INSTRUCTIONS)
def test_convolutions_of_16_bits(matrix: str) -> None:
    """Forward and both gradients. With DPAS, a work-item has at most 32 sums."""
    macro, lanes = INSTRUCTIONS[matrix]
    x, w = torch.randn(2, 64, 16, 16).half(), torch.randn(128, 64, 3, 3).half()

    def step(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = torch.ops.aten.convolution(x, w, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1)
        return y, *torch.ops.aten.convolution_backward(
            y, x, w, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1, (True, True, False)
        )[:2]

    log, texts = kernels(step, [x, w], "matrix", matrix=matrix)
    assert sum("conv_subgroup_matrix " in line for line in log) == 2
    assert sum("conv_weight_subgroup_matrix " in line for line in log) == 1
    on_matrices = [macros(k) for k in texts if "subgroup_matrix.cl:" in k["text"]]
    assert len(on_matrices) == 3 and all(f"#define {macro}\n" in text for text in on_matrices)
    assert sorted("#define DATA_GRADIENT 1" in text for text in on_matrices) == [False, False, True]
    for text in on_matrices:
        rows, columns = (int(n) for n in re.findall(r"#define SUB_[MN] (\d+)", text))
        assert rows * columns // lanes <= (32 if matrix.startswith("dpas") else 64)
    log, _ = kernels(step, [x, w], "matrix", matrix=matrix, disable="subgroup_matrix")
    assert all("group " in line and "subgroup_matrix" not in line for line in log)
