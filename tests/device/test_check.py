# tests/device/test_check.py: the option check finds planted faults and raises no false alarm.
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.device.faults import planted
from torch_ocl_compile import config
from torch_ocl_compile.errors import KernelResultError

CHECK = {"check": True}
# In a template, every result goes through these macros. `FACTOR` stands for the fault.
STORED = (r"(epilogue\w*)\(acc, i0", r"\1((acc) * FACTOR, i0")


@pytest.fixture(autouse=True)
def cache(tmp_path):
    with config.override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def attention(q):
    return F.scaled_dot_product_attention(q, q, q)


# What is called, its arguments, the kind of kernel, what is changed in it, and a word of the op.
CASES = {
    "pointwise": (lambda x: torch.sin(x) * 2, [(40, 50)], "pointwise", (r" sin\((v\d+)\)", r" (sin(\1) * FACTOR)"), "sin"),
    "reduction": (lambda x: x.sum(1), [(33, 77)], "reduction", (r"( a0 \+ v\d+)", r"\1 * FACTOR"), "sum"),
    "short loop": (lambda x: x.sum(1), [(33, 77)], "reduction", (r"r0 \+ 16 <= 77", "r0 + 16 <= 61"), "sum"),
    "gemm": (lambda x, y: x @ y, [(33, 77), (77, 50)], "gemm", STORED, "mm"),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1), [(2, 8, 12, 12), (16, 8, 3, 3)], "conv_forward", STORED, "convolution"),
    "winograd": (lambda x, w: F.conv2d(x, w, padding=1), [(2, 32, 16, 16), (64, 32, 3, 3)], "winograd", STORED, "convolution"),
    "attention": (attention, [(2, 2, 40, 16)], "attention", STORED, "attention"),
    "scatter": (
        lambda x: x.new_zeros(10).scatter_add(0, torch.arange(60, device=x.device) % 7, x),
        [(60,)],
        "reduction",
        (r"( a\d \+ v\d+)", r"\1 + 1"),
        "scatter_add",
    ),
    "scan": (lambda x: x.cumsum(1), [(5, 100)], "reduction", (r"a0 = n0;", "a0 = n0 * FACTOR;"), "cumsum"),
    "sort": (lambda x: x.sort(1)[0], [(5, 100)], None, (r"out0\[([^;]*)\] = (v\d+);", r"out0[\1] = \2 + 1;"), "sort"),
}  # fmt: skip


def arguments(shapes, device, dtype):
    torch.manual_seed(0)
    return [torch.randn(shape).to(device, dtype) for shape in shapes]


def caught(function, inputs):
    with pytest.raises(KernelResultError) as error:
        torch.compile(function, backend="ocl", options=CHECK)(*inputs)
    return str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_a_wrong_kernel_is_found_and_named(ocl_device, case, dtype):
    function, shapes, kind, (pattern, by), op = CASES[case]
    inputs = arguments(shapes, ocl_device, dtype)
    factor = "1.001f" if dtype is torch.float32 else "1.02f"
    with planted(kind, pattern, by.replace("FACTOR", factor)) as wrong:
        torch._dynamo.reset()
        if case == "winograd" and dtype is not torch.float32:
            pytest.skip("winograd is for fp32")
        message = caught(function, inputs)
    named = re.search(r"kernel (\S+) computes something else", message)
    assert named and named[1] in wrong, message
    assert op in message and "test_check.py" in message, message
