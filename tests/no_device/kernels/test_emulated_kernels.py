# tests/no_device/kernels/test_emulated_kernels.py: the kernels on tensor cores, with the instructions in software.
"""Function calls (*_emulator.cl) replace the tensor core instructions in a kernel's text.

clang builds the text as a program of the host, where coroutines are work-items (emulator.cpp). So the order in which
elements are staged, the pipeline, and sizes that are no multiple of a tile are checked without a device.

The cases are those of csrc/schedule/families/*/cases.cpp, for every row of kernels.def on tensor cores, every type and
every tile. At edges of sizes, sums are compared bit by bit.
"""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torch_ocl_compile import _C

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
CLANG = next((path for name in ("clang", *(f"clang-{n}" for n in range(14, 30))) if (path := shutil.which(name))), None)
EMULATED = {
    "tensor_core/operands": "operands_emulator.cl",
    "tensor_core/wgmma": "wgmma_emulator.cl",
    "tensor_core/warp": "mma_emulator.cl",
    "tensor_core/subgroup_matrix": "matrix_emulator.cl",
}
TENSOR_CORES = ("warp", "warpgroup", "subgroup_matrix")
pytestmark = [
    pytest.mark.skipif(CLANG is None, reason="needs clang, which compiles OpenCL C for the host"),
    pytest.mark.sampled(first=96),
]
PRELUDE = """#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define clamp(x, a, b) min(max(x, a), b)
#define popcount(x) __builtin_popcount(x)
#define atomic_or(p, bits) (*(p) |= (bits))
#define vload_half(i, p) emulated_value(*(__global const ushort*)((p) + (i)), 0)
#define fma(a, b, c) ((a) * (b) + (c))
#define fmax(a, b) max(a, b)
#define vstore2(v, i, p) ((p)[0] = (v).s0, (p)[1] = (v).s1)
#define vstore4(v, i, p) (vstore2((v).lo, i, p), vstore2((v).hi, i, (p) + 2))
#define vstore8(v, i, p) (vstore4((v).lo, i, p), vstore4((v).hi, i, (p) + 4))
void local_begins(__local char*);
float emulated_value(uint both, uint upper);
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
    return PRELUDE + re.sub(r"^( *PIPELINE.*;)$", r"\1 local_begins((__local char*)line.stages);", text, flags=re.M)


def matrices(row: dict[str, Any], kind: str) -> tuple[str, ...]:
    """Returns the instructions with which a row multiplies a type; "mfma4" where it has those of its level."""
    if kind == "fp16" and row["name"] in ("gemm_warp", "conv_warp", "conv_weight_warp"):
        return ("mfma4", "mma8")
    if row["level"] != "subgroup_matrix":
        return ("mfma4",)
    return tuple(name for name, floats in _C.exec.matrix_instructions() if floats or kind != "fp32")


def cases() -> Iterator[tuple[str, str, str, str, int]]:
    for row in _C.exec.kernels():
        for kind in row["types"] if row["level"] in TENSOR_CORES else ():
            for matrix in matrices(row, kind):
                for made in ("tiles", "edges"):
                    count = len(_C.exec.check_cases(row["name"], kind, matrix=matrix, set=made, filled=False))
                    yield from ((row["name"], kind, matrix, made, number) for number in range(count))


@pytest.mark.parametrize("kernel, kind, matrix, made, number", cases())
def test_kernel(tmp_path: Path, kernel: str, kind: str, matrix: str, made: str, number: int) -> None:
    [case] = _C.exec.check_cases(kernel, kind, number, matrix, made)
    execute(tmp_path, case)


def test_every_tile_is_emulated() -> None:
    """What the offers of the cases choose among: each tile, with each way of copying and with packed filters."""
    offered, launched = set(), set()
    for row in _C.exec.kernels():
        if row["level"] not in TENSOR_CORES:
            continue
        # Tiles and copies of the base choose a form that nothing else launches.
        form = row["name" if row["offered"] or row["operation"].endswith("_statistics") else "base"]
        for kind in row["types"]:
            for matrix in matrices(row, kind):
                for made in ("tiles", "edges"):
                    for case in _C.exec.check_cases(row["name"], kind, matrix=matrix, set=made, filled=False):
                        knobs = {"copies": ([], "chunks"), **case["knobs"]}
                        which = (form, kind, matrix, *(d for d in case["defines"] if d.startswith("PASS ")))
                        tile = knobs.pop("tile", ([], ""))
                        offered |= {(*which, option) for option in tile[0]}
                        launched.add((*which, tile[1]))
                        for knob in knobs.keys() & {"copies", "filters"}:
                            offered |= {(*which, tile[1], knob, option) for option in knobs[knob][0]}
                            launched.add((*which, tile[1], knob, knobs[knob][1]))
    assert len(offered) > 400
    assert not offered - launched


USUAL = ["-w", "-fno-pic", "-ffp-contract=off", "-O1"]


@functools.cache
def emulator(flags: tuple[str, ...]) -> Path:
    """Builds the emulator for kernels with these macros."""
    built = Path(tempfile.mkdtemp(prefix="emulator")) / "emulator.o"
    atexit.register(shutil.rmtree, built.parent)
    host = [str(CLANG), *USUAL, "-x", "c++", "-std=c++17", f"-I{ROOT}", *flags]
    subprocess.run([*host, "-c", str(HERE / "emulator.cpp"), "-o", str(built)], check=True)
    return built


def flags_of(case: dict[str, Any]) -> tuple[str, ...]:
    """Returns the macros on which the emulated instructions depend."""
    macros = dict(line.split(" ", 1) for line in case["defines"])
    halves = "IN_BF16" in macros or "IN_HALF" in macros
    used = ("IN_BF16", "IN_HALF", "TERMS", "PACKED", "WARP_M", *(name for name in macros if name.startswith("MATRIX_")))
    flags = [f"-D{name}={macros[name]}" for name in used if name in macros]
    return (*flags, f"-DHALVES_HOST={int(halves)}", f"-DOPERAND_T_HOST={'uint16_t' if halves else 'float'}")


def execute(folder: Path, case: dict[str, Any]) -> None:
    """Builds the kernels of a case and runs them in the emulator, which compares the results."""
    texts: dict[str, str] = {}
    script = [*commands(folder, case, texts), f"compare {case['tolerance']}"]
    for results in ("exact", "sizes"):
        np.array(case[results], dtype=np.float64).tofile(folder / results)
    for name, text in texts.items():
        (folder / f"{name}.cl").write_text(text.replace("checked_kernel", name, 1))
        opencl = [str(CLANG), *USUAL, "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header"]
        subprocess.run([*opencl, "-c", str(folder / f"{name}.cl"), "-o", str(folder / f"{name}.o")], check=True)
    objects = [str(emulator(flags_of(case))), *(str(folder / f"{name}.o") for name in texts)]
    subprocess.run([str(CLANG), "-no-pie", *objects, "-lstdc++", "-lm", "-o", str(folder / "program")], check=True)
    done = subprocess.run(
        ["./program"], cwd=folder, input="\n".join(script), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def commands(folder: Path, case: dict[str, Any], texts: dict[str, str]) -> list[str]:
    """Returns the emulator's commands for a launch and for those that pack its operands, and adds the kernels' texts."""
    before, lines = [], []
    packs = 0
    for given, offset in case["inputs"]:
        if isinstance(given, dict):
            before += commands(folder, given, texts)
            lines.append(f"packed {packs}")
            packs += 1
            continue
        number = len(list(folder.glob("*.bin")))
        (folder / f"{number}.bin").write_bytes(given)
        lines.append(f"buffer {number}.bin {offset}")
    is_pack = case["kernel"] == "pack_group"
    name = f"pack_{len(texts)}" if is_pack else "k"
    texts[name] = PACK_PRELUDE + case["text"] if is_pack else emulated(case["text"])
    lines += [f"integer {value}" for value, _ in case["arguments"]]
    lines += [f"output {count}" for count in case["outputs"]]
    return [*before, *lines, f"launch {name} {' '.join(map(str, (*case['groups'], case['local'])))}"]
