# tests/device/ops/test_result_strides.py: results have the strides that PyTorch gives on the CPU, compiled and eager.
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.sampled(first=6)


def transposed(x):
    return x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def last_dimension_outside(x):
    return x.movedim(-1, 0).contiguous().movedim(0, -1)


def slice_of_channels_last(x):
    if x.dim() != 4:
        return x
    wide = x.new_zeros(x.shape[0], x.shape[1] + 1, *x.shape[2:]).contiguous(memory_format=torch.channels_last)
    wide[:, 1:] = x
    return wide[:, 1:]


LAYOUTS = [torch.clone, transposed, channels_last, last_dimension_outside, slice_of_channels_last]


def square(x):
    """Returns a symmetric positive definite n x n matrix; n is the size of the last dimension of x."""
    return x @ x.mT + 5 * torch.eye(x.shape[-2], device=x.device)


def batch_norm(x, training=False):
    c = x.shape[1]
    return F.batch_norm(x, x.new_zeros(c), x.new_ones(c), x.new_ones(c), training=training)


SHAPES = {2: (4, 6), 3: (1, 4, 6), 4: (2, 4, 6, 6)}
# Name -> (function, ranks of its operand)
CASES = {
    "the same twice": (lambda x: torch.cat([x, x], -1), (2, 3, 4)),
    "the same thrice": (lambda x: torch.cat([x, x, x], 0), (2, 3, 4)),
    "cat": (lambda x: torch.cat([x, x + 1], 1), (2, 3, 4)),
    "cat of one": (lambda x: torch.cat([x], 1), (2, 3, 4)),
    "cat with nothing": (lambda x: torch.cat([x, x[:, :0]], 1), (2, 4)),
    "cat with an empty vector": (lambda x: torch.cat([x.new_zeros(0), x], 1), (2, 4)),
    "cat of two types": (lambda x: torch.cat([x.half(), x], 1), (2, 4)),
    "cat of two layouts": (lambda x: torch.cat([x, x.contiguous()], 1), (2, 4)),
    "stack": (lambda x: torch.stack([x, x], 1), (2, 3, 4)),
    "stack of one": (lambda x: torch.stack([x], 1), (2, 3, 4)),
    "hstack": (lambda x: torch.hstack([x, x]), (4,)),
    "roll": (lambda x: x.roll(1, 1), (2, 3, 4)),
    "roll by nothing": (lambda x: x.roll(0, 1), (2, 4)),
    "roll backwards": (lambda x: x.roll(-2, -1), (2, 4)),
    "roll of two dimensions": (lambda x: x.roll((1, 2), (0, -1)), (2, 3, 4)),
    "roll of all": (lambda x: x.roll(5), (2, 4)),
    "roll of a slice": (lambda x: x[..., 1:].roll(1, 1), (2, 4)),
    "index_fill": (lambda x: x.index_fill(1, torch.tensor([0, 2], device=x.device), 2.0), (2, 4)),
    "put": (lambda x: x.put(torch.tensor([0, 3], device=x.device), x.flatten()[:2]), (2, 4)),
    "as_strided_scatter": (lambda x: torch.as_strided_scatter(x, x.new_zeros(2, 3), (2, 3), (8, 2), 1), (2,)),
    "batch_norm": (batch_norm, (2, 3, 4)),
    "batch_norm in training": (lambda x: batch_norm(x, True), (2, 3, 4)),
    "max_unpool": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (4,)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), (3, 4)),
    "antialiased": (lambda x: F.interpolate(x, size=(2, 2), mode="bilinear", antialias=True), (4,)),
    "nll_loss": (lambda x: F.nll_loss(x, (x[:, 0] > 0).long(), reduction="none"), (4,)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (4,)),
    "inverse": (lambda x: torch.linalg.inv(square(x)), (2, 3)),
    "cholesky": (lambda x: torch.linalg.cholesky(square(x)), (2, 3)),
    "cholesky_solve": (lambda x: torch.cholesky_solve(x, torch.linalg.cholesky(square(x))), (2, 3)),
    "solve": (lambda x: torch.linalg.solve(square(x), x), (2, 3)),
    "triangular": (lambda x: torch.linalg.solve_triangular(square(x), x, upper=True), (2, 3)),
    "qr": (lambda x: torch.linalg.qr(x)[1].abs(), (2, 3)),
    "eigh": (lambda x: torch.linalg.eigh(square(x))[1].abs(), (2,)),
    "lu_factor": (lambda x: torch.linalg.lu_factor(square(x))[0], (2, 3)),
    "view_copy": (lambda x: torch.view_copy(x.contiguous().permute(*reversed(range(x.dim()))), x.shape[::-1]), (2, 3)),
}  # fmt: skip


def strides(x):
    """Returns the strides of the dimensions with more than one element."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


@pytest.mark.parametrize("name", CASES)
def test_strides(ocl_device, name, sweep):
    """Compiles ranks and layouts of an operation as one graph: all by `--sweep`, otherwise every second layout, and for
    each operation and rank others."""
    function, ranks = CASES[name]

    def all_of(operands):
        return [function(x) for x in operands]

    compiled = torch.compile(all_of, backend="ocl", dynamic=False)
    torch.ocl.reset_fallback_counts()
    torch.manual_seed(0)
    names, wanted, given = [], [], []
    for rank in ranks:
        begin = (list(CASES).index(name) + rank) % 2
        for layout in LAYOUTS if sweep else LAYOUTS[begin::2]:
            x = layout(torch.randn(SHAPES[rank]))
            try:
                wanted.append(function(x))
            except RuntimeError:
                continue  # The op does not support this layout.
            names.append((rank, layout.__name__))
            given.append(torch.empty_strided(x.shape, x.stride(), device=ocl_device).copy_(x))
    assert given
    for results in (compiled(given), all_of(given)):
        for case, got, want in zip(names, results, wanted, strict=True):
            assert got.shape == want.shape and strides(got) == strides(want), case
            torch.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=1e-4, msg=lambda m, case=case: f"{case}: {m}")
    assert not torch.ocl.fallback_counts()


NEW = {
    "fill_": lambda x: x.clone().fill_(2),
    "fill_ with a tensor": lambda x: x.clone().fill_(torch.tensor(3.0, device=x.device)),
    "zero_": lambda x: x.clone().zero_(),
    "full_like": lambda x: torch.full_like(x, 2),
    "full_like of another type": lambda x: torch.full_like(x, 2, dtype=torch.float32),
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "empty_like": lambda x: torch.empty_like(x).copy_(x),
    "rand_like": torch.rand_like,
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", NEW)
def test_new_tensors_keep_the_strides_of_one_element(ocl_device, name, dynamic):
    """The stride of a dimension with one element decides whether a later op takes the tensor for channels-last."""

    def all_of(operands):
        backwards = [x[torch.arange(x.shape[0] - 1, -1, -1, device=x.device)] for x in operands]
        return [F.pad(NEW[name](x), (0, 1, 2, 0), value=1) for x in backwards]

    given = [
        layout(torch.randn(shape).bfloat16())
        for shape in ((16, 4, 1, 33), (4, 3, 5, 1), (2, 1, 4, 6), (1, 4, 6), (4, 1))
        for layout in LAYOUTS
    ]
    ours = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=ocl_device).copy_(x) for x in given]
    for run in (torch.compile(all_of, backend="ocl", dynamic=dynamic), all_of):
        for x, got, want in zip(given, run(ours), all_of(given), strict=True):
            assert got.dtype == want.dtype and strides(got) == strides(want), (x.shape, x.stride())
            assert torch.equal(got.cpu(), want) or name == "rand_like"


# Ops for which torch 2.11 traces other strides than eager mode returns.
OVERLAPPING = {
    "select_scatter": lambda x: torch.select_scatter(x, x[0] * 2, 0, 1),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:2] * 2, 0, 1, 3),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x, x[0] * 2),
    "row of a copy": lambda x: x.clone().index_fill(0, torch.tensor([1], device=x.device), 2.0),
    "norm over the last of size 1": lambda x: x[:, :1].norm(dim=-1),
    "norm over the last but one of size 1": lambda x: torch.linalg.vector_norm(x[:1], 3.0, dim=(-2,)),
    "norms over both of size 1": lambda x: torch.linalg.vector_norm(x[:1, :1], dim=(-1, 0)),
    "norm that keeps dimensions": lambda x: x[:, :1].norm(dim=-1, keepdim=True),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", OVERLAPPING)
def test_strides_of_overlapping_elements(ocl_device, name, dynamic):
    """The operand is a row, a column or one element, expanded to 5 x 5."""
    function = OVERLAPPING[name]

    def all_of(operands):
        return [function(x) for x in operands]

    compiled = torch.compile(all_of, backend="ocl", dynamic=dynamic)

    def operands(row):
        return [row.expand(5, 5), row.expand(5, 5).mT, row[:1].expand(5, 5)]

    row = torch.arange(5.0)
    for run in (compiled, all_of):
        for got, want in zip(run(operands(row.to(ocl_device))), all_of(operands(row)), strict=True):
            assert got.shape == want.shape and strides(got) == strides(want)
            torch.testing.assert_close(got.cpu(), want)


def channels_outside(x):
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


@pytest.mark.parametrize("transposed_too", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rank", [3, 4])
def test_convolution_strides(ocl_device, rank, groups, transposed_too):
    """Tests every pair of layouts. PyTorch computes a one-dimensional convolution as one of images with one row, so the
    layout of its filter changes the strides of the result, too."""
    name = f"conv{'_transpose' if transposed_too else ''}{rank - 2}d"

    def function(images, filters):
        return [getattr(F, name)(x, w, groups=groups) for x in images for w in filters]

    torch.manual_seed(0)
    layouts = [torch.clone, transposed, last_dimension_outside, channels_outside]
    plane = (5, 6)[: rank - 2]
    images = [layout(torch.randn(2, 4, *plane)) for layout in layouts]
    shape = (4, 3) if transposed_too else (2 * groups, 4 // groups)
    filters = [layout(torch.randn(*shape, *(3, 2)[: rank - 2])) for layout in layouts]
    given = [
        [torch.empty_strided(x.shape, x.stride(), device=ocl_device).copy_(x) for x in xs] for xs in (images, filters)
    ]
    compiled = torch.compile(function, backend="ocl", dynamic=False)
    for got in (compiled(*given), function(*given)):
        for y, want in zip(got, function(images, filters), strict=True):
            assert y.shape == want.shape and strides(y) == strides(want)
            torch.testing.assert_close(y.cpu(), want, rtol=1e-4, atol=1e-5)


def slice_of_columns(x):
    wide = x.new_zeros(*x.shape[:-1], 2 * x.shape[-1] + 1)
    wide[..., 1::2] = x
    return wide[..., 1::2]


def first_element(x):
    return x.flatten()[0].clone()


POINTWISE = {
    "add": torch.add,
    "copysign": torch.copysign,
    "floor_divide": torch.floor_divide,
    "divide and cut off": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "heaviside": torch.heaviside,
    "ldexp": torch.ldexp,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "xlog1py": torch.special.xlog1py,
    "xlogy": torch.xlogy,
    "power of a number": lambda x, y: 0.9 ** (x + y),
    "float_power of a number": lambda x, y: torch.float_power(2, x + y),
    "logsigmoid": lambda x, y: F.logsigmoid(x + y),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_strides(ocl_device, name, sweep):
    """Tests pairs of layouts. The strides depend on the order of the operands, which decompositions may change.

    `--sweep` tests every pair. A plain run tests every third pair, and starts at another pair for each function.
    """
    begin = list(POINTWISE).index(name)

    def function(xs, ys):
        pairs = [(x, y) for x in xs for y in ys if x.dim() + y.dim() > 0]
        return [POINTWISE[name](x, y) for x, y in (pairs if sweep else pairs[begin % 3 :: 3])]

    torch.manual_seed(0)
    layouts = [torch.clone, transposed, slice_of_columns, first_element]
    operands = [[layout(torch.rand(3, 5) + 0.1) for layout in layouts] for _ in range(2)]
    given = [[torch.empty_strided(x.shape, x.stride(), device=ocl_device).copy_(x) for x in xs] for xs in operands]
    compiled = torch.compile(function, backend="ocl", dynamic=False)
    for got in (compiled(*given), function(*given)):
        for y, want in zip(got, function(*operands), strict=True):
            assert y.shape == want.shape and strides(y) == strides(want)
            torch.testing.assert_close(y.cpu(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("exponent", [torch.float32, torch.float16, torch.int32], ids=str)
@pytest.mark.parametrize("base", [torch.float32, torch.float16, torch.float64, torch.int64], ids=str)
def test_strides_of_ldexp(ocl_device, base, exponent):
    """Whether the CPU reads the exponents in row-major order depends on the dtypes."""
    x = torch.ones(5, 1).to(base)
    y = torch.randint(-4, 5, (4, 5)).to(exponent).t()
    want = torch.ldexp(x, y)
    given = [x.to(ocl_device), torch.empty_strided(y.shape, y.stride(), dtype=y.dtype, device=ocl_device).copy_(y)]
    for got in (torch.ldexp(*given), torch.compile(torch.ldexp, backend="ocl", dynamic=False)(*given)):
        assert (got.dtype, strides(got)) == (want.dtype, strides(want))
        torch.testing.assert_close(got.cpu(), want)
