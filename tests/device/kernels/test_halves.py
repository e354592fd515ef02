# tests/device/kernels/test_halves.py: conversions of fp16: kernels/base/halves.cl bit by bit, and whole ops at unaligned addresses.
from pathlib import Path

import pytest
import torch

from torch_ocl_compile import _C

WIDTHS = [1, 2, 4, 8, 16]
HALVES = Path(__file__).resolve().parents[3] / "kernels/base/halves.cl"

CONVERT = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void widen(__global const half* x, const ulong x_offset, __global float* y, const ulong y_offset, const int n) {
  for (int i = 0; i + WIDTH <= n; i += WIDTH) VSTORE(VLOAD(0, x + x_offset + i), 0, y + y_offset + i);
}
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void narrow(__global const float* x, const ulong x_offset, __global half* y, const ulong y_offset, const int n) {
  for (int i = 0; i + WIDTH <= n; i += WIDTH) VNARROW(LOAD(0, x + x_offset + i), 0, y + y_offset + i);
}
"""


def convert(device: str, width: int, name: str, x: torch.Tensor, y: torch.Tensor) -> None:
    """Converts x to y, both of which may be views with an offset."""
    n = "" if width == 1 else str(width)
    names = {
        "WIDTH": width,
        "VLOAD": f"vload_half{n}",
        "VNARROW": f"vstore_half{n}_rte",
        "VSTORE(v, i, p)": f"vstore{n}(v, i, p)" if n else "*(p) = (v)",
        "LOAD(i, p)": f"vload{n}(i, p)" if n else "*(p)",
    }
    text = HALVES.read_text() + "".join(f"#define {k} {v}\n" for k, v in names.items()) + CONVERT
    pointers = [(2 * i, i, t.storage_offset(), t.element_size()) for i, t in enumerate((x, y))]
    launch = {"name": name, "text": text, "global": (1, 1, 1), "local": (1, 1, 1), "pointers": pointers}
    regions = [t.as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0) for t in (x, y)]
    _C.exec.launch_alone(torch.device(device).index, {**launch, "ints": [(4, len(x), False)]}, regions)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_half_widens_and_narrows_as_in_torch(ocl_device: str, width: int) -> None:
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    # The view begins at an odd element, so it is aligned to two bytes only.
    moved = torch.empty(2**16 + 1, dtype=torch.float16)[1:].copy_(halves)
    wide = torch.empty(2**16)
    convert(ocl_device, width, "widen", moved, wide)
    torch.testing.assert_close(wide, halves.float(), rtol=0, atol=0, equal_nan=True)
    assert (wide.signbit() == halves.signbit()).all()

    # Every fp16 number, the middle between neighbours, values just beside these middles, tiny numbers, random bits.
    middle = (wide.double() + wide.roll(-1).double()).float() / 2
    several = [wide, middle, middle * (1 + 2.0**-23), middle * (1 - 2.0**-23), torch.randn(2**16) * 1e-7]
    several += [torch.randint(-(2**31), 2**31 - 1, (2**16,)).to(torch.int32).view(torch.float32)]
    numbers = torch.cat(several)
    narrow = torch.empty(len(numbers) + 1, dtype=torch.float16)[1:]
    convert(ocl_device, width, "narrow", numbers, narrow)
    torch.testing.assert_close(narrow, numbers.half(), rtol=0, atol=0, equal_nan=True)
    numbered = ~numbers.isnan()
    assert (narrow.signbit() == numbers.half().signbit())[numbered].all()


def test_rows_of_any_alignment(ocl_device: str) -> None:
    compiled = torch.compile(lambda x: (x.sum(0), x.sum(1), (x * 2).sigmoid()), backend="ocl", dynamic=False)
    for rows, columns in [(12, 30), (5, 33), (3, 47)]:
        x = torch.randn(rows, columns, dtype=torch.float16)
        sums, others, chain = compiled(x.to(ocl_device))
        torch.testing.assert_close(sums.cpu(), x.float().sum(0).half())
        torch.testing.assert_close(others.cpu(), x.float().sum(1).half())
        torch.testing.assert_close(chain.cpu(), (x.float() * 2).half().float().sigmoid().half())


@pytest.mark.parametrize("name", ["mish", "silu"])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_rounded_once(ocl_device: str, name: str, compiled: bool) -> None:
    """PyTorch would decompose these gradients on our device, and each step would round to bf16. Our kernels round
    once."""
    function = getattr(torch.nn.functional, name)
    run = torch.compile(function, backend="ocl") if compiled else function

    def gradient(x: torch.Tensor, of: object) -> torch.Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(of(x).sum(), x)[0].cpu()  # type: ignore[operator]

    x = torch.arange(-64, 65) / 16
    exact = gradient(x.double(), function).bfloat16()
    found = gradient(x.to(ocl_device, torch.bfloat16), run)
    assert (found != exact).sum() <= 2  # The fp32 result may round to another bf16 number than the exact one.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_product_is_not_rounded_before_a_matrix_is_added(ocl_device: str, dtype: torch.dtype) -> None:
    def both(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        batched = torch.baddbmm(x[None], a[None], b[None], beta=-4.75, alpha=2.03)
        return [torch.addmm(x, a, b, beta=3.44), batched[0], torch.nn.functional.linear(a, b.t(), x[0])]

    torch.manual_seed(0)
    given = [torch.randn(65, 65).to(dtype) for _ in range(3)]
    exact = both(*(x.double() for x in given))
    for call in (both, torch.compile(both, backend="ocl", dynamic=False)):
        for found, y in zip(call(*(x.to(ocl_device) for x in given)), exact, strict=True):
            least = (y.to(dtype).double() - y).norm()  # The error of the nearest numbers of this type.
            assert (found.cpu().double() - y).norm() < 1.05 * least


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["conv1d", "conv2d", "conv3d", "conv_transpose2d"])
def test_a_convolution_is_not_rounded_before_its_bias_is_added(ocl_device: str, kind: str, dtype: torch.dtype) -> None:
    function = getattr(torch.nn.functional, kind)
    spatial = int(kind[-2])
    given = [torch.randn(2, 4, *[9] * spatial), torch.randn(4, 4, *[3] * spatial) / 4, torch.randn(4)]
    x, w, b = (t.to(dtype) for t in given)
    exact = function(x.double(), w.double(), b.double())
    found = function(x.to(ocl_device), w.to(ocl_device), b.to(ocl_device)).cpu()
    assert (found.double() - exact).abs().sum() < 1.01 * (exact.to(dtype).double() - exact).abs().sum()
