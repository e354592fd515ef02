# tests/no_device/schedule/test_schedule.py: scheduled graphs compute the same as unscheduled ones; graphs are printed and parsed.
"""The interpreter runs the unscheduled graph, and the scheduled graph in launch order, for fixed capabilities of CPUs
and a GPU. The results must be equal."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.harness import networks
from tests.no_device.scheduling import CAPS, Seen, collecting, copied, launch_order, render
from tests.op_cases import cases
from tests.op_row import Op
from tests.op_table import INTERPRETED
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir
from torch_ocl_compile.reference.interpreter import run_graph


def assert_parses_back(graph: ir.Graph) -> None:
    assert str(ir.parse_graph(str(graph))) == str(graph)


def assert_scheduled_equals_unscheduled(
    seen: Seen, caps: str, rtol: float | None = None, atol: float | None = None, of_scale: float = 0.0
) -> None:
    """`of_scale`: absolute tolerance divided by the tensor's largest element, for sums that may cancel."""
    rendered = render(seen.graph, caps)
    scheduled = rendered["graph"]
    assert_parses_back(scheduled)
    order = launch_order(rendered)
    assert sorted(order) == list(range(len(scheduled.nodes))), "a node is launched twice or never"
    ours, theirs = copied(seen.args), copied(seen.args)
    got = run_graph(scheduled, ours, seen.calls, order)
    expected = run_graph(seen.graph, theirs, seen.calls)
    # Arguments are compared too, because the graph may write to them.
    for name, some, others in ("result", got, expected), ("argument", ours, theirs):
        for position, (x, y) in enumerate(zip(some, others, strict=True)):
            if not isinstance(y, torch.Tensor):
                continue  # This value is a symbolic size.
            limit = of_scale * float(y.abs().max()) if of_scale and y.numel() else atol
            place = f"{name} {position} of the {seen.kind} graph for {caps}"
            torch.testing.assert_close(
                x, y, rtol=rtol if limit is None else rtol or 0, atol=limit, equal_nan=True,
                msg=lambda m, place=place: f"{place}: {m}\n{rendered['schedule'][:20000]}",
            )  # fmt: skip


def run_with_gradients(op: Op, function: Any, sample: tuple[Any, ...]) -> None:
    moved = [x.detach().clone().requires_grad_() if wants_gradient(op, i, x) else x for i, x in enumerate(sample)]
    leaves = [x for x in moved if isinstance(x, torch.Tensor) and x.requires_grad]
    outputs = torch.utils._pytree.tree_flatten(function(*moved))[0]
    outputs = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if leaves and outputs:
        torch.autograd.grad(outputs, leaves, [torch.ones_like(o) * 0.5 for o in outputs], allow_unused=True)


def wants_gradient(op: Op, position: int, x: Any) -> bool:
    return op.gradient and position not in op.constants and isinstance(x, torch.Tensor) and x.is_floating_point()


@pytest.mark.parametrize("op, dtype", cases(INTERPRETED, lambda op, position: 32 if position else 8))
def test_op(op: Op, dtype: torch.dtype, sweep: bool) -> None:
    samples = op.samples(dtype)
    for sample in samples if sweep else samples[:1]:
        seen: list[Seen] = []
        run_with_gradients(op, collecting(op.call, seen, dynamic=False), sample)
        for one in seen:
            assert_parses_back(one.graph)
            for caps in CAPS:
                assert_scheduled_equals_unscheduled(one, caps, op.rtol, op.atol)


# Functions with long reductions. Some are split, some are fused along rows, and sums of columns get other kernels on
# GPUs.
def normalised_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[1:]).softmax(-1).log()


def several_sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sum(), x.var(), x.argmax(), x.sum(0), x.logsumexp((0, 1)), x.amax(1), (x > 3).any(), x.argmin(0)


def batch_norm(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, None, None, training=True).relu()


LONG: dict[str, tuple[Any, tuple[int, ...]]] = {
    "rows": (normalised_rows, (6, 1000)),
    "sums": (several_sums, (96, 640)),
    "tall_sums": (several_sums, (4099, 7)),
    "batch_norm": (batch_norm, (8, 4, 40, 32)),
}


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("dynamic", [False, True])
def test_long_reductions(name: str, caps: str, dynamic: bool) -> None:
    call, shape = LONG[name]
    seen: list[Seen] = []
    torch.manual_seed(0)
    collecting(call, seen, dynamic=dynamic)(torch.randn(shape))
    for one in seen:
        assert_scheduled_equals_unscheduled(one, caps, 1e-4, 1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_partial_reductions_happen(dynamic: bool) -> None:
    """The test above is only meaningful if reductions are split."""
    seen: list[Seen] = []
    collecting(several_sums, seen, dynamic=dynamic)(torch.randn(96, 640))
    stages = {n.stage for n in render(seen[0].graph, "gpu")["graph"].nodes if n.kind == "reduce"}
    assert stages == {"whole", "partial", "final"}


def test_slices_of_unknown_length_are_shared_by_a_work_group() -> None:
    """The length at which the graph was made says nothing of later ones."""
    seen: list[Seen] = []
    collecting(lambda x: x.isnan().sum(), seen, dynamic=True)(torch.randn(600))
    kernels = render(seen[0].graph, "gpu")["kernels"]
    assert len(kernels) == 2 and all("barrier(" in kernel["text"] for kernel in kernels)


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("length", [9, 3000])
def test_scans_store_in_place(length: int, caps: str) -> None:
    """Not if the old contents are read behind the scan, or by the scan itself."""

    def scanned(x: torch.Tensor, out: torch.Tensor, read: torch.Tensor, own: torch.Tensor) -> Any:
        out.copy_(x.cumsum(0))
        running = x.cumprod(0)
        before = read.sum()
        read.copy_(running)
        own.copy_(own.cumsum(0))
        return before

    seen: list[Seen] = []
    torch.manual_seed(0)
    collecting(scanned, seen, dynamic=False)(*(torch.randn(length) for _ in range(4)))
    assert_scheduled_equals_unscheduled(seen[0], caps, 1e-5, 1e-4)
    log = render(seen[0].graph, caps)["log"]
    assert sum("the scan stores in place" in line for line in log) == 1, log


def convolved(x: torch.Tensor, w: torch.Tensor, norm: Any, groups: int = 1, bias: torch.Tensor | None = None) -> Any:
    y = torch.nn.functional.conv2d(x, w, bias, padding=w.shape[2] // 2, groups=groups)
    return norm(y), y


def batch_norm_alone(y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(y, None, None, training=True)


# Name -> (channels, filters, filter size, groups, what follows, whether the convolution's kernel stores the statistics)
STATISTICS: dict[str, tuple[int, int, int, int, Any, bool]] = {
    "1x1": (64, 72, 1, 1, batch_norm_alone, True),
    "3x3": (16, 40, 3, 1, batch_norm_alone, True),
    "in groups": (32, 64, 1, 2, batch_norm_alone, True),
    "one of two": (16, 40, 3, 1, lambda y: (batch_norm_alone(y), batch_norm_alone(y.relu())), True),
    "channels alone": (16, 40, 1, 1, lambda y: torch.var_mean(y, (0, 2, 3)), True),
    "of something else": (16, 40, 3, 1, lambda y: batch_norm_alone(y.relu()), False),
    "of each image": (16, 40, 3, 1, lambda y: torch.var_mean(y, (2, 3)), False),
    "of a part": (16, 40, 3, 1, lambda y: torch.var_mean(y[:, :, 1:], (0, 2, 3)), False),
}


@pytest.mark.parametrize("caps", ["warpgroup", "warp"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_a_convolution(name: str, dtype: torch.dtype, bias: bool, caps: str) -> None:
    """The tensor core kernel adds the bias and stores statistics in slices, which the reduction merges."""
    channels, filters, size, groups, norm, expected = STATISTICS[name]
    torch.manual_seed(0)
    x = torch.randn(3, channels, 23, 31).to(dtype).contiguous(memory_format=torch.channels_last)
    w = torch.randn(filters, channels // groups, size, size).to(dtype)
    b = torch.randn(filters).to(dtype) if bias else None
    seen: list[Seen] = []
    collecting(lambda x, w, b: convolved(x, w, norm, groups, b), seen, dynamic=False)(x, w, b)
    rounding = 1e-4 if dtype == torch.float32 else 1e-2  # The statistics are summed in another order.
    assert_scheduled_equals_unscheduled(seen[0], caps, rtol=rounding, atol=rounding)
    rendered = render(seen[0].graph, caps)
    convolution = next(n for n in rendered["graph"].nodes if n.kind == "convolve")
    assert len(convolution.outputs) == (2 if expected else 1), rendered["log"]
    assert len(convolution.operands) == (3 if expected and bias else 2)
    assert any("#define STATISTICS 1" in kernel["text"] for kernel in rendered["kernels"]) == expected
    if expected:
        assert any(n.kind == "reduce" and n.stage == "final" for n in rendered["graph"].nodes)


def biased_and_another(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    y = torch.nn.functional.conv2d(x, w)
    return batch_norm_alone(y + b.view(-1, 1, 1)), y


def late_bias(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    y = torch.nn.functional.conv2d(x, w)
    return batch_norm_alone(y + (b + y.amax()).view(-1, 1, 1))


def scaled(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    return batch_norm_alone(torch.nn.functional.conv2d(x, w) * b.view(-1, 1, 1))


@pytest.mark.parametrize("call", [biased_and_another, late_bias, scaled])
def test_no_statistics_if_the_kernel_cannot_add_the_bias(call: Any) -> None:
    """The kernel stores no statistics if it cannot add the bias before them: if the result without bias is used too, if
    the bias depends on the convolution, or if the convolution is multiplied instead."""
    torch.manual_seed(0)
    x = torch.randn(3, 16, 23, 31).contiguous(memory_format=torch.channels_last)
    seen: list[Seen] = []
    collecting(call, seen, dynamic=False)(x, torch.randn(40, 16, 1, 1), torch.randn(40))
    assert_scheduled_equals_unscheduled(seen[0], "warpgroup", rtol=1e-4, atol=1e-4)
    assert not any("#define STATISTICS 1" in kernel["text"] for kernel in render(seen[0].graph, "warpgroup")["kernels"])


@pytest.mark.parametrize("bias", [False, True])
def test_statistics_on_a_cpu(bias: bool) -> None:
    """A work-item stores the statistics of its pixels only if the output is larger than the caches.

    The number of channels is odd, and the last work-item has fewer pixels.
    """
    torch.manual_seed(0)
    x = torch.randn(1, 64, 181, 180).contiguous(memory_format=torch.channels_last)
    for filters, left in ((70, True), (40, False)):
        seen: list[Seen] = []
        w = torch.randn(filters, 64, 1, 1)
        b = torch.randn(filters) if bias else None
        collecting(lambda x, w, b: convolved(x, w, batch_norm_alone, bias=b), seen, dynamic=False)(x, w, b)
        assert_scheduled_equals_unscheduled(seen[0], "cpu16", rtol=1e-4, atol=1e-4)
        texts = [kernel["text"] for kernel in render(seen[0].graph, "cpu16")["kernels"]]
        assert any("#define STATISTICS 1" in text for text in texts) == left
        assert any("#define BIAS 1" in text for text in texts) == (left and bias)


def training_step(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, seen: list[Seen]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    function = collecting(lambda x, y: torch.nn.functional.cross_entropy(model(x), y), seen)
    step = torch.compile(optimizer.step, backend=function.backend)
    for _ in range(2):
        optimizer.zero_grad()
        function(x, y).backward()
        step()


# (name, batch, image size)
NETWORKS = [("mlp", 8, 0), ("lenet", 3, 28), ("residual", 2, 32), ("resnet18", 2, 32)]


class Block(nn.Module):
    """ResNet's basic block; `shortcut` halves the image and changes the number of channels."""

    def __init__(self, before: int, after: int, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(before, after, 3, 2 if shortcut else 1, 1, bias=False), nn.BatchNorm2d(after)
        self.second, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.shortcut = shortcut or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.shortcut(x) + self.norm2(self.second(self.norm1(self.first(x)).relu()))).relu()


def residual() -> nn.Module:
    """The stem, a block of each kind and the head of a ResNet."""
    shortcut = nn.Sequential(nn.Conv2d(16, 32, 1, 2, bias=False), nn.BatchNorm2d(32))
    stem = [nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Block(16, 16), Block(16, 32, shortcut)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


@pytest.mark.parametrize(
    "name, batch, size",
    [pytest.param(*row, id=row[0], marks=[pytest.mark.needs("sweep")] * (row[0] == "resnet18")) for row in NETWORKS],
)
def test_network(name: str, batch: int, size: int, sweep: bool) -> None:
    """Runs forward, backward and the optimizer's step."""
    torch.manual_seed(0)
    model, x, classes = (
        networks.make(name, batch, size) if name != "residual" else (residual(), torch.randn(batch, 3, size, size), 10)
    )
    seen: list[Seen] = []
    training_step(model, x, torch.arange(batch) % classes, seen)
    assert {one.kind for one in seen} == {"forward", "backward", "inference"}
    for one in seen:
        assert_parses_back(one.graph)
        for caps in CAPS if sweep or name != "residual" else ("gpu",):
            assert_scheduled_equals_unscheduled(one, caps, of_scale=1e-4)


def test_unfused_graph_is_the_same() -> None:
    seen: list[Seen] = []
    collecting(normalised_rows, seen)(torch.randn(6, 100))
    rendered = render(seen[0].graph, "cpu16", fuse=False)
    assert len(rendered["groups"]) > len(render(seen[0].graph, "cpu16")["groups"])
    ours = run_graph(rendered["graph"], seen[0].args, (), launch_order(rendered))
    torch.testing.assert_close(ours, run_graph(seen[0].graph, seen[0].args))


@pytest.mark.parametrize("caps", ["gpu", "cpu16"])
@pytest.mark.parametrize("name", ["irfft2", "hfft2", "irfftn", "hfftn"])
def test_what_only_copies_compute_again_is_not_launched(name: str, caps: str) -> None:
    """The transform reads packed zeros, so no member of the batch may be left for the zeros themselves."""
    function = getattr(torch.fft, name)
    seen: list[Seen] = []
    x = torch.randn(5, 6, 7)
    collecting(lambda x: function(x, s=(3, 10), dim=(1, 2), norm="ortho"), seen, dynamic=False)(x)
    assert_scheduled_equals_unscheduled(seen[0], caps)
    texts = [kernel["text"] for kernel in render(seen[0].graph, caps)["kernels"] if kernel["kind"] == "batch"]
    assert texts
    for text in texts:
        assert not re.search(r"\{\s*\}", text), text


@pytest.mark.parametrize(("lanes", "asked"), [(0, False), (8, False), (16, True)])
def test_reductions_ask_for_threads_of_16(lanes: int, asked: bool) -> None:
    """Compilers choose fewer than 32 work-items by themselves only where a thread may have 8."""
    b = ir.Builder()
    x = b.input(ir.DType.kF32, [64, 768], [768, 1])
    b.output(b.reduce("sum", x, [1], False, None)[0], [])
    b.output(b.op("exp", [x]), [ir.IndexExpr(768), ir.IndexExpr(1)])
    graph = b.finish()
    for caps in ("gpu", "cpu16"):
        kernels = _C.exec.render(graph, CAPS[caps] | {"thread_items": lanes}, False)["kernels"]
        found = {kernel["kind"]: "intel_reqd_sub_group_size(16)" in kernel["text"] for kernel in kernels}
        assert found == {"reduction": asked and caps == "gpu", "pointwise": False}
