# tests/device/kernels/test_transpositions.py: on GPUs, transpositions load vectors along another loop than the innermost, and
# windows of a few elements stay in one work-item; eager copies of all forms.
import pytest
import torch
import torch.nn.functional as F

from tests.device.own_process import run_python

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.bool]
CASES = {
    "matrix": ((224, 208), lambda x: x.t().contiguous()),
    "computed": ((224, 208), lambda x: (x.t() == 1).contiguous()),
    "channels last": ((3, 64, 16, 24), lambda x: x.contiguous(memory_format=torch.channels_last)),
    "two layouts": ((224, 208), lambda x: torch.where((x > 0).t(), x.t(), x.view(208, 224))),
    "a short row": ((6, 3, 96, 80), lambda x: x.permute(0, 2, 3, 1).contiguous()),
    "no whole vectors": ((225, 207), lambda x: x.t().contiguous()),
}


def some(shape, dtype):
    values = torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(0))
    return values > 0 if dtype is torch.bool else values.to(dtype)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transpositions(ocl_device, name, dtype):
    """A view that begins at element 1 has its vectors at odd addresses."""
    shape, function = CASES[name]
    compiled = torch.compile(
        function, backend="ocl", options={"fallback": "error", "kernel_family": "group"}, dynamic=False
    )
    for first in (0, 1):
        memory = some((torch.Size(shape).numel() + first,), dtype)
        ours = compiled(memory.to(ocl_device)[first:].view(shape))
        assert torch.equal(ours.cpu(), function(memory[first:].view(shape)))


def test_copies(ocl_device):
    """Eager copies have a kernel of their own. Under a profile it has its form for GPUs."""
    program = """
        import torch
        from tests.device.kernels.test_transpositions import DTYPES, some
        for source in DTYPES:
            for result in (source, torch.float32, torch.bfloat16):
                for first in (0, 1, 32):
                    memory = some((64 * 96 * 5 + first,), source)
                    on_device = memory.to("ocl")[first:].view(5, 64, 96)
                    expected = memory[first:].view(5, 64, 96)
                    for order in ((0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1), (0, 1, 2)):
                        ours = torch.empty([expected.shape[d] for d in order], dtype=result, device="ocl")
                        ours.copy_(on_device.permute(order))
                        assert torch.equal(ours.cpu(), expected.permute(order).to(result)), (source, result, first, order)
        with torch.ocl.record() as found:
            torch.empty(96, 64, device="ocl").copy_(torch.zeros(64, 96, device="ocl").t())
        assert any("_crossed" in command.kernel for command in found), found
    """
    status, out, err = run_python(
        program, TORCH_OCL_PROFILE="nvidia-pascal", TORCH_OCL_DEVICES=str(ocl_device).split(":")[1]
    )
    assert status == 0, out + err


VIEWS = {
    "rows": lambda x: x[:, 3:],
    "transposed": lambda x: x.transpose(1, 2),
    "outermost": lambda x: x.transpose(0, 2)[1:],
    "expanded": lambda x: x[:, :, :1].expand(x.shape),
    "swapped": lambda x: x.view(3, 35, 2, 50).transpose(1, 2),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_copies_of_any_form(ocl_device, source, view):
    """CPUs copy rows and squares of 16 elements by vectors; what is left of a row, one by one."""
    x = some((3, 70, 50), source)
    if source.is_floating_point:
        x.view(-1)[::7] *= 1.0078125
        x.view(-1)[::97] = float("nan")
    for result in DTYPES if not source.is_floating_point else (source, torch.float32, torch.bfloat16, torch.bool):
        given = VIEWS[view](x.to(ocl_device))
        ours = torch.empty(given.shape, dtype=result, device=ocl_device).copy_(given)
        expected = VIEWS[view](x).to(result).contiguous()
        torch.testing.assert_close(ours.cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "first, length, kernel", [(0, 64, "raw8"), (2, 64, "raw4"), (1, 64, "raw2"), (0, 32, "raw4"), (0, 40, "raw2")]
)
def test_neighbours_are_copied_as_one(ocl_device, first, length, kernel):
    """On CPUs, if all of them begin at such places, and rows fill vectors of 16 then."""
    x = some((16 * 8 * length + first,), torch.bfloat16)
    given, expected = (t[first:].view(16, 8, length).transpose(0, 1) for t in (x.to(ocl_device), x))
    with torch.ocl.record() as launches:
        ours = given.contiguous()
    assert torch.equal(ours.cpu(), expected.contiguous())
    if torch.ocl.get_device_properties(ocl_device).is_cpu:  # GPUs copy 16 bytes at a time.
        assert [launch.kernel.split("_")[1] for launch in launches] == [kernel]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.complex128], ids=str)
def test_large_copies_and_fills(ocl_device, dtype):
    """From 1 MB on, kernels fill memory, and copy it on CPUs. What lies around it stays. Long rows begin at any element."""
    count = (1 << 20) // dtype.itemsize + 37
    x = some((count + 64,), dtype)
    ours = x.to(ocl_device)
    for first in (0, 1, 8, 13):
        part = slice(first, first + count)
        assert torch.equal(ours[part].clone().cpu(), x[part])
        target, expected = ours.clone(), x.clone()
        target[part].copy_(ours[5 : 5 + count])
        expected[part] = x[5 : 5 + count]
        assert torch.equal(target.cpu(), expected)
        target[part].copy_(target[first + 2 : first + 2 + count])  # They overlap.
        expected[part] = expected[first + 2 : first + 2 + count].clone()
        assert torch.equal(target.cpu(), expected)
        for end in (count, count - 37):
            value = True if dtype is torch.bool else 3
            target[first:end].fill_(value), expected[first:end].fill_(value)
            assert torch.equal(target.cpu(), expected)
    rows, columns = 3, count // 3
    for view in (slice(1, columns - 1), slice(0, columns - 5)):
        given = x[: rows * columns].view(rows, columns)[:, view]
        assert torch.equal(ours[: rows * columns].view(rows, columns)[:, view].contiguous().cpu(), given)
    if torch.ocl.get_device_properties(ocl_device).is_cpu and dtype.itemsize <= 8:
        with torch.ocl.record() as found:
            ours.clone(), ours[:-37].fill_(1)
        assert [c.kernel.split("_")[0] for c in found] == ["copy", "fill"], found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_windows(ocl_device, dtype):
    x = some((3, 5, 24, 26), dtype)

    def pools(x):
        return (
            F.max_pool2d(x, 3, 2, 1, return_indices=True),
            F.avg_pool2d(x.float(), 2),
            x.float().unfold(3, 4, 2).prod(3),
        )

    compiled = torch.compile(
        pools, backend="ocl", options={"fallback": "error", "kernel_family": "group"}, dynamic=False
    )
    (maxima, indices), means, products = compiled(x.to(ocl_device))
    (maximum, index), mean, product = pools(x)
    assert torch.equal(maxima.cpu(), maximum) and torch.equal(indices.cpu(), index)
    torch.testing.assert_close(means.cpu(), mean)
    torch.testing.assert_close(products.cpu(), product)
