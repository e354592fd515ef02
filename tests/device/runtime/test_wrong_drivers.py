# tests/device/runtime/test_wrong_drivers.py: a driver that nobody tried and that computes wrongly is found; its faults are avoided.
"""stand_ins/wrong_driver.c makes a runtime look untried, and plants a fault in its compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device.own_process import FELL_BACK, run_python
from tests.device.runtime import stand_in_layer

pytestmark = [pytest.mark.sampled(), pytest.mark.needs("cpu")]

PROGRAM = """
import json, time, torch
torch.manual_seed(0)

def function(x, i, h, w):
    a = x.softmax(1) @ w
    b = torch.where(x > 0, x.sin() + x.exp().log1p(), x.erf()) * x.pow(2.5).nan_to_num(1.0)
    counts = torch.zeros(64, device=x.device, dtype=x.dtype).scatter_reduce(0, i, x.flatten()[:512], "amax")
    return a, b, x.sum(0), x.cumsum(1), counts, (h * 1.5).float(), torch.where(x.isnan(), 1.0, x) * 2, x.tanh() + (x / 3).floor()

x = (torch.randn(32, 96) * 30).clamp(-85, 85)
given = (x, torch.randint(64, (512,)), torch.randn(333).half(), torch.randn(96, 40))
compiled = torch.compile(function, backend="ocl", options={"kernel_family": "group"})
error, raised = {}, ""
try:
    ours = compiled(*(t.to("ocl") for t in given))
    exact = function(*(t.double() if t.dtype == torch.float32 else t for t in given))
    scale = lambda t: t.abs().max().clamp(min=1e-30)
    error = [((a.cpu().double() - b.double()).abs().max() / scale(b.double())).item() for a, b in zip(ours, exact)]
except Exception as failure:
    raised = str(failure)
probes = {}
print(json.dumps({"error": error, "raised": raised, "probes": probes, "tried": torch_ocl_compile._C.exec.tried_where(0)}))
"""

KINDS = """
import json, torch
torch.manual_seed(0)
function = lambda x, w: (x.sort().values, x @ w, x.sum(0), x.cumsum(1))
given = torch.randn(300, 600), torch.randn(600, 70)
ours, exact = torch.compile(function, backend="ocl")(*(t.to("ocl") for t in given)), function(*(t.double() for t in given))
error = [((a.cpu().double() - b).abs().max() / b.abs().max()).item() for a, b in zip(ours, exact)]
print(json.dumps({"error": error, "raised": "", "tried": torch_ocl_compile._C.exec.tried_where(0)}))
"""
WITH_PROBES = PROGRAM.replace("probes = {}", "probes = dict(torch_ocl_compile._C.exec.probe_driver(0))")
COPIES = """
import json, torch
torch.manual_seed(0)
x = torch.randn(3000)
halves = torch.empty(3000, dtype=torch.half, device="ocl")
halves.copy_(x.to("ocl"))
error = (halves.cpu().double() - x.half().double()).abs().max().item()
uses_builtins = torch_ocl_compile._C.device_probes(0)["fp16_convert"]
print(json.dumps({"error": error, "builtins": uses_builtins, "tried": torch_ocl_compile._C.exec.tried_where(0)}))
"""

# A runtime's own headers may make a macro of a builtin (PoCL's do), so these builtins are hidden by functions that call them.
VLOAD4 = """
#define PLANTED(type, space) type##4 __attribute__((overloadable)) planted_vload4(size_t i, const space type* p) { \\
  return vload4(i, p).xywz; }
#define PLANTED_TYPE(type) PLANTED(type, __global) PLANTED(type, __local) PLANTED(type, __private)
PLANTED_TYPE(float) PLANTED_TYPE(int) PLANTED_TYPE(uint) PLANTED_TYPE(short) PLANTED_TYPE(ushort)
PLANTED_TYPE(char) PLANTED_TYPE(uchar) PLANTED_TYPE(long) PLANTED_TYPE(ulong)
#undef vload4
#define vload4 planted_vload4
"""
EXP = """
#define PLANTED(n) float##n __attribute__((overloadable)) planted_exp(float##n x) { return exp(fmin(x, 80.0f)); }
PLANTED() PLANTED(2) PLANTED(3) PLANTED(4) PLANTED(8) PLANTED(16)
#undef exp
#define exp planted_exp
"""
MUL_HI = """
#define PLANTED(type) type __attribute__((overloadable)) planted_mul_hi(type a, type b) { return mul_hi(a, b) + 1; }
PLANTED(int) PLANTED(uint) PLANTED(long) PLANTED(ulong)
#undef mul_hi
#define mul_hi planted_mul_hi
"""

# Name of the fault -> (the lines in front of each program, a replacement, the part of the check that finds it)
PLANTED = {
    "a barrier without effect": ("#define barrier(flags)", None, "barriers"),
    "local memory of each work-item": ("", ("__local ", "__private "), "local memory"),
    "exp beyond 80": (EXP, None, "exp"),
    "indices of 32 bits": ("", ("const long ", "const int "), "long integers"),
    "vload3": ("#define vload3(i, p) (vload3(i, p).xzy)", None, "vload3 and vstore3"),
    "vload4": (VLOAD4, None, "vload4 and vstore4"),
    "lost atomics": (
        "#define atomic_max(p, v) (get_local_id(0) % 8 == 7 ? *(p) : atomic_max(p, v))",
        None,
        "atomic_max",
    ),
    "halves rounded down": ("#define vstore_half_rte vstore_half_rtz", None, "halves"),
    "sin of large numbers": ("#define sin(x) sin(fmod((x), 6.2831855f))", None, "sin"),
    "log1p of small numbers": ("#define log1p(x) log((x) + 1.0f)", None, "log1p"),
    "fma rounds twice": ("#define fma(a, b, c) ((a) * (b) + (c))\n#pragma OPENCL FP_CONTRACT OFF", None, "fma"),
    "no NaN is one": ("#define isnan(x) ((x) != (x) && false)", None, "isnan"),
    "high parts of products": (MUL_HI, None, "mul_hi"),
    "integers become shorts": ("", ("(float)x", "(float)(short)x"), "sums and products"),
}
# The same for faults that only a kind of kernels has, and that no probe finds.
PLANTED_KINDS = {
    "sums of columns": ("end = min(begin + column_chunk, ", "end = min(begin + column_chunk - 1, "),
    "sorts": ("to->at[place] = from->at[i];", "to->at[place] = from->at[i / 2];"),
    "matrix products": ("fma(av, bv[v], acc[i][v])", "fma(av, bv[v], acc[i][v] * 0.999f)"),
}


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    return stand_in_layer.build("wrong_driver", tmp_path)


def run(
    device: str, library: Path, lines: str, replaced: tuple[str, str] | None, program: str = PROGRAM, **env: str
) -> tuple[dict[str, Any], str]:
    source, target = replaced or ("", "")
    status, out, err = run_python(
        program, OPENCL_LAYERS=str(library), OCL_STAND_IN_LINES=lines,
        OCL_STAND_IN_FROM=source, OCL_STAND_IN_TO=target, TORCH_OCL_DEVICES=device.split(":")[1],
        TORCH_OCL_CACHE_DIR=str(library.parent / "cache"), **env,
    )  # fmt: skip
    assert status == 0, err[-3000:]
    found = json.loads(out.splitlines()[-1])
    if found["tried"]:
        pytest.skip("this OpenCL loader has no layers")
    return found, err


def test_a_right_driver(ocl_device: str, layer: Path) -> None:
    for process in range(2):  # The second one takes the verdict from the cache.
        found, err = run(ocl_device, layer, "", None, PROGRAM if process else WITH_PROBES)
        assert not found["raised"] and max(found["error"]) < 1e-5, found
        assert "gets some things wrong" not in err and FELL_BACK not in err, err
        assert not any(found["probes"].values()), found["probes"]


@pytest.mark.parametrize("name", PLANTED)
def test_planted(ocl_device: str, layer: Path, name: str) -> None:
    lines, replaced, part = PLANTED[name]
    for process in range(2):  # The second process takes the plan from the cache, which was made without what is wrong.
        found, err = run(ocl_device, layer, lines, replaced)
        if part == "sums and products":
            assert "computes wrongly" in found["raised"] and part in found["raised"], found
            continue
        assert process == 1 or (err.count("gets some things wrong") == 1 and f"{part}: " in err), err
        assert not found["raised"] and max(found["error"]) < 1e-5, (found, err)


@pytest.mark.parametrize("part", PLANTED_KINDS)
def test_planted_in_a_kind_of_kernels(ocl_device: str, layer: Path, part: str) -> None:
    for process in range(2):
        found, err = run(ocl_device, layer, "", PLANTED_KINDS[part], KINDS)
        assert process == 1 or (err.count("gets some things wrong") == 1 and f"{part}: " in err), err
        assert max(found["error"]) < 1e-5, (found, err)
    found, _ = run(ocl_device, layer, "", PLANTED_KINDS[part], KINDS, TORCH_OCL_UNTESTED="1")
    assert not max(found["error"]) < 1e-5, "the fault does nothing"


def test_a_kept_plan_was_checked(ocl_device: str, layer: Path) -> None:
    """A plan that was made without the check is not taken from the cache by a process that wants it."""
    lines, replaced, part = PLANTED["exp beyond 80"]
    found, err = run(ocl_device, layer, lines, replaced, TORCH_OCL_UNTESTED="1")
    assert max(found["error"]) > 1e-4 and "gets some things wrong" not in err, found
    found, err = run(ocl_device, layer, lines, replaced)
    assert err.count("gets some things wrong") == 1 and f"{part}: " in err, err
    assert not found["raised"] and max(found["error"]) < 1e-5, found


def test_a_wrong_driver_comes_after_right_ones(layer: Path) -> None:
    """The first device, once its driver has failed the check, is no longer ocl:0."""
    program = """
import json, torch
names = [(p := torch.ocl.get_device_properties(i)).platform_name for i in range(torch.ocl.device_count())]
orders = [torch.ocl.get_device_properties(i).order for i in range(torch.ocl.device_count())]
torch.compile(lambda x: x.exp() + 1, backend="ocl")(torch.ones(99, device="ocl:0"))
print(json.dumps({"names": names, "orders": orders, "tried": ""}))
"""
    platform = torch.ocl.get_device_properties(0).platform_name
    if torch.ocl.device_count() < 2 or torch.ocl.get_device_properties(1).platform_name == platform:
        pytest.skip("there is one platform")
    lines, replaced, part = PLANTED["exp beyond 80"]
    given = {"OCL_STAND_IN_PLATFORM": platform}
    first, err = run("ocl: ", layer, lines, replaced, program, **given)
    if first["names"][0] == platform:
        pytest.skip("this OpenCL loader has no layers")
    assert f"{part}: " in err, err
    second, err = run("ocl: ", layer, lines, replaced, program, **given)
    assert second["names"][0] == first["names"][1] and second["names"][-1] == first["names"][0], second
    assert (
        second["orders"][-1].startswith("a driver that failed its check comes after") and part in second["orders"][-1]
    )
    assert "gets some things wrong" not in err, err


@pytest.mark.parametrize("checked", [True, False])
def test_copies_round_halves(ocl_device: str, layer: Path, checked: bool) -> None:
    """The first kernel of a program may be one that copies."""
    lines, replaced, _ = PLANTED["halves rounded down"]
    found, err = run(ocl_device, layer, lines, replaced, COPIES, TORCH_OCL_UNTESTED=str(int(not checked)))
    assert (found["error"] == 0) == (checked or not found["builtins"]), (found, err)
