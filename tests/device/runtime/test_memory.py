# tests/device/runtime/test_memory.py: a process keeps a bounded number of compiled plans and programs; memory statistics.
import gc
from itertools import pairwise

import pytest
import torch

from torch_ocl_compile import _C
from torch_ocl_compile.eager import compile as eager

RECENT = 64  # The number of programs that are kept although nothing uses them (csrc/runtime/build/program.cpp).
MOST_EAGER = 1024  # The number of eager plans that are kept (csrc/torch/eager.cpp).


def live():
    gc.collect()
    return _C.exec.live_counts()


def compile_many(device, first, count):
    """Compiles `count` different graphs. Dynamo forgets each one before the next."""
    x = torch.ones(3, device=device)
    for k in range(first, first + count):
        torch._dynamo.reset()
        assert torch.compile(lambda x, k=k: (x * k).sum(), backend="ocl", dynamic=False)(x).item() == 3 * k


# The limits are the same for all runtimes.
@pytest.mark.sampled()
def test_compiled_graphs(ocl_device):
    """reset() drops all plans, and all of their programs but the latest RECENT."""
    compile_many(ocl_device, 1, 2)
    torch._dynamo.reset()
    before = live()
    compile_many(ocl_device, 10, RECENT + 20)
    torch._dynamo.reset()
    after = live()
    assert after["plans"] - after["eager_plans"] == before["plans"] - before["eager_plans"]
    assert after["programs"] <= before["programs"] + RECENT, (before, after)  # A plan may have several programs.


def test_eager_ops(ocl_device, monkeypatch, own_cache):
    """When there are MOST_EAGER plans, the half that was not used for longest is dropped."""
    x = torch.ones(2, device=ocl_device)
    _C.forget_eager_plans()
    assert live()["eager_plans"] == 0
    plan = eager.compile_op("aten::roll", "", [x, [0], [0]], [0, 1, 2], 0)
    plan.lasting = False
    asked = []

    def compile_op(name, overload, args, same, level):
        if level:
            return _C.Recipe(_C.Recipe.Kind.NO_KERNELS)
        asked.append(args[1][0])
        return plan

    monkeypatch.setattr(eager, "compile_op", compile_op)
    for shift in range(2, 2 + MOST_EAGER):  # Negative, because one plan may serve all shifts above 1.
        x.roll(-shift, 0)
        x.roll(-2, 0)
        assert live_eager() <= MOST_EAGER
    assert live_eager() == MOST_EAGER
    x.roll(1, 0)
    assert MOST_EAGER // 2 <= live_eager() <= MOST_EAGER // 2 + 1
    asked.clear()
    for shift in (-2, -1 - MOST_EAGER, 1, -3):
        x.roll(shift, 0)
    assert asked == [-3], "of these only the oldest was forgotten"
    _C.forget_eager_plans()


def live_eager():
    return _C.exec.live_counts()["eager_plans"]


@pytest.mark.sampled(every=1)
def test_memory_statistics_add_up(ocl_device):
    gc.collect()
    torch.ocl.synchronize(ocl_device)
    torch.ocl.empty_cache()
    torch.ocl.reset_accumulated_memory_stats(ocl_device)
    torch.ocl.reset_peak_memory_stats(ocl_device)
    before = torch.ocl.memory_stats(ocl_device)
    tensors = [torch.empty(1000, device=ocl_device) for _ in range(5)]
    large = torch.empty(3 << 20, device=ocl_device)
    del tensors[:2]
    after = torch.ocl.memory_stats(ocl_device)
    assert torch.accelerator.memory_allocated(ocl_device) == torch.ocl.memory_allocated(ocl_device)
    assert torch.ocl.memory_reserved(ocl_device) >= torch.ocl.memory_allocated(ocl_device)
    assert after["allocation.all.allocated"] == 6 and after["allocation.all.freed"] == 2
    assert after["allocation.all.current"] - before["allocation.all.current"] == 4
    assert after["allocated_bytes.large_pool.allocated"] >= 12 << 20
    assert 5 * 4000 <= after["allocated_bytes.small_pool.allocated"] <= 5 * 4400
    assert after["requested_bytes.all.allocated"] == 5 * 4000 + (12 << 20)
    assert after["allocated_bytes.all.peak"] - before["allocated_bytes.all.current"] >= 5 * 4000 + (12 << 20)
    for kind in ("allocation", "allocated_bytes", "active", "active_bytes", "reserved_bytes", "segment"):
        changed = after[f"{kind}.all.current"] - before[f"{kind}.all.current"]
        assert changed == after[f"{kind}.all.allocated"] - after[f"{kind}.all.freed"], kind
    del large
    torch.ocl.reset_accumulated_memory_stats(ocl_device)
    assert torch.ocl.memory_stats(ocl_device)["allocation.all.freed"] == 0


@pytest.mark.sampled(every=1)
@pytest.mark.parametrize(
    "rows, widths, saved, limit",
    [
        # A saved value has a MiB, and so has a gradient.
        pytest.param(512, [512] * 9, 8, 16, id="gradients"),
        # The gradient of the second value, 8 MiB, is computed when all others are free, and not held from the start.
        pytest.param(4096, [16, 512, 16, *[128] * 6], 20, 25, id="intermediate results"),
    ],
)
def test_backward_takes_the_memory_of_saved_values(ocl_device, rows, widths, saved, limit):
    """Gradients and large intermediate results are allocated when they are computed. By then, what later layers saved is free."""
    torch.manual_seed(0)
    weights = [torch.randn(n, m) * 2 / n**0.5 for n, m in pairwise(widths)]

    def function(x, *weights):
        for w in weights:
            x = torch.sigmoid(x @ w)
        return x.sum()

    def gradients(given, run):
        return torch.autograd.grad(run(*given), given[1:])

    x = torch.linspace(-2, 2, rows * widths[0]).view(rows, widths[0])
    ours = [t.to(ocl_device).requires_grad_() for t in (x, *weights)]
    compiled = torch.compile(function, backend="ocl", dynamic=False, options={"fallback": "error"})
    gradients(ours, compiled)
    torch.ocl.synchronize(ocl_device)
    torch.ocl.reset_peak_memory_stats(ocl_device)
    before = torch.ocl.memory_allocated(ocl_device)
    got = gradients(ours, compiled)
    peak = (torch.ocl.max_memory_allocated(ocl_device) - before) / 2**20
    assert saved <= peak < limit, peak
    for ours_, exact in zip(
        got, gradients([t.double().requires_grad_() for t in (x, *weights)], function), strict=True
    ):
        torch.testing.assert_close(ours_.cpu().double(), exact, rtol=1e-4, atol=1e-4 * exact.abs().max().item())


def test_saved_values_take_the_memory_of_intermediate_results(ocl_device):
    """The product of 16 MiB is gone when forward writes the 26 MiB that backward needs."""
    torch.manual_seed(0)
    wide = [torch.randn(128, 1024, device=ocl_device) / 8, torch.randn(1024, 128, device=ocl_device) / 16]
    weights = [(torch.randn(128, 128) / 8).to(ocl_device).requires_grad_() for _ in range(12)]

    def function(x):
        with torch.no_grad():
            x = torch.cos(x @ wide[0]) @ wide[1]
        for w in weights:
            x = torch.tanh(x @ w)
        return torch.nn.functional.cross_entropy(x, labels)  # It notes wrong labels in a word outside of the graph.

    labels = torch.arange(4096, device=ocl_device) % 128
    x = torch.linspace(-2, 2, 4096 * 128).view(4096, 128).to(ocl_device)
    compiled = torch.compile(function, backend="ocl", dynamic=False, options={"fallback": "error"})
    compiled(x)
    torch.ocl.synchronize(ocl_device)
    torch.ocl.reset_peak_memory_stats(ocl_device)
    before = torch.ocl.memory_allocated(ocl_device)
    compiled(x)
    assert 26 <= (torch.ocl.max_memory_allocated(ocl_device) - before) / 2**20 < 34


def test_free_memory_counts_other_processes(ocl_device):
    """Free memory comes from the system or the driver, so it includes what other processes use."""
    free, total = torch.ocl.mem_get_info(ocl_device)
    assert 0 < free <= total and abs(torch.ocl.device_memory_used(ocl_device) - (total - free)) < total // 2
    properties = torch.ocl.get_device_properties(ocl_device)
    if properties.is_cpu:
        with open("/proc/meminfo") as file:
            available = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
        assert abs(free - min(available, total)) < 1 << 30
