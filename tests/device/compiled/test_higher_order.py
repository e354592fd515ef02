# tests/device/compiled/test_higher_order.py: compiled checkpoint, control flow, custom ops, autograd.Function, torch.func, DDP.
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint

from tests import fork_server
from tests.device.exact import assert_as_exact
from torch_ocl_compile.compile import debug

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.sampled(keep=r"test_(checkpoint|cond)\[")


def compiled(function, fullgraph=True, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend="ocl", fullgraph=fullgraph, options={"fallback": "error", **options})


def assert_same(function, *inputs, device, fullgraph=True, **options):
    ours = tree_map_only(torch.Tensor, lambda t: t.to(device), inputs)
    got = compiled(function, fullgraph, **options)(*ours)
    assert_as_exact(got, function, *inputs)


def gradients(function, *inputs):
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    out.square().sum().backward()
    return [out.detach().cpu(), *(x.grad.cpu() for x in inputs)]


def assert_same_gradients(function, *inputs, device, fullgraph=True, **options):
    got = gradients(compiled(function, fullgraph, **options), *(x.to(device) for x in inputs))
    assert_as_exact(got, lambda *x: gradients(function, *x), *inputs)


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


# Checkpoint


def test_checkpoint(ocl_device):
    w1, w2 = torch.randn(6, 16), torch.randn(16, 6)

    def block(x, w1, w2):
        return torch.tanh(x @ w1) @ w2

    def function(x, w1, w2):
        return checkpoint(block, checkpoint(block, x, w1, w2, use_reentrant=False), w1, w2, use_reentrant=False)

    assert_same_gradients(function, torch.randn(4, 6), w1, w2, device=ocl_device)


def test_checkpoint_with_dropout(ocl_device):
    """Backward recomputes the mask of forward, so the gradient is zero exactly where the output is zero."""

    def function(x):
        return checkpoint(lambda t: F.dropout(t.sin() * 3, 0.5), x, use_reentrant=False)

    x = torch.full((4096,), 0.3, device=ocl_device, requires_grad=True)
    out = compiled(function)(x)
    out.sum().backward()
    kept = (out != 0).cpu()
    assert 0.4 < kept.float().mean().item() < 0.6
    expected = kept * (2 * 3 * torch.tensor(0.3).cos())
    torch.testing.assert_close(x.grad.cpu(), expected)


# Control flow


def test_cond(ocl_device):
    def function(x, y):
        return torch.cond(x.sum() > 0, lambda a, b: a.sin() + b, lambda a, b: (a - b).cos(), (x, y))

    run = compiled(function, fallback="eager")
    for sign in (1, -1):
        x, y = torch.rand(3, 4) * sign, torch.randn(3, 4)
        torch.testing.assert_close(run(x.to(ocl_device), y.to(ocl_device)).cpu(), function(x, y))


def test_cond_on_a_number(ocl_device):
    def function(x):
        return torch.cond(x.shape[0] > 3, lambda a: a.sin(), lambda a: a.cos(), (x,))

    for n in (2, 5):
        assert_same(function, torch.randn(n, 4), device=ocl_device, fallback="eager")


def test_while_loop(ocl_device):
    from torch._higher_order_ops.while_loop import while_loop

    def function(x, steps):
        return while_loop(lambda i, a: i > 0, lambda i, a: (i - 1, a * 1.5 + 1), (steps, x))

    assert_same(function, torch.randn(5), torch.tensor(4), device=ocl_device, fallback="eager")


def test_while_loop_in_a_graph_that_runs_eagerly(ocl_device):
    """Here x, which both pieces read, has gaps and symbolic strides: such a graph is not cut."""

    def loop(x, flags):
        _, y = while_loop(
            lambda i, y: i < 2,
            lambda i, y: (i + 1, (y + x).cos()),
            (torch.zeros_like(flags[0, 0], dtype=torch.int64), x.clone()),
        )
        return y, flags.flatten()[:1].view(()).clamp(0, 1), x

    compiled = torch.compile(loop, backend="ocl", dynamic=True)
    for n in (5, 6):
        x, flags = torch.rand(2, 3, n + 3), torch.ones(2, n, dtype=torch.bool)
        got = compiled(x.to(ocl_device)[..., 1:-2], flags.to(ocl_device))
        torch.testing.assert_close([y.cpu() for y in got], list(loop(x[..., 1:-2], flags)))


def test_loop_and_branch_of_python(ocl_device):
    """A branch that depends on data breaks the graph. The parts before and after it are compiled."""

    def function(x):
        for _ in range(3):
            x = x * 0.5 + 1
        if x.sum() > 0:
            return x.exp()
        return x.abs()

    for sign in (1, -30):
        assert_same(function, torch.rand(3, 4) * sign, device=ocl_device, fullgraph=False)


BRANCHES_AND_LOOPS = {
    "cond": lambda x, w: torch.cond(x.sum() > 0, lambda x: x @ w, lambda x: (x @ w).sin(), (x,)),
    "while_loop": lambda x, w: while_loop(
        lambda i, z: i < 3, lambda i, z: (i + 1, (z @ w).float()), (torch.tensor(0), x)
    ),
    "scan": lambda x, w: scan(lambda c, z: ((c @ w).float(), z @ w), x, torch.stack([x, x * 2])),
}


@pytest.mark.parametrize("name", BRANCHES_AND_LOOPS)
def test_autocast_reaches_branches_and_loops(ocl_device, name):
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    with torch.device(ocl_device), torch.autocast("ocl", dtype=torch.bfloat16):
        got = compiled(BRANCHES_AND_LOOPS[name])(x.to(ocl_device), w.to(ocl_device))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = torch.compile(BRANCHES_AND_LOOPS[name], backend="aot_eager")(x, w)
    for g, e in zip(tree_leaves(got), tree_leaves(want), strict=True):
        assert g.dtype is e.dtype
        torch.testing.assert_close(g.cpu(), e)


# Custom ops and functions


def test_custom_op(ocl_device):
    """A custom op and its gradient run eagerly between compiled parts, and are counted."""

    @torch.library.custom_op("ocl_tests::scaled_sort", mutates_args=())
    def scaled_sort(x: torch.Tensor, scale: float) -> torch.Tensor:
        return torch.from_numpy(x.detach().cpu().numpy().copy()).sort().values.to(x.device) * scale

    scaled_sort.register_fake(lambda x, scale: torch.empty_like(x))
    scaled_sort.register_autograd(
        lambda ctx, grad: (grad * ctx.scale, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "scale", inputs[1]),
    )

    def function(x):
        return scaled_sort(x * 2, 0.5) + 1

    before = sum(debug.fallback_counts().values())
    assert_same_gradients(function, torch.randn(17), device=ocl_device, fallback="eager")
    assert sum(debug.fallback_counts().values()) > before
    assert any("scaled_sort" in name for name in debug.fallback_counts())


def test_mutating_custom_op(ocl_device):
    @torch.library.custom_op("ocl_tests::add_row", mutates_args={"x"})
    def add_row(x: torch.Tensor, row: torch.Tensor) -> None:
        x += row

    def function(x, row):
        y = x * 2
        add_row(y, row)
        add_row(x, row)
        return y + x

    x, row = torch.randn(3, 4), torch.randn(4)
    ours = x.to(ocl_device)
    got = compiled(function, fallback="eager")(ours, row.to(ocl_device))
    torch.testing.assert_close(got.cpu(), function(x, row))
    torch.testing.assert_close(ours.cpu(), x)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


def test_autograd_function(ocl_device):
    assert_same_gradients(lambda x: Cube.apply(x.sin()) + x, torch.randn(5, 3), device=ocl_device)


def test_hooks(ocl_device):
    seen = []

    def function(x):
        y = x * 2
        return y.exp()

    x = torch.randn(4, device=ocl_device, requires_grad=True)
    x.register_hook(lambda g: seen.append(g) or g * 10)
    compiled(function)(x).sum().backward()
    plain = 2 * (2 * x.detach().cpu()).exp()
    torch.testing.assert_close(x.grad.cpu(), plain * 10)
    torch.testing.assert_close(seen[0].cpu(), plain)


# torch.func


def test_vmap(ocl_device):
    def function(x, w):
        return torch.vmap(lambda a: torch.tanh(w @ a).sum(-1))(x)

    assert_same(function, torch.randn(5, 4), torch.randn(3, 4), device=ocl_device)


def test_func_grad(ocl_device):
    def function(w, x):
        return torch.func.grad(lambda w: torch.sin(x @ w).square().sum())(w)

    assert_same(function, torch.randn(4, 3), torch.randn(5, 4), device=ocl_device)


def test_per_sample_gradients(ocl_device):
    def function(w, x, y):
        def loss(w, x, y):
            return F.mse_loss(torch.tanh(x @ w), y)

        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(w, x, y)

    assert_same(function, torch.randn(4, 3), torch.randn(5, 4), torch.randn(5, 3), device=ocl_device)


def test_jvp(ocl_device):
    def function(x, tangent):
        return torch.func.jvp(lambda x: (x.sin() * x).sum(0), (x,), (tangent,))

    assert_same(function, torch.randn(4, 3), torch.randn(4, 3), device=ocl_device)


@pytest.mark.parametrize("dynamic", [False, True])
def test_tangents_of_another_layout(ocl_device, dynamic):
    """A tangent gets the layout of what it is the tangent of, which is a part of other memory here."""

    def write(x):
        whole = torch.zeros(5, 6, dtype=x.dtype, device=x.device)
        whole[1:, ::2].T.add_(x)
        return whole * 2, torch.empty(4, 3, dtype=x.dtype, device=x.device).T.copy_(x).sin()

    def function(x, tangent):
        return torch.func.jvp(write, (x,), (tangent,)), torch.func.jacfwd(write)(x)

    torch._dynamo.reset()
    used = torch.compile(function, backend="ocl", fullgraph=True, dynamic=dynamic, options={"fallback": "error"})
    for _ in range(2):
        given = torch.randn(3, 4), torch.randn(3, 4)
        assert_as_exact(used(*(x.to(ocl_device) for x in given)), function, *given)


def test_jacobian_and_hessian(ocl_device):
    def function(x):
        return torch.func.jacrev(lambda x: x.sin() * x.sum())(x), torch.func.hessian(lambda x: (x**3).sum())(x)

    assert_same(function, torch.randn(4), device=ocl_device)


def test_functional_call(ocl_device):
    model = nn.Linear(4, 3)

    def function(parameters, x):
        return torch.func.functional_call(model, parameters, (x,))

    parameters = {name: p.detach() * 2 for name, p in model.named_parameters()}
    assert_same(function, parameters, torch.randn(5, 4), device=ocl_device)


# Nested torch.compile, compiled modules, parallel wrappers


def test_nested_compile(ocl_device):
    inner = torch.compile(lambda x: x.sin() + 1, backend="ocl")
    assert_same(lambda x: inner(x * 2).exp(), torch.randn(6), device=ocl_device)


def test_disabled_part(ocl_device):
    @torch.compiler.disable
    def outside(x):
        return x + x.shape[0]

    assert_same(lambda x: outside(x * 2).exp(), torch.randn(3), device=ocl_device, fullgraph=False)


def test_no_grad_and_autocast_regions(ocl_device):
    def function(x, w):
        with torch.no_grad():
            scale = x.abs().amax()
        return (x / scale) @ w

    assert_same_gradients(function, torch.randn(4, 3), torch.randn(3, 5), device=ocl_device)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, x):
        return self.body(x)


DDP = """
    import copy, sys
    import torch, torch.distributed as dist
    from torch import nn
    import torch_ocl_compile
    sys.path.insert(0, {root!r})
    from tests.device.compiled.test_higher_order import Net
    torch.manual_seed(0)
    model, x = Net(), torch.randn(5, 6)
    ported = copy.deepcopy(model).to({device!r})
    model(x).square().sum().backward()
    dist.init_process_group(init_method="file://" + {store!r}, rank=0, world_size=1)
    wrapped = nn.parallel.DistributedDataParallel(ported)
    torch.compile(wrapped, backend="ocl")(x.to({device!r})).square().sum().backward()
    for mine, reference in zip(ported.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), reference.grad, rtol=1e-4, atol=1e-5)
    total = torch.arange(3.0, device={device!r})
    dist.all_reduce(total)
    assert total.tolist() == [0, 1, 2]
    dist.destroy_process_group()
    print("gradients agree")
"""


def test_ddp_of_one_process(ocl_device, tmp_path):
    """DistributedDataParallel with one process gives the gradients of the module without it."""
    store = str(tmp_path / "store")
    program = textwrap.dedent(DDP).format(device=str(ocl_device), root=str(ROOT), store=store)
    done = fork_server.run(["-c", program], cwd=ROOT)
    assert "gradients agree" in done.stdout, done.stderr[-3000:]
