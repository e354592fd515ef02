# tests/no_device/kernels/test_offline_matrix.py: kernels of the level subgroup_matrix, compiled for the GPUs that have the instructions.
from __future__ import annotations

import pytest

from tests.no_device.kernels.test_offline import (
    compilers as compilers,  # The fixture, which unpacks the compilers or skips.
)
from tests.offline.compilers import CHIPS, compile_text
from torch_ocl_compile import _C

pytestmark = pytest.mark.sampled(first=24)

CASES = [
    (f"{kernel}_subgroup_matrix", matrix, chip, kind, number)
    for matrix, chip in (
        ("dpas8", "acm-g10"), ("dpas16", "pvc"), ("wmma11", "gfx1100"), ("wmma12", "gfx1201"), ("mfma4", "gfx90a"), ("mfma4", "gfx942"),
    )
    for kind in (("fp16", "bf16", "fp32") if matrix in ("dpas16", "mfma4") else ("fp16", "bf16"))
    for kernel in ("gemm", "conv", "conv_weight", "attention", "attention_gradient")
    for number in range(len(_C.exec.check_cases(f"{kernel}_subgroup_matrix", kind, matrix=matrix, filled=False)))
]  # fmt: skip


# Debian's compiler has this instruction by an older name, and for another layout of A, in as many registers.
TF32 = """float8 __attribute__((overloadable)) intel_sub_group_tf32_tf32_matrix_mad_k8_f32(short8 a, int8 b, float8 c);
float8 __attribute__((overloadable)) intel_sub_group_tf32_tf32_matrix_mad_k8(float4 a, float8 b, float8 c) {
  return intel_sub_group_tf32_tf32_matrix_mad_k8_f32(as_short8(a), as_int8(b), c);
}
"""


@pytest.mark.parametrize("kernel, matrix, chip, kind, number", CASES)
def test_kernels_fit_in_registers(kernel: str, matrix: str, chip: str, kind: str, number: int) -> None:
    """Compiles the cases of the check, which have each tile and several orders of the operands, or kinds of convolution."""
    [case] = _C.exec.check_cases(kernel, kind, only=number, matrix=matrix)
    [report] = compile_text(case["text"] + (TF32 if (matrix, kind) == ("dpas16", "fp32") else ""), CHIPS[chip])
    lanes = {"dpas8": 8, "dpas16": 16, "wmma11": 32, "wmma12": 32, "mfma4": 64}[matrix]
    assert (report.spills, report.scratch, report.width) == (0, 0, lanes), report
    assert report.local <= (64 if "attention" in kernel else 32) * 1024
