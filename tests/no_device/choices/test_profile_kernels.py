# tests/no_device/choices/test_profile_kernels.py: kernels that the compiler chooses for a device profile keep its limits.
"""No device is needed: a graph is scheduled for the limits of each profile, and the texts of its kernels are read."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest import mock

import pytest
import torch
from torch._prims_common import get_computation_dtype
from torch.utils._pytree import tree_flatten

from benchmarks.harness import networks
from tests.no_device.graphs.test_lowering import with_gradients
from tests.offline import rendering
from tests.offline.rows import PROBLEMS
from tests.op_table import INTERPRETED
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir

PROFILES = {row["name"]: row for row in _C.profiles()}
BYTES = {
    "char": 1,
    "uchar": 1,
    "short": 2,
    "ushort": 2,
    "half": 2,
    "int": 4,
    "uint": 4,
    "float": 4,
    "long": 8,
    "ulong": 8,
    "double": 8,
}
POINTER = 8
ARGUMENT_BYTES = {"int": 4, "uint": 4, "float": 4, "long": 8, "ulong": 8}  # Others are pointers.

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C preprocessor")
SWEPT = pytest.mark.needs("sweep")


def caps_of(profile: dict[str, Any]) -> dict[str, Any]:
    """Returns the limits of a profile as the compiler takes them."""
    limits = {
        name: profile[name] for name in ("max_group_size", "local_bytes", "local_is_global", "max_kernel_arg_bytes")
    }
    return limits | {
        "is_cpu": False,
        "vector_floats": 4,
        "prefetch": False,
        "units": profile["multi_processor_count"],
        "fp64": profile["has_fp64"],
    }


@cache
def preprocessed(text: str) -> str:
    """Returns what the compiler sees of a program: without comments, and with macros replaced."""
    command = ["cc", "-E", "-P", "-x", "c", "-D__OPENCL_C_VERSION__=120", "-D__OPENCL_VERSION__=120", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def local_bytes(text: str) -> int:
    """Returns the bytes of the arrays in local memory."""
    total = 0
    for type, names in re.findall(r"__local\s+(\w+)\s+(\w+\s*\[[^;]*)\s*;", text):
        alias = re.search(rf"typedef (\w+) {type};", text)
        base, width = re.fullmatch(r"([a-z]+)(\d*)", alias[1] if alias else type).groups()
        for dimensions in re.findall(r"\w+\s*((?:\[[^\]]*\])+)", names):
            elements = 1
            for size in re.findall(r"\[([^\]]*)\]", dimensions):
                elements *= constant(size)
            total += elements * BYTES[base] * int(width or 1)
    return total


def constant(text: str) -> int:
    """Returns the value of a constant expression of C over integers."""
    while inner := re.search(r"\(([^()]*)\)", text):
        text = text[: inner.start()] + str(constant(inner[1])) + text[inner.end() :]
    condition, is_choice, choice = text.partition("?")
    if is_choice:
        yes, _, no = choice.partition(":")
        return constant(yes if constant(condition) else no)
    python = text.replace("&&", " and ").replace("||", " or ").replace("/", "//")
    assert re.fullmatch(r"[\d\s()+\-*/<>=%andor]*", python), f"no constant: {text}"
    return int(eval(python))


def faults(kernel: dict[str, Any], profile: dict[str, Any]) -> Iterator[str]:
    """Yields what a kernel asks for and the GPU does not have."""
    text = preprocessed(kernel["text"])
    if (items := torch.Size(kernel["local"]).numel()) > profile["max_group_size"]:
        yield f"{items} work-items"
    if (local := local_bytes(text)) > profile["local_bytes"]:
        yield f"{local} bytes of local memory"
    parameters = re.search(r"__kernel[^{;]*?void\s+\w+\s*\(([^{]*)\)\s*\{", text)[1].split(",")
    if (arguments := sum(ARGUMENT_BYTES.get(p.split()[-2], POINTER) for p in parameters)) > profile[
        "max_kernel_arg_bytes"
    ]:
        yield f"{arguments} bytes of arguments"
    if not profile["has_fp64"] and re.search(r"\bdouble\d*\b", text):
        yield "double"
    if not profile["has_fp16"] and re.search(r"(?<!__global )(?<!__global const )\bhalf\d*\s+\w", text):
        yield "computing with half"
    if optional := re.search(r"\b(atom_|atomic_fetch_|atomic_load|atomic_store|(intel_)?sub_group_)\w*", text):
        yield f"{optional[0]}, which is not in OpenCL 1.2"


def found_in(graphs: list[ir.Graph], every_choice: bool, fp64: bool = False) -> list[str]:
    """Returns the faults of the kernels of some graphs under all profiles, or under those with fp64."""
    wrong = set()
    for name, profile in PROFILES.items():
        if fp64 and not profile["has_fp64"]:
            continue
        for graph in graphs:
            caps = caps_of(profile)
            rendered = [_C.exec.render(graph, caps, True)]
            if every_choice:
                for problem, alone, candidates in _C.exec.tuning_cases_for(graph, caps):
                    rendered += [_C.exec.render(alone, caps, True, {problem: choice}) for choice, _ in candidates]
            for kernel in (kernel for one in rendered for kernel in one["kernels"]):
                row = rendering.row_of(kernel["kind"], kernel["text"])
                wrong |= {f"{name}: {row}: {fault}" for fault in faults(kernel, profile)}
    return sorted(wrong)


PORTABLE = [name for name in PROBLEMS if not name.startswith("pack")]


@pytest.mark.sampled(first=6)
@pytest.mark.parametrize("type", ["fp32", pytest.param("fp16", marks=SWEPT)])
@pytest.mark.parametrize("problem", PORTABLE)
def test_hand_written_kernels(problem, type):
    """Each tile that tuning may try, and the kernel that a plan has without tuning."""
    chosen = PROBLEMS[problem]
    graphs = rendering.trace(chosen.function, *chosen.inputs(rendering.TYPES[type]))
    wrong = found_in(graphs, every_choice=True)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "name", ["gpt", *(pytest.param(name, marks=SWEPT) for name in ("mobilenet_v2", "resnet50", "vit_b_16"))]
)
def test_networks(name):
    torch.manual_seed(0)
    model, inputs, _ = networks.make(name, 2)
    wrong = found_in(rendering.trace(model.train(), inputs), every_choice=False)
    assert not wrong, "\n".join(wrong)


@SWEPT
@pytest.mark.parametrize("op", INTERPRETED, ids=lambda op: op.name)
def test_ops(op):
    """The first sample of each row of the op table, in its first dtype and, if it has one, its gradient."""
    sample = op.samples(op.dtypes[0])[0]
    if op.gradient and op.dtypes[0].is_floating_point:
        sample = with_gradients(op, sample)
    # PyTorch computes `arange` and a few others in float64 on the CPU alone.
    with mock.patch.object(torch._prims_common, "get_acc_type", lambda dtype, _: get_computation_dtype(dtype)):
        graphs = rendering.trace(lambda *inputs: summed(op.call(*inputs)), *sample)
    wrong = found_in(graphs, every_choice=False, fp64=op.dtypes[0] == torch.float64)
    assert not wrong, "\n".join(wrong)


def summed(result: Any) -> torch.Tensor:
    """Returns one tensor that depends on all results."""
    tensors = [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor)]
    return sum((x * 2).sum() for x in tensors)


def test_faults_are_found():
    text = """
        #define TILE 60
        __kernel __attribute__((reqd_work_group_size(1024, 1, 1))) void k(__global float* p, const ulong p_offset) {
          __local float4 a[2][TILE * (TILE + 4) / 4], b[8];
          double d = sub_group_reduce_add(1.0f);
          half h = 0;
        }
    """
    found = list(faults({"text": text, "local": [1024, 1, 1]}, PROFILES["powervr-ge8320"]))
    assert found == [
        "1024 work-items",
        "30848 bytes of local memory",
        "double",
        "computing with half",
        "sub_group_reduce_add, which is not in OpenCL 1.2",
    ]
