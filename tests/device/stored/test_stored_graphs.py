# tests/device/stored/test_stored_graphs.py: compiled graphs in the cache: a second compilation loads them and computes the same.
"""Most cases compile a function, make Dynamo forget it, and compile it again: the second time AOTAutograd finds the
entry. One case does so in two processes."""

from __future__ import annotations

import copy
import json
import re

import pytest
import torch
from torch.nn import functional as F

from tests.device.own_process import run_python
from tests.device.stored.stored_graphs import Counted, assert_same, cold_and_warm, own_cache  # noqa: F401  (a fixture)
from torch_ocl_compile.compile import cache_key, debug
from torch_ocl_compile.compile.debug import fallback_counts


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.head(F.gelu(self.norm(self.conv(x))).mean((2, 3)))


def test_training_step_equals_eager(ocl_device):
    """Compares gradients, running statistics, and the weights after compiled Adam steps."""
    torch.manual_seed(0)
    model, x = Net(), torch.randn(4, 3, 8, 8)

    def steps(model, x, compile):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        forward, step = compile(model), compile(optimizer.step)
        for _ in range(3):
            optimizer.zero_grad()
            forward(x).square().mean().backward()
            step()
        return [
            p.detach().cpu() for p in (*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters()))
        ]

    expected = steps(copy.deepcopy(model).double(), x.double(), lambda function: function)
    first, second = cold_and_warm(lambda c: steps(copy.deepcopy(model).to(ocl_device), x.to(ocl_device), c))
    assert_same(first, second)
    for mine, reference in zip(second, expected, strict=True):
        torch.testing.assert_close(mine.to(reference.dtype), reference, rtol=1e-3, atol=1e-3)


def test_checks_of_errors(ocl_device):
    """AOTAutograd orders checks that may raise by a token, which is an argument and a result of the graph."""
    torch.manual_seed(0)
    a, b = torch.randn(3, 3) + 3 * torch.eye(3), torch.randn(3, 2)

    def steps(compile):
        x, y = a.to(ocl_device).requires_grad_(), b.to(ocl_device).requires_grad_()
        solved = compile(torch.linalg.solve)(x, y)
        solved.sum().backward()
        return [t.detach().cpu() for t in (solved, x.grad, y.grad)]

    first, second = cold_and_warm(steps)
    assert_same(first, second)
    torch.testing.assert_close(second[0], torch.linalg.solve(a, b))


def test_updates_of_inputs_and_views(ocl_device):
    """The function updates inputs in place, returns views of inputs, and writes through such a view."""

    def function(x, y):
        x.add_(y)
        y[1:].mul_(2)
        part = x[:, 1:]
        return part, x.t(), (x * y).sum()

    def run(compile):
        x, y = torch.arange(12.0).reshape(3, 4).to(ocl_device), torch.ones(3, 4).to(ocl_device)
        part, turned, total = compile(function)(x, y)
        part.zero_()
        return [v.cpu() for v in (x, y, part, turned, total)]

    first, second = cold_and_warm(run)
    assert_same(first, second)
    x, y = torch.arange(12.0).reshape(3, 4), torch.ones(3, 4)
    part, turned, total = function(x, y)
    part.zero_()
    assert_same(second, [x, y, part, turned, total])


def test_dropout_is_drawn_by_the_seed(ocl_device):
    x = torch.ones(64, 64, requires_grad=True, device=ocl_device)

    def run(compile):
        x.grad = None
        torch.manual_seed(7)
        run_compiled = compile(lambda x: F.dropout(x, 0.4) * 3)
        first, again = run_compiled(x), run_compiled(x)
        again.sum().backward()
        return [first.detach().cpu(), again.detach().cpu(), x.grad.cpu()]

    first, second = cold_and_warm(run)
    assert_same(first, second)
    assert not torch.equal(second[0], second[1])
    assert torch.equal(second[1] != 0, second[2] != 0), "backward has forward's mask"


def test_sizes_and_what_is_computed_of_them(ocl_device):
    """One entry serves all sizes. The function returns a size, and multiplies by a float computed from a size."""

    def function(x):
        return x.softmax(0) * (x.shape[0] / 3), x.shape[0] * 2 + 1

    def run(compile):
        run_compiled = compile(function, dynamic=True)
        found = []
        for n in (5, 9, 17):
            y, number = run_compiled(torch.arange(float(n)).to(ocl_device))
            found += [y.cpu(), torch.tensor(number)]
        return found

    first, second = cold_and_warm(run)
    assert_same(first, second)
    expected = [v for n in (5, 9, 17) for v in (torch.arange(float(n)).softmax(0) * (n / 3), torch.tensor(2 * n + 1))]
    for mine, reference in zip(second, expected, strict=True):
        torch.testing.assert_close(mine, reference)


def test_entries_of_one_key_differ_in_guards(ocl_device):
    """Two graphs have the same key but different guards on sizes. Each entry is used only for the sizes that its guards
    allow."""

    def function(x):
        return x * 2 if x.shape[0] < 10 else x * 3

    def run(compile):
        torch._dynamo.reset()
        run_compiled = compile(function, dynamic=True)
        return [run_compiled(torch.ones(n, device=ocl_device)).cpu() for n in (6, 12, 7)]

    first, second = cold_and_warm(run)
    assert_same(first, second)
    assert [v[0].item() for v in second] == [2, 3, 2]


def test_values_of_the_host(ocl_device):
    """Parts of the graph run on the CPU before and after the kernels, and have constants of their own."""

    def function(x, step):
        step += 1
        scale = torch.tensor([0.5, 2.0]).sum() / step
        y = x * scale
        return y, y.sum().cpu() + 1, step * 2

    def run(compile):
        x, step = torch.arange(6.0).to(ocl_device), torch.tensor(3.0)
        return [v.cpu() for v in compile(function)(x, step)] + [step]

    first, second = cold_and_warm(run)
    assert_same(first, second)
    step = torch.tensor(3.0)
    for mine, reference in zip(second, [*function(torch.arange(6.0), step), step], strict=True):
        torch.testing.assert_close(mine, reference)


def test_item_breaks_the_graph_as_before(ocl_device):
    def function(x):
        y = x.relu()
        return y * y.sum().item()

    first, second = cold_and_warm(lambda compile: [compile(function)(torch.arange(4.0).to(ocl_device)).cpu()])
    assert_same(first, second)
    torch.testing.assert_close(second[0], function(torch.arange(4.0)))


def test_cache_of_keys_and_values(ocl_device):
    def function(cache, new, position):
        cache.index_copy_(1, position, new)
        return F.scaled_dot_product_attention(new, cache, cache)

    def run(compile):
        torch.manual_seed(0)
        cache, outs = torch.zeros(2, 8, 16, device=ocl_device), []
        decode = compile(function)
        for i in range(3):
            new = torch.randn(2, 1, 16).to(ocl_device)
            outs.append(decode(cache, new, torch.tensor([i]).to(ocl_device)).cpu())
        return [*outs, cache.cpu()]

    first, second = cold_and_warm(run)
    assert_same(first, second)
    torch.manual_seed(0)
    cache = torch.zeros(2, 8, 16)
    expected = [function(cache, torch.randn(2, 1, 16), torch.tensor([i])) for i in range(3)]
    for mine, reference in zip(second, [*expected, cache], strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5)


@torch.library.custom_op("ocl_stored::write", mutates_args={"cache"})
def write(cache: torch.Tensor, new: torch.Tensor, position: int) -> None:
    cache[:, position] = new


def test_graph_that_is_cut(ocl_device):
    """The pieces are stored: plans, and the ops at which the graph was cut. The ops are counted again."""

    def function(model, x, cache):
        y = model(x)
        write(cache, y.detach(), 3)
        return (y * cache[:, 3] + y.to(torch.float8_e8m0fnu).to(torch.float32)).tanh() + cache.sum()

    def run(compile):
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 8).to(ocl_device)
        x, cache = torch.randn(2, 8).to(ocl_device), torch.zeros(2, 8, 8, device=ocl_device)
        compiled, found = compile(function, fullgraph=True), []
        before = debug.fallback_counts()
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                found.append(compiled(model, x, cache))
        found[1].sum().backward()
        ran = debug.fallbacks_since(before)
        assert {name.split(":")[0] for name in ran} == {
            "ocl_stored.write.default",
            "prims.convert_element_type.default",
        }
        return [found[0].cpu(), found[1].detach().cpu(), model.weight.grad.cpu(), cache.cpu()]

    first, second = cold_and_warm(run)
    assert_same(first, second)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    cache = torch.zeros(2, 8, 8)
    torch.testing.assert_close(second[0], function(model, torch.randn(2, 8), cache).detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second[3], cache, rtol=1e-4, atol=1e-5)


def test_autocast(ocl_device):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(16, 16), torch.randn(4, 16)

    def run(compile):
        ours = copy.deepcopy(model).to(ocl_device)
        with torch.autocast("ocl", dtype=torch.bfloat16):
            y = compile(ours)(x.to(ocl_device))
        y.float().sum().backward()
        assert y.dtype == torch.bfloat16
        return [y.detach().cpu(), ours.weight.grad.cpu()]

    first, second = cold_and_warm(run)
    assert_same(first, second)
    torch.testing.assert_close(second[0].float(), model(x).detach(), rtol=0.03, atol=0.03)
    with torch.autocast("ocl", dtype=torch.float16), Counted() as other:
        torch._dynamo.reset()
        torch.compile(copy.deepcopy(model).to(ocl_device), backend="ocl")(x.to(ocl_device))
    assert other.compiled and not other.loaded


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_within_the_function(ocl_device, dtype):
    """The graph has the calls that begin and end autocast. Their arguments are part of the key."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(16, 16), torch.randn(4, 16)

    def step(model, x, **settings):
        with torch.autocast("ocl", **settings):
            y = model(x)
        return y.float().sum() + (y.float() ** 2).sum()

    def gradients(compile, **settings):
        ours = copy.deepcopy(model).to(ocl_device)
        loss = compile(step)(ours, x.to(ocl_device), **settings)
        loss.backward()
        return [loss.detach().cpu(), ours.weight.grad.cpu()]

    first, second = cold_and_warm(lambda compile: gradients(compile, dtype=dtype))
    assert_same(first, second)
    expected = gradients(lambda function: function, dtype=dtype)
    torch.testing.assert_close(second, expected, rtol=0.03, atol=0.03)
    torch._dynamo.reset()
    with Counted() as other:
        gradients(lambda function: torch.compile(function, backend="ocl"), enabled=False)
    assert other.compiled and not other.loaded


def test_ops_that_run_eagerly(ocl_device):
    """Fallbacks in a loaded graph are counted, as in a compiled graph."""

    def function(x):
        return torch.linalg.eigvals(x * 2).real + 1

    counts = []

    def run(compile):
        before = sum(fallback_counts().values())
        y = compile(function)(torch.diag(torch.arange(40.0)).to(ocl_device)).cpu()
        counts.append(sum(fallback_counts().values()) - before)
        return [y]

    first, second = cold_and_warm(run)
    assert_same(first, second)
    torch.testing.assert_close(second[0], function(torch.diag(torch.arange(40.0))), rtol=1e-3, atol=1e-3)
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("debug", [False, True])
def test_bad_indices_are_found(ocl_device, debug):
    table, index = torch.arange(6.0).reshape(3, 2).to(ocl_device), torch.tensor([0, 7])

    def run(compile):
        look = compile(lambda table, i: F.embedding(i, table) + 1, options={"debug": debug})
        with pytest.raises(
            IndexError, match=r"(?s)index 7 is out of bounds for dimension 0 with size 3.*test_stored_graphs"
        ):
            look(table, index.to(ocl_device))
            assert not debug
            torch.ocl.synchronize(ocl_device)
        return [look(table, torch.tensor([0, 2]).to(ocl_device)).cpu()]

    first, second = cold_and_warm(run)
    assert_same(first, second)


def test_loaded_backward_may_run_twice(ocl_device):
    """retain_graph=True works with a loaded backward graph. It was stored by a process without retain_graph, in which
    it could overwrite saved tensors."""
    x = torch.linspace(-2, 2, 4096, requires_grad=True, device=ocl_device)

    def function(x):
        return (x.exp().sin() * x.tanh().cos()).sum()

    def run(compile, retain=False):
        x.grad = None
        y = compile(function)(x)
        y.backward(retain_graph=retain)
        if retain:
            y.backward()
        return x.grad.cpu()

    first = run(lambda f: torch.compile(f, backend="ocl"))
    torch._dynamo.reset()
    with Counted() as warm:
        twice = run(lambda f: torch.compile(f, backend="ocl"), retain=True)
        once = run(lambda f: torch.compile(f, backend="ocl"))
    assert not warm.compiled and warm.loaded
    torch.testing.assert_close(twice, 2 * first)
    torch.testing.assert_close(once, first, rtol=0, atol=0)


PROGRAM = """
import json
import torch
from torch_ocl_compile import _C
from torch_ocl_compile.compile import debug

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 4)).to("{device}")
optimizer = torch.optim.Adam(model.parameters())
forward, step = torch.compile(model, backend="ocl"), torch.compile(optimizer.step, backend="ocl")
x = torch.randn(5, 8).to("{device}")
torch.manual_seed(1)
for _ in range(3):
    optimizer.zero_grad()
    loss = forward(x).square().sum()
    loss.backward()
    step()
with torch.no_grad():
    sums = [forward(x).sum().item()] + [p.sum().item() for p in model.parameters()]
print("found", json.dumps([debug.compiled_graphs(), debug.loaded_graphs(), _C.exec.build_counters()["built"], loss.item(), sums]))
"""


def test_the_working_directory_does_not_count():
    """One option of Inductor contains the folder in which a process starts. It is not part of the key."""
    before = cache_key.torch_settings()
    with torch._inductor.config.patch({"xpu.cutlass_dir": "/another/folder"}):
        assert cache_key.torch_settings() == before
    with torch._inductor.config.patch(fallback_random=not torch._inductor.config.fallback_random):
        assert cache_key.torch_settings() != before


# On the first device only: the test takes minutes on a slow runtime.
@pytest.mark.sampled()
def test_second_process_compiles_nothing(ocl_device, tmp_path):
    found = []
    for fresh in (False, True):
        code, out, error = run_python(
            PROGRAM.replace("{device}", str(ocl_device)),
            fresh,
            TORCH_OCL_CACHE_DIR=str(tmp_path / "cache"),
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
        )
        assert code == 0, error
        found.append(json.loads(re.search(r"found (.*)", out)[1]))
    (compiled, loaded, _, *first), (compiled_2, loaded_2, built_2, *second) = found
    assert compiled == loaded_2 == 4 and loaded == compiled_2 == 0
    # PoCL has its own cache of kernels; ours has none for it.
    if not torch.ocl.get_device_properties(ocl_device).platform_name.startswith("Portable"):
        assert built_2 == 0
    assert first == second
    assert not (tmp_path / "inductor" / "aotautograd").exists(), "graphs are in our cache alone"
