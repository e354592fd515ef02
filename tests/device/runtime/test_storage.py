# tests/device/runtime/test_storage.py: ocl tensors in eager mode: copies, views, storage, host memory.
import copy
import io
import itertools
import pickle

import pytest
import torch
from torch import nn

from tests.device.own_process import run_python

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
CASTS = [(a, b) for a, b in itertools.product(DTYPES, DTYPES) if b.is_complex or not a.is_complex]


def values(shape, dtype):
    """Returns numbers that can be cast from `dtype` to every other dtype: none is negative, because casts of negative
    numbers to unsigned types are undefined."""
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 50).abs()
    return x.to(dtype)


# Copies


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip(ocl_device, dtype):
    x = values((3, 5, 7), dtype)
    y = x.to(ocl_device)
    assert y.device == torch.device(ocl_device) and y.dtype == dtype
    assert torch.equal(y.cpu(), x)
    assert torch.equal(y.clone().cpu(), x)


@pytest.mark.parametrize(("src", "dst"), CASTS, ids=str)
def test_strided_converting_copies(ocl_device, src, dst):
    x = values((5, 7, 3), src)
    on_device = x.to(ocl_device)
    expected = x.permute(2, 0, 1)[:, 1:, ::2].to(dst)
    # A copy from the device to the device.
    assert torch.equal(on_device.permute(2, 0, 1)[:, 1:, ::2].to(dst).cpu(), expected)
    down = torch.zeros(3, 4, 4, dtype=dst)
    down.copy_(on_device.permute(2, 0, 1)[:, 1:, ::2])
    assert torch.equal(down, expected)
    up, up_expected = torch.zeros(7, 5, 3, dtype=dst, device=ocl_device), torch.zeros(7, 5, 3, dtype=dst)
    for target, source in ((up, x), (up_expected, x)):
        target.transpose(0, 1)[..., ::2].copy_(source[..., ::2])
    assert torch.equal(up.cpu(), up_expected)


def test_special_values_survive_conversion(ocl_device):
    x = torch.tensor(
        [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 65504.0, 65520.0, 1e-8, 3.4e38, 1.00390625, 1.01171875]
    )
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.bool):
        if dtype == torch.float64 and not torch.ocl.get_device_properties(ocl_device).has_fp64:
            continue
        got = x.to(ocl_device).to(dtype).cpu()
        torch.testing.assert_close(got, x.to(dtype), rtol=0, atol=0, equal_nan=True)
        if dtype != torch.bool:
            numbers = ~x.isnan()
            assert torch.equal(got.signbit()[numbers], x.to(dtype).signbit()[numbers])


def test_many_dimensions(ocl_device):
    x = torch.arange(3 * 2**9, dtype=torch.float32).reshape(3, *([2] * 9))
    order = list(range(9, -1, -1))
    assert torch.equal(x.to(ocl_device).permute(order).contiguous().cpu(), x.permute(order).contiguous())


def test_conjugate_and_negative_views(ocl_device):
    x = values((3, 4), torch.complex64) + 1j
    y = x.to(ocl_device)
    assert torch.equal(y.conj().cpu(), x.conj())
    assert torch.equal(y.conj().clone().cpu(), x.conj())
    assert torch.equal(y.conj().imag.cpu(), x.conj().imag)
    z = torch.zeros_like(y)
    z.conj().copy_(y)
    assert torch.equal(z.cpu(), x.conj())
    assert torch.equal(torch.view_as_real(y).cpu(), torch.view_as_real(x))
    assert torch.view_as_real(y).data_ptr() == y.data_ptr()


def test_overlapping_copy(ocl_device):
    x = torch.arange(1000.0)
    y = x.to(ocl_device)
    y[1:].copy_(y[:-1])
    assert torch.equal(y.cpu(), torch.cat([x[:1], x[:-1]]))
    y.copy_(y)


def test_copies_between_devices(two_ocl_devices):
    a, b = two_ocl_devices
    x = values((6, 5), torch.float32)
    y = x.to(a)
    assert torch.equal(y.to(b).cpu(), x) and y.to(b).device == torch.device(b)
    assert torch.equal(y.t()[1:].to(b).cpu(), x.t()[1:])
    z = torch.zeros(5, 6, device=b, dtype=torch.float64)
    z.t().copy_(y)
    assert torch.equal(z.cpu(), x.t().double())


def test_broadcast_and_fill(ocl_device):
    x = torch.zeros(4, 6, device=ocl_device)
    x[:, ::2] = 3
    x[1] = torch.arange(6.0)
    expected = torch.zeros(4, 6)
    expected[:, ::2] = 3
    expected[1] = torch.arange(6.0)
    assert torch.equal(x.cpu(), expected)
    assert torch.full((3,), 7, dtype=torch.int64, device=ocl_device).tolist() == [7, 7, 7]
    assert torch.ones(3, dtype=torch.bool, device=ocl_device).tolist() == [True] * 3
    assert torch.full((2,), 1 + 2j, device=ocl_device).tolist() == [1 + 2j] * 2


def test_zero_size_tensors(ocl_device):
    for shape in ((0,), (3, 0), (0, 2, 2)):
        x = torch.empty(shape, device=ocl_device)
        assert x.data_ptr() == 0 and x.device == torch.device(ocl_device)
        assert x.cpu().shape == shape and x.clone().shape == shape and x.half().shape == shape
        x.fill_(1), x.copy_(torch.empty(shape)), torch.empty(shape).copy_(x)
    assert torch.zeros(3, device=ocl_device)[3:].to("cpu").numel() == 0


# Views and storage


def test_views_share_memory(ocl_device):
    x = torch.arange(24.0).to(ocl_device)
    expected = torch.arange(24.0)
    v = x.view(4, 6)[1:, 2:5]
    v.fill_(-1)
    expected.view(4, 6)[1:, 2:5].fill_(-1)
    assert torch.equal(x.cpu(), expected)
    assert v.storage_offset() == 8 and v.data_ptr() == x.data_ptr() + 32
    assert v[1, 1].item() == -1
    assert torch.equal(x.unfold(0, 4, 2).cpu(), expected.unfold(0, 4, 2))
    assert x.unfold(0, 4, 2).data_ptr() == x.data_ptr()
    assert torch.equal(x.view(torch.int32).cpu(), expected.view(torch.int32))


def test_resize_and_set(ocl_device):
    x = torch.arange(6.0).to(ocl_device)
    x.resize_(2, 3)
    x.resize_(10)
    assert torch.equal(x[:6].cpu(), torch.arange(6.0))
    y = torch.empty(0, device=ocl_device)
    y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    assert torch.equal(y.cpu(), torch.tensor([[2.0, 3.0], [4.0, 5.0]]))
    y.data = torch.zeros(3, device=ocl_device)
    assert y.shape == (3,)
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0


def test_memory_formats(ocl_device):
    x = torch.randn(2, 3, 4, 5)
    y = x.to(ocl_device).to(memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last) and torch.equal(y.cpu(), x)
    assert torch.empty_like(y).stride() == y.stride()
    assert y.contiguous().is_contiguous() and torch.equal(y.contiguous().cpu(), x)


def test_host_dereference_faults(ocl_device):
    status, _, err = run_python(f"""
        import ctypes, torch
        x = torch.ones(4, device={ocl_device!r})
        ctypes.string_at(x.data_ptr(), 4)
    """)
    assert status == -11, err  # The process ends with SIGSEGV at once.


def test_printing(ocl_device):
    torch.ocl.reset_fallback_counts()
    text = repr(torch.tensor([1.5, 2.0], device=ocl_device))
    assert text == f"tensor([1.5000, 2.0000], device='{ocl_device}')"
    assert "grad_fn" in repr(torch.ones(2, device=ocl_device, requires_grad=True).view(2))
    assert repr(torch.zeros(0, device=ocl_device)).startswith("tensor([]")


def test_pickle_and_deepcopy(ocl_device):
    x = torch.randn(3, 4, device=ocl_device)
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.copy(x)):
        assert twin.device == x.device and torch.equal(twin.cpu(), x.cpu())
    model = nn.Linear(3, 2).to(ocl_device)
    twin = copy.deepcopy(model)
    assert twin.weight.data_ptr() != model.weight.data_ptr() and torch.equal(twin.weight.cpu(), model.weight.cpu())


def test_save_and_load(ocl_device):
    base = torch.arange(10.0).to(ocl_device)
    stream = io.BytesIO()
    torch.save({"base": base, "view": base[2:5], "cpu": torch.ones(2)}, stream)

    def load(map_location):
        stream.seek(0)
        return torch.load(stream, map_location=map_location, weights_only=True)

    for where, expected in (
        (None, ocl_device), ("cpu", "cpu"), (torch.device(ocl_device), ocl_device), ("ocl:0", "ocl:0"),
        (lambda storage, _: storage, "cpu"), ({ocl_device: "cpu"}, "cpu"),
    ):  # fmt: skip
        got = load(where)
        assert got["base"].device == torch.device(expected)
        assert torch.equal(got["base"].cpu(), base.cpu())
        got["base"].fill_(7)
        assert got["view"].tolist() == [7, 7, 7]  # The tensors still share memory.
    stream = io.BytesIO()
    torch.save(torch.ones(3), stream)
    assert load(ocl_device).device == torch.device(ocl_device)


# Host memory


def test_pinned_memory(ocl_device):
    x = torch.randn(1000, 100).pin_memory()
    assert x.is_pinned() and not torch.randn(3).is_pinned()
    with torch.ocl.device(ocl_device):
        y = x.to("ocl", non_blocking=True)
        back = torch.empty(1000, 100, pin_memory=True)
        back.copy_(y, non_blocking=True)
        torch.ocl.synchronize()
    assert torch.equal(back, x)
    # A block of pinned memory is not reused while a copy still reads it.
    for _ in range(20):
        y = torch.full((1 << 18,), 5.0).pin_memory().to(ocl_device, non_blocking=True)
        z = torch.full((1 << 18,), 6.0).pin_memory()
        assert z[0] == 6 and bool((y.cpu() == 5).all())


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(ocl_device, workers):
    data = torch.utils.data.TensorDataset(torch.arange(20.0), torch.arange(20))
    seen = []
    for x, y in torch.utils.data.DataLoader(data, batch_size=6, pin_memory=True, num_workers=workers):
        assert x.is_pinned()
        seen += x.to(ocl_device, non_blocking=True).cpu().tolist()
        assert torch.equal(y.to(ocl_device).cpu(), y)
    assert seen == list(range(20))
