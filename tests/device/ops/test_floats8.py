# tests/device/ops/test_floats8.py: floats of 8 bits: conversions bit by bit, ops that move them, scaled products.
import pytest
import torch

from torch_ocl_compile.dtypes import FLOATS8

CODES = torch.arange(256, dtype=torch.uint8)


def same_values(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Returns whether the numbers are equal, their signs too, and NaN is where it is expected."""
    got, expected = got.cpu().double(), expected.double()
    nan = expected.isnan()
    signs = got.signbit() == expected.signbit()
    return bool((got.isnan() == nan).all() and ((got == expected) & signs | nan).all())


def same_codes(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Returns whether the codes are equal. A GPU may drop the sign of a NaN when it widens 16 bits to 32."""
    got = got.cpu()
    nan = got.isnan() & expected.isnan()
    return bool(((got.view(torch.uint8) == expected.view(torch.uint8)) | nan).all())


def converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns x on the CPU as `dtype`. Torch before 2.13 makes numbers beyond the largest e4m3fn NaN, later ones the largest."""
    return (x.float().clamp(-448, 448) if dtype is torch.float8_e4m3fn else x).to(dtype)


def numbers() -> dict[torch.dtype, torch.Tensor]:
    """Returns all fp16 and bf16 numbers, fp32 numbers at and beside the middle between neighbours, random bits, and integers."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    wide = torch.cat([CODES.view(t).float() for t in FLOATS8])
    middle = (wide + wide.roll(-1)) / 2
    random = torch.randint(-(2**31), 2**31 - 1, (2**15,), dtype=torch.int64).to(torch.int32).view(torch.float32)
    edges = torch.tensor([0.0, -0.0, 464.0, 465.0, 480.0, 61439.0, 61440.0, 65536.0, 248.0, 1e-40, -1e-9])
    singles = torch.cat([wide, middle, middle * (1 + 2.0**-23), middle * (1 - 2.0**-23), edges, -edges, random])
    return {
        torch.float16: bits.view(torch.float16),
        torch.bfloat16: bits.view(torch.bfloat16),
        torch.float32: singles,
        torch.float64: torch.cat([singles.double(), singles[:4096].double() * (1 + 2.0**-40)]),
        torch.int64: torch.tensor([0, 1, -1, 7, 17, 448, 464, 465, -480, 61440, 2**24 + 1, -(2**40)]),
        torch.uint8: CODES,
        torch.bool: torch.tensor([True, False, True]),
    }


@pytest.mark.parametrize("compiled", [False, True], ids=["copy", "compiled"])
@pytest.mark.sampled(first=1, every=2)
def test_conversions_are_those_of_the_cpu(ocl_device: str, compiled: bool) -> None:
    def convert(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype)

    if compiled:
        torch._dynamo.reset()
        convert = torch.compile(convert, backend="ocl", dynamic=False, options={"fallback": "error"})
    before = dict(torch.ocl.fallback_counts())
    given = numbers()
    if not compiled:  # Each conversion has a copy kernel of its own.
        given = {dtype: given[dtype] for dtype in (torch.float32, torch.int64)}
    for dtype, x in given.items():
        for to in FLOATS8 if compiled or dtype is torch.float32 else FLOATS8[:1]:
            assert same_codes(convert(x.to(ocl_device), to), converted(x, to)), f"{dtype} to {to}"
    for source in FLOATS8:
        x = CODES.view(source)
        results = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool, *FLOATS8)
        for to in results if compiled else (torch.float32,):
            assert same_values(convert(x.to(ocl_device), to), converted(x, to) if to in FLOATS8 else x.to(to))
        finite = x[x.float().abs() < 128]
        for to in (torch.int8, torch.int32, torch.int64) if compiled else ():
            assert torch.equal(convert(finite.to(ocl_device), to).cpu(), finite.to(to)), f"{source} to {to}"
    assert dict(torch.ocl.fallback_counts()) == before


def moved(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
    """Ops that keep codes as they are."""
    y = x.view(16, 16)
    return [
        torch.cat([y.t(), y[::2]]), torch.stack([y, y]), y.t().contiguous(), y[i], y.index_select(1, i), y.clone(), y[3:, 1::3].clone(),
        torch.where(y.float() > 0, y, y.t()), torch.full_like(y, 1.7), y.roll(3, 1), torch.nn.functional.embedding(i, y),
        y.index_put((i,), y[:3]), y.flatten()[i],
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS8, ids=str)
def test_ops_that_move_keep_codes(ocl_device: str, dtype: torch.dtype) -> None:
    codes = CODES.clone()
    if dtype is torch.float8_e5m2:  # A device may make a signalling NaN quiet.
        codes[125], codes[253] = 127, 255
    x, i = codes.view(dtype), torch.tensor([5, 0, 11])
    before = dict(torch.ocl.fallback_counts())
    options = {"fallback": "error"}
    for function in (moved, torch.compile(moved, backend="ocl", dynamic=False, options=options)):
        for k, (got, expected) in enumerate(
            zip(function(x.to(ocl_device), i.to(ocl_device)), moved(x, i), strict=True)
        ):
            assert same_codes(got, expected), k
    other = x.roll(1)
    assert torch.equal((x.to(ocl_device) == other.to(ocl_device)).cpu(), x == other)
    assert torch.equal((x.to(ocl_device) != 1.5).cpu(), x != 1.5) and torch.equal(
        x.to(ocl_device).isnan().cpu(), x.isnan()
    )
    zeros = torch.zeros(3, dtype=dtype, device=ocl_device).fill_(3.3)
    assert same_codes(zeros, torch.full((3,), 3.3, dtype=dtype))
    assert dict(torch.ocl.fallback_counts()) == before
    with pytest.raises((NotImplementedError, RuntimeError), match="not implemented"):
        x.to(ocl_device) + x.to(ocl_device)


@pytest.mark.parametrize("per_row", [False, True], ids=["number", "row"])
@pytest.mark.parametrize("rows", [1, 5, 48])
def test_scaled_products(ocl_device: str, rows: int, per_row: bool) -> None:
    torch.manual_seed(0)
    a = (torch.randn(rows, 64) * 3).to(torch.float8_e4m3fn)
    b = (torch.randn(32, 64) * 3).to(torch.float8_e5m2 if rows == 48 else torch.float8_e4m3fn).t()
    scales = (
        (torch.rand(rows, 1) + 0.5, torch.rand(1, 32) + 0.5) if per_row else (torch.tensor(0.5), torch.tensor(0.25))
    )
    bias = torch.randn(32).bfloat16()

    def scaled(a, b, x, y, bias):  # type: ignore[no-untyped-def]
        return torch._scaled_mm(a, b, x, y, bias=bias, out_dtype=torch.bfloat16)

    arguments = [t.to(ocl_device) for t in (a, b, *scales, bias)]
    expected = (a.double() @ b.double()) * scales[0].double() * scales[1].double() + bias.double()
    compiled = torch.compile(scaled, backend="ocl", dynamic=False, options={"fallback": "error"})
    before = dict(torch.ocl.fallback_counts())
    for got in (scaled(*arguments), compiled(*arguments)):
        torch.testing.assert_close(got.cpu().double(), expected, rtol=2**-8, atol=1e-3)
    assert dict(torch.ocl.fallback_counts()) == before
