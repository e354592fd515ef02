# tests/no_device/test_emulated_kernels.py: the kernels on tensor cores at edge sizes, with the instructions in software, bit by bit.
"""Function calls (*_emulator.cl) replace the tensor core instructions in a kernel's text.

clang builds the text as a program of the host, where coroutines are work-items (emulator.cpp). So the order in which
elements are staged, the pipeline, and sizes that are no multiple of a tile are checked without a device.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from torch_ocl_compile import _C

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CLANG = next((path for name in ("clang", *(f"clang-{n}" for n in range(14, 30))) if (path := shutil.which(name))), None)
EMULATED = {
    "tensor_core/operands": "operands_emulator.cl",
    "tensor_core/wgmma": "wgmma_emulator.cl",
    "tensor_core/warp": "mma_emulator.cl",
    "tensor_core/subgroup_matrix": "matrix_emulator.cl",
}
FILES = {row["name"]: row["files"] for row in _C.exec.kernels()}
pytestmark = [
    pytest.mark.skipif(CLANG is None, reason="needs clang, which compiles OpenCL C for the host"),
    pytest.mark.sampled(first=32),
]

# (tile, types of the operands, K contiguous in A and B, (M, N, K, padded stride, offset, groups))
GEMMS = [
    ("128x128", "IN_BF16", 1, 1, (130, 129, 200, 8, 0, 2)), ("128x128", "IN_BF16", 0, 0, (137, 136, 65, 8, 8, 4)),
    ("64x64", "IN_HALF", 1, 0, (70, 72, 500, 8, 0, 1)), ("64x128", "IN_BF16", 0, 1, (65, 130, 64, 8, 0, 3)),
    ("128x64", "IN_HALF", 1, 1, (100, 60, 9, 8, 0, 1)), ("128x256", "IN_BF16", 1, 0, (64, 300, 130, 8, 0, 2)),
    ("64x256", "IN_BF16", 0, 1, (64, 257, 64, 8, 0, 2)),
    ("192x192", "IN_BF16", 1, 0, (200, 193, 330, 8, 0, 2)), ("192x192", "IN_HALF", 0, 1, (190, 392, 100, 8, 8, 3)),
    ("192x128", "IN_BF16", 1, 1, (193, 260, 449, 8, 0, 2)), ("128x192", "IN_HALF", 0, 0, (137, 386, 129, 8, 0, 2)),
    ("192x192", "IN_BF16", 0, 0, (193, 65, 77, 0, 3, 1)),
    ("64x64", "IN_BF16", 1, 1, (66, 65, 77, 0, 3, 2)), ("64x64", "IN_BF16", 0, 0, (66, 65, 77, 0, 5, 2)),
    ("64x64", "", 1, 0, (66, 68, 100, 4, 0, 2)), ("128x128", "", 0, 1, (132, 129, 36, 4, 0, 2)), ("64x64", "", 1, 1, (66, 65, 33, 0, 1, 2)),
    ("64x128", "TERMS=1", 0, 0, (66, 65, 33, 0, 1, 2)),
]  # fmt: skip
# (tile, types of the operands, contiguous dimension of A and B (1: K, 0: other, 2: none), (M, N, K, padding, offset,
# groups, B shared))
PACKED = [
    ("128x128", "TERMS=3", 1, 0, (130, 129, 100, 4, 0, 2, 0)), ("128x128", "TERMS=3", 0, 1, (200, 132, 33, 4, 4, 3, 1)),
    ("64x64", "TERMS=3", 2, 2, (66, 65, 77, 0, 1, 2, 0)), ("128x64", "TERMS=3", 1, 1, (64, 60, 129, 4, 0, 1, 1)),
    ("128x256", "TERMS=1", 1, 0, (130, 260, 100, 4, 0, 2, 0)), ("128x128", "TERMS=1", 0, 1, (70, 132, 33, 0, 3, 1, 1)),
    ("128x128", "TERMS=1", 2, 2, (65, 30, 64, 0, 0, 1, 0)),
]  # fmt: skip
# (batch, C, K, H, W, R, S, stride, padding, dilation, groups)
CONVOLUTIONS = [
    (2, 16, 72, 9, 7, 3, 3, 1, 1, 1, 1), (1, 8, 24, 11, 13, 5, 3, 2, 2, 1, 1), (2, 24, 32, 8, 8, 3, 3, 3, 1, 2, 2),
    (2, 72, 64, 6, 6, 1, 1, 2, 0, 1, 1),
]  # fmt: skip
# (tile, types of the operands, kind, the convolution as above)
PACKED_FILTERS = [
    ("128x64", "", "forward", (2, 16, 72, 9, 7, 3, 3, 1, 1, 1, 1)), ("64x64", "", "data", (2, 24, 32, 8, 8, 3, 3, 3, 1, 2, 2)),
    ("64x64", "IN_BF16", "forward", (1, 8, 24, 11, 13, 5, 3, 2, 2, 1, 1)),
    ("64x64", "IN_BF16", "data", (2, 16, 128, 8, 8, 3, 3, 2, 1, 1, 2)),
    ("128x128", "TERMS=1", "forward", (2, 24, 136, 8, 8, 3, 3, 3, 1, 2, 2)),
    ("128x128", "TERMS=1", "data", (2, 16, 72, 9, 7, 3, 3, 1, 1, 1, 1)),
    ("64x128", "IN_HALF", "data", (2, 136, 64, 6, 6, 1, 1, 2, 0, 1, 1)),
    ("128x256", "IN_BF16", "forward", (1, 72, 200, 9, 7, 1, 1, 1, 0, 1, 1)),
]  # fmt: skip
# (tile, types of the operands, producers, the convolution as above), with small images, strides, groups
WEIGHTS = [
    ("128x128", "TERMS=3", 256, (2, 40, 136, 9, 7, 3, 3, 1, 1, 1, 1)), ("64x128", "TERMS=3", 256, (5, 16, 24, 3, 2, 3, 3, 1, 1, 1, 1)),
    ("128x128", "TERMS=1", 256, (3, 36, 72, 11, 5, 3, 3, 2, 1, 1, 2)), ("128x64", "TERMS=3", 128, (7, 20, 72, 4, 1, 1, 1, 1, 0, 1, 1)),
    ("64x64", "IN_BF16", 128, (5, 24, 32, 3, 3, 3, 3, 1, 1, 1, 2)), ("128x256", "IN_HALF", 128, (2, 40, 72, 12, 9, 5, 3, 3, 2, 2, 1)),
]  # fmt: skip
# (tile with that of a warp, types of the operands, the convolution as above, parts, work-groups)
STATISTICS = [
    ("64x64", "IN_BF16", (2, 16, 72, 9, 7, 3, 3, 1, 1, 1, 1), 1, 1), ("64x64", "", (2, 16, 72, 9, 7, 3, 3, 1, 1, 1, 1), 2, 4),
    ("64x128", "IN_HALF", (3, 8, 136, 9, 9, 1, 1, 1, 0, 1, 1), 3, 2), ("128x64", "TERMS=1", (2, 8, 40, 16, 16, 1, 1, 1, 0, 1, 2), 3, 1),
    ("128x128", "", (1, 8, 72, 23, 19, 1, 1, 1, 0, 1, 1), 4, 4), ("128x256", "IN_BF16", (3, 8, 260, 9, 10, 1, 1, 1, 0, 1, 1), 2, 1),
    ("64x64/32x32", "IN_BF16", (2, 16, 72, 9, 7, 3, 3, 1, 1, 1, 1), 1, 1),
    ("64x64/32x32", "TERMS=3", (2, 16, 72, 9, 7, 3, 3, 1, 1, 1, 1), 2, 4),
    ("64x128/32x64", "IN_HALF", (3, 8, 136, 9, 9, 1, 1, 1, 0, 1, 1), 3, 2),
    ("128x64/64x32", "TERMS=1", (2, 8, 40, 16, 16, 1, 1, 1, 0, 1, 2), 3, 1),
    ("128x128/64x64", "TERMS=3", (1, 8, 72, 23, 19, 1, 1, 1, 0, 1, 1), 4, 4),
    ("128x128/64x32", "IN_BF16", (3, 8, 260, 9, 10, 3, 3, 2, 1, 1, 1), 1, 2),
    ("128x64/64x32", "IN_HALF", (3, 8, 35, 11, 13, 5, 3, 2, 2, 1, 2), 2, 1),
]  # fmt: skip
ATTENTIONS = [  # types, tile, macros, (batch, heads, heads of q per head of k, queries, keys, offset)
    ("IN_BF16", "64x64", {}, (1, 2, 1, 70, 150, 0)), ("IN_BF16", "64x64", {"OVERLAP": 0}, (1, 1, 1, 70, 150, 0)),
    ("IN_BF16", "128x128", {"CAUSAL": 1}, (1, 2, 2, 130, 260, 8)),
    ("IN_HALF", "128x64", {"CAUSAL": 1, "DEPTH": 40, "WIDTH": 24}, (2, 1, 1, 150, 140, 0)),
    ("IN_HALF", "64x128", {"MASK": 1}, (1, 2, 1, 65, 129, 0)), ("IN_BF16", "64x64", {"MASK": 3, "DIRECT": 0}, (1, 1, 1, 66, 67, 3)),
    ("IN_BF16", "64x128", {"DEPTH_TILE": 128, "DEPTH": 128, "WIDTH": 96, "STAGES": 4, "OVERLAP": 0}, (1, 1, 1, 64, 140, 0)),
    ("IN_HALF", "64x64", {"DEPTH_TILE": 128, "DEPTH": 80, "WIDTH": 128, "STAGES": 4, "CAUSAL": 1}, (1, 1, 1, 100, 70, 0)),
    ("IN_HALF", "64x128", {"DROPOUT": 1}, (1, 2, 2, 70, 261, 0)), ("TERMS=3", "64x64", {"DROPOUT": 1}, (2, 1, 1, 66, 130, 0)),
    ("TERMS=3", "64x64", {}, (1, 2, 1, 70, 150, 0)), ("TERMS=3", "128x64", {"CAUSAL": 1, "DEPTH": 36, "WIDTH": 20}, (1, 2, 2, 130, 140, 4)),
    ("TERMS=1", "64x64", {"MASK": 1, "DIRECT": 0}, (1, 1, 1, 66, 67, 1)),
]  # fmt: skip
WARP_ATTENTIONS = [  # types, tile and rows of a warp, macros, (batch, heads, heads of q per head of k, queries, keys, offset)
    ("IN_BF16", "128x64/32", {}, (1, 2, 1, 150, 150, 0)), ("IN_HALF", "64x64/16", {"CAUSAL": 1}, (1, 2, 2, 130, 260, 8)),
    ("IN_BF16", "128x64/32", {"CAUSAL": 1, "DEPTH": 40, "WIDTH": 24}, (2, 1, 1, 150, 140, 0)),
    ("IN_HALF", "64x128/16", {"MASK": 1}, (1, 2, 1, 65, 129, 0)), ("IN_BF16", "64x64/32", {"MASK": 3, "DIRECT": 0}, (1, 1, 1, 66, 67, 3)),
    ("IN_BF16", "128x64/16", {"DEPTH_TILE": 128, "DEPTH": 128, "WIDTH": 96, "STAGES": 3}, (1, 1, 1, 64, 140, 0)),
    ("IN_HALF", "64x64/16", {"DEPTH_TILE": 96, "DEPTH": 80, "WIDTH": 80, "CAUSAL": 1}, (1, 1, 1, 100, 70, 0)),
    ("IN_BF16", "64x64/16", {"DEPTH_TILE": 32, "DEPTH": 32, "WIDTH": 32, "STAGES": 2}, (1, 2, 1, 64, 70, 0)),
    ("IN_HALF", "64x64/32", {"DROPOUT": 1}, (1, 2, 2, 70, 261, 0)), ("TERMS=3", "64x64/16", {"DROPOUT": 1}, (2, 1, 1, 66, 130, 0)),
    ("TERMS=3", "64x64/32", {}, (1, 2, 1, 70, 150, 0)),
    ("TERMS=3", "128x64/32", {"CAUSAL": 1, "DEPTH": 36, "WIDTH": 20}, (1, 2, 2, 130, 140, 4)),
    ("TERMS=3", "64x64/16", {"DEPTH_TILE": 128, "DEPTH": 96, "WIDTH": 128, "STAGES": 2, "MASK": 3}, (1, 1, 1, 66, 67, 0)),
    ("TERMS=1", "64x64/16", {"MASK": 1, "DIRECT": 0}, (1, 1, 1, 66, 67, 1)),
    ("TERMS=1", "128x64/32", {"CAUSAL": 1, "STAGES": 3}, (1, 1, 1, 130, 70, 0)),
]  # fmt: skip
GRADIENTS = [  # types, rows of a tile, macros, (batch, heads, heads of q per head of k, queries, keys, offset)
    ("IN_BF16", 64, {"PASS": 1, "OVERLAP": 1}, (1, 2, 1, 70, 450, 0)), ("IN_BF16", 64, {"PASS": 2}, (1, 2, 1, 450, 70, 0)),
    ("IN_HALF", 128, {"PASS": 1, "OVERLAP": 1, "CAUSAL": 1, "STAGES": 8, "LAG": 5}, (1, 2, 2, 200, 330, 8)),
    ("IN_HALF", 128, {"PASS": 2, "CAUSAL": 1, "STAGES": 8, "LAG": 5}, (1, 2, 2, 330, 260, 8)),
    ("IN_BF16", 64, {"PASS": 1, "DEPTH": 40, "DEPTH2": 24, "CAUSAL": 1, "OVERLAP": 0}, (2, 1, 1, 66, 67, 0)),
    ("IN_BF16", 64, {"PASS": 2, "DEPTH": 40, "DEPTH2": 24, "CAUSAL": 1}, (2, 1, 1, 67, 130, 0)),
    ("IN_BF16", 64, {"PASS": 1, "MASK": 3, "DIRECT": 0, "OVERLAP": 1}, (1, 2, 1, 66, 130, 3)),
    ("IN_BF16", 64, {"PASS": 2, "MASK": 1, "DIRECT": 0}, (1, 2, 2, 66, 67, 3)),
    ("IN_HALF", 64, {"PASS": 1, "DROPOUT": 1, "OVERLAP": 1}, (2, 2, 2, 66, 131, 0)),
    ("IN_HALF", 64, {"PASS": 2, "DROPOUT": 1, "CAUSAL": 1}, (2, 2, 2, 130, 131, 0)),
    ("IN_HALF", 64, {"PASS": 1, "DEPTH_TILE": 128, "DEPTH": 128, "DEPTH2": 96, "OVERLAP": 0}, (1, 1, 1, 64, 140, 0)),
    ("IN_HALF", 64, {"PASS": 2, "DEPTH_TILE": 128, "DEPTH": 80, "DEPTH2": 128}, (1, 1, 1, 140, 64, 0)),
    ("TERMS=3", 64, {"PASS": 1}, (1, 2, 1, 70, 450, 0)), ("TERMS=3", 64, {"PASS": 2}, (1, 2, 1, 450, 70, 0)),
    ("TERMS=3", 128, {"PASS": 1, "CAUSAL": 1, "STAGES": 5}, (1, 2, 2, 200, 330, 4)),
    ("TERMS=3", 128, {"PASS": 2, "CAUSAL": 1, "STAGES": 5}, (1, 2, 2, 330, 260, 4)),
    ("TERMS=3", 64, {"PASS": 1, "DEPTH": 36, "DEPTH2": 20, "MASK": 3, "STAGES": 5}, (2, 1, 1, 66, 67, 0)),
    ("TERMS=3", 64, {"PASS": 2, "DEPTH": 36, "DEPTH2": 20, "MASK": 3}, (2, 1, 1, 67, 130, 0)),
    ("TERMS=3", 64, {"PASS": 1, "DROPOUT": 1, "DIRECT": 0}, (2, 2, 2, 66, 131, 3)),
    ("TERMS=3", 64, {"PASS": 2, "DROPOUT": 1, "CAUSAL": 1, "DIRECT": 0}, (2, 2, 2, 130, 131, 3)),
    ("TERMS=1", 128, {"PASS": 1, "MASK": 1, "STAGES": 9}, (1, 2, 2, 130, 331, 0)),
    ("TERMS=1", 192, {"PASS": 2, "MASK": 1, "DROPOUT": 1, "STAGES": 7}, (1, 2, 2, 331, 200, 0)),
    ("TERMS=1", 192, {"PASS": 1, "DEPTH": 8, "DEPTH2": 64, "CAUSAL": 1, "STAGES": 7}, (1, 1, 1, 200, 200, 0)),
    ("TERMS=1", 64, {"PASS": 2, "DEPTH": 7, "DEPTH2": 9, "CAUSAL": 1, "STAGES": 9, "DIRECT": 0}, (1, 2, 1, 150, 70, 1)),
]  # fmt: skip
WARP_GRADIENTS = [  # types, rows of a tile, macros, (batch, heads, heads of q per head of k, queries, keys, offset)
    ("IN_BF16", 64, {"PASS": 1}, (1, 2, 1, 70, 250, 0)), ("IN_BF16", 64, {"PASS": 2}, (1, 2, 1, 250, 70, 0)),
    ("IN_HALF", 128, {"PASS": 1, "CAUSAL": 1, "STAGES": 3}, (1, 2, 2, 150, 180, 8)),
    ("IN_HALF", 128, {"PASS": 2, "CAUSAL": 1, "STAGES": 3}, (1, 2, 2, 180, 140, 8)),
    ("IN_BF16", 64, {"PASS": 1, "DEPTH": 40, "DEPTH2": 24, "MASK": 3, "DIRECT": 0}, (2, 1, 1, 66, 67, 3)),
    ("IN_BF16", 64, {"PASS": 2, "DEPTH": 40, "DEPTH2": 24, "MASK": 1, "DIRECT": 0}, (1, 2, 2, 66, 67, 3)),
    ("IN_HALF", 64, {"PASS": 1, "DROPOUT": 1}, (2, 2, 2, 66, 131, 0)),
    ("IN_HALF", 64, {"PASS": 2, "DROPOUT": 1, "CAUSAL": 1}, (2, 2, 2, 130, 131, 0)),
    ("IN_BF16", 64, {"PASS": 1, "DEPTH_TILE": 128, "DEPTH": 128, "DEPTH2": 96}, (1, 1, 1, 64, 140, 0)),
    ("IN_BF16", 64, {"PASS": 2, "DEPTH_TILE": 128, "DEPTH": 80, "DEPTH2": 128}, (1, 1, 1, 140, 64, 0)),
    ("TERMS=3", 64, {"PASS": 1}, (1, 2, 1, 70, 150, 0)), ("TERMS=3", 64, {"PASS": 2}, (1, 2, 1, 150, 70, 0)),
    ("TERMS=3", 64, {"PASS": 1, "DEPTH": 36, "DEPTH2": 20, "MASK": 3}, (2, 1, 1, 66, 67, 0)),
    ("TERMS=3", 64, {"PASS": 2, "DROPOUT": 1, "CAUSAL": 1, "DIRECT": 0}, (1, 2, 2, 130, 131, 3)),
    ("TERMS=1", 64, {"PASS": 1, "MASK": 1, "DEPTH_TILE": 32, "DEPTH": 32, "DEPTH2": 8}, (1, 2, 2, 70, 131, 0)),
    ("TERMS=1", 64, {"PASS": 2, "DEPTH": 7, "DEPTH2": 9, "DEPTH_TILE": 32, "CAUSAL": 1, "DIRECT": 0}, (1, 2, 1, 150, 70, 1)),
]  # fmt: skip
# (tile, warp's tile, types of the operands, K contiguous in A and B, (M, N, K, padded stride, offset, 0))
WARP_GEMMS = [
    ("128x128", "64x32", "IN_BF16", 1, 1, (130, 129, 200, 8, 0, 0)), ("128x128", "64x64", "IN_BF16", 0, 0, (137, 136, 65, 8, 8, 0)),
    ("128x64", "32x32", "IN_HALF", 1, 0, (70, 72, 500, 8, 0, 0)), ("64x128", "32x64", "IN_HALF", 0, 1, (65, 130, 64, 8, 0, 0)),
    ("64x64", "32x32", "IN_BF16", 1, 1, (66, 65, 77, 0, 3, 0)), ("64x64", "32x32", "IN_BF16", 0, 0, (66, 65, 9, 0, 5, 0)),
    ("128x128", "64x32", "TERMS=3", 1, 0, (132, 140, 100, 4, 0, 0)), ("128x128", "64x32", "TERMS=3", 0, 1, (132, 129, 36, 4, 0, 0)),
    ("64x64", "32x32", "TERMS=3", 1, 1, (66, 65, 133, 0, 1, 0)), ("64x64", "32x32", "TERMS=3", 0, 0, (66, 65, 33, 0, 1, 0)),
    ("128x128", "64x64", "TERMS=1", 1, 1, (130, 136, 200, 4, 4, 0)), ("128x64", "64x32", "TERMS=1", 0, 0, (66, 65, 33, 0, 1, 0)),
]  # fmt: skip
ATTENTION_ERRORS = {"IN_BF16": "6e-3", "IN_HALF": "8e-4", "TERMS=1": "1e-3", "TERMS=3": "2e-6"}


PRELUDE = """#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define clamp(x, a, b) min(max(x, a), b)
#define vload_half(i, p) 0.0f
#define fma(a, b, c) ((a) * (b) + (c))
#define vstore2(v, i, p) ((p)[0] = (v).s0, (p)[1] = (v).s1)
#define vstore4(v, i, p) (vstore2((v).lo, i, p), vstore2((v).hi, i, (p) + 2))
#define vstore8(v, i, p) (vstore4((v).lo, i, p), vstore4((v).hi, i, (p) + 4))
void local_begins(__local char*);
"""
PACK_PRELUDE = PRELUDE + (HERE / "pack_emulator.cl").read_text()


def emulated(text: str) -> str:
    """Returns the text of a kernel on tensor cores, with calls in place of its instructions."""
    files = [name for name in EMULATED if f"// kernels/{name}.cl:" in text]
    for name in files:
        begin = text.index("// ---- instructions ----", text.index(f"// kernels/{name}.cl:"))
        end = min(
            at for at in (text.find("// ---- where an element lies", begin), text.find("// kernels/", begin)) if at >= 0
        )
        text = text[:begin] + (HERE / EMULATED[name]).read_text() + text[end:]
    assert files == ["tensor_core/subgroup_matrix"] or len(files) == 2
    assert "asm" not in text[text.index("// kernels/tensor_core/types.cl:") :]
    return re.sub(r"^( *PIPELINE.*;)$", r"\1 local_begins((__local char*)line.stages);", text, flags=re.M)


def run(
    folder: Path,
    kernel: str,
    case: str,
    defines: list[str],
    arguments: tuple[int, ...],
    types: str,
    packs: dict[str, list[str]] | None = None,
) -> None:
    """Builds a kernel with its case and runs it; the program compares. `packs`: pack_group by name, with macros."""

    def text(name: str, macros: list[str], files: list[str], prelude: str = PRELUDE) -> str:
        macros = [f"KERNEL_NAME={name}", *macros]
        parts = [(ROOT / f"kernels/{file}.cl").read_text() for file in ("base/types", *files)]
        return "".join(f"#define {macro.replace('=', ' ')}\n" for macro in macros) + prelude + "\n".join(parts)

    widths = [] if any(name.startswith("VW=") for name in defines) else ["VW=2"]
    texts = {"k": emulated(text("k", defines + widths, FILES[kernel]))}
    for name, names in (packs or {}).items():
        texts[name] = text(name, ["VW=4", *names], FILES["pack_group"], PACK_PRELUDE)
    execute(folder, texts, HERE / case, defines, types, arguments)


def execute(
    folder: Path, texts: dict[str, str], case: Path, defines: list[str], types: str, arguments: tuple[object, ...]
) -> None:
    """Builds the texts of kernels and a case as one program, with the kernels' macros, and runs it."""
    halves = types.startswith("IN_")
    flags = [f"-D{name}" for name in defines]
    flags += [f"-DHALVES_HOST={int(halves)}", f"-DOPERAND_T_HOST={'uint16_t' if halves else 'float'}"]
    usual = ["-w", "-fno-pic", "-ffp-contract=off", "-O1"]
    objects = [folder / f"{name}.o" for name in texts]
    for built, text in zip(objects, texts.values(), strict=True):
        built.with_suffix(".cl").write_text(text)
        opencl = [str(CLANG), *usual, "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header"]
        subprocess.run([*opencl, "-c", str(built.with_suffix(".cl")), "-o", str(built)], check=True)
    host = [str(CLANG), *usual, "-x", "c++", "-std=c++17", "-no-pie", f"-I{ROOT}", *flags, f'-DCASE="{case}"']
    program = [str(HERE / "emulator.cpp"), "-x", "none", *map(str, objects), "-lstdc++", "-lm"]
    subprocess.run([*host, *program, "-o", str(folder / "program")], check=True)
    done = subprocess.run(
        [str(folder / "program"), *map(str, arguments)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def widest(types: str) -> int:
    """Returns the number of elements in 16 bytes."""
    return 8 if types.startswith("IN_") else 4


def tile_of(name: str) -> list[str]:
    rows, columns = name.split("x")
    return [f"TILE_M={rows}", f"TILE_N={columns}"]


@pytest.mark.parametrize(
    "tile, types, a, b, sizes, boxes",
    [(*case, 0) for case in GEMMS] + [(*case, 1) for case in GEMMS if "IN_" in case[1] and case[0] != "64x64"],
)
def test_gemm(tmp_path: Path, tile: str, types: str, a: int, b: int, sizes: tuple[int, ...], boxes: int) -> None:
    padded = int(sizes[3] != 0)
    defines = [*tile_of(tile), f"A_K_MAJOR={a}", f"B_K_MAJOR={b}", f"A_VEC4={padded}", f"B_VEC4={padded}"]
    if types:
        defines.append(types if "=" in types else f"{types}=1")
    if boxes:
        defines.append("BOXES=1")
    if sizes[1] != 129:
        defines.append(f"VW={widest(types)}")
    run(tmp_path, "gemm_warpgroup", "emulator_case_gemm.h", defines, sizes, types)


@pytest.mark.parametrize(
    "tile, warp, types, a, b, sizes, digits",
    [(*case, False) for case in WARP_GEMMS] + [(*case, True) for case in WARP_GEMMS if case[2] == "TERMS=3"],
)
def test_gemm_of_warps(
    tmp_path: Path, tile: str, warp: str, types: str, a: int, b: int, sizes: tuple[int, ...], digits: bool
) -> None:
    """Compares bit by bit; with `digits`, split floats within the error of fp32 sums, and stores with a long epilogue."""
    padded, rows = int(sizes[3] != 0), warp.split("x")
    defines = [*tile_of(tile), f"WARP_M={rows[0]}", f"WARP_N={rows[1]}", f"A_K_MAJOR={a}", f"B_K_MAJOR={b}"]
    defines += [f"A_VEC4={padded}", f"B_VEC4={padded}", types if "=" in types else f"{types}=1"]
    defines.append(f"VW={widest(types) if sizes[1] % 2 == 0 else 2}")
    run(tmp_path, "gemm_warp", "emulator_case_gemm.h", defines + ["DIGITS=1", "LONG_STORES=1"] * digits, sizes, types)


@pytest.mark.parametrize("tile, types, a, b, sizes", PACKED)
def test_packed_gemm(tmp_path: Path, tile: str, types: str, a: int, b: int, sizes: tuple[int, ...]) -> None:
    """Packs both operands, then multiplies them."""
    split, chunked = types == "TERMS=3", int(sizes[3] != 0)
    packs = {}
    for name, major in (("pack_a", a), ("pack_b", b)):
        packs[name] = [types, f"PAIRS={int(split)}", f"MAJOR={major}", f"CHUNKED={chunked}"]
    named = [*tile_of(tile), types, "PACKED=1", f"A_MAJOR={a}", f"B_MAJOR={b}"]
    named.append(f"VW={widest(types) if sizes[1] % 2 == 0 else 2}")
    run(tmp_path, "gemm_packed_warpgroup", "emulator_case_packed.h", named, sizes, types, packs)


@pytest.mark.parametrize("types, tile, macros, sizes", ATTENTIONS)
def test_attention(tmp_path: Path, types: str, tile: str, macros: dict[str, int], sizes: tuple[int, ...]) -> None:
    """Compares with double precision, and allows for rounding the weights to the operands' type."""
    rows, columns = tile.split("x")
    defines = {
        "DIRECT": 1,
        "DEPTH": 64,
        "WIDTH": 64,
        "DEPTH_TILE": 64,
        "PRODUCERS": 128,
        "CAUSAL": 0,
    } | macros
    named = [
        types if "=" in types else f"{types}=1",
        f"TILE_M={rows}",
        f"TILE_C={columns}",
        "TILE_N=64",
        f"TOLERANCE={ATTENTION_ERRORS[types]}",
    ]
    named += [f"{name}={value}" for name, value in defines.items()]
    run(tmp_path, "attention_warpgroup", "emulator_case_attention.h", named, sizes, types)


@pytest.mark.parametrize("types, tile, macros, sizes", WARP_ATTENTIONS)
def test_attention_of_warps(
    tmp_path: Path, types: str, tile: str, macros: dict[str, int], sizes: tuple[int, ...]
) -> None:
    rows, columns, warp = tile.replace("/", "x").split("x")
    defines: dict[str, int] = {"DIRECT": 1, "DEPTH": 64, "WIDTH": 64, "DEPTH_TILE": 64, "STAGES": 4, "CAUSAL": 0}
    named = [f"TILE_M={rows}", f"WARP_M={warp}", *(f"{of}={columns}" for of in ("TILE_N", "WARP_N", "TILE_C"))]
    named += [types if "=" in types else f"{types}=1", f"TOLERANCE={ATTENTION_ERRORS[types]}"]
    named += [f"{name}={value}" for name, value in (defines | macros).items()]
    run(tmp_path, "attention_warp", "emulator_case_attention.h", named, sizes, types)


@pytest.mark.parametrize("types, rows, macros, sizes", GRADIENTS)
def test_attention_gradient(
    tmp_path: Path, types: str, rows: int, macros: dict[str, int], sizes: tuple[int, ...]
) -> None:
    """Compares with double precision, and allows for rounding p and ds to the operands' type, or for splitting them."""
    defines: dict[str, int] = {
        "DIRECT": 1,
        "DEPTH": 64,
        "DEPTH2": 64,
        "DEPTH_TILE": 64,
        "CAUSAL": 0,
        "STAGES": 6,
        "LAG": 3,
    }
    named = [types if "=" in types else f"{types}=1", f"TILE_M={rows}", "TILE_C=64", "TILE_N=64", "PRODUCERS=128"]
    named += [f"{name}={value}" for name, value in (defines | macros).items()]
    tolerance = ATTENTION_ERRORS[types]
    case = "emulator_case_attention_gradient.h"
    run(tmp_path, "attention_gradient_warpgroup", case, [*named, f"TOLERANCE={tolerance}"], sizes, types)


@pytest.mark.parametrize("types, rows, macros, sizes", WARP_GRADIENTS)
def test_attention_gradient_of_warps(
    tmp_path: Path, types: str, rows: int, macros: dict[str, int], sizes: tuple[int, ...]
) -> None:
    defines: dict[str, int] = {"DIRECT": 1, "DEPTH": 64, "DEPTH2": 64, "DEPTH_TILE": 64, "CAUSAL": 0, "STAGES": 2}
    named = [f"TILE_M={rows}", "WARP_M=16", "TILE_C=64", "TILE_N=64", "WARP_N=64"]
    named += [types if "=" in types else f"{types}=1", f"TOLERANCE={ATTENTION_ERRORS[types]}"]
    named += [f"{name}={value}" for name, value in (defines | macros).items()]
    run(tmp_path, "attention_gradient_warp", "emulator_case_attention_gradient.h", named, sizes, types)


@pytest.mark.parametrize("types", ["IN_BF16", "IN_HALF", ""])
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=lambda s: "-".join(map(str, s)))
def test_convolution(tmp_path: Path, shape: tuple[int, ...], kind: str, types: str) -> None:
    tile = "128x64" if shape[2] == 72 else "64x64"
    defines = [*tile_of(tile), *([f"{types}=1"] if types else []), f"VW={widest(types)}"]
    if kind == "weight":
        run(
            tmp_path,
            "conv_weight_warpgroup",
            "emulator_case_conv.h",
            [*defines, "WEIGHT=1", "DY_DENSE=1"],
            shape,
            types,
        )
    else:
        run(
            tmp_path,
            "conv_warpgroup",
            "emulator_case_conv.h",
            [*defines, f"DATA_GRADIENT={int(kind == 'data')}"],
            shape,
            types,
        )


@pytest.mark.parametrize("tile, types, producers, shape", WEIGHTS)
def test_gradient_of_weights(tmp_path: Path, tile: str, types: str, producers: int, shape: tuple[int, ...]) -> None:
    named = [*tile_of(tile), types if "=" in types else f"{types}=1", f"VW={widest(types)}", f"PRODUCERS={producers}"]
    run(tmp_path, "conv_weight_warpgroup", "emulator_case_conv.h", [*named, "WEIGHT=1", "DY_DENSE=1"], shape, types)


@pytest.mark.parametrize("tile, types, kind, shape", PACKED_FILTERS)
def test_convolution_of_packed_filters(
    tmp_path: Path, tile: str, types: str, kind: str, shape: tuple[int, ...]
) -> None:
    named = [types if "=" in types else f"{types}=1"] if types else []
    defines = [*tile_of(tile), *named, f"VW={widest(types)}", f"DATA_GRADIENT={int(kind == 'data')}", "B_PACKED=1"]
    run(tmp_path, "conv_packed_warpgroup", "emulator_case_conv.h", defines, shape, types)


@pytest.mark.parametrize("bias", [0, 1])
@pytest.mark.parametrize("tile, types, shape, parts, groups", STATISTICS)
def test_statistics(
    tmp_path: Path, tile: str, types: str, shape: tuple[int, ...], parts: int, groups: int, bias: int
) -> None:
    """Compares, for each part, the count, the mean and the spread of the stored values."""
    tile, _, warp = tile.partition("/")
    kind = [types if "=" in types else f"{types}=1"] if types else []
    defines = [*tile_of(tile), *kind, f"VW={widest(types)}", "DATA_GRADIENT=0", "STATISTICS=1", f"BIAS={bias}"]
    defines += [f"B_PACKED={int(bias and not warp)}"]
    if warp:
        defines += [f"WARP_M={warp.split('x')[0]}", f"WARP_N={warp.split('x')[1]}"]
    kernel = "conv_statistics_warp" if warp else "conv_statistics_warpgroup"
    run(tmp_path, kernel, "emulator_case_conv.h", defines, (*shape, parts, groups), types)


@pytest.mark.parametrize("types, kind, shape", [
    (types, ("forward", "data", "weight")[(i + j) % 3], shape) for i, types in enumerate(("IN_BF16", "TERMS=3", "IN_HALF", "TERMS=1"))
    for j, shape in enumerate(CONVOLUTIONS)
])  # fmt: skip
def test_convolution_of_warps(tmp_path: Path, shape: tuple[int, ...], kind: str, types: str) -> None:
    tile, warp = ("128x64", "64x32") if shape[2] == 72 else ("64x64", "32x32")
    rows, columns = warp.split("x")
    defines = [*tile_of(tile), f"WARP_M={rows}", f"WARP_N={columns}", f"VW={widest(types)}"]
    defines.append(types if "=" in types else f"{types}=1")
    if kind == "weight":
        # Otherwise pixels are divided into rows and images.
        dense = int(shape[4] % 2)
        run(
            tmp_path,
            "conv_weight_warp",
            "emulator_case_conv.h",
            [*defines, "WEIGHT=1", f"DY_DENSE={dense}"],
            shape,
            types,
        )
    else:
        run(
            tmp_path,
            "conv_warp",
            "emulator_case_conv.h",
            [*defines, f"DATA_GRADIENT={int(kind == 'data')}"],
            shape,
            types,
        )
