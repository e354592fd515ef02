# tests/device/distributed/distributed_training.py: checks of training: DDP, FSDP2, DTensor, checkpoints, compiled graphs.
import copy
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed import _functional_collectives as collectives
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

STEPS = 3
BATCH = 4  # samples in the batch of each rank


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)
        )

    def forward(self, x):
        return self.body(x)


class Gpt(nn.Module):
    """One layer with causal attention."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.head = nn.Linear(16, 10)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head((x + mixed.transpose(1, 2).flatten(-2)).mean(1))


def data(step, rank, kind):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(BATCH, 1, 8, 8, generator=generator)
    if kind is Gpt:
        x = torch.randint(0, 11, (BATCH, 6), generator=generator)
    return x, torch.randint(0, 10, (BATCH,), generator=generator)


def one_process(model, me, kind, steps=STEPS):
    """Trains on the CPU in one process, on the batches of all ranks together. Returns the loss of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = (torch.cat(parts) for parts in zip(*(data(step, r, kind) for r in range(me.size)), strict=True))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(model, optimizer, me, kind, steps=range(STEPS)):
    losses = []
    for step in steps:
        x, y = (t.to(me.device) for t in data(step, me.rank, kind))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def compare(me, kind, wrap):
    reference = kind()
    model = wrap(copy.deepcopy(reference).to(me.device))
    got = train(model, sgd(model), me, kind)
    assert_close(torch.tensor(got), torch.tensor(one_process(reference, me, kind)), rtol=1e-4, atol=1e-5)


def check_ddp_of_a_cnn(me):
    compare(me, Digits, lambda model: DistributedDataParallel(model, bucket_cap_mb=0.001))


def check_ddp_of_a_gpt(me):
    compare(me, Gpt, DistributedDataParallel)


def check_compiled_ddp(me):
    """Dynamo's optimize_ddp cuts the graph at DDP's buckets. They are made small, so that there are several."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = 500
    compare(me, Gpt, lambda model: torch.compile(DistributedDataParallel(model, bucket_cap_mb=0.001), backend="ocl"))


def check_buffers_are_those_of_the_first_rank(me):
    """They are sent as one buffer, in any dtype, shape and layout, and the tensors keep their layouts."""
    made = [torch.full((), 5), torch.arange(6.0).view(2, 3).t(), torch.tensor([True, False, True]), torch.zeros(0)]
    made += [torch.arange(7, dtype=torch.float16), torch.arange(5, dtype=torch.int8), torch.randn(40, 30)]
    first = [x if x.dtype == torch.bool else x + 1 for x in made]
    here = [(x if me.rank == 0 else torch.zeros_like(x)).to(me.device) for x in first]
    for buffer_bytes in (1 << 20, 16):
        dist._broadcast_coalesced(dist.group.WORLD, here, buffer_bytes, 0)
        for x, y in zip(here, first, strict=True):
            assert torch.equal(x.cpu(), y) and x.stride() == y.stride()


def sharded(model):
    mesh = init_device_mesh("ocl", (dist.get_world_size(),))
    for part in model.children():
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def check_fsdp2_of_a_gpt(me):
    compare(me, Gpt, sharded)


def check_fsdp2_of_a_cnn(me):
    compare(me, Digits, sharded)


def check_dtensor(me):
    mesh = init_device_mesh("ocl", (me.size,))
    whole = torch.arange(24.0).view(8, 3)
    tensor = distribute_tensor(whole.to(me.device), mesh, [Shard(0)])
    assert tensor.to_local().shape == (8 // me.size, 3)
    assert_close(tensor.full_tensor().cpu(), whole)
    assert_close((tensor @ tensor.redistribute(mesh, [Replicate()]).t()).full_tensor().cpu(), whole @ whole.t())


def check_functional_collectives_in_a_graph(me):
    group = dist.group.WORLD

    def function(x):
        y = x * 2
        total = collectives.all_reduce(y, "sum", group)
        other = (x + 1).sum()  # This sum does not need the result of all_reduce.
        parts = collectives.all_gather_tensor(x, 0, group)
        return total + other, collectives.reduce_scatter_tensor(parts, "sum", 0, group)

    x = torch.arange(6.0) + me.rank
    ranks = [torch.arange(6.0) + rank for rank in range(me.size)]
    compiled = torch.compile(function, backend="ocl", fullgraph=True)
    for _ in range(3):
        total, scattered = compiled(x.to(me.device))
        assert_close(total.cpu(), sum(2 * r for r in ranks) + (x + 1).sum())
        assert_close(scattered.cpu(), x * me.size)


def check_kernels_run_while_a_collective_runs(me):
    """In the graph, the wait directly follows the start of the collective. Rank 1 starts its collective only after the
    kernel of rank 0 that does not need the result has run."""
    store = dist.distributed_c10d._get_default_store()

    @torch.compile(backend="ocl", fullgraph=True)
    def function(x, flag):
        total = collectives.all_reduce(x, "sum", dist.group.WORLD) * 2
        flag.add_(1)
        return total

    x, flag = torch.ones(1000, device=me.device), torch.zeros(7, device=me.device)
    function(x, flag)
    torch.accelerator.synchronize()
    if me.rank == 0:
        total = function(x, flag)
        seen = flag[0].clone()
        with torch.Stream(me.device):  # The copies below run on a stream that does not wait for the collective.
            for _ in range(12_000):
                seen = flag[:1].cpu().item()
                if seen == 2:
                    break
                time.sleep(0.005)
        store.set("ocl/test/kernel", "1")
        assert seen == 2, "the kernel waits for the collective"
    else:
        store.wait(["ocl/test/kernel"])
        total = function(x, flag)
    assert_close(total.cpu(), torch.full((1000,), 2.0 * me.size))


def check_collectives_of_all_kinds_in_a_graph(me):
    group, size = dist.group.WORLD, me.size

    def function(x):
        y = x.exp()
        scattered, parts = collectives.reduce_scatter_tensor_coalesced([y, y + 1], "sum", [0, 0], group), []
        gathered = collectives.all_gather_into_tensor_coalesced([y.sin(), y.cos()], group)
        swapped = collectives.all_to_all_single(y * 3, None, None, group)
        first = collectives.broadcast(y, 0, group)
        several = collectives.all_reduce_coalesced([y, y * 2], "sum", group)
        parts += [p * 2 for p in gathered]
        # Kernels that run between starts and waits; they must not overwrite the operands of the collectives.
        z = (y + 5).relu() * y
        return *scattered, *parts, swapped, first + z, *several, y

    def inputs(rank):
        return torch.linspace(0, 1, 4 * size * 100) + rank

    every = [inputs(rank).exp() for rank in range(size)]
    mine, total = every[me.rank], sum(every)
    rows = slice(me.rank * 400, (me.rank + 1) * 400)
    expected = [
        total[rows], (total + size)[rows], torch.cat(every).sin() * 2, torch.cat(every).cos() * 2,
        torch.cat([e[rows] for e in every]) * 3, every[0] + (mine + 5) * mine, total, total * 2, mine,
    ]  # fmt: skip
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(
            function, backend="ocl", fullgraph=True, dynamic=dynamic, options={"fallback": "error"}
        )
        for _ in range(3):
            for got, want in zip(compiled(inputs(me.rank).to(me.device)), expected, strict=True):
                assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4)


def check_a_graph_waits_for_its_arguments(me):
    """The graph gets the result of a collective before anything has waited for it."""

    @torch.compile(backend="ocl", fullgraph=True)
    def function(x):
        return torch.ops._c10d_functional.wait_tensor(x) + 1

    name = dist.group.WORLD.group_name
    for _ in range(5):
        x = torch.ops._c10d_functional.all_reduce(torch.ones(1_000_000, device=me.device), "sum", name)
        assert_close(function(x).cpu(), torch.full((1_000_000,), me.size + 1.0))


def check_gradients_of_collectives_in_a_graph(me):
    if not hasattr(collectives, "all_gather_single"):
        return  # torch 2.11

    def weights(rank):
        return torch.linspace(1, 2, 50 * me.size) + rank

    def function(x, w, v):
        return (collectives.all_gather_single(x * w, 0, dist.group.WORLD) * v).sum()

    x = torch.linspace(1, 2, 50) + me.rank
    w = torch.linspace(0, 1, 50, device=me.device, requires_grad=True)
    loss = torch.compile(function, backend="ocl", fullgraph=True)(x.to(me.device), w, weights(me.rank).to(me.device))
    loss.backward()
    every = sum(weights(rank).view(me.size, 50)[me.rank] for rank in range(me.size))
    assert_close(w.grad.cpu(), x * every, rtol=1e-4, atol=1e-4)


def check_plain_collective_in_a_graph(me):
    def function(x):
        y = x.exp()
        dist.all_reduce(y)
        return y + 1

    x = torch.arange(3.0) + me.rank
    got = torch.compile(function, backend="ocl")(x.to(me.device))
    assert_close(got.cpu(), sum((torch.arange(3.0) + rank).exp() for rank in range(me.size)) + 1)


def state_of(model, optimizer):
    from torch.distributed.checkpoint.state_dict import get_state_dict

    parameters, momenta = get_state_dict(model, optimizer)
    return {"model": parameters, "optimizer": momenta}


def check_checkpoint_is_saved(me):
    torch.manual_seed(3)
    model = sharded(Gpt().to(me.device))
    optimizer = sgd(model)
    train(model, optimizer, me, Gpt)
    dcp.save(state_of(model, optimizer), checkpoint_id=str(me.folder / "checkpoint"))


def check_checkpoint_is_loaded(me):
    """Weights that four ranks have saved are loaded by another number of ranks."""
    from torch.distributed.checkpoint.state_dict import set_state_dict

    torch.manual_seed(4)
    model = sharded(Gpt().to(me.device))
    optimizer = sgd(model)
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=str(me.folder.parent / "saved" / "checkpoint"))
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    torch.manual_seed(3)
    reference = Gpt()
    one_process(reference, type(me)(0, 4, me.device, me.folder), Gpt)
    for (name, mine), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert_close(
            mine.full_tensor().cpu(), expected.detach(), rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}"
        )


def check_checkpoint_is_loaded_on_the_cpu(me):
    state = {"model": Gpt().state_dict()}
    dcp.load(state, checkpoint_id=str(me.folder.parent / "saved" / "checkpoint"))
    torch.manual_seed(3)
    reference = Gpt()
    one_process(reference, type(me)(0, 4, me.device, me.folder), Gpt)
    for name, expected in reference.state_dict().items():
        assert_close(state["model"][name], expected, rtol=1e-4, atol=1e-5)


def check_sync_batch_norm(me):
    """Statistics and gradients are those of the batches of all ranks together."""
    for dtype, shape in ((torch.float32, (6, 3, 4, 5)), (torch.float32, (6, 3)), (torch.float64, (2, 3, 7))):
        whole = torch.randn(me.size, *shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
        reference = nn.BatchNorm1d(3, dtype=dtype) if len(shape) < 4 else nn.BatchNorm2d(3, dtype=dtype)
        with torch.no_grad():
            reference.weight.copy_(torch.tensor([1.0, 2, 3]))
        ours = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(reference)).to(me.device)
        x = whole[me.rank].to(me.device).requires_grad_()
        every = whole.flatten(0, 1).requires_grad_()
        expected = reference(every)
        got = ours(x)
        expected.pow(3).sum().backward()
        got.pow(3).sum().backward()
        dist.all_reduce(ours.weight.grad)
        rows = slice(me.rank * shape[0], (me.rank + 1) * shape[0])
        pairs = [(got, expected[rows]), (x.grad, every.grad[rows]), (ours.weight.grad, reference.weight.grad)]
        pairs += [(ours.running_mean, reference.running_mean), (ours.running_var, reference.running_var)]
        for mine, theirs in pairs:
            assert_close(mine.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-4)


def check_pipelining(me):
    """Each rank has one stage. The losses and gradients are those of all stages in one process."""
    parts = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(me.size)]
    whole = nn.Sequential(*copy.deepcopy(parts))
    x, y = torch.randn(8, 6), torch.randn(8, 6)
    loss = nn.functional.mse_loss(whole(x), y)
    loss.backward()
    for schedule_of in (pipelining.ScheduleGPipe, pipelining.Schedule1F1B):
        for compiled in (False, True):
            part = copy.deepcopy(parts[me.rank]).to(me.device)
            module = torch.compile(part, backend="ocl") if compiled else part
            stage = pipelining.PipelineStage(module, me.rank, me.size, me.device)
            schedule = schedule_of(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
            for _ in range(2):
                part.zero_grad()
                losses = []
                given = (x.to(me.device),) if me.rank == 0 else ()
                last = {"target": y.to(me.device), "losses": losses} if me.rank == me.size - 1 else {}
                result = schedule.step(*given, **last)
                if last:
                    assert_close(torch.stack(losses).mean().cpu(), loss.detach())
                    assert_close(result.cpu(), whole(x).detach())
                for mine, expected in zip(part.parameters(), whole[me.rank].parameters(), strict=True):
                    assert_close(mine.grad.cpu(), expected.grad)
