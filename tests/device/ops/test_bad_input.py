# tests/device/ops/test_bad_input.py: wrong shapes, dtypes, dims, indices and devices raise PyTorch's exceptions.
"""In eager mode the device raises the type and the message of the CPU.

In compiled mode, Dynamo raises TorchRuntimeError (a RuntimeError) with the message of the fake tensors, or the type of
eager mode.
"""

import contextlib
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed, TorchRuntimeError

pytestmark = pytest.mark.sampled(every=24)
R, L = torch.randn, torch.tensor
X = lambda: (R(2, 3),)  # noqa: E731
IMAGE = lambda: (R(1, 3, 8, 8), R(4, 3, 3, 3))  # noqa: E731
INDEX = lambda: (R(2, 3), L([0, 1]))  # noqa: E731
INDEX2 = lambda: (R(2, 3), L([[0, 1, 0], [1, 0, 1]]))  # noqa: E731

DIMS = (
    "softmax log_softmax cumsum cumprod sort argsort argmax argmin median var std logcumsumexp cummax unbind any all prod amax mean"
    " logsumexp count_nonzero"
)
CASES = {f"{name} dim": (lambda a, name=name: getattr(a, name)(dim=4), X) for name in DIMS.split()}
CASES |= {
    "matmul": (lambda a: a @ a, X),
    "matmul dtype": (lambda a: a @ a.t().double(), X),
    "matmul half": (lambda a: a.half() @ a.t(), X),
    "mm rank": (lambda a: torch.mm(a, a[0]), X),
    "mv": (lambda a: torch.mv(a, a[:, 0]), X),
    "bmm": (lambda a: torch.bmm(a[None], a[None]), X),
    "bmm dtype": (lambda a: torch.bmm(a[None], a.double().t()[None]), X),
    "addmm shape": (lambda a: torch.addmm(a, a, a.t()), X),
    "addmm dtype": (lambda a: torch.addmm(a[:, :2].double(), a, a.t()), X),
    "linear": (lambda a: F.linear(a, a[:, :2]), X),
    "linear dtype": (lambda a: F.linear(a, a.double()), X),
    "linear bias": (lambda a: F.linear(a, a, a[0]), X),
    "einsum": (lambda a: torch.einsum("ij,jk->ik", a, a), X),
    "broadcast": (lambda a: a + a[:, :2], X),
    "in place broadcast": (lambda a: a[0].clone().add_(a), X),
    "in place dtype": (lambda i: i.clone().add_(1.5), lambda: (L([1, 2]),)),
    "expand": (lambda a: a.expand(3, 5), X),
    "view": (lambda a: a.view(5), X),
    "view of strided": (lambda a: a.t().view(6), X),
    "permute": (lambda a: a.permute(0, 0), X),
    "transpose": (lambda a: a.transpose(0, 4), X),
    "select": (lambda a: a[5], X),
    "select dim": (lambda a: a.select(1, 7), X),
    "narrow": (lambda a: a.narrow(0, 1, 5), X),
    "split": (lambda a: a.split([1, 3]), X),
    "unflatten": (lambda a: a.unflatten(1, (2, 2)), X),
    "flip": (lambda a: a.flip((0, 0)), X),
    "roll": (lambda a: a.roll(1, 4), X),
    "repeat": (lambda a: a.repeat(2), X),
    "cat": (lambda a: torch.cat([a, a[:, :2]]), X),
    "cat dim": (lambda a: torch.cat([a, a], 4), X),
    "stack": (lambda a: torch.stack([a, a[:, :2]]), X),
    "index of nothing": (lambda a, i: a[i], lambda: (R(0, 3), L([0]))),
    "columns of nothing": (lambda a, i: a[:, i], lambda: (R(3, 0), L([0]))),
    "index_select of nothing": (lambda a, i: a.index_select(0, i), lambda: (R(0, 3), L([0]))),
    "gather of nothing": (lambda a, i: a.gather(0, i), lambda: (R(0, 3), L([[0, 0, 0]]))),
    "scatter into nothing": (lambda a, i: a.scatter(0, i, 1.0), lambda: (R(0, 3), L([[0, 0, 0]]))),
    "index_put into nothing": (lambda a, i: a.index_put((i,), a.sum()), lambda: (R(0, 3), L([0]))),
    "put into nothing": (lambda a, i: a.put(i, a.sum()[None]), lambda: (R(0, 3), L([0]))),
    "embedding of nothing": (lambda a, i: F.embedding(i, a), lambda: (R(0, 3), L([0]))),
    "max of nothing along a dim": (lambda a: a.max(0), lambda: (R(0, 3),)),
    "select_scatter": (lambda a: a.select_scatter(a[0], 0, 7), X),
    "select_scatter shape": (lambda a: a.select_scatter(a, 0, 0), X),
    "slice_scatter shape": (lambda a: a.slice_scatter(a, 0, 0, 1), X),
    "index float": (lambda a: a[a[0]], X),
    "index too many": (lambda a, i: a[i, i, i], INDEX),
    "index broadcast": (lambda a, i: a[i, i.repeat(2)[:3]], INDEX),
    "mask shape": (lambda a: a[a[:, :2] > 0], X),
    "index_put shape": (lambda a, i: a.clone().index_put_((i,), a[:, :2]), INDEX),
    "index_put dtype": (lambda a, i: a.clone().index_put_((i,), a.double()), INDEX),
    "index_select dtype": (lambda a: a.index_select(0, a[0]), X),
    "index_select shape": (lambda a, i: a.index_select(0, i), INDEX2),
    "index_add shape": (lambda a, i: a.index_add(0, i, a[:1]), INDEX),
    "gather dtype": (lambda a: a.gather(0, a), X),
    "gather dim": (lambda a, i: a.gather(4, i), INDEX2),
    "gather rank": (lambda a, i: a.gather(0, i), INDEX),
    "scatter dtype": (lambda a, i: a.scatter(0, i, a.double()), INDEX2),
    "scatter shape": (lambda a, i: a.scatter(0, i, a[:1]), INDEX2),
    "embedding dtype": (lambda a: F.embedding(a[0], a), X),
    "topk": (lambda a: a.topk(9), X),
    "conv channels": (lambda a, w: F.conv2d(a, w[:, :2]), IMAGE),
    "conv small": (lambda a, w: F.conv2d(a[..., :2], w), IMAGE),
    "conv dtype": (lambda a, w: F.conv2d(a, w.double()), IMAGE),
    "conv bias": (lambda a, w: F.conv2d(a, w, w[0, 0, 0]), IMAGE),
    "conv groups": (lambda a, w: F.conv2d(a, w, groups=2), IMAGE),
    "conv stride": (lambda a, w: F.conv2d(a, w, stride=0), IMAGE),
    "conv output padding": (lambda a, w: F.conv_transpose2d(a[:, :3], w[:3], output_padding=3), IMAGE),
    "pool": (lambda a, w: F.max_pool2d(a, 9), IMAGE),
    "pool padding": (lambda a, w: F.max_pool2d(a, 2, padding=2), IMAGE),
    "reflection": (lambda a, w: F.pad(a, (9, 9, 9, 9), mode="reflect"), IMAGE),
    "batch norm": (lambda a, w: F.batch_norm(a, a[0, 0, 0], a[0, 0, 0]), IMAGE),
    "layer norm": (lambda a: F.layer_norm(a, (5,)), X),
    "group norm": (lambda a, w: F.group_norm(a, 2), IMAGE),
    "cross entropy": (lambda a, i: F.cross_entropy(a, i.repeat(2)), INDEX),
    "nll dtype": (lambda a: F.nll_loss(a, a[:, 0]), X),
    "bce shape": (lambda a: F.binary_cross_entropy_with_logits(a, a[0]), X),
    "attention": (lambda a, w: F.scaled_dot_product_attention(a, a[..., :3], a[..., :3]), IMAGE),
    "where": (lambda a: torch.where(a, a, a), X),
    "masked_fill": (lambda a: a.masked_fill(a.long(), 1.0), X),
    "bits of float": (lambda a: a & 1, X),
    "not of float": (lambda a: ~a, X),
    "minus of bool": (lambda a: -(a > 0), X),
    "mean of int": (lambda a: a.long().mean(), X),
    "adaptive pool of nothing": (lambda a: F.adaptive_avg_pool2d(a.new_empty(2, 3, 0, 4), 2), X),
    "adaptive pool of nothing, 3d": (lambda a: F.adaptive_avg_pool3d(a.new_empty(2, 3, 4, 4, 0), 2), X),
    "softmax of int": (lambda a: a.long().softmax(0), X),
    "power of int": (lambda a: a.long() ** -1, X),
    "maximum of nothing": (lambda a: a[:0].max(), X),
    "argmax of nothing": (lambda a: a[:0].argmax(), X),
    "item": (lambda a: a.item(), X),
    "bool": (lambda a: 1 if a > 0 else 0, X),
    "dropout": (lambda a: F.dropout(a, 1.5), X),
    "rounding mode": (lambda a: torch.div(a, a, rounding_mode="up"), X),
    "arange": (lambda a: torch.arange(0, 5, 0, device=a.device), X),
    "sizes": (lambda a: torch.zeros(-1, device=a.device), X),
    "gather size": (lambda a, i: a.gather(0, i.repeat(1, 2)), INDEX2),
    "index_copy shape": (lambda a, i: a.index_copy(0, i, a[:1]), INDEX),
    "scatter_reduce mode": (lambda a, i: a.scatter_reduce(0, i, a, "avg"), INDEX2),
    "multinomial": (lambda a: torch.multinomial(a.abs(), 9), X),
    "interpolate": (lambda a, w: F.interpolate(a), IMAGE),
    "interpolate mode": (lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), X),
    "reshape": (lambda a: a.reshape(-1, -1), X),
    "chunk": (lambda a: a.chunk(0), X),
    "cholesky": (lambda a: torch.linalg.cholesky(-a @ a.mT - torch.eye(2, device=a.device)), X),
    "inverse of singular": (lambda a: torch.linalg.inv(a @ a.mT * 0), X),
    "inverse shape": (lambda a: torch.linalg.inv(a), X),
    "solve": (lambda a: torch.linalg.solve(a @ a.mT, a[:1]), X),
    "randint": (lambda a: torch.randint(5, 5, (2,), device=a.device), X),
    "normal": (lambda a: a.clone().normal_(0, -1), X),
    "uniform": (lambda a: a.clone().uniform_(2, 1), X),
    "exponential": (lambda a: a.clone().exponential_(-1), X),
    "bernoulli": (lambda a: a.clone().bernoulli_(2.0), X),
    "conv1d rank": (lambda a, w: F.conv1d(a, w), IMAGE),
    "adaptive pool": (lambda a, w: F.adaptive_avg_pool2d(a, -1), IMAGE),
    "grid_sample": (lambda a, w: F.grid_sample(a, a), IMAGE),
    "cdist": (lambda a: torch.cdist(a, a[:, :2]), X),
    "bucketize": (lambda a: torch.bucketize(a, a), X),
    "unfold": (lambda a: a.unfold(0, 5, 1), X),
    "as_strided": (lambda a: a.as_strided((9, 9), (9, 1)), X),
    "fold": (lambda a: F.fold(a, (4, 4), 2), X),
    "glu": (lambda a: F.glu(a), X),
    "prelu": (lambda a: F.prelu(a, a[0, :2]), X),
    "repeat_interleave": (lambda a, i: a.repeat_interleave(i.repeat(2)[:3], 0), INDEX),
    "shift of float": (lambda a: a << 1, X),
    "bincount": (lambda a: torch.bincount(a[0]), X),
    "lstm": (lambda a: nn.LSTM(5, 4, device=a.device)(a), X),
    "multi-head attention": (lambda a: nn.MultiheadAttention(5, 1, device=a.device)(a, a, a), X),
    "pixel shuffle": (lambda a, w: F.pixel_shuffle(a, 2), IMAGE),
}


def raised(function, *args):
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.value


# Fake tensors of torch 2.11 do not check these.
UNCHECKED = ("cholesky", "inverse of singular", "index_copy shape", "select dim") if torch.__version__ < (2, 12) else ()


@pytest.mark.parametrize("name", CASES)
def test_bad_input(ocl_device, name):
    if name in UNCHECKED:
        pytest.skip("torch 2.11 compiles it without an exception, or with another one")
    function, make = CASES[name]
    args = make()
    expected = raised(function, *args)
    ours = [a.to(ocl_device) for a in args]
    eager = raised(function, *ours)
    assert type(eager) is type(expected), eager
    torch._dynamo.reset()
    compiled = raised(torch.compile(function, backend="ocl"), *ours)
    # Errors in the second trace, by AOTAutograd, are wrapped in BackendCompilerFailed.
    if isinstance(compiled, BackendCompilerFailed):
        compiled = compiled.inner_exception
    assert type(compiled) in (type(expected), TorchRuntimeError), repr(compiled)
    assert len(str(compiled)) >= 15
    assert (ours[0] + 0).shape == ours[0].shape, "the device still works"


def test_mixed_devices(ocl_device):
    def function(a, b):
        return a + b

    a, b = torch.ones(3, device=ocl_device), torch.ones(3)
    assert isinstance(raised(function, a, b), RuntimeError)
    error = raised(torch.compile(function, backend="ocl"), a, b)
    assert isinstance(error, RuntimeError) and "cpu" in str(error) and "ocl" in str(error)


# Indices out of range


def pooled_backward(x, i):
    """The positions of a pooling come as data into its gradient."""
    positions = i.reshape(1, 1, 1, 2)
    return torch.ops.aten.max_pool2d_with_indices_backward(
        x[:1, None, None, :2], x[3:, None].reshape(1, 1, 2, 3), [2, 2], [1, 1], [0, 0], [1, 1], False, positions
    )


def bags(mode, **settings):
    return lambda x, i: F.embedding_bag(i, x, torch.zeros_like(i[:1]), mode=mode, **settings)


def losses(**settings):
    return lambda x, i: F.cross_entropy(x[3:], i, **settings)


# Functions of x [5, 3] and indices [2] into dimension 0 of x, or into its three columns.
ROWS = {
    "index": lambda x, i: x[i],
    "two indices": lambda x, i: x[i, i - i],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(2, 3)),
    "embedding": lambda x, i: F.embedding(i, x),
    "bag sum": bags("sum"),
    "bag mean": bags("mean"),
    "bag max": bags("max"),
    "weighted bag": lambda x, i: F.embedding_bag(i[None], x, per_sample_weights=x[4:, :2], mode="sum"),
    "take": lambda x, i: x.take(i * 3),
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "index_put accumulate": lambda x, i: x.index_put((i,), x[:2], accumulate=True),
    "put": lambda x, i: x.put(i * 3, x[0, :2]),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "amax"),
    "scatter": lambda x, i: x.scatter(0, i[:, None].expand(2, 3), x[:2]),
    "scatter value": lambda x, i: x.scatter(0, i[:, None].expand(2, 3), 3.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None].expand(2, 3), x[:2]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None].expand(2, 3), x[:2], "amax"),
}
COLUMNS = {
    "cross_entropy": losses(),
    "cross_entropy without reduction": losses(reduction="none"),
    "cross_entropy label_smoothing": losses(label_smoothing=0.1),
    "cross_entropy weight": lambda x, i: F.cross_entropy(x[3:], i, weight=x[4].detach()),
    "cross_entropy 2d": lambda x, i: F.cross_entropy(x[3:, :, None], i[:, None]),
    "cross_entropy no batch": lambda x, i: F.cross_entropy(x[4], i[1]),
    "nll_loss": lambda x, i: F.nll_loss(x[3:], i),
    "nll_loss weight": lambda x, i: F.nll_loss(x[3:], i, weight=x[4].detach()),
    "nll_loss 2d": lambda x, i: F.nll_loss(x[3:, :, None, None], i[:, None, None]),
    "searchsorted": lambda x, i: torch.searchsorted(x[4, :2], x[0], sorter=i),
}
# These are neither gathers, scatters, embeddings nor losses of one label. Some are reported, because they decompose to gathers.
UNREPORTED = {
    "take_along_dim": lambda x, i: x.take_along_dim(i[:, None].expand(2, 3), 0),
    "ctc_loss": lambda x, i: F.ctc_loss(
        x[3:, None].log_softmax(2), i[None], torch.full_like(i[:1], 2), torch.full_like(i[:1], 2)
    ),
    "bag offsets": lambda x, i: F.embedding_bag(torch.zeros_like(i), x, i),
    "max_unpool2d": lambda x, i: F.max_unpool2d(
        x[None, :1, :2, None], i.reshape(1, 1, 2, 1), (2, 2), output_size=(4, 2)
    ),
    "max_pool2d backward": pooled_backward,
    "lu_unpack": lambda x, i: torch.lu_unpack(x[3:, :2], i.int())[0],
    "lu_solve": lambda x, i: torch.linalg.lu_solve(x[3:, :2] + 3, i.int(), x[:2]),
    "segment_reduce": lambda x, i: torch.segment_reduce(x, "sum", offsets=i, axis=0, unsafe=True),
    "padded": lambda x, i: torch.ops.aten._jagged_to_padded_dense_forward(x.detach(), [i], [4]),
    "grid_sample": lambda x, i: F.grid_sample(
        x[None, None], i.float().reshape(1, 1, 1, 2) * 2, align_corners=True, padding_mode="border"
    ),
    "fractional_max_pool2d": lambda x, i: F.fractional_max_pool2d(
        x[None, None], 2, output_size=2, _random_samples=i.float().reshape(1, 1, 2)
    ),
}
OUTSIDE = {**ROWS, **COLUMNS, **UNREPORTED}
# Negative indices count from the end.
FROM_END = (
    *("index", "two indices", "take", "index_put", "index_put accumulate", "put", "index_fill"),
    *("index_add", "index_copy"),
)


def outcome(function, device, beside, wrong):
    """Returns (results and gradient, what lies around x) of a function of x and the indices [0, wrong]. `beside` lies around x."""
    around = torch.full((64, 3), beside, device=device)
    torch.manual_seed(0)
    around[30:35] = torch.randn(5, 3)
    x = around[30:35].detach().requires_grad_()
    result = function(x, torch.tensor([0, wrong], device=device))
    made = [result.detach()]
    if result.requires_grad:
        result.float().sum().backward()
        made.append(x.grad)
    with contextlib.suppress(IndexError):
        torch.ocl.synchronize(device)
    return [m.cpu() for m in made], around.cpu()


def error_of(function, device, wrong):
    """Returns the IndexError of a call with the indices [0, wrong], or of the next wait. None if there is none."""
    try:
        function(torch.randn(5, 3, device=device), torch.tensor([0, wrong], device=device))
        torch.ocl.synchronize(device)
    except IndexError as error:
        return error
    return None


@pytest.mark.parametrize("name", OUTSIDE)
def test_index_out_of_range(ocl_device, name):
    """No memory outside of x is read or written: what lies there changes no result. Compiled functions and single ops agree.

    The next wait raises an IndexError, which names op and index, and in compiled functions the line. In debug mode, the call
    itself raises it.
    """
    function = OUTSIDE[name]
    size = 3 if name in COLUMNS else 5
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="ocl")
    checked = torch.compile(function, backend="ocl", options={"debug": True})
    for wrong in (-1, size, 10**9):
        first, around = outcome(compiled, ocl_device, 7.0, wrong)
        outside = torch.cat([around[:30], around[35:]])
        assert torch.equal(outside, torch.full_like(outside, 7.0))
        for way, beside in ((compiled, -1e30), (function, 7.0), (function, -1e30)):
            again, _ = outcome(way, ocl_device, beside, wrong)
            torch.testing.assert_close(again, first, equal_nan=True, msg=lambda m, i=wrong: f"{name}, {i}: {m}")
        errors = [error_of(way, ocl_device, wrong) for way in (compiled, function)]
        if wrong == -1 and name in FROM_END:
            assert errors == [None, None]
            continue
        if name in UNREPORTED:
            continue
        inputs = torch.randn(5, 3, device=ocl_device), torch.tensor([0, wrong], device=ocl_device)
        errors.append(raised(checked, *inputs))
        for error in errors:
            assert isinstance(error, IndexError) and "out of bounds" in str(error) and "aten." in str(error), repr(
                error
            )
        assert "test_bad_input.py" in str(errors[0]) and "test_bad_input.py" in str(errors[2])
        assert "outside of compiled functions" in str(errors[1])


@pytest.mark.parametrize(
    "function, where",
    [
        (nn.CrossEntropyLoss(), "module CrossEntropyLoss"),
        (lambda x, i: F.cross_entropy(x, i), r'File ".*test_bad_input\.py", line \d+, in <lambda>'),
        (F.cross_entropy, r'called from File ".*test_bad_input\.py"'),
    ],
    ids=["module of torch", "line", "function of torch"],
)
def test_where_an_index_is_out_of_range(ocl_device, function, where):
    """Code that is all torch's has no line of the model, so the module or the call is named."""
    compiled = torch.compile(function, backend="ocl", options={"debug": True})
    error = raised(compiled, R(2, 3, device=ocl_device), L([0, 7], device=ocl_device))
    assert isinstance(error, IndexError) and re.search(rf"where:\n    .*{where}", str(error)), repr(error)


def test_scatter_outside_in_place(ocl_device):
    """Rows with valid indices are written; nothing outside of the tensor is written."""
    around = torch.zeros(64, 3, device=ocl_device)

    def function(x, i, y):
        x.index_copy_(0, i, y)

    i = torch.tensor([1, 9, -20], device=ocl_device)
    torch.compile(function, backend="ocl")(around[30:35], i, torch.ones(3, 3, device=ocl_device))
    expected = torch.zeros(64, 3)
    expected[31] = 1
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 5"):
        torch.ocl.synchronize(ocl_device)
    assert torch.equal(around.cpu(), expected)
