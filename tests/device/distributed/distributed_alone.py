# tests/device/distributed/distributed_alone.py: checks of a group with one rank: what DistributedDataParallel adds to a training step.
import time

import torch
import torch._dynamo.testing
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
        )

    def forward(self, x):
        return self.body(x)


def trained(me, wrap, steps=3):
    """Returns the parameters after `steps` steps, and the launches and copies of one more step."""
    torch.manual_seed(0)
    module = Network().to(me.device)
    model = torch.compile(wrap(module), backend="ocl")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x, y = torch.randn(4, 3, 8, 8).to(me.device), torch.arange(4).to(me.device)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(steps):
        step()
    parameters = [p.detach().cpu() for p in module.parameters()]
    with torch.ocl.record() as launches:
        step()
    return parameters, launches


def check_ddp_computes_what_the_bare_model_does(me):
    """It launches nothing more either."""
    bare, launches = trained(me, lambda model: model)
    wrapped, more = trained(me, DistributedDataParallel)
    for a, b in zip(bare, wrapped, strict=True):
        assert_close(a, b, rtol=1e-6, atol=1e-6)
    assert [x.kind for x in more] == [x.kind for x in launches]


def check_the_graph_is_whole(me):
    """Nothing is communicated, so DDP's buckets cut no graph."""
    counter = torch._dynamo.testing.CompileCounterWithBackend("ocl")
    dist._DEFAULT_FIRST_BUCKET_BYTES = 500
    model = DistributedDataParallel(Network().to(me.device), bucket_cap_mb=0.001)
    torch.compile(model, backend=counter)(torch.randn(4, 3, 8, 8).to(me.device))
    assert counter.frame_count == 1


def check_the_host_does_not_wait(me):
    """A collective of a group with one rank is done when the work before it is: nothing waits, on host or device."""
    size = 1000 if torch.ocl.get_device_properties(me.device).unified_memory else 6000
    x = torch.ones(size, size, device=me.device)
    for _ in range(2):
        y = x
        begin = time.perf_counter()
        for _ in range(20):
            y = y @ x / size
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        work.get_future().wait()
        enqueued = time.perf_counter() - begin
        torch.ocl.synchronize()
    assert enqueued < 0.5 * (time.perf_counter() - begin), enqueued
    assert_close(y[0, 0].item(), 1.0)


def check_all_gather_into_its_own_memory_costs_nothing(me):
    whole = torch.arange(8.0, device=me.device)
    with torch.ocl.record() as launches:
        dist.all_gather_into_tensor(whole, whole)
        dist.reduce_scatter_tensor(whole, whole)
    assert not list(launches) and whole.tolist() == list(range(8))
