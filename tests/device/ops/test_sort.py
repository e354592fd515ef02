# tests/device/ops/test_sort.py: sorting and selecting: the kernels of each step, and the ops at sizes around those of a block.
"""Integers, NaN, zeros of both signs and equal keys must have the places that they have in PyTorch's stable sort."""

from __future__ import annotations

import pytest
import torch

from tests.device.ops.nodes import run_checked
from torch_ocl_compile._C import ir

LENGTHS = (0, 1, 2, 64, 65, 257, 2047, 2049, 4095, 4096, 4097, 9001)
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool
)  # fmt: skip
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, 1.5)


def numbers(n: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns random numbers, of which many are equal, and some are the least, the greatest or special."""
    generator = torch.Generator().manual_seed(n)
    places = torch.randperm(n, generator=generator)[: n // 2]
    if dtype.is_floating_point:
        special = torch.tensor(SPECIAL)[torch.randint(len(SPECIAL), (len(places),), generator=generator)]
        return torch.randn(n, generator=generator).index_put((places,), special).to(dtype)
    least, greatest = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    x = torch.randint(least, greatest, (n,), generator=generator)
    few = torch.randint(max(least, -3), min(greatest, 3), (len(places),), generator=generator)
    few[: len(few) // 3] = greatest
    return x.index_put((places,), few).to(dtype)


def assert_same(got: torch.Tensor, expected: torch.Tensor, signs: bool = True) -> None:
    """`signs`: zeros of both signs have their places, as in a stable sort."""
    got = got.cpu()
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    if expected.dtype.is_floating_point and signs:
        numbers = ~expected.isnan()
        assert torch.equal(got[numbers].signbit(), expected[numbers].signbit())


def run_node(device, family: str, operands: list[torch.Tensor], attrs: ir.SortAttrs) -> None:
    run_checked(device, family, operands, lambda builder, given: builder.sort(given, attrs))


@pytest.mark.parametrize("family", ["item", "group"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("n", [1, 127, 128, 300])
def test_steps(ocl_device, family, dtype, n):
    keys = numbers(3 * n, dtype).view(3, n)
    positions = torch.randperm(3 * n).int().view(3, n)
    top = 8 * keys.element_size() - 8
    block = 2048 if dtype is torch.int64 else 4096
    for shift, signed in ((0, False), (top, True)):
        count = ir.SortAttrs(ir.SortStep.kCount, block, shift=shift, is_signed=signed)
        run_node(ocl_device, family, [keys], count)
        digits = (keys >> shift & 255) ^ (128 if signed else 0)
        ends = torch.nn.functional.one_hot(digits.long(), 256).sum(1).cumsum(1).int()
        move = ir.SortAttrs(ir.SortStep.kMove, block, shift=shift, is_signed=signed)
        run_node(ocl_device, family, [keys, ends], move)
        run_node(ocl_device, family, [keys, positions, ends], move)
        move = ir.SortAttrs(ir.SortStep.kMove, 256, shift=shift, is_signed=signed)
        padding = -n % 256
        hot = torch.nn.functional.one_hot(torch.nn.functional.pad(digits.long(), [0, padding], value=256), 257)
        counts = hot.view(3, -1, 256, 257).sum(2)[..., :256].transpose(1, 2).int().contiguous()
        run_node(ocl_device, family, [keys, positions, counts], move)
    chosen = keys[:, 0].contiguous()
    run_node(ocl_device, family, [keys, chosen], ir.SortAttrs(ir.SortStep.kCount, block))
    for keep, many in ((1, 128), (7, 128), (128, 128), (70, 100)):
        sort = ir.SortAttrs(ir.SortStep.kBlocks, many, keep, 0, keys.element_size(), True)
        # The positions past the end of a row may be any.
        whole = [x[:, : n // many * many].contiguous() if n >= many else x for x in (keys, positions)]
        if n >= many or keep <= n:
            run_node(ocl_device, family, whole[:1], sort)
            run_node(ocl_device, family, whole, sort)
    for keep in (1, min(n, 20)):  # Many keys are equal to the last one to keep.
        sort = ir.SortAttrs(ir.SortStep.kBlocks, max(n, 128), keep, 0, 1, False)
        run_node(ocl_device, family, [keys & 1 | 254], sort)


@pytest.mark.sampled(first=4, every=5)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sort(ocl_device, dtype):
    for descending in (False, True):
        for n in LENGTHS:
            x = numbers(n, dtype)
            expected = torch.sort(x, stable=True, descending=descending)
            got = torch.sort(x.to(ocl_device), stable=True, descending=descending)
            assert_same(got.values, expected.values)
            assert_same(got.indices, expected.indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_sort_of_a_symbolic_length(ocl_device, dtype):
    compiled = torch.compile(lambda x: torch.sort(x, dim=0, stable=True), backend="ocl", dynamic=True)
    for n in (5, 300, 4096, 9001):
        x = numbers(3 * n, dtype).view(n, 3)
        for got, expected in zip(compiled(x.to(ocl_device)), torch.sort(x, dim=0, stable=True), strict=True):
            assert_same(got, expected)


@pytest.mark.parametrize("n", [200, 3000, 5000])
def test_sort_of_other_layouts(ocl_device, n):
    x = numbers(4 * 6 * n, torch.float32)
    for rows in (x.view(4, n, 6), x.view(4, 6, n).transpose(1, 2), x.view(4, 2 * n, 3)[:, ::2]):
        on_device = x.to(ocl_device).as_strided(rows.shape, rows.stride())
        for got, expected in zip(
            torch.sort(on_device, dim=1, stable=True), torch.sort(rows, dim=1, stable=True), strict=True
        ):
            assert_same(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8], ids=str)
def test_selections(ocl_device, dtype):
    for n in (1, 2, 257, 4097, 20001):
        x = numbers(n, dtype)
        on_device = x.to(ocl_device)
        for k in {1, min(n, 10), min(n, 300), n}:
            for largest in (False, True):
                got, expected = torch.topk(on_device, k, largest=largest), torch.topk(x, k, largest=largest)
                assert_same(got.values, expected.values, signs=False)
                assert_same(x[got.indices.cpu()], expected.values, signs=False)
                assert len(got.indices.cpu().unique()) == k
            got = torch.kthvalue(on_device, k)
            assert_same(got.values, torch.kthvalue(x, k).values, signs=False)
            assert_same(x[got.indices.cpu()], torch.kthvalue(x, k).values, signs=False)
        for median in (torch.median, torch.nanmedian):
            assert_same(median(on_device), median(x), signs=False)
            got = median(on_device, 0)
            assert_same(got.values, median(x, 0).values, signs=False)
            assert_same(x[got.indices.cpu()], got.values.cpu(), signs=False)
        assert_same(torch.unique(on_device), torch.unique(x), signs=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_selections_of_a_symbolic_length(ocl_device, dtype):
    functions = [
        lambda x: torch.median(x, dim=0),
        lambda x: torch.kthvalue(x, x.shape[0] // 3 + 1, dim=0),
        lambda x: torch.topk(x, 4, dim=0),
    ]
    compiled = [torch.compile(function, backend="ocl", dynamic=True) for function in functions]
    for n in (5, 300, 9001):
        x = numbers(3 * n, dtype).view(n, 3)
        for function, on_device in zip(functions, compiled, strict=True):
            got, expected = on_device(x.to(ocl_device)), function(x)
            assert_same(got[0], expected[0], signs=False)
            assert_same(x.gather(0, got[1].cpu().reshape(-1, 3)).view_as(expected[0]), expected[0], signs=False)
