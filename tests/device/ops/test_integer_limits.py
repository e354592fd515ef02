# tests/device/ops/test_integer_limits.py: integers wrap around at the limits of their type, as in PyTorch on the CPU.
"""C leaves overflow of signed integers undefined, and compilers use that: `a * 3 / 3` becomes `a`.

Not compared, because PyTorch's own result is undefined or an exception: division by zero, conversions of floating-point
numbers out of the type's range, shifts by a negative amount or by the type's width or more.
"""

import pytest
import torch

from torch_ocl_compile import config

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def draw(dtype, *shape, seed):
    """Values of the whole range; half of them are near its ends, near 0, or near the largest factors that fit."""
    generator = torch.Generator().manual_seed(seed)
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    bases = torch.tensor([least, most, 0, most // 2, most // 3, least // 2, least // 3 if least else most // 7])
    count = torch.Size(shape).numel()
    near = bases[torch.randint(0, len(bases), (count,), generator=generator)]
    near = near + torch.randint(-3, 4, (count,), generator=generator)  # May wrap around itself.
    bits = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator)
    return torch.where(torch.rand(count, generator=generator) < 0.5, near, bits).to(dtype).view(shape)


def divisors(dtype, *shape, seed):
    """As draw, without 0. A quarter are 1 and -1."""
    b = draw(dtype, *shape, seed=seed)
    b.view(-1)[::4] = 1
    b.view(-1)[1::4] = torch.full((), -1).to(dtype)
    return torch.where(b == 0, 7, b).to(dtype)


def arithmetic(a, b):
    shift = b & (torch.iinfo(a.dtype).bits - 1)
    return {
        "sum": a + b,
        "difference": a - b,
        "product": a * b,
        "negation": -a,
        "abs": a.abs(),
        "sign of abs": torch.sign(a.abs()),
        "square": a.square(),
        "shift": torch.bitwise_left_shift(a, shift),
        "alpha": torch.add(a, b, alpha=3),
        "rsub": torch.rsub(a, b, alpha=2),
        "addcmul": torch.addcmul(a, b, a, value=3),
        "pow": a**3,
        "pow of tensors": torch.pow(a, b & 127),
        "scalar": a + 100 - b * 77,
        "more than the type holds": (a + 300) * 1000 - 70000,
        "compared": a < 100,
        "clamped": a.clamp(-100 if a.dtype.is_signed else 1, 100),
        # What follows lets a compiler see that no overflow may happen.
        "sum compared": (a + b) > a,
        "difference compared": (a - b < 0) == (a < b),
        "next": a + 1 > a,
        "abs compared": a.abs() >= 0,
        "abs below 0": a.abs() < 0,
        "neg compared": (-a < 0) == (a > 0),
        "neg by sub compared": (0 - b < 0) == (b > 0),
        "neg by mul": b * -1,
        "neg by mul compared": (b * -1 < 0) == (b > 0),
        "widened": (a + b).long() + (a * b).long(),
        "converted": (a * 3).double(),
        "double negation": -a.neg(),
        "distributed": a * 3 - b * 3,
        "maximum": torch.maximum(a + 1, a),
        "maximum of three": torch.maximum(torch.maximum(a, -b), a + b),
        "minimum of three": torch.minimum(torch.minimum(-a, -b), a - b),
    }


def division(a, b):
    return {
        "floor": torch.floor_divide(a, b),
        "remainder": torch.remainder(a, b),
        "fmod": torch.fmod(a, b),
        "floor by -1": a // -1 if a.dtype.is_signed else a // 3,
        "remainder by -1": a % -1 if a.dtype.is_signed else a % 3,
        "floor by 3": a // 3,
        "truncated": torch.div(a, torch.where(b == -1, 1, b), rounding_mode="trunc"),
        "undone": a * 3 // 3,
        "undone remainder": (a * 4 + 1) % 4,
        "sum divided": (a + a) // 2,
        "product divided": torch.remainder(a * b, b),
    }


def reductions(a, b):
    return {
        "sum": a.sum(),
        "rows": a.sum(1),
        "columns": a.sum(0),
        "own type": a.sum(1, dtype=a.dtype),
        "prod": a.prod(),
        "rows prod": a.prod(1),
        "columns prod": a.prod(0, dtype=a.dtype),
        "sum of sums": (a + b).sum(1),
        "sum of products": (a * b).sum(0),
        "cumsum": a.cumsum(1),
        "cumsum of columns": a.cumsum(0),
        "cumsum own type": a.cumsum(1, dtype=a.dtype),
        "cumprod": a.cumprod(1),
        "cumprod own type": a.cumprod(0, dtype=a.dtype),
        "long scan": a.reshape(-1).repeat(7).cumsum(0),
        "diff": a.diff(dim=1),
        "trace": a.trace(),
        "amax": (a + b).amax(1),
        "amin": (a * b).amin(0),
        "amax of negations": (-a).amax(0),
        "amin of negations": (-b).amin(1),
        "argmax": (a - b).argmax(1),
    }


def products(a, b):
    v, w = a[0], b[0]
    return {
        "mm": a @ b.t(),
        "bmm": torch.bmm(a.expand(2, *a.shape), b.t().expand(2, *b.t().shape)),
        "addmm": torch.addmm(a[:, : b.shape[0]], a, b.t(), beta=3, alpha=5),
        "mv": a @ w,
        "dot": torch.dot(v, w),
        "outer": torch.outer(v, w),
        "addr": torch.addr(a[:, :7], a[:, 0], w[:7]),
        "tensordot": torch.tensordot(a, b, 2),
        "kron": torch.kron(v[:3], w[:4]),
        "einsum": torch.einsum("ij,ij->j", a, b),
    }


def scatters(a, b):
    # Each element of `index` occurs many times.
    index = (torch.arange(a.shape[1], device=a.device) * 7) % 5
    return {
        "index_add": torch.index_add(a, 1, index, b),
        "index_add alpha": torch.index_add(a, 1, index, b, alpha=3),
        "scatter_add": torch.scatter_add(a, 1, index.expand(a.shape).contiguous(), b),
        "scatter prod": torch.scatter_reduce(a, 1, index.expand(a.shape).contiguous(), b, "prod"),
        "index_put": torch.index_put(a, (torch.arange(a.shape[0], device=a.device) % 3,), b, accumulate=True),
    }


def gathers(a, b):
    """Rows of a table, at indices that are right only if the arithmetic wraps around."""
    table = torch.arange(12, device=a.device) * 10
    at = (a * 3 + b).long() % 12
    return {
        "index": table[at],
        "negative": table[-1 - at],
        "gather": torch.gather(table.expand(a.shape[0], 12), 1, at),
        "taken": torch.take(table, (a - b).long().abs().remainder(12)),
        "compared": table[((a + b) > a).long()],
    }


FUNCTIONS = (arithmetic, division, reductions, products, scatters, gathers)


def operands(f, dtype):
    a, b = draw(dtype, 7, 45, seed=1), draw(dtype, 7, 45, seed=2)
    if f is division:
        b = divisors(dtype, 7, 45, seed=3)
        a.view(-1)[1:40:4] = torch.iinfo(dtype).min
    return a, b


def check(got, want, how):
    for name, value in want.items():
        assert got[name].dtype == value.dtype, (how, name)
        wrong = got[name].cpu() != value
        assert not wrong.any(), (how, name, int(wrong.sum()), got[name].cpu()[wrong][:4], value[wrong][:4])


@pytest.mark.sampled(first=24, every=48)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("family", ["", "item", "group", "eager"])
def test_limits(ocl_device, f, dtype, family):
    a, b = operands(f, dtype)
    want = f(a, b)
    options = {"fallback": "error"} | ({"kernel_family": family} if family else {})
    if family == "eager":
        with config.override(fallback="error"):
            check(f(a.to(ocl_device), b.to(ocl_device)), want, family)
        return
    compiled = torch.compile(f, backend="ocl", options=options, dynamic=False)
    check(compiled(a.to(ocl_device), b.to(ocl_device)), want, family)
    # A transposed operand is computed element by element.
    transposed = b.t().contiguous().to(ocl_device).t()
    check(compiled(a.to(ocl_device), transposed), want, f"{family} transposed")


@pytest.mark.parametrize("dtype", INTEGERS[1:], ids=str)
@pytest.mark.parametrize("length", [1, 37])
def test_truncated_division_of_the_least_integer(ocl_device, dtype, length):
    # Not compared: PyTorch's CPU kernel ends the process here for int32 and int64.
    least = torch.iinfo(dtype).min
    a, b = torch.full((length,), least, dtype=dtype), torch.full((length,), -1, dtype=dtype)
    f = lambda a, b: (torch.div(a, b, rounding_mode="trunc"), torch.div(a + 1, b, rounding_mode="trunc"))  # noqa: E731
    compiled = torch.compile(f, backend="ocl", options={"fallback": "error", "verify": True}, dynamic=False)
    for run in (f, compiled):
        quotient, next_quotient = run(a.to(ocl_device), b.to(ocl_device))
        assert quotient.cpu().tolist() == [least] * length
        assert next_quotient.cpu().tolist() == [-(least + 1)] * length
