# tests/device/compiled/test_overlapping_arguments.py: one compiled function, called with arguments that overlap in memory in several
# ways.
"""A graph is compiled for how its arguments overlap, but neither Dynamo's guards nor AOTAutograd's cache keys contain
it. So a wrong graph could be called or loaded."""

from __future__ import annotations

import pytest
import torch

from torch_ocl_compile.compile import overlaps

# Name -> (shape of a tensor, function that returns two views of 4 elements of this tensor)
MEMORIES = {
    "apart": ((8,), lambda x: (x[:4], x[4:])),
    "overlapping": ((8,), lambda x: (x[2:6], x[4:])),
    "the other way round": ((8,), lambda x: (x[4:], x[2:6])),
    "overlapping more": ((8,), lambda x: (x[2:6], x[3:7])),
    "further along": ((8,), lambda x: (x[3:7], x[4:])),
    "in a longer memory": ((40,), lambda x: (x[12:16], x[14:18])),
    "in a matrix": ((4, 8), lambda x: (x[-1][2:6], x[-1][4:])),
    "in a wider matrix": ((2, 12), lambda x: (x[-1][2:6], x[-1][4:8])),
    "two memories": ((8,), lambda x: (x[:4], x.clone()[4:])),
}


def change(a, b):
    a.add_(1)
    b.mul_(2)
    return a + b


def changed(function, device, memory, dtype=torch.float32):
    shape, pick = MEMORIES[memory]
    x = torch.arange(torch.Size(shape).numel(), dtype=dtype).view(shape).to(device)
    views = pick(x)
    return [r.cpu() for r in (function(*views), x, *views)]


@pytest.mark.sampled(first=2, every=12)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("first", ["apart", "overlapping", "in a matrix"])
def test_one_function_many_overlaps(ocl_device, first, dynamic):
    compiled = torch.compile(change, backend="ocl", fullgraph=True, dynamic=dynamic)
    for memory in (first, *MEMORIES, first):
        torch.testing.assert_close(changed(compiled, ocl_device, memory), changed(change, "cpu", memory))


def test_a_stored_graph_is_for_its_overlaps(ocl_device):
    """Each round compiles again, and could wrongly load the stored graph of an earlier round."""
    for memory in MEMORIES:
        torch._dynamo.reset()
        compiled = torch.compile(change, backend="ocl", fullgraph=True, dynamic=False)
        torch.testing.assert_close(changed(compiled, ocl_device, memory), changed(change, "cpu", memory))


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_positions_in_memory(ocl_device, dynamic):
    """An offset of as_strided counts from the first element of the memory, not of the argument."""

    def parts(x):
        written = torch.as_strided_scatter(x, torch.zeros_like(x[:, :3]), (1, 3), (6, 1), 0)
        return (
            x.as_strided((1, 3), (6, 1), 0) * 2,
            torch.as_strided(x, (2,), (4,), 7) + 1,
            x.as_strided((3,), (2,)) + 1,
            written,
        )

    compiled = torch.compile(parts, backend="ocl", dynamic=dynamic)
    memory = torch.arange(24.0).reshape(4, 6)
    for row in (0, 1, 2, 1, 0):
        got = compiled(memory.to(ocl_device)[row : row + 1])
        torch.testing.assert_close([x.cpu() for x in got], list(parts(memory[row : row + 1])), rtol=0, atol=0)


def test_results_that_are_views_of_an_argument(ocl_device):
    """PyTorch's own rule for them takes the base of the arguments for the argument."""

    def change_rows(a, b):
        a[2:] = 1
        return a.flatten()[:10].view(2, 5), b * 2

    def rows(memory, first):
        return memory[first : first + 3], memory[first : first + 1].expand(3, -1, -1)

    compiled = torch.compile(change_rows, backend="ocl")
    for first in (1, 0, 1):
        memory = torch.arange(80.0).reshape(4, 5, 4)
        ours = memory.to(ocl_device)
        got, expected = compiled(*rows(ours, first)), change_rows(*rows(memory, first))
        torch.testing.assert_close([x.cpu() for x in (*got, ours)], [*expected, memory], rtol=0, atol=0)
        assert got[0].untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()


def test_training(ocl_device):
    def loss(weight, a, b):
        a.add_(1)
        b.mul_(2)
        return (weight * a * b).sum()

    def gradient(function, device, memory):
        weight = torch.ones(4, device=device, requires_grad=True)
        views = changed(lambda a, b: function(weight, a, b).detach(), device, memory)
        function(weight, torch.ones(4, device=device), torch.ones(4, device=device)).backward()
        return [*views, weight.grad.cpu()]

    compiled = torch.compile(loss, backend="ocl", fullgraph=True, dynamic=False)
    for memory in MEMORIES:
        torch.testing.assert_close(gradient(compiled, ocl_device, memory), gradient(loss, "cpu", memory))


def test_more_overlaps_than_graphs(ocl_device):
    compiled = torch.compile(change, backend="ocl", fullgraph=True, dynamic=False)
    for first in range(overlaps.MOST_GRAPHS + 4):
        here = torch.arange(30.0)
        there = here.to(ocl_device)
        want, got = (
            function(x[first : first + 4], x[first + 2 : first + 6])
            for function, x in ((change, here), (compiled, there))
        )
        torch.testing.assert_close((got.cpu(), there.cpu()), (want, here))


def test_a_size_marked_as_dynamic(ocl_device):
    """The graph works for any number of rows, but was traced with one shape of the tensor that its arguments are views
    of."""

    def function(a, b):
        a.add_(1)
        b.mul_(2)

    compiled = torch.compile(function, backend="ocl", fullgraph=True)
    for rows in (2, 16, 5):
        here = torch.arange(24.0 * (2 * rows + 1)).view(2, 3, 2 * rows + 1, 4)
        there = here.to(ocl_device)
        for x, run in ((here, function), (there, compiled)):
            a = x[:, :, 1::2]
            b = a.mT
            torch._dynamo.maybe_mark_dynamic(a, 2)
            torch._dynamo.maybe_mark_dynamic(b, 3)
            run(a, b)
        torch.testing.assert_close(there.cpu(), here)


def test_jagged_tensors_beside_overlaps(ocl_device):
    """A graph with a jagged argument is not compiled anew: a second trace would lack the ragged size that Dynamo made."""

    def function(rows, a, b, counter):
        counter.add_(1)
        return (rows.unsqueeze(-1) * 2).values(), a <= b

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="ocl")
    offsets = torch.tensor([0, 0, 2, 3, 4])
    for n in (3, 6):
        found = []
        for device, run in (("cpu", function), (ocl_device, compiled)):
            rows = torch.nested.nested_tensor_from_jagged(torch.ones(4, 2, device=device), offsets.to(device))
            a, counter = torch.zeros(n, 1, device=device), torch.zeros((), device=device)
            b = a.detach()
            for x in (a, b):
                torch._dynamo.maybe_mark_dynamic(x, 0)
            found.append([x.cpu() for x in (*run(rows, a, b, counter), counter)])
        torch.testing.assert_close(found[1], found[0])


def test_graphs_without_writes_are_not_compared():
    graph = torch.fx.symbolic_trace(lambda a, b: a + b)
    assert overlaps.guarded(graph, [], compiled := object(), lambda inputs: None) is compiled
    graph = torch.fx.symbolic_trace(lambda a, b: a.add_(b))
    assert overlaps.guarded(graph, [], compiled, lambda inputs: None) is not compiled


def test_what_overlaps():
    x = torch.zeros(6, 8)
    rows = ((6, 8), (8, 1))
    assert overlaps.overlaps_of([x[0], 3, x[1], x[2:2]]) == ()
    assert overlaps.overlaps_of([x[0], x[3, 2:], x[1:4]]) == ((((1, 26), (2, 8)), rows),)
    # The first extent contains the other two. It overlaps the last one, although the second begins between them.
    assert overlaps.overlaps_of([x[0], x[0, 1:2], x[0, 5:], torch.zeros(3)]) == ((((0, 0), (1, 1), (2, 5)), rows),)
    assert overlaps.overlaps_of([x, x.detach()])[0][1] == (x.untyped_storage().nbytes(),)
