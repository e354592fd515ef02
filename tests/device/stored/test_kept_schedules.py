# tests/device/stored/test_kept_schedules.py: a loaded graph takes its schedule and its kernels' texts from the cache.
from __future__ import annotations

import itertools
import random

import pytest
import torch

from tests.device.stored.stored_graphs import Counted, assert_same
from torch_ocl_compile import _C, config
from torch_ocl_compile.compile import debug
from torch_ocl_compile.device.record import record
from torch_ocl_compile.tuning import table

_tests = itertools.count(5)
width = 0


@pytest.fixture(autouse=True, scope="module")
def module_cache(tmp_path_factory):
    """Gives the module an empty cache. A cache of each test would lack kernels that the process has in memory."""
    with config.override(cache_dir=str(tmp_path_factory.mktemp("cache"))):
        config.configure_core()
        torch._dynamo.reset()
        yield
    torch._dynamo.reset()
    config.configure_core()


@pytest.fixture(autouse=True)
def own_width():
    """Gives the test's network a size of its own, so that no test finds the graphs of another one."""
    global width
    width = next(_tests)


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    layers = [torch.nn.Conv2d(3, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU(), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64 * width, width))


def step(device, compiled=None, **options):
    """Trains one step. Returns gradients, the launches, the graphs' records and their times."""
    torch._dynamo.reset()
    net, x = model().to(device), torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8).to(device)
    before = torch.ocl.compile_times()  # The list keeps the last graphs only, so its length may stay.
    with record() as launches, debug.collecting() as graphs:
        torch.compile(net, backend="ocl", options=options)(x).square().sum().backward()
    times = [t for t in torch.ocl.compile_times() if not any(t is b for b in before)]
    return [p.grad.cpu() for p in net.parameters()], list(launches), graphs, times


@pytest.fixture
def keeps_binaries(ocl_device):
    """Skips devices whose binaries are not in the cache: their graphs are scheduled in each process."""
    before, number = _C.exec.build_counters(), random.random()  # A kernel that no cache has.
    torch.compile(lambda x: x * number, backend="ocl")(torch.ones(3, device=ocl_device))
    if _C.exec.build_counters()["unkept"] > before["unkept"]:
        pytest.skip("the runtime keeps its binaries itself")
    step(ocl_device)


def scheduled(times) -> float:
    assert all(t.loaded for t in times) and len(times) == 2
    return sum(t.scheduling + t.code_generation for t in times)


def test_a_loaded_graph_is_not_scheduled(ocl_device, keeps_binaries):
    expected = [p.grad for p in cpu_step().parameters()]
    with Counted() as counted:
        gradients, launches, graphs, times = step(ocl_device)
    assert counted.loaded == 2 and scheduled(times) == 0
    for mine, reference in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine.double(), reference, rtol=1e-3, atol=1e-4)
    assert all(launch.title for launch in launches) and graphs


def cpu_step() -> torch.nn.Module:
    net, x = model().double(), torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8)
    net(x.double()).square().sum().backward()
    return net


def test_what_describes_a_plan_is_the_same(ocl_device):
    first, launches, graphs, _ = step(ocl_device)
    second, again, loaded, _ = step(ocl_device)
    assert_same(first, second)
    assert [launch.title for launch in launches] == [launch.title for launch in again]
    for mine, other in zip(graphs, loaded, strict=True):
        assert mine.plan.describe() == other.plan.describe()
        assert mine.plan.schedule() == other.plan.schedule()
        assert mine.plan.report() == other.plan.report()


def test_a_new_measurement_makes_a_new_schedule(ocl_device, keeps_binaries):
    index = torch.device(ocl_device).index
    usual = table.table_of(index)  # A device may have choices that come with the package.
    _C.exec.set_measured(index, {"a problem": "a choice"}, set())
    try:
        assert scheduled(step_with_choices(ocl_device)) > 0
        assert scheduled(step_with_choices(ocl_device)) == 0
    finally:
        _C.exec.set_measured(index, usual.followed(), set(usual.disabled))
    assert scheduled(step(ocl_device)[3]) == 0


def test_the_plan_of_an_optimizer_is_kept(ocl_device, keeps_binaries):
    """Forty parameters are more nodes than are scheduled in each process."""
    starts = [torch.linspace(-1, 1, 200 + n) for n in range(40)]

    def two_steps():
        weights = [torch.nn.Parameter(start.to(ocl_device)) for start in starts]
        optimizer = torch.optim.SGD(weights, lr=0.5, momentum=0.5, fused=True)
        for _ in range(2):
            for weight in weights:
                weight.grad = weight.detach() * 2
            optimizer.step()
        return [weight.detach().cpu() for weight in weights]

    first = two_steps()
    _C.forget_eager_plans()
    stores = _C.exec.cache_stats()["stores"]
    assert_same(first, two_steps())
    assert _C.exec.cache_stats()["stores"] == stores, "the kept plan was not found"
    for weight, start in zip(
        first, starts, strict=True
    ):  # The first step makes all weights 0, the second one adds momentum.
        torch.testing.assert_close(weight, -0.5 * start)


def step_with_choices(device):
    """A step that keeps the choices which the test has set: the device's table would replace them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("torch_ocl_compile.tuning.table.follow", lambda index: None)
        return step(device)[3]


@pytest.mark.parametrize("options", [{"check": True}, {"debug": True}])
def test_watched_plans_are_made_anew(ocl_device, keeps_binaries, options):
    step(ocl_device, **options)
    assert scheduled(step(ocl_device, **options)[3]) > 0


def test_dumped_plans_are_made_anew(ocl_device, keeps_binaries, tmp_path):
    with config.override(dump=str(tmp_path / "dump")):
        step(ocl_device)
    assert list((tmp_path / "dump").glob("*.cl"))
