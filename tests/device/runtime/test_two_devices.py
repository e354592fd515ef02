# tests/device/runtime/test_two_devices.py: one process that uses two devices: nn.parallel, pipeline stages, copies, events.
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import comm, gather, parallel_apply, replicate, scatter
from torch.testing import assert_close

from tests.stress.delays import Delays
from tests.stress.program import Program

TWO = ["ocl:0", "ocl:1"]


pytestmark = pytest.mark.usefixtures("two_devices")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))

    def forward(self, x, scale=1.0):
        return self.body(x) * scale


def test_scatter_and_gather():
    x = torch.arange(42.0).view(7, 6)
    for source in (x, x.to("ocl:1"), x.pin_memory()):
        parts = scatter(source, [0, 1])
        assert [str(p.device) for p in parts] == TWO and [len(p) for p in parts] == [4, 3]
        assert_close(gather(parts, 1).cpu(), x)
        assert gather(parts, 1).device == torch.device("ocl:1")
        assert_close(gather(parts, "cpu"), x)
    parts = comm.scatter(x, [1, 0, 1], [1, 2, 3], dim=1)
    assert [list(p.shape) for p in parts] == [[7, 1], [7, 2], [7, 3]] and parts[0].device.index == 1
    outs = [torch.empty(3, 6, device="ocl:1"), torch.empty(4, 6, device="ocl:0")]
    assert comm.scatter(x, out=outs)[1] is outs[1]
    whole = torch.empty(7, 6, device="ocl:1")
    assert comm.gather(outs, out=whole) is whole
    assert_close(whole.cpu(), x)
    with pytest.raises(RuntimeError, match="out= already says"):
        comm.scatter(x, [0], out=outs)


def test_broadcast_and_sum():
    x = torch.arange(10.0, device="ocl:0")
    same, other = comm.broadcast(x, [0, 1])
    assert same.data_ptr() == x.data_ptr() and other.device.index == 1
    x += 1  # The stream adds after it has copied, so the copy has the old values.
    assert_close(other.cpu(), torch.arange(10.0))
    assert_close(comm.reduce_add([x, other], 1).cpu(), 2 * torch.arange(10.0) + 1)
    copies = comm.broadcast_coalesced([x, x.int()], [0, 1])
    assert [[t.dtype for t in c] for c in copies] == [[torch.float32, torch.int32]] * 2
    sums = comm.reduce_add_coalesced(copies, 0)
    assert_close(sums[1].cpu(), 2 * torch.arange(1, 11, dtype=torch.int32))
    with pytest.raises(RuntimeError, match="ocl:1"):
        comm.reduce_add([x, x], 1)


def test_gradients_cross_devices():
    x = torch.randn(6, 3, device="ocl:0", requires_grad=True)
    parts = scatter(x, [0, 1])
    loss = gather([p.sin() * (i + 1) for i, p in enumerate(parts)], 0).sum()
    loss.backward()
    assert_close(x.grad.cpu(), x.detach().cpu().cos() * torch.tensor([1.0] * 3 + [2.0] * 3)[:, None])


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch.nn.DataParallel takes every module for one of CUDA")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_data_parallel_trains_as_one_device(compiled):
    """Batch norm is in evaluation mode: in training, each device would use the statistics of its own samples only."""
    torch.manual_seed(0)
    reference = Net()
    ours = copy.deepcopy(reference).to("ocl:0")
    parallel = nn.DataParallel(ours, device_ids=[0, 1])
    parallel = torch.compile(parallel, backend="ocl") if compiled else parallel
    sides = [(reference, reference, "cpu"), (ours, parallel, "ocl:0")]
    losses = []
    for module, call, device in sides:
        module.body[1].eval()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(1)
        for _ in range(3):
            x, y = torch.randn(9, 2, 8, 8, generator=generator), torch.randint(0, 5, (9,), generator=generator)
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x.to(device), scale=1.5), y.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert_close(losses[3:], losses[:3], rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(ours.parameters(), reference.parameters(), strict=True):
        assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_replicas_run_in_threads():
    net = Net().to("ocl:0").eval()
    x = torch.randn(8, 2, 8, 8)
    with torch.no_grad():
        replicas = replicate(net, [0, 1], detach=True)
        outputs = parallel_apply(replicas, scatter(x, [0, 1]))
        assert [str(o.device) for o in outputs] == TWO
        assert_close(gather(outputs, "cpu"), copy.deepcopy(net).cpu()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_pipeline_stages_on_two_devices(compiled):
    """Micro-batches pass through stages on two devices; autograd copies gradients from the second to the first."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(6, 8), nn.GELU())
    second = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6))
    stages = [copy.deepcopy(first).to("ocl:0"), copy.deepcopy(second).to("ocl:1")]
    calls = [torch.compile(s, backend="ocl") for s in stages] if compiled else stages
    x = torch.randn(12, 6)
    for _ in range(2):
        for part in x.chunk(3):
            out = calls[1](calls[0](part.to("ocl:0")).to("ocl:1", non_blocking=True))
            (out.pow(3).mean() / 3).backward()
    for part in (*x.chunk(3), *x.chunk(3)):
        (second(first(part)).pow(3).mean() / 3).backward()
    for ours, theirs in zip(stages, (first, second), strict=True):
        for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert_close(mine.grad.cpu(), reference.grad, rtol=1e-4, atol=1e-5)


def test_peers():
    assert torch.ocl.can_device_access_peer("ocl:1", 1)
    if any(torch.ocl.get_device_properties(index).is_cpu for index in (0, 1)):
        assert not torch.ocl.can_device_access_peer(0, 1)


ACTIONS = {"upload": 4, "eager_in_place": 6, "move": 10, "download": 2, "free": 1, "delay": 3, "synchronize": 1}


def check_programs(seeds):
    """Runs random programs on both devices, with up to four streams each. Values must equal those of the same steps in
    sequence. Events order streams only where a step needs it, and random delays change their timing."""
    delays = Delays()
    try:
        for seed in seeds:
            program = Program(seed, TWO, {}, delays)
            program.actions = [(weight, getattr(program, name)) for name, weight in ACTIONS.items()]
            try:
                for _ in range(25):
                    program.step()
                program.check()
            except Exception as error:
                steps = "\n  ".join(program.log[-25:])
                raise AssertionError(f"seed {seed}: {error}\nthe last steps:\n  {steps}") from error
    finally:
        delays.end()


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 1000), marks=pytest.mark.needs("sweep"))], ids=str)
def test_interleaved_copies_streams_and_events(seeds):
    check_programs(seeds)
