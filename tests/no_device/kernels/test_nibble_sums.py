# tests/no_device/kernels/test_nibble_sums.py: generated sums over rows of int4 on tensor cores, with the instructions in software.
from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.no_device.kernels.test_emulated_kernels import CLANG, HERE, PRELUDE, USUAL, emulator
from tests.no_device.schedule.test_few_rows import lowered, pair
from tests.no_device.scheduling import CAPS
from torch_ocl_compile import _C

pytestmark = pytest.mark.skipif(CLANG is None, reason="needs clang, which compiles OpenCL C for the host")
FLAGS = ("-DIN_BF16=1", "-DHALVES_HOST=1", "-DOPERAND_T_HOST=uint16_t")
FUNCTIONS = """
#define sqrt(x) __builtin_sqrtf(x)
#define native_recip(x) (1.0f / (x))
#define convert_uint4(x) __builtin_convertvector(x, uint4)
#define convert_ushort(x) ((ushort)(x))
#define vload4(i, p) ((ushort4)((p)[0], (p)[1], (p)[2], (p)[3]))
"""


def emulated(text: str) -> str:
    """Returns the text of a kernel with calls in place of its instructions."""
    begin = text.index("// ---- instructions ----", text.index("// kernels/tensor_core/nibbles.cl:"))
    end = text.index("// ---- where an element lies", begin)
    helpers = (HERE / "nibbles_emulator.cl").read_text()
    text = text[:begin] + text[end:]
    text = re.sub(r'asm\("cvt.rn.bf16x2.*;$', "both = emulated_halves(x, y);", text, flags=re.MULTILINE)
    text = re.sub(r'asm\("ex2.approx.*;$', "y = emulated_exp2(x);", text, flags=re.MULTILINE)
    assert "asm" not in text
    return PRELUDE + FUNCTIONS + helpers + re.sub(r"sum_[0-9a-f]{12}", "k", text)


def run(
    folder: Path, kernel: dict[str, Any], args: list[Any], exact: torch.Tensor, sizes: torch.Tensor, offset: int
) -> None:
    """Runs a kernel in the emulator, and compares its result, of floats. `offset`: of all inputs, in elements."""
    script = []
    for argument in kernel["arguments"]:
        number, _ = map(int, argument.split("+"))
        if number >= len(args):
            script.append(f"output {exact.numel()}")
            continue
        given = args[number].contiguous().view(torch.uint8).numpy().tobytes()
        (folder / f"{number}.bin").write_bytes(bytes(offset * args[number].element_size()) + given)
        script.append(f"buffer {number}.bin {offset}")
    script += [f"launch k {' '.join(kernel['groups'])} {kernel['local'][0]}", "compare 1"]
    for name, values in (("exact", exact), ("sizes", sizes)):
        np.array(values.detach().double()).tofile(folder / name)
    (folder / "k.cl").write_text(emulated(kernel["text"]))
    opencl = [str(CLANG), *USUAL, "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header"]
    subprocess.run([*opencl, "-c", str(folder / "k.cl"), "-o", str(folder / "k.o")], check=True)
    program = [str(CLANG), "-no-pie", str(emulator(FLAGS)), str(folder / "k.o"), "-lstdc++", "-lm", "-o"]
    subprocess.run([*program, str(folder / "program")], check=True)
    done = subprocess.run(
        ["./program"], cwd=folder, input="\n".join(script), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def weight(p: torch.Tensor, s: torch.Tensor, z: torch.Tensor | float, group: int) -> torch.Tensor:
    return ((pair(p).to(s.dtype).reshape(len(p), -1, group) - z) * s[..., None]).reshape(len(p), -1)


# Rows, depth, rows of x, the group of a scale, compute units, offset.
PRODUCTS = [
    (40, 2048, 1, 128, 132, 0),
    (16, 8192, 1, 128, 132, 0),
    (24, 1408, 1, 128, 132, 0),  # Steps are not a multiple of warps.
    (24, 256, 5, 32, 132, 0),
    (24, 512, 2, 64, 132, 3),
    (40, 2048, 8, 128, 132, 0),
    (328, 2048, 3, 128, 1, 0),  # A work-group has several tiles.
    (168, 2048, 1, 256, 1, 16),
    (100, 16384, 1, 128, 1, 0),  # Several rounds of a tile.
]


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("rows, depth, count, group, units, offset", PRODUCTS)
def test_product(
    tmp_path: Path, rows: int, depth: int, count: int, group: int, units: int, offset: int, zeros: bool
) -> None:
    torch.manual_seed(rows + depth)
    x = torch.randn(count, depth).bfloat16()
    packed = torch.randint(0, 256, (rows, depth // 2), dtype=torch.uint8)
    scale = torch.rand(rows, depth // group)
    zero = torch.randint(0, 16, (rows, depth // group)).float()

    def function(x: torch.Tensor, p: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return F.linear(x.float(), weight(p, s, z[..., None] if zeros else 8, group))

    seen = lowered(function, x, packed, scale, zero)
    [kernel] = _C.exec.render(seen.graph, {**CAPS["warpgroup"], "units": units}, True)["kernels"]
    exact = weight(packed, scale.double(), zero[..., None].double() if zeros else 8, group)
    run(tmp_path, kernel, seen.args, x.double() @ exact.T, 1e-6 * x.double().abs() @ exact.abs().T + 1e-5, offset)


@pytest.mark.parametrize("units", [1, 132])
def test_norm_and_gate(tmp_path: Path, units: int) -> None:
    """The norm's factor is applied to the sums, and two matrices are read together."""
    torch.manual_seed(units)
    x, norm = torch.randn(1, 2048).bfloat16(), torch.rand(2048).bfloat16()
    packed, scale = torch.randint(0, 256, (176, 1024), dtype=torch.uint8), (torch.rand(176, 16) / 32).bfloat16()

    def function(x: torch.Tensor, n: torch.Tensor, p: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        gate, up = F.linear(F.rms_norm(x, (2048,), n), weight(p, s, 8, 128)).chunk(2, -1)
        return (F.silu(gate) * up).float()

    seen = lowered(function, x, norm, packed, scale)
    [kernel] = _C.exec.render(seen.graph, {**CAPS["warpgroup"], "units": units}, True)["kernels"]
    exact = function(x.double(), norm.double(), packed, scale.double()).double()
    run(tmp_path, kernel, seen.args, exact, 0.02 * exact.abs() + 0.05, 0)  # Rows are rounded to bf16 before and after.
