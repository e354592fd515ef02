# tests/device/distributed/distributed_gradients.py: checks of DistributedDataParallel, compared with torch's on the CPU and gloo.
import copy
import io
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from distributed_nccl import calls
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from torch_ocl_compile.device import distributed_gradients

STEPS = 3


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.body(x))


class Branches(nn.Module):
    """Uses `second` only if asked to."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x, both=True):
        y = self.first(x) * self.scale
        return y + self.second(x) if both else y


def batch(me, step):
    generator = torch.Generator().manual_seed(100 * step + me.rank)
    return torch.randn(4, 3, 4, 4, generator=generator), torch.randint(0, 10, (4,), generator=generator)


def train(model, device, me, steps=STEPS, accumulate=1, clear=True):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=clear)
        for part in range(accumulate):
            x, y = (t.to(device) for t in batch(me, step * accumulate + part))
            model.require_backward_grad_sync = part == accumulate - 1
            nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def pair(me, module, **settings):
    """Returns the module in DistributedDataParallel, on the device and on the CPU."""
    torch.manual_seed(me.rank)  # Ranks differ until they are wrapped.
    theirs = module()
    ours = copy.deepcopy(theirs).to(me.device)
    return DistributedDataParallel(ours, **settings), DistributedDataParallel(theirs, **settings)


def same(ours, theirs, atol=1e-5):
    for (name, mine), expected in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(mine.detach().cpu(), expected.detach(), rtol=1e-4, atol=atol, msg=lambda m, n=name: f"{n}: {m}")
        assert (mine.grad is None) == (expected.grad is None), name
        if mine.grad is not None:
            assert_close(mine.grad.cpu(), expected.grad, rtol=1e-4, atol=atol, msg=lambda m, n=name: f"{n}.grad: {m}")


def averages(model):
    return distributed_gradients._active_for(model) is not None


def check_parameters_and_buffers(me):
    for settings in ({}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.001}):
        for more in ({}, {"accumulate": 3}, {"clear": False}):
            ours, theirs = pair(me, Network, **settings)
            assert averages(ours) and not averages(theirs)
            train(ours, me.device, me, **more)
            train(theirs, "cpu", me, **more)
            same(ours, theirs)
            norm, expected = ours.module.body[1], theirs.module.body[1]
            if me.rank == 0:  # The other ranks get these buffers earlier than from torch.
                assert_close(norm.running_mean.cpu(), expected.running_mean, rtol=1e-4, atol=1e-5)
                assert norm.num_batches_tracked.item() == expected.num_batches_tracked.item()
            x, _ = batch(me, 50)
            assert_close(ours.eval()(x.to(me.device)).detach().cpu(), theirs.eval()(x).detach(), rtol=1e-4, atol=1e-4)


def check_one_group_of_calls(me):
    """A step makes one call for each parameter, and one for the buffers. A step within no_sync() makes none."""
    ours, _ = pair(me, Network)
    train(ours, me.device, me)
    many = len(list(ours.parameters()))
    torch.ocl.synchronize()  # NCCL gets the calls of earlier steps now.
    found = calls(lambda: train(ours, me.device, me, steps=1))
    assert sorted(found) == ["all_reduce(7,4)"] * many + ["broadcast(1,0)"], found

    def local():
        with ours.no_sync():
            ours(batch(me, 0)[0].to(me.device)).sum().backward()

    # The forward in no_sync() follows an averaged backward, so the buffers are equal.
    assert calls(local) == []
    # The buffers differ now. As torch's, the next forward does not send them, and the next backward does.
    assert sorted(calls(lambda: train(ours, me.device, me, steps=1))) == sorted(found)
    ours.eval()
    assert calls(lambda: ours(batch(me, 0)[0].to(me.device))) == ["broadcast(1,0)"]


def check_buffers_of_the_first_rank_only(me):
    """Rank 0 changes its buffers between two steps. Batch norms in training do not read them, so it is enough that the ranks get them
    after the step. Other buffers come before the forward."""
    ours, theirs = pair(me, Network)
    train(ours, me.device, me)
    train(theirs, "cpu", me)
    if me.rank == 0:
        for model in (ours, theirs):
            model.module.body[1].running_mean.fill_(7.0)
    for model, device in ((ours, me.device), (theirs, "cpu")):
        train(model, device, me, steps=1)
        model.eval()(batch(me, 9)[0].to(device))
    same(ours, theirs)
    for name in ("running_mean", "running_var"):
        assert_close(
            getattr(ours.module.body[1], name).cpu(), getattr(theirs.module.body[1], name), rtol=1e-4, atol=1e-5
        )
    other, _ = pair(me, Branches)
    x = torch.ones(2, 4, device=me.device)
    for step in range(2):
        if me.rank == 0:
            other.module.scale.fill_(step + 3.0)
        other(x).sum().backward()
        assert other.module.scale.item() == step + 3.0


def check_unused_parameters(me):
    """Parameters that a rank does not use are an error as with torch, and allowed with find_unused_parameters."""
    ours, theirs = pair(me, Branches)
    x = torch.randn(2, 4)
    for model, device in ((ours, me.device), (theirs, "cpu")):
        model(x.to(device), both=False).sum().backward()
        try:
            model(x.to(device), both=False)
        except RuntimeError as error:
            assert model is theirs or "2 of 4 parameters got no gradient" in str(error), error
            assert model is theirs or "second.weight, second.bias" in str(error), error
        else:
            raise AssertionError
    ours, theirs = pair(me, Branches, find_unused_parameters=True)
    assert not averages(ours)
    for model, device in ((ours, me.device), (theirs, "cpu")):
        for step in range(STEPS):
            model(x.to(device), both=step == 1 and me.rank == 0).sum().backward()
    same(ours, theirs)


def check_a_parameter_that_one_rank_does_not_use(me):
    """That rank gets an error at its next forward. The others, which have begun to average, get one after the timeout."""
    group = dist.new_group(timeout=timedelta(seconds=2))
    model = DistributedDataParallel(Branches().to(me.device), process_group=group)
    x = torch.ones(2, 4, device=me.device)
    model(x, both=me.rank != 1).sum().backward()
    store = dist.distributed_c10d._get_default_store()
    try:
        if me.rank == 1:
            store.wait(["ocl/test/unused"])
            model(x)
        else:
            model.module.first.weight.grad.cpu()
    except RuntimeError as error:
        expected = "2 of 4 parameters got no gradient" if me.rank == 1 else "no sign of rank 1"
        assert expected in str(error), error
    else:
        raise AssertionError
    store.set("ocl/test/unused", "yes")


def check_gradients_that_come_in_parts(me):
    """Two backwards after one forward give all parameters their gradients. A parameter that gets two is an error, as with torch."""
    ours, theirs = pair(me, Branches)
    x = torch.randn(2, 4) + me.rank
    for model, device in ((ours, me.device), (theirs, "cpu")):
        model(x.to(device))
        model.module.first(x.to(device)).sum().backward()
        model.module.second(x.to(device)).pow(2).sum().backward()
        model.module.first(x.to(device)).sum().backward()  # After the average, gradients are of this rank.
    same(ours, theirs)
    for model, device in ((ours, me.device), (theirs, "cpu")):
        with pytest.raises(RuntimeError, match=None if model is theirs else "got a gradient twice after one forward"):
            model(x.to(device))
            for _ in range(2):
                model.module.first(x.to(device)).sum().backward()


class Sums(nn.Module):
    """Autograd gives both parameters the same gradient, and `turned` one in another layout than the parameter's."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(2, 3))
        self.turned = nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        return ((self.a.view(2, 3) + self.b + self.turned.t()) * x).sum()


def check_gradients_in_shared_memory_and_other_layouts(me):
    ours, theirs = pair(me, Sums)
    for step in range(STEPS):
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(10 * step + me.rank))
        for model, device in ((ours, me.device), (theirs, "cpu")):
            model.zero_grad()
            if step == 2:
                model.module.b.grad = torch.zeros(3, 2, device=device).t()
            model(x.to(device)).backward()
        same(ours, theirs)


class WithoutGradient(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight):
        return x * 1

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def check_a_parameter_without_gradient_counts_as_zero(me):
    class Halves(Branches):
        def forward(self, x):
            return self.first(x) + WithoutGradient.apply(self.second(x).detach(), self.second.weight) + self.second.bias

    ours, theirs = pair(me, Halves)
    x = torch.randn(2, 4)
    for model, device in ((ours, me.device), (theirs, "cpu")):
        model(x.to(device)).sum().backward()
    same(ours, theirs)


def check_what_stays_with_the_reducer(me):
    def double(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] * 2)

    for settings in ({"static_graph": True}, {"find_unused_parameters": True}):
        ours, theirs = pair(me, Network, **settings)
        assert not averages(ours)
        train(ours, me.device, me)
        train(theirs, "cpu", me)
        same(ours, theirs)
    ours, theirs = pair(me, Network)
    for model, device in ((ours, me.device), (theirs, "cpu")):
        train(model, device, me)
        model.register_comm_hook(None, double)
        train(model, device, me)
    assert not averages(ours)
    same(ours, theirs, atol=1e-3)


def check_gradients_with_a_graph(me):
    """backward(create_graph=True) leaves gradients that have a graph, which torch's buckets refuse."""
    ours, theirs = pair(me, Branches)
    x = torch.randn(2, 4) + me.rank
    ours(x.to(me.device)).pow(2).sum().backward(create_graph=True)
    theirs(x).pow(2).sum().backward()
    for mine, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine.grad.detach().cpu(), expected.grad, rtol=1e-4, atol=1e-5)


def check_join(me):
    """Rank 1 has fewer batches, between two ordinary steps."""
    ours, theirs = pair(me, Network)
    for model, device in ((ours, me.device), (theirs, "cpu")):
        train(model, device, me)
        with model.join():
            train(model, device, me, steps=2 if me.rank == 0 else 1)
        train(model, device, me)
    same(ours, theirs, atol=1e-3)


def check_a_saved_module(me):
    ours, theirs = pair(me, Network)
    train(ours, me.device, me)
    train(theirs, "cpu", me)
    made = []
    for model in (ours, theirs):
        file = io.BytesIO()
        torch.save(model, file)
        made.append(torch.load(io.BytesIO(file.getvalue()), weights_only=False))
    assert averages(made[0])
    train(made[0], me.device, me)
    train(made[1], "cpu", me)
    same(*made)
    del ours, model
    assert len(distributed_gradients._gradients) >= 1


def check_runs_are_equal_bit_by_bit(me):
    found = []
    for _ in range(2):
        ours, _ = pair(me, Network)
        train(ours, me.device, me)
        found.append([p.detach().cpu() for p in ours.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def check_compiled(me):
    ours, theirs = pair(me, Network)
    compiled = torch.compile(ours, backend="ocl")
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        x, y = (t.to(me.device) for t in batch(me, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(compiled(x), y).backward()
        optimizer.step()
    train(theirs, "cpu", me)
    same(ours, theirs)


def check_a_dropped_module_is_freed(me):
    ours, _ = pair(me, Network)
    train(ours, me.device, me)
    before = len(distributed_gradients._gradients)
    inner = ours.module
    del ours
    assert len(distributed_gradients._gradients) == before - 1
    inner(batch(me, 0)[0].to(me.device)).sum().backward()
