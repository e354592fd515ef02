# tests/device/compiled/test_cuts.py: a graph is cut at nodes that no plan can run; what is before and after stays compiled.
"""Each test counts the plans of a function, the launches of a call, and the ops that run eagerly."""

import copy

import pytest
import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch._higher_order_ops.map import map as map_rows

from torch_ocl_compile.compile import debug
from torch_ocl_compile.device.record import record

pytestmark = pytest.mark.sampled(keep=r"test_(cond|custom_op_in_place)\[")


@torch.library.custom_op("ocl_cuts::write_rows", mutates_args={"cache"})
def write_rows(cache: torch.Tensor, rows: torch.Tensor, position: int) -> None:
    cache[:, position] = rows


@torch.library.custom_op("ocl_cuts::shift", mutates_args={"x"})
def shift(x: torch.Tensor, by: float) -> torch.Tensor:
    x += by
    return x.sum()


@shift.register_fake
def _(x, by):
    return x.new_empty(())


@torch.library.custom_op("ocl_cuts::note", mutates_args=())
def note(x: torch.Tensor) -> torch.Tensor:
    seen.append(x.sum().item())
    return x.new_zeros(())


@note.register_fake
def _(x):
    return x.new_empty(())


_register_effectful_op("ocl_cuts::note", _EffectType.ORDERED)
seen = []
network = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 16))


class Run:
    """Compiles a function on a device, and calls it beside the function on the CPU."""

    def __init__(self, function, device, plans, eager=(), dynamic=None):
        torch._dynamo.reset()
        torch.manual_seed(0)
        self.device, self.plans, self.eager = device, plans, set(eager)
        self.on_cpu, self.on_device = copy.deepcopy(network), copy.deepcopy(network).to(device)
        self.function = function
        self.compiled = torch.compile(function, backend="ocl", fullgraph=True, dynamic=dynamic)

    def __call__(self, *inputs, train=False, warm=False):
        moved = [x.to(self.device) if isinstance(x, torch.Tensor) else x for x in inputs]
        before = debug.fallback_counts()
        with debug.collecting() as graphs, torch.set_grad_enabled(train):
            got = self.compiled(self.on_device, *moved)
            inputs = [x.cpu() if isinstance(x, torch.Tensor) else x for x in inputs]
            expected = self.function(self.on_cpu, *inputs)
            if train:
                for result in (got, expected):
                    result.square().sum().backward()
        assert len(graphs) == (0 if warm else self.plans), [g.label for g in graphs]
        ran = {name.split(":")[0] for name in debug.fallbacks_since(before)}
        assert ran == (set() if warm else self.eager)
        self.compare(got, expected)
        for ours, theirs in zip(moved, inputs, strict=True):
            self.compare(ours, theirs)
        if train:
            for ours, theirs in zip(self.on_device.parameters(), self.on_cpu.parameters(), strict=True):
                self.compare(ours.grad, theirs.grad)
                ours.grad = theirs.grad = None
        return graphs

    def compare(self, ours, theirs):
        if isinstance(theirs, torch.Tensor):
            if theirs.dtype is torch.float8_e8m0fnu:
                self.compare(ours.cpu().float(), theirs.float())
            else:
                largest = theirs.abs().max().item() if theirs.dtype.is_floating_point and theirs.numel() else 1.0
                torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4 * max(largest, 1.0))
            assert ours.stride() == theirs.stride()
        elif isinstance(theirs, (tuple, list)):
            for a, b in zip(ours, theirs, strict=True):
                self.compare(a, b)
        else:
            assert ours == theirs

    def launches(self, *inputs):
        moved = [x.to(self.device) if isinstance(x, torch.Tensor) else x for x in inputs]
        with torch.no_grad(), record() as launches:
            self.compiled(self.on_device, *moved)
        return launches


# Control flow


def branches(m, x, sign):
    y = m(x)
    return (
        torch.cond((y.square().sum() * sign).sum() > 0, lambda y: (m(y).tanh() * 2,), lambda y: (y.cos() - 1,), (y,))[0]
        * 3
    )


@pytest.mark.parametrize("train", [False, True])
def test_cond(ocl_device, train):
    run = Run(branches, ocl_device, plans=8 if train else 4)
    for step, sign in enumerate((1.0, -1.0)):
        run(torch.randn(5, 16), torch.tensor([sign]), train=train, warm=step > 0)


def test_cond_of_changing_sizes(ocl_device):
    run = Run(branches, ocl_device, plans=4)
    for step, rows in enumerate((5, 9, 3)):
        x = torch.randn(rows, 16, device=ocl_device)
        torch._dynamo.mark_dynamic(x, 0)
        run(x, torch.tensor([1.0]), warm=step > 0)


def repeat(m, x, steps):
    y = m(x)
    _, y = while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, torch.tanh(m(y)) + y), (steps, y))
    return y.sin()


@pytest.mark.parametrize("train", [False, True])
def test_while_loop(ocl_device, train):
    run = Run(repeat, ocl_device, plans=9 if train else 4)
    for step, count in enumerate((3, 1)):
        run(torch.randn(5, 16), torch.tensor(count), train=train, warm=step > 0)


def test_while_loop_that_does_not_run(ocl_device):
    Run(repeat, ocl_device, plans=4)(torch.randn(5, 16), torch.tensor(0))


@pytest.mark.parametrize("train", [False, True])
def test_scan(ocl_device, train):
    def function(m, x):
        y = m(x)
        carry, rows = scan(lambda c, row: ((c * 0.5 + row).sin(), c * row), torch.zeros(16, device=x.device), y)
        return carry + rows.sum(0)

    run = Run(function, ocl_device, plans=6 if train else 3)
    run(torch.randn(6, 16), train=train)
    run(torch.randn(6, 16), train=train, warm=True)


def test_map(ocl_device):
    run = Run(lambda m, x: map_rows(lambda row, x: row * x.sum(0), m(x), x) + 1, ocl_device, plans=3)
    run(torch.randn(4, 16))


# Custom ops


def write_and_read(m, x, cache):
    y = m(x)
    write_rows(cache, y, 3)
    write_rows(cache, y * 2, 4)
    return (cache.sum(1) + m(y)).exp()


def test_custom_op_in_place(ocl_device):
    """Both writes go into the argument. Nothing copies the cache: the launches are those of the plans and of the op."""
    run = Run(write_and_read, ocl_device, plans=2, eager=["ocl_cuts.write_rows.default"])
    x, cache = torch.randn(2, 16), torch.randn(2, 8, 16)
    graphs = run(x, cache)
    run(x + 1, cache, warm=True)
    launches = run.launches(x, cache)
    assert len(launches) == sum(g.kernels for g in graphs) + 2
    assert [k.origin for k in launches if "copy" in k.origin or "clone" in k.origin] == ["aten::copy_"] * 2


def test_custom_op_on_a_copy(ocl_device):
    """What the cache held before is read after the write, so the op writes to a copy."""

    def function(m, x, cache):
        before = cache * 1
        old = cache.clone()
        write_rows(cache, m(x), 3)
        return cache - torch.cond(cache.sum() > 1e9, lambda t: (t + 1,), lambda t: (t * 1,), (old,))[0] + before

    run = Run(function, ocl_device, plans=5, eager=["ocl_cuts.write_rows.default"])
    run(torch.randn(2, 16), torch.randn(2, 8, 16))


def test_custom_op_on_views_and_own_memory(ocl_device):
    def function(m, x, y):
        z = m(x)
        total = shift(z[1:3], 2.0)
        more = shift(y[:, ::2], 1.0)
        return z * total + more, z[0]

    run = Run(function, ocl_device, plans=2, eager=["ocl_cuts.shift.default"])
    x, y = torch.randn(5, 16), torch.randn(3, 8)
    run(x, y)
    run(x, y, warm=True)


def test_custom_op_in_training(ocl_device):
    def function(m, x, cache):
        y = m(x)
        write_rows(cache, y.detach(), 1)
        return y * cache[:, 1].sum()

    run = Run(function, ocl_device, plans=3, eager=["ocl_cuts.write_rows.default"])
    x, cache = torch.randn(2, 16), torch.zeros(2, 8, 16)
    run(x, cache, train=True)
    run(x, cache, train=True, warm=True)
    with record() as launches:
        run.compiled(run.on_device, x.to(ocl_device), cache.to(ocl_device))
    assert [k.origin for k in launches if "copy" in k.origin or "clone" in k.origin] == ["aten::copy_"]  # The op's own.


def test_op_without_results(ocl_device):
    """An op that returns nothing keeps its place, though nothing reads a result of it."""

    def function(m, x):
        note(x)
        y = m(x)
        note(y)
        return y + 1

    seen.clear()
    Run(function, ocl_device, plans=2, eager=["ocl_cuts.note.default"])(torch.randn(3, 16))
    ours, theirs = seen[:2], seen[2:]
    assert len(theirs) == 2
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-4)


# Types without kernels


@pytest.mark.parametrize("dtype", [torch.float8_e8m0fnu, torch.uint16], ids=str)
@pytest.mark.parametrize("train", [False, True])
def test_type_without_kernels(ocl_device, dtype, train):
    def function(m, x):
        y = m(x)
        scale = (x * 100).abs().to(dtype).to(torch.float32)
        return m(y * scale).tanh()

    run = Run(function, ocl_device, plans=4 if train else 2, eager=[CONVERTED])
    run(torch.randn(5, 16), train=train)
    run(torch.randn(5, 16), train=train, warm=True)


CONVERTED = "prims.convert_element_type.default"


def test_argument_and_result_of_a_type_without_kernels(ocl_device):
    def function(m, x, weight):
        y = m(x) @ weight.to(torch.float32)
        return y, weight.t(), y.to(torch.float8_e8m0fnu), x[1:].t()

    weight = torch.randn(16, 16).to(torch.float8_e8m0fnu)
    run = Run(lambda m, x, w: tuple(r.float() for r in function(m, x, w)), ocl_device, plans=2, eager=[CONVERTED])
    run(torch.randn(5, 16), weight)


# Values that the host needs


def test_branch_in_a_loop(ocl_device):
    def function(m, x):
        def body(i, y):
            return i - 1, torch.cond(y.sum() > 0, lambda y: (m(y) - 1,), lambda y: (m(y) + 1,), (y,))[0]

        return while_loop(lambda i, y: i > 0, body, (torch.tensor(4, device=x.device), m(x)))[1].tanh()

    Run(function, ocl_device, plans=6)(torch.randn(5, 16))
    Run(function, ocl_device, plans=14)(torch.randn(5, 16), train=True)


@pytest.mark.parametrize("train", [False, True])
@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
def test_sizes_and_numbers_that_data_decide(ocl_device, train):
    """Each of the two numbers cuts the graph, and is an argument of the next plan."""

    def function(m, x):
        y = m(x)
        rows = (x[:, 0] > 0).nonzero()[:, 0]
        y = m(y[rows])
        count = (y.abs().sum() * 0 + 3).int().item()
        return y.sum(0) * count + rows.sum()

    run = Run(function, ocl_device, plans=4 if train else 3, eager=["aten.nonzero.default"])
    for step in range(3):
        run(torch.randn(12, 16), train=train, warm=step > 0)


def test_results_that_share_memory(ocl_device):
    """Views of one tensor stay views of one tensor, before and after a cut."""

    def function(m, x):
        y = m(x)
        z = y.to(torch.uint16).to(torch.float32) * 0 + y
        return y, y[0], y.t(), z[1:], z, x.t(), 3

    run = Run(function, ocl_device, plans=2, eager=[CONVERTED])
    x = torch.rand(5, 16)
    run(x)
    with torch.no_grad():
        ours = x.to(ocl_device)
        y, row, turned, part, z, argument, _ = run.compiled(run.on_device, ours)
        for whole, view in ((y, row), (y, turned), (z, part), (ours, argument)):
            whole.fill_(7)
            assert view.eq(7).all()


def test_tensor_that_goes_to_the_cpu_and_back(ocl_device):
    def function(m, x):
        y = m(x)
        return m((y.cpu() * 2 + 1).to(y.device)) + y

    Run(function, ocl_device, plans=2)(torch.randn(5, 16))


def test_fallback_error(ocl_device):
    """With fallback=error an op that runs eagerly is an error; control flow is compiled."""
    torch._dynamo.reset()
    model, x = copy.deepcopy(network).to(ocl_device), torch.randn(2, 16, device=ocl_device)
    strict = {"backend": "ocl", "fullgraph": True, "options": {"fallback": "error"}}
    with torch.no_grad():
        torch.compile(branches, **strict)(model, x, torch.ones(1, device=ocl_device))
        with pytest.raises(Exception, match=r"ocl_cuts.write_rows.default: a custom op that writes") as caught:
            torch.compile(write_and_read, **strict)(model, x, torch.zeros(2, 8, 16, device=ocl_device))
    assert "test_cuts.py" in str(caught.value)


@torch.library.custom_op("ocl_cuts::padded", mutates_args=())
def padded(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x], 1)[:, : x.shape[1]]


@padded.register_fake
def _(x):
    return x.new_empty(x.shape[0], 2 * x.shape[1])[:, : x.shape[1]]


def test_result_with_gaps(ocl_device):
    """Strides of a result that depend on an unknown size and leave gaps: the whole graph runs eagerly, with a warning."""
    eager = {"ocl_cuts.padded.default", "the whole inference graph"}
    run = Run(lambda net, x: padded(net(x).t()) + x.t(), ocl_device, 1, eager, dynamic=True)
    run(torch.randn(8, 16))
