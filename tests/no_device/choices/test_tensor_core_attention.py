# tests/no_device/choices/test_tensor_core_attention.py: which tensor core kernels are chosen for attention and its gradients.
"""Graphs are scheduled for capabilities with tensor cores, without a device, as in test_tensor_core_choice.py."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from tests.no_device.choices.test_tensor_core_choice import macros, settings
from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import CAPS
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir

__all__ = ["settings"]  # The imported autouse fixture applies to every test of this file.


def attention(
    dtype: torch.dtype, shape: tuple[int, ...], device: str = "warpgroup", **caps: Any
) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns the log lines about attention, and the kernels, of softmax(0.2 q k^T) v without gradients."""
    graphs: list[ir.Graph] = []
    q, k, v = (torch.randn(shape).to(dtype) for _ in range(3))
    with torch.no_grad():
        compiled(lambda q, k, v: torch.softmax(q @ k.mT * 0.2, -1) @ v, graphs, dynamic=False)(q, k, v)
    rendered = _C.exec.render(graphs[0], CAPS[device] | caps, True)
    return [line for line in rendered["log"] if "attention" in line], rendered["kernels"]


@pytest.mark.parametrize(
    "dtype, name", [(torch.float32, "split tf32"), (torch.bfloat16, "bf16"), (torch.float16, "f16")]
)
def test_attention(dtype: torch.dtype, name: str) -> None:
    log, texts = attention(dtype, (2, 12, 197, 64))
    assert "attention_warpgroup" in log[0] and log[0].endswith(name) and len(texts) == 1
    assert "#define DIRECT 1" in macros(texts[0])
    kind = {"split tf32": "fp32", "f16": "fp16"}.get(name, name)
    log, _ = attention(dtype, (2, 12, 197, 64), disable=f"attention_warpgroup:{kind}")
    assert "attention_group" in log[0]


@pytest.mark.parametrize(
    "dtype, name", [(torch.float32, "split tf32"), (torch.bfloat16, "bf16"), (torch.float16, "f16")]
)
@pytest.mark.parametrize("size, filled", [(64, 64), (32, 32), (80, 96), (128, 128), (136, None)])
def test_attention_on_warp_tensor_cores(dtype: torch.dtype, name: str, size: int, filled: int | None) -> None:
    """The warp kernel is chosen without warpgroup tensor cores; heads that are too large get the portable kernel."""
    log, texts = attention(dtype, (2, 12, 197, size), "warp")
    if filled is None:
        assert "attention_group" in log[0]
        return
    assert "attention_warp " in log[0] and log[0].endswith(name) and len(texts) == 1
    assert "mma.sync" in texts[0]["text"] and "wgmma.mma_async" not in texts[0]["text"]
    of = dict(re.findall(r"#define (\w+) (\d+)\n", macros(texts[0])))
    assert of["DEPTH_TILE"] == str(filled) and of["DIRECT"] == "1" and of["TILE_N"] == of["WARP_N"] == of["TILE_C"]
    rows = int(of["TILE_M"])
    assert texts[0]["local"] == [rows // int(of["WARP_M"]) * 32, 1, 1]
    assert texts[0]["groups"] == [str(-(-197 // rows)), "12", "2"]
    kind = {"split tf32": "fp32", "f16": "fp16"}.get(name, name)
    log, _ = attention(dtype, (2, 12, 197, size), "warp", disable=f"attention_warp:{kind}")
    assert "attention_group" in log[0]
    log, _ = attention(dtype, (2, 12, 197, 64), "warp", kernels=f"warp,attention_warpgroup:{kind}")
    assert "attention_warpgroup" in log[0]


@pytest.mark.parametrize(
    "queries, name", [(1, "attention_few_rows_group"), (8, "attention_few_rows_group"), (9, "attention_group")]
)
def test_few_queries(queries: int, name: str) -> None:
    graphs: list[ir.Graph] = []
    q, k, v = (torch.randn(2, 4, n, 64).bfloat16() for n in (queries, 300, 300))
    with torch.no_grad():
        compiled(lambda q, k, v: torch.softmax(q @ k.mT * 0.2, -1) @ v, graphs, dynamic=False)(q, k, v)
    log = [x for x in _C.exec.render(graphs[0], CAPS["warpgroup"], True)["log"] if "attention" in x]
    assert f"{name} " in log[0]


def test_attention_in_tf32_on_warp_tensor_cores() -> None:
    torch.set_float32_matmul_precision("high")
    assert attention(torch.float32, (2, 3, 100, 64), "warp")[0][0].endswith(" tf32")
    assert "split tf32" in attention(torch.float32, (2, 3, 100, 64), "warp", disable="attention_warp:tf32")[0][0]


def test_attention_in_tf32() -> None:
    torch.set_float32_matmul_precision("high")
    assert attention(torch.float32, (2, 3, 100, 64))[0][0].endswith(" tf32")
    assert "split tf32" in attention(torch.float32, (2, 3, 100, 64), disable="attention_warpgroup:tf32")[0][0]


@pytest.mark.parametrize(
    "dtype, size, on_tensor_cores",
    [(torch.float32, 65, False), (torch.bfloat16, 128, True), (torch.bfloat16, 129, False), (torch.bfloat16, 8, True)],
)
def test_head_sizes(dtype: torch.dtype, size: int, on_tensor_cores: bool) -> None:
    assert ("warpgroup" in attention(dtype, (2, 3, 100, size))[0][0]) == on_tensor_cores


def test_rows_of_heads_that_fill_no_chunk_are_copied() -> None:
    log, texts = attention(torch.bfloat16, (2, 3, 100, 36))
    assert "warpgroup" in log[0] and len(texts) > 1 and any("#define DIRECT 1" in macros(k) for k in texts)


def gradients(
    dtype: torch.dtype,
    size: int = 64,
    device: str = "warpgroup",
    shape: tuple[int, int, int] = (2, 4, 197),
    keys: int = 197,
    **caps: Any,
) -> tuple[list[str], list[dict[str, Any]]]:
    graphs: list[ir.Graph] = []
    q, k, v = (torch.randn(*shape[:2], n, size).to(dtype).requires_grad_() for n in (shape[2], keys, keys))
    out = compiled(lambda q, k, v: torch.softmax(q @ k.mT * 0.2, -1) @ v, graphs, dynamic=False)(q, k, v)
    out.backward(torch.randn(out.shape).to(dtype))
    rendered = _C.exec.render(graphs[1], CAPS[device] | caps, True)
    return [line for line in rendered["log"] if "attention" in line], rendered["kernels"]


@pytest.mark.parametrize(
    "dtype, name, size",
    [
        (dtype, name, size)
        for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "f16"))
        for size in (64, 40, 128)
    ]
    + [(torch.float32, "split tf32", size) for size in (64, 40, 6)],
)
def test_gradients_of_attention(dtype: torch.dtype, name: str, size: int) -> None:
    log, texts = gradients(dtype, size, disable="attention_joint_gradient")
    assert len(log) == 2 and all("attention_gradient_warpgroup" in line and line.endswith(name) for line in log), log
    of = [text for k in texts if "PASS" in (text := macros(k))]
    assert [text.count("#define PASS 1\n") + 2 * text.count("#define PASS 2\n") for text in of] in ([1, 2], [2, 1])
    assert all("#define DIRECT 1" in text for text in of)


@pytest.mark.parametrize(
    "dtype, name, size, filled",
    [(torch.float32, "split tf32", 64, 64), (torch.float32, "split tf32", 36, 64), (torch.float32, "", 72, 0)]
    + [
        (dtype, name, size, filled)
        for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "f16"))
        for size, filled in ((64, 64), (32, 32), (80, 96), (136, 0))
    ],
)
def test_gradients_of_attention_on_warp_tensor_cores(dtype: torch.dtype, name: str, size: int, filled: int) -> None:
    log, texts = gradients(dtype, size, "warp")
    if not filled:
        assert len(log) == 2 and all("attention_group" in line for line in log), log
        return
    assert len(log) == 2 and all("attention_gradient_warp " in line and line.endswith(name) for line in log), log
    of = [text for k in texts if "PASS" in (text := macros(k))]
    assert sorted(text.count("#define PASS 2\n") for text in of) == [0, 1]
    assert all(f"#define DEPTH_TILE {filled}\n" in text and "#define WARP_M 16\n" in text for text in of)
    kind = {"split tf32": "fp32", "f16": "fp16"}.get(name, name)
    log, _ = gradients(dtype, size, "warp", disable=f"attention_gradient:{kind}")
    assert all("attention_group" in line for line in log), log


@pytest.mark.parametrize(
    "given, joint",
    [
        ({"dtype": torch.bfloat16}, True),
        ({"dtype": torch.float16, "size": 40}, True),
        ({"dtype": torch.bfloat16, "shape": (64, 12, 256), "keys": 256}, True),
        ({"dtype": torch.bfloat16, "shape": (2, 4, 24), "keys": 130}, True),
        ({"dtype": torch.float32}, False),
        ({"dtype": torch.bfloat16, "size": 80}, False),
        ({"dtype": torch.bfloat16, "keys": 257}, False),
        ({"dtype": torch.bfloat16, "shape": (2, 4, 257)}, False),
        ({"dtype": torch.bfloat16, "device": "warp"}, False),
        ({"dtype": torch.bfloat16, "disable": "attention_joint_gradient_warpgroup:bf16"}, False),
    ],
)
def test_joint_gradient_of_short_attention(given: dict[str, Any], joint: bool) -> None:
    log, texts = gradients(**given)
    assert len(log) == 2 - joint
    assert all(("attention_joint_gradient_warpgroup" in line) == joint for line in log), log
    if joint:
        [text] = [text for k in texts if "#define PASS 3\n" in (text := macros(k))]
        assert "#define DIRECT 1\n" in text


def test_gradients_of_attention_in_tf32() -> None:
    torch.set_float32_matmul_precision("high")
    log, texts = gradients(torch.float32)
    assert all(line.endswith(" tf32") and "split" not in line for line in log), log
    assert sum("#define TERMS 1" in macros(k) for k in texts) == 2
    log, _ = gradients(torch.float32, disable="attention_gradient_warpgroup:tf32")
    assert all("split tf32" in line for line in log), log


@pytest.mark.parametrize("dtype, size", [(torch.float32, 72), (torch.bfloat16, 136)])
def test_gradients_on_the_portable_kernel(dtype: torch.dtype, size: int) -> None:
    log, _ = gradients(dtype, size)
    assert len(log) == 2 and all("attention_group" in line for line in log), log
    for given, kind in ((torch.float16, "fp16"), (torch.float32, "fp32")):
        log, _ = gradients(given, disable=f"attention_joint_gradient,attention_gradient_warpgroup:{kind}")
        assert all("attention_group" in line for line in log)


@pytest.mark.parametrize(
    "matrix, lanes", [("dpas8", 8), ("dpas16", 16), ("wmma11", 32), ("wmma12", 32), ("mfma2", 64), ("mfma4", 64)]
)
@pytest.mark.parametrize("size, filled", [(64, 64), (40, 64), (80, 96), (128, 128)])
def test_attention_on_matrix_instructions(matrix: str, lanes: int, size: int, filled: int) -> None:
    """With DPAS, several subgroups share the depth of a head, and in gradients the columns of a step."""
    log, texts = attention(torch.float16, (2, 12, 197, size), "matrix", matrix=matrix)
    assert "attention_subgroup_matrix " in log[0] and len(texts) == 1
    of = dict(re.findall(r"#define (\w+) (\d+)\n", macros(texts[0])))
    dpas = matrix.startswith("dpas")
    assert int(of["DEPTH_TILE"]) == (128 if dpas and size > 64 else filled)
    parts = int(of["TILE_N"]) // int(of["SUB_N"])
    assert of["SUB_N"] == of["TILE_C"] and (parts > 1) == dpas
    assert texts[0]["local"] == [int(of["TILE_M"]) // int(of["SUB_M"]) * parts * lanes, 1, 1]
    log, _ = attention(torch.float16, (2, 12, 197, size), "matrix", matrix=matrix, disable="subgroup_matrix")
    assert "attention_group" in log[0]
    log, texts = gradients(torch.bfloat16, size, "matrix", matrix=matrix)
    assert len(log) == 2 and all("attention_gradient_subgroup_matrix " in line for line in log)
    found = [dict(re.findall(r"#define (\w+) (\d+)\n", macros(k))) for k in texts if "PASS" in macros(k)]
    assert sorted(of["PASS"] for of in found) == ["1", "2"]
    for of in found:
        parts = int(of["TILE_N"]) // int(of["SUB_N"])
        assert of["SUB_N"] == of["TILE_C"] and int(of["TILE_C"]) % (8 * parts) == 0 and (parts >= 4) == dpas


def test_attention_of_floats_on_matrix_instructions() -> None:
    caps = {"matrix": "mfma4", "kernels": "subgroup_matrix"}
    assert "attention_subgroup_matrix " in attention(torch.float32, (2, 3, 100, 64), "matrix", **caps)[0][0]
    assert "attention_group" in attention(torch.float32, (2, 3, 100, 72), "matrix", **caps)[0][0]
    assert all(
        "attention_gradient_subgroup_matrix " in line for line in gradients(torch.float32, 64, "matrix", **caps)[0]
    )
