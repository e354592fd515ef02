# tests/no_device/kernels/test_kernel_rows.py: compares the rows of kernels/kernels.def with the kernels' files, and the checks with torch.
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torch_ocl_compile import _C
from torch_ocl_compile.errors import ConfigError

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
ROWS = {row["name"]: row for row in _C.exec.kernels()}


def test_every_kernel_has_a_row() -> None:
    rows = {row["files"][-1] for row in ROWS.values()}
    for path in sorted(KERNELS.rglob("*.cl")):
        file = path.relative_to(KERNELS).with_suffix("").as_posix()
        count = len(re.findall(r"\bKERNEL_NAME\(\s*KERNEL_PARAMETERS EPILOGUE_PARAMS\)", path.read_text()))
        assert (count > 0) == (file in rows), f"{path} has {count} kernels"


def test_only_kernels_take_the_parameters_of_the_epilogue() -> None:
    """They are `restrict` there. Oclgrind does not know what Clang makes of an inlined function with such parameters."""
    for path in sorted(KERNELS.rglob("*.cl")):
        text = re.sub(r"//.*|^#.*", "", path.read_text(), flags=re.MULTILINE)
        of_kernels = len(re.findall(r"\bKERNEL_NAME\(\s*KERNEL_PARAMETERS EPILOGUE_PARAMS\)", text))
        assert len(re.findall(r"\bEPILOGUE_PARAMS", text)) == of_kernels, path


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    row = ROWS[name]
    assert name.endswith("_" + row["level"]) and row["base"] in ROWS
    assert ROWS[row["base"]]["level"] == row["level"]
    checked = {tolerance > 0 for tolerance in row["types"].values()}
    assert checked == {True} or (checked == {False} and row["level"] in ("item", "group"))


# ---- the reference of the checks ----

DTYPES = {
    "tf32": torch.float32,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.int8,
}


class Case:
    """The operands of a check, by the names of the row's arguments, in fp64."""

    def __init__(self, kernel: str, kind: str, case: dict[str, Any]) -> None:
        names = [argument for argument in ROWS[kernel]["arguments"] if not argument[3]]
        self.given = dict(
            zip((a[0] for a in names if not a[1]), (value for value, _ in case["arguments"]), strict=False)
        )
        self.buffers = {}
        for (name, *_), (given, offset) in zip((a for a in names if a[1]), case["inputs"], strict=False):
            dtype = torch.float32 if name in ("sums", "delta") else DTYPES[kind]
            self.buffers[name] = torch.frombuffer(bytearray(given), dtype=dtype)[offset:]
        self.defines = dict(line.split(" ", 1) for line in case["defines"])
        self.exact = torch.tensor(case["exact"], dtype=torch.float64)

    def __getitem__(self, name: str) -> int:
        return self.given[name]

    def operand(self, name: str, sizes: tuple[int, ...], strides: tuple[str, ...]) -> torch.Tensor:
        # Kernels that read along the depth have no arguments for its strides.
        steps = [self.given.get(f"{name}_{stride}", 1) for stride in strides]
        return self.buffers[name].as_strided(sizes, steps).double()


def rows_of(case: Case, name: str, heads: int, length: int) -> torch.Tensor:
    depth = int(case.defines["DEPTH"])
    steps = [case[f"{name}_{stride}"] for stride in ("batch", "head", "row")]
    return case.buffers[name].as_strided((2, heads, length, depth), (*steps, 1)).double()


def gemm(case: Case) -> torch.Tensor:
    a = case.operand("a", (2, case["M"], case["K"]), ("outer", "row", "col"))
    return (a @ case.operand("b", (2, case["K"], case["N"]), ("outer", "row", "col"))).flatten()


def conv(case: Case) -> torch.Tensor:
    n, groups, strides = case["batch"], 2, ("n", "c", "h", "w")
    c, k, r, s = (case[name] for name in "CKRS")
    window = ((case["stride_h"],) * 2, (case["pad_h"],) * 2, (1, 1), groups)
    x = case.operand("x", (n, groups * c, case["in_h"], case["in_w"]), strides)
    w = case.buffers["w"].double().view(groups, k, r, s, c).permute(0, 1, 4, 2, 3)
    if case.defines["DATA_GRADIENT"] == "1":
        shape = (n, groups * k, case["out_h"], case["out_w"])
        y = torch.nn.grad.conv2d_input(shape, w.transpose(1, 2).flatten(0, 1), x, *window)
    else:
        y = F.conv2d(x, w.flatten(0, 1), None, *window)
    y = y.permute(0, 2, 3, 1).reshape(-1, groups * k)
    if "STATISTICS" not in case.defines:
        return y.flatten()
    variance, mean = torch.var_mean(y, 0, correction=0)
    return torch.cat([y.flatten(), mean, variance * len(y), torch.full_like(mean, len(y))])


def conv_weight(case: Case) -> torch.Tensor:
    n, groups, strides = case["batch"], 2, ("n", "c", "h", "w")
    c, k, r, s = (case[name] for name in "CKRS")
    x = case.operand("x", (n, groups * c, case["in_h"], case["in_w"]), strides)
    dy = case.operand("dy", (n, groups * k, case["out_h"], case["out_w"]), strides)
    rest = ((case["stride_h"],) * 2, (case["pad_h"],) * 2, (1, 1), groups)
    return torch.nn.grad.conv2d_weight(x, (groups * k, c, r, s), dy, *rest).permute(0, 2, 3, 1).flatten()


def attend(case: Case, *tensors: torch.Tensor) -> torch.Tensor:
    q, k, v = tensors
    return F.scaled_dot_product_attention(
        q, k.expand(-1, 2, -1, -1), v.expand(-1, 2, -1, -1), is_causal=case.defines["CAUSAL"] == "1", scale=0.25
    )


def attention(case: Case) -> torch.Tensor:
    q = rows_of(case, "q", 2, case["queries"])
    return attend(case, q, *(rows_of(case, name, 1, case["keys"]) for name in "kv")).flatten()


def attention_gradient(case: Case) -> torch.Tensor:
    of_keys = case.defines["PASS"] == "2"
    rows, columns = (2, case["queries"]), (1, case["keys"])
    first, other = (columns, rows) if of_keys else (rows, columns)
    shapes = {"a": first, "b": other, "a2": first, "b2": other}
    a, b, a2, b2 = (rows_of(case, name, *shape) for name, shape in shapes.items())
    q, k, dout, v = (b, a, b2, a2) if of_keys else (a, b, a2, b2)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    grads = torch.autograd.grad(attend(case, *leaves), leaves, dout)
    return torch.cat([x.flatten() for x in (grads[1:] if of_keys else grads[:1])])


CHECKED = [
    (gemm, "gemm_warp", "fp32", 3), (gemm, "gemm_warpgroup", "bf16", 0), (gemm, "gemm_wide_warpgroup", "fp16", 1),
    (gemm, "gemm_subgroup_matrix", "fp16", 1), (gemm, "gemm_pairs_item", "bf16", 1),
    (gemm, "gemm_pairs_item", "int8", 0), (gemm, "gemm_dot_pairs_item", "bf16", 0), (gemm, "gemm_dot_pairs_item", "int8", 0),
    (conv, "conv_subgroup_matrix", "bf16", 0), (conv, "conv_subgroup_matrix", "fp16", 1),
    (conv_weight, "conv_weight_subgroup_matrix", "fp16", 1),
    (conv, "conv_warp", "fp32", 0), (conv, "conv_warp", "bf16", 1), (conv, "conv_warpgroup", "tf32", 0),
    (conv, "conv_wide_warpgroup", "bf16", 1), (conv_weight, "conv_weight_warp", "fp32", 1),
    (conv_weight, "conv_weight_warpgroup", "fp16", 0), (conv, "conv_statistics_warp", "fp32", 0),
    (attention, "attention_subgroup_matrix", "fp32", 1), (attention_gradient, "attention_gradient_subgroup_matrix", "fp16", 0),
    (attention, "attention_warp", "fp32", 3), (attention, "attention_warpgroup", "bf16", 0),
    (attention_gradient, "attention_gradient_warp", "fp32", 0), (attention_gradient, "attention_gradient_warp", "fp32", 2),
    (attention_gradient, "attention_gradient_warpgroup", "bf16", 1),
]  # fmt: skip


@pytest.mark.parametrize("function, kernel, kind, number", CHECKED, ids=lambda x: x.__name__ if callable(x) else str(x))
def test_the_reference_is_what_torch_computes(function: Any, kernel: str, kind: str, number: int) -> None:
    """Compares in fp64. Row maxima and sums of weights, which follow the results of attention, are not compared."""
    [product] = _C.exec.check_cases(kernel, kind, only=number)
    case = Case(kernel, kind, product)
    want, got = function(case), case.exact
    # The check stores a slice for each part of the pixels; their sum is the gradient.
    if function is conv_weight:
        got = got.view(-1, len(want)).sum(0)
    torch.testing.assert_close(got[: len(want)], want, rtol=1e-9, atol=1e-9)


def test_every_checked_kernel_has_cases() -> None:
    for row in ROWS.values():
        for kind, tolerance in row["types"].items():
            if tolerance > 0:
                [case] = _C.exec.check_cases(row["name"], kind, only=0)
                assert max(case["sizes"]) > 0, row["name"]


@pytest.mark.parametrize("kind, matrix", [("fp32", "dpas8"), ("bf16", "mma8"), ("fp16", "none")])
def test_instructions_that_a_row_lacks_are_refused(kind: str, matrix: str) -> None:
    with pytest.raises(ConfigError, match=f"conv_subgroup_matrix does not multiply {kind} with these instructions"):
        _C.exec.check_cases("conv_subgroup_matrix", kind, matrix=matrix)
    assert _C.exec.check_cases("conv_warp", "bf16", matrix="dpas8", only=0)  # Its level has one kind of instructions.
