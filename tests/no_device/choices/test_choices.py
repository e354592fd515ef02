# tests/no_device/choices/test_choices.py: choices among kernel variants, without a device: which are candidates, used, skipped.
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import CAPS, collecting, render
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir

CASES: dict[str, Any] = {
    "gemm": (torch.mm, [(256, 1024), (1024, 192)]),
    "winograd": (lambda x, w: F.conv2d(x, w, padding=1), [(2, 32, 28, 28), (64, 32, 3, 3)]),
    "strided": (lambda x, w: F.conv2d(x, w, stride=2), [(2, 24, 28, 28), (40, 24, 3, 3)]),
    "weight": (
        lambda dy, x, w: torch.ops.aten.convolution_backward(
            dy, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]
        )[1],
        [(2, 48, 14, 14), (2, 32, 14, 14), (48, 32, 3, 3)],
    ),
    "attention": (lambda q, k, v: torch.softmax(q @ k.mT * 0.2, -1) @ v, [(2, 3, 80, 32)] * 3),
}


def graph_of(case: str) -> ir.Graph:
    function, shapes = CASES[case]
    graphs: list[ir.Graph] = []
    with torch.no_grad():
        compiled(function, graphs, dynamic=False)(*(torch.randn(s) for s in shapes))
    return graphs[0]


def the_case(graph: ir.Graph, caps: dict[str, Any]) -> Any:
    (found,) = _C.exec.tuning_cases_for(graph, caps)
    return found


def launched(rendered: dict[str, Any]) -> str:
    """Returns kernels and schedule as text. Drops the word that says that a choice was measured."""
    kernels = [(k["text"], k["groups"], k["local"]) for k in rendered["kernels"]]
    return str(kernels) + rendered["schedule"].replace(", measured", "")


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("case", CASES)
def test_each_candidate_can_be_followed(case, caps):
    graph = graph_of(case)
    problem, alone, candidates = the_case(graph, CAPS[caps])
    assert len(alone.nodes) == 1 and candidates and candidates[0][1] == ""
    texts = [choice for choice, _ in candidates]
    assert len(set(texts)) == len(texts)
    default = render(graph, caps)
    kernels = {}
    for choice in texts:
        rendered = _C.exec.render(graph, CAPS[caps], True, {problem: choice})
        assert any(line.endswith(", measured") for line in rendered["log"]), rendered["log"]
        kernels[choice] = launched(rendered)
    unchanged = launched(default)
    assert kernels[texts[0]] == unchanged, "the first candidate is what is taken without measurements"
    others = [text for choice, text in kernels.items() if choice != texts[0]]
    assert unchanged not in others, "what launches the same is no candidate"


def test_there_are_variants_to_measure():
    """Each kind of op has at least two candidates; the weight gradient on a CPU may have one."""
    for caps in ("cpu16", "gpu"):
        for case in CASES:
            candidates = the_case(graph_of(case), CAPS[caps])[2]
            assert len(candidates) > 1 or (case, caps) == ("weight", "cpu16"), (case, caps)
    templates = {choice.split(" ")[0] for choice, _ in the_case(graph_of("winograd"), CAPS["cpu16"])[2]}
    assert {"winograd_item", "conv_item"} <= templates


@pytest.mark.parametrize("choice", ["nonesuch tile=1x1", "gemm_item tile=7x7 depth=3", "gemm_item", "x", "= = ="])
def test_choices_that_are_not_on_offer_change_nothing(choice):
    graph = graph_of("gemm")
    problem, _, _ = the_case(graph, CAPS["cpu16"])
    got = _C.exec.render(graph, CAPS["cpu16"], True, {problem: choice, "another problem": "gemm_item run=1"})
    assert [k["text"] for k in got["kernels"]] == [k["text"] for k in render(graph, "cpu16")["kernels"]]


@pytest.mark.parametrize("caps", ["cpu16", "gpu"])
@pytest.mark.parametrize("case", CASES)
def test_disabled_choices_are_passed_over(case, caps):
    """A disabled choice is replaced by another variant of the template, then by another template."""
    graph = graph_of(case)
    problem, _, candidates = the_case(graph, CAPS[caps])
    texts = [choice for choice, _ in candidates]
    taken = []
    for count in range(len(texts)):
        rendered = _C.exec.render(graph, CAPS[caps], True, {problem: texts[0]}, set(texts[:count]))
        taken.append(launched(rendered))
    assert len(set(taken)) == len(taken), "each time another one"


def test_sizes_known_at_run_time_are_not_tuned():
    seen: list[Any] = []
    function = collecting(torch.mm, seen, dynamic=True)
    with torch.no_grad():
        function(torch.randn(33, 64), torch.randn(64, 32))
    assert _C.exec.tuning_cases_for(seen[0].graph, CAPS["cpu16"]) == []


def test_nearby_sizes_share_a_problem():
    def problem(rows: int) -> str:
        seen: list[Any] = []
        with torch.no_grad():
            collecting(torch.mm, seen, dynamic=False)(torch.randn(rows, 512), torch.randn(512, 64))
        return the_case(seen[0].graph, CAPS["cpu16"])[0]

    assert problem(1000) == problem(1024) != problem(1001)
    assert problem(8) != problem(9) and problem(512) != problem(1024)


def test_filters_can_be_kept_in_place():
    """The options of a choice have no spaces, so each can be followed."""
    x, w = torch.randn(16, 256, 28, 28), torch.randn(256, 256, 3, 3)
    graphs: list[ir.Graph] = []
    with torch.no_grad():
        compiled(lambda x, w: F.conv2d(x, w, padding=1), graphs, dynamic=False)(x, w)
    problem, _, candidates = the_case(graphs[0], CAPS["warpgroup"])
    for choice in (choice for choice, _ in candidates):
        assert all("=" in word for word in choice.split()[1:]), choice
        log = _C.exec.render(graphs[0], CAPS["warpgroup"], True, {problem: choice})["log"]
        packed = any("filters packed" in line for line in log)
        assert "filters=" not in choice or packed == ("filters=packed" in choice), choice


REFUSED: dict[str, Any] = {
    "warpgroup": (torch.mm, [(256, 7), (7, 64)], "gemm_warpgroup: refused, K = 7 is below 16"),
    "warp": (torch.mm, [(256, 64), (64, 10)], "gemm_warp: refused, N = 10 is below 24"),
    "matrix": (
        torch.mm,
        [(256, 64), (64, 64)],
        "gemm_subgroup_matrix: refused, it does not multiply f32 on this device",
    ),
    "gpu": (
        lambda x, w: F.conv2d(x, w, stride=2),
        [(2, 32, 28, 28), (64, 32, 3, 3)],
        "winograd_group: refused, it is for one group, stride 1 and dilation 1",
    ),
    "cpu16": (
        lambda x, w: F.conv2d(x, w),
        [(2, 32, 28, 28), (64, 32, 5, 5)],
        "winograd_item: refused, it is for filters of 3 x 3, not 5 x 5",
    ),
}


def refusals(function: Any, *args: torch.Tensor, caps: Any) -> list[str]:
    """Returns the refusals of the only node of a function that has any."""
    graphs: list[ir.Graph] = []
    with torch.no_grad():
        compiled(function, graphs, dynamic=False)(*args)
    nodes = _C.exec.render(graphs[0], caps)["graph"].nodes
    (refused,) = (node.refused for node in nodes if node.refused)
    return refused


@pytest.mark.parametrize("caps", REFUSED)
def test_a_launch_says_why_special_kernels_refused(caps):
    function, shapes, want = REFUSED[caps]
    refused = refusals(function, *(torch.randn(s) for s in shapes), caps=CAPS[caps])
    assert any(line.startswith(want) for line in refused), refused


@pytest.mark.parametrize(
    ("caps", "kernel"), [("cpu16", "gemm_item"), ("gpu", "gemm_group"), ("warpgroup", "gemm_group")]
)
def test_generated_loops_say_why_no_kernel_took_the_product(caps, kernel):
    a = torch.ones(64, 64, dtype=torch.float64)
    want = f"{kernel}: refused, the operands are f64 and f64, not both f32, f16 or bf16"
    assert want in refusals(torch.mm, a, a, caps=CAPS[caps])
    # The sum is split, and only the part that multiplies has the refusals.
    a = torch.ones(8, 1 << 16, dtype=torch.float64)
    assert want in refusals(torch.mm, a, a.T, caps=CAPS[caps])


def test_kernels_that_may_not_be_used_say_why():
    """The device may lack them, or the user may have disabled them, perhaps for one type."""

    def said(dtype: torch.dtype, **more: str) -> dict[str, str]:
        a = torch.ones(256, 256, dtype=dtype)
        refused = refusals(torch.mm, a, a, caps=CAPS["warpgroup"] | more)
        found = [line.split(": refused, ") for line in refused]
        return {name: reason for names, reason in found for name in names.split(", ")}

    lacks = "this device or its driver lacks the matrix instructions"
    disabled = "it is disabled, by the option disable or because the driver's compiler crashed on it"
    assert said(torch.bfloat16, kernels="")["gemm_warp"] == lacks
    both = said(torch.bfloat16, disable="warpgroup")
    assert both["gemm_warpgroup"] == both["gemm_packed_warpgroup"] == disabled and both["gemm_warp"] == lacks
    one = said(torch.bfloat16, disable="gemm_warpgroup:bf16")
    assert one["gemm_warpgroup"] == f"it does not multiply bf16 on this device: {disabled}"
    assert "gemm_warpgroup" not in said(torch.float16, disable="gemm_warpgroup:bf16")


def test_kernels_with_the_same_reason_share_a_sentence():
    a = torch.ones(256, 256)
    (line,) = refusals(torch.mm, a, a, caps=CAPS["gpu"])
    names, reason = line.split(": refused, ")
    assert reason == "this device or its driver lacks the matrix instructions"
    assert names.split(", ") == ["gemm_packed_warpgroup", "gemm_warpgroup", "gemm_warp", "gemm_subgroup_matrix"]


@pytest.mark.parametrize(("caps", "kernel"), [("cpu16", "gemm_item"), ("gpu", "gemm_group")])
def test_a_portable_kernel_is_disabled_for_one_type(caps: str, kernel: str) -> None:
    def chosen(dtype: torch.dtype) -> tuple[bool, list[str]]:
        graphs: list[ir.Graph] = []
        with torch.no_grad():
            compiled(torch.mm, graphs, dynamic=False)(*[torch.ones(256, 256, dtype=dtype)] * 2)
        rendered = _C.exec.render(graphs[0], CAPS[caps] | {"disable": f"{kernel}:bf16"})
        return any(f" {kernel} " in line for line in rendered["log"]), rendered["graph"].nodes[-1].refused

    assert chosen(torch.float32)[0]
    taken, refused = chosen(torch.bfloat16)
    assert not taken and any(
        f"{kernel}: refused, it does not multiply bf16 on this device: it is disabled" in r for r in refused
    )
