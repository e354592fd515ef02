# tests/device/runtime/test_debug_memory.py: the option debug fills new memory with NaN, and finds stores out of bounds.
import pytest
import torch
import torch.nn.functional as F

from tests.device.faults import planted
from torch_ocl_compile import config
from torch_ocl_compile.errors import KernelBoundsError

DEBUG = {"debug": True}


@pytest.fixture(autouse=True)
def cache(tmp_path):
    with config.override(cache_dir=str(tmp_path / "cache")):
        yield


def caught(function, *inputs):
    with pytest.raises(KernelBoundsError) as error:
        torch.compile(function, backend="ocl", options=DEBUG)(*inputs)
    return str(error.value)


@pytest.mark.parametrize(
    "index, words",
    [
        ("1000 + 3", ["behind the buffer", "(element 1003)"]),
        ("1000", ["behind the buffer", "(element 1000)"]),
        ("-1", ["in front of the buffer", "(element -1)"]),
        ("-100", ["in front of the buffer", "(element -100)"]),
    ],
)
def test_a_store_beside_a_result_is_found(ocl_device, index, words):
    x = torch.randn(1000).to(ocl_device)
    with planted("pointwise", r"out0 \+= out0_offset;", rf"out0 += out0_offset; out0[{index}] = 5.0f;") as wrong:
        message = caught(lambda x: torch.sin(x) * 2, x)
    for word in [f"kernel {wrong[0]}", "test_debug_memory.py", "f32 [1000]", "aten.mul", *words]:
        assert word in message, message


def test_a_store_beside_a_buffer_of_the_arena_is_found(ocl_device):
    x, w = torch.randn(40, 70).to(ocl_device), torch.randn(70, 33).to(ocl_device)

    def function(x, w):
        return torch.softmax(x.sort(1)[0], 1) @ w

    with planted("reduction", r"out0 \+= out0_offset;", "out0 += out0_offset; out0[-5] = 5;") as wrong:
        message = caught(function, x, w)
    assert any(name in message for name in wrong) and "in front of the buffer" in message, message


def test_what_a_kernel_does_not_write_is_nan(ocl_device):
    x = torch.randn(100).to(ocl_device)
    # The loop's end, on a GPU in vectors of four, becomes one of 88 elements.
    with planted("pointwise", r"(\(int\)\(|at < )(100|25)\b", r"\1\2 - \2 / 8"):
        result = torch.compile(lambda x: x + 1, backend="ocl", options=DEBUG)(x).cpu()
    assert torch.isnan(result[88:]).all()
    torch.testing.assert_close(result[:88], x.cpu()[:88] + 1)


def test_correct_programs_raise_nothing(ocl_device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3, padding=1),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(64 * 49, 7),
    ).to(ocl_device)  # fmt: skip
    x, y = torch.randn(3, 3, 16, 16).to(ocl_device), torch.arange(3).to(ocl_device)

    def gradients(options):
        torch._dynamo.reset()
        model.zero_grad()
        loss = F.cross_entropy(torch.compile(model, backend="ocl", options=options)(x), y)
        loss.backward()
        return [p.grad.cpu() for p in model.parameters()]

    model.eval()
    for ours, plain in zip(gradients(DEBUG), gradients({}), strict=True):
        assert torch.equal(ours, plain)


def test_a_result_with_guard_zones_is_a_tensor_as_any(ocl_device):
    x = torch.randn(10, 7).to(ocl_device)
    result = torch.compile(lambda x: x * 2, backend="ocl", options=DEBUG)(x)
    assert result.storage_offset() == 0 and result.untyped_storage().nbytes() == 280
    result.record_stream(torch.accelerator.current_stream(ocl_device))
    copy = result.clone()
    result.resize_(20, 7)
    assert torch.equal(result[:10].cpu(), copy.cpu()) and torch.equal(copy.cpu(), x.cpu() * 2)
