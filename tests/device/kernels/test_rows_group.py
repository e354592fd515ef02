# tests/device/kernels/test_rows_group.py: generated reductions along rows and columns, in the form for GPUs (work-groups), on
# every device.
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from tests.device.kernels.test_rows_item import compare, tensors
from torch_ocl_compile.lowering.reductions import scan

ROWS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "var_mean": lambda x: torch.var_mean(x, -1),
    "three passes": lambda x: (
        (x - x.mean(-1, keepdim=True)).abs().amax(-1, keepdim=True) * x / x.norm(dim=-1, keepdim=True)
    ),
    "sum": lambda x: (x * x).sum(-1),
    "every second": lambda x: (x[:, : x.shape[1] // 2] * x[:, 1::2][:, : x.shape[1] // 2]).sum(-1),
    "negated": lambda x: torch.softmax(-x, -1),
    "any, all": lambda x: ((x > 3).any(-1), (x < 9).all(-1), x.argmax(-1)),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("rows", "length"), [(5, 8), (7, 33), (9, 64), (131, 197), (6, 768), (3, 1000), (2, 4100), (2, 16388), (3, 16387)]
)
def test_rows(ocl_device, name, dtype, rows, length):
    torch.manual_seed(0)
    x = (torch.randn(rows, length) * 2 + 0.5).to(dtype)
    for first in (0, 1):
        compare(ocl_device, ROWS[name], x, first=first, kernel_family="group")


SCANS = {
    "sum": lambda x: torch.cumsum(x, -1),
    "logsumexp": lambda x: torch.logcumsumexp(x, -1),
    "largest": lambda x: torch.cummax(x, -1),
    "integers": lambda x: torch.cumsum((x * 9).long(), -1),
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize(("rows", "length"), [(1, 5000), (7, 1000), (33, 257), (300, 40), (2, 31)])
def test_scans(ocl_device, name, rows, length):
    """A row that ends inside a tile, several tiles, several rows in a work-group, and a last work-group with too many rows."""
    compiled = torch.compile(SCANS[name], backend="ocl", options={"fallback": "error", "kernel_family": "group"})
    torch.manual_seed(0)
    x = torch.randn(rows, length)
    for ours, exact in zip(*map(tensors, (compiled(x.to(ocl_device)), SCANS[name](x.double()))), strict=True):
        if exact.is_floating_point():
            torch.testing.assert_close(ours.cpu().double(), exact, rtol=3e-7, atol=3e-7 * exact.abs().max().item())
        else:
            assert torch.equal(ours.cpu(), exact)


@pytest.mark.sampled(every=1)
@pytest.mark.parametrize(("name", "rows", "length"), [("negated", 4, 6), ("sum", 128, 256), ("sum", 5, 8)])
def test_values_after_a_barrier(ocl_device, name, rows, length):
    """After a barrier, Intel's runtime gave an item the -x of another one, and PoCL the sum of another row."""
    test_rows(ocl_device, name, torch.float32, rows, length)


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_rows_with_infinities(ocl_device, value):
    f = lambda x: (torch.softmax(x.clamp(max=9), -1), torch.logsumexp(x, -1), torch.var(x, -1))  # noqa: E731
    compiled = torch.compile(f, backend="ocl", options={"fallback": "error", "kernel_family": "group"})
    x = torch.randn(4, 96)
    x[1, :] = x[2, 90] = x[2, 91] = value
    for ours, theirs in zip(compiled(x.to(ocl_device)), f(x), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True)


COLUMNS = {
    "cumsum": lambda x: x.cumsum(0),
    "cumsum of a row": lambda x: x.t().contiguous().cumsum(-1),
    "cummax": lambda x: tuple(x.cummax(0)),
    "sum": lambda x: ((x + 1).sum(0), x * 2),
    "var_mean": lambda x: torch.var_mean(x, 0),
    "sum of halves": lambda x: (torch.cat([x[:, 1:], x[:, :1]], 1) * 2).view(-1, 2, x.shape[1]).sum((0, 1)),
    "added up by row": lambda x: torch.zeros_like(x).index_add(0, torch.arange(len(x), device=x.device) // 23 * 2, x),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(("rows", "columns"), [(6, 5), (70, 3), (530, 33), (4100, 40)])
def test_columns(ocl_device, name, rows, columns):
    torch.manual_seed(0)
    compare(ocl_device, COLUMNS[name], torch.randn(rows, columns) + 0.5, kernel_family="group")


def slices_of_zeros(x):
    """The gradient of a tensor of which each third was used."""
    parts = [F.pad(x, (k * x.shape[1], (2 - k) * x.shape[1])) for k in range(3)]
    y = parts[0] + parts[1] * 2 + parts[2]
    return y.sum(0), y


VECTORS = {
    "sum": lambda x: x.sum(0),
    "sums of two": lambda x: (x.float().sum(0), (x.float() * x.float()).sum(0)),
    "amax": lambda x: x.float().amax(0),
    "of each image": lambda x: x.view(5, -1, x.shape[1]).sum(1),
    "rows of heads": lambda x: x.view(-1, 5, x.shape[1]).transpose(0, 1).sum((0, 1)),
    "slices of zeros": slices_of_zeros,
}


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(135, 40), (1000, 8), (2500, 64), (4100, 24)])
def test_vectors_of_columns(ocl_device, name, dtype, rows, columns):
    """A work-item adds up vectors of neighbouring columns. A view that begins at element 1 has vectors at odd addresses."""
    options = {"fallback": "error", "kernel_family": "group"}
    compiled = torch.compile(VECTORS[name], backend="ocl", options=options, dynamic=False)
    torch.manual_seed(0)
    for first in (0, 1):
        memory = (torch.randn(rows * columns + first) + 0.5).to(dtype)
        x = memory[first:].view(rows, columns)
        ours = tensors(compiled(memory.to(ocl_device)[first:].view(rows, columns)))
        for a, exact in zip(ours, tensors(VECTORS[name](x.double())), strict=True):
            epsilon = torch.finfo(a.dtype).eps
            torch.testing.assert_close(a.cpu().double(), exact.double(), rtol=2 * epsilon, atol=1e-3)


def test_indices_of_two_widths(ocl_device):
    """eigh rotates columns at computed positions. On GPUs these indices are long, and loop variables are int."""
    compiled = torch.compile(torch.linalg.eigh, backend="ocl", options={"fallback": "error", "kernel_family": "group"})
    torch.manual_seed(0)
    x = torch.randn(3, 5, 5)
    x = x + x.mT
    values, vectors = (result.cpu() for result in compiled(x.to(ocl_device)))
    torch.testing.assert_close(values, torch.linalg.eigvalsh(x.double()).float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(vectors @ values.diag_embed() @ vectors.mT, x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["group", "item"])
def test_rows_of_a_batch(ocl_device, family):
    """Reductions of different lengths, types and numbers of rows, and a pointwise op, are one launch for each pass."""

    def norms(*tensors):
        rows, *others = tensors
        return [*torch._foreach_norm(others), rows.amax(-1), others[0].argmin(), others[1] * 2]

    torch.manual_seed(0)
    sizes = [(37, 40), (9000,), (5,), (1,), (300,), (9000,), (70, 130)]
    exact = [torch.randn(size, dtype=torch.float64) for size in sizes]
    types = [torch.float32, torch.float32, torch.bfloat16, torch.float64, torch.float32, torch.float32, torch.float32]
    given = [x.to(dtype).to(ocl_device) for x, dtype in zip(exact, types, strict=True)]
    options = {"fallback": "error", "kernel_family": family}
    compiled = torch.compile(norms, backend="ocl", options=options, dynamic=False)
    compiled(*given)
    with torch.ocl.record() as record:
        ours = compiled(*given)
    assert any(launch.kind == "batch" for launch in record), record
    assert len(record) <= 4, record
    for a, theirs in zip(ours, norms(*(x.cpu().double() for x in given)), strict=True):
        epsilon = torch.finfo(a.dtype).eps if a.is_floating_point() else 0
        torch.testing.assert_close(a.cpu().to(theirs.dtype), theirs, rtol=4 * epsilon, atol=0)
    assert all(torch.equal(a, b) for a, b in zip(ours, compiled(*given), strict=True))


@pytest.mark.parametrize("name", ["sum", "amax", "prod"])
@pytest.mark.parametrize("places", [1, 40, 3000])
@pytest.mark.parametrize(("rows", "count"), [(2, 3000), (700, 70), (90, 1024), (3, 40000)])
def test_scans_with_segments(ocl_device, name, places, rows, count):
    """Sources are sorted by place, and scanned by the items of a work-group: many places, few, or one, in tiles of a row."""
    options = {"fallback": "error", "kernel_family": "group"}
    torch.manual_seed(0)
    index = torch.randint(places, (rows, count))
    exact = torch.rand(rows, count, dtype=torch.float32) * 0.02 + 0.99
    target = torch.rand(rows, 3000) + 0.5

    def scattered(target, index, source):
        return target.scatter_reduce(1, index, source, name)

    compiled = torch.compile(scattered, backend="ocl", options=options, dynamic=False)
    given = [x.to(ocl_device) for x in (target, index, exact)]
    ours, again = compiled(*given), compiled(*given)
    torch.testing.assert_close(
        ours.cpu().double(), scattered(target.double(), index, exact.double()), rtol=3e-5, atol=0
    )
    assert torch.equal(ours.cpu(), again.cpu())


@pytest.mark.parametrize("name", ["sum", "amax"])
@pytest.mark.parametrize("way", ["eager", "compiled", "dynamic"])
def test_expanded_indices_are_sorted_once(ocl_device, name, way):
    """Messages of a graph's edges: the place of a row is looked up once, not once an element."""
    edges, width, places = 20000, 32, 300
    torch.manual_seed(0)
    index, source = torch.randint(places, (edges,)), torch.rand(edges, width)

    def gathered(index, source):
        return source.new_zeros(places, width).scatter_reduce(0, index[:, None].expand_as(source), source, name)

    compiled = torch.compile(gathered, backend="ocl", options={"fallback": "error"}, dynamic=way == "dynamic")
    function = gathered if way == "eager" else compiled
    given = [x.to(ocl_device) for x in (index, source)]
    function(*given)
    with torch.ocl.record() as record:
        ours = function(*given)
    torch.testing.assert_close(ours.cpu().double(), gathered(index, source.double()), rtol=1e-5, atol=0)
    # Sorting every element would move 16 times the bytes of the source. An expanded index counts once a row.
    assert sum(launch.bytes for launch in record) < 4 * source.nbytes, record
    # The loop over neighbouring elements of a source is the innermost one.
    scans = [
        launch.title
        for launch in record
        if launch.kernel.startswith("scan_max") and f" over {scan.CHUNK}" in launch.title
    ]
    assert len(scans) == 2 * (name == "amax") and all(f"x{width} over" in title for title in scans), scans


def rows_of_extremes(dtype, shape):
    """Returns rows of random numbers, of the lowest and of the highest number, with equal extremes, and with NaN."""
    x = torch.randint(-3, 4, shape).to(dtype)
    low, high = (-math.inf, math.inf) if dtype.is_floating_point else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    x[1], x[2] = low, high
    x[3], x[3, -1], x[4, ::2] = low, 0, high
    if dtype.is_floating_point:
        x[0, 1::3] = math.nan
    return x


@pytest.mark.parametrize("family", ["group", "item"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(5, 300), (6, 7), (5, 5000)], ids=str)
def test_positions_of_extremes(ocl_device, family, dtype, shape):
    """Each alone: of two in one launch, PoCL 3.1 miscompiles the barriers."""
    x = rows_of_extremes(dtype, shape)
    for function in (torch.argmax, torch.argmin):
        for dim in (0, 1, None):
            options = {"fallback": "error", "kernel_family": family}
            compiled = torch.compile(partial(function, dim=dim), backend="ocl", options=options, dynamic=False)
            assert compiled(x.to(ocl_device)).tolist() == function(x, dim).tolist(), (function.__name__, dim)
