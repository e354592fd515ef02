# tests/device/kernels/test_maths.py: the error of vector maths on CPU devices, in ulp against fp64, as kernels/base/maths.cl states it.
"""Arguments cover the whole range; small numbers are spread logarithmically. Their count is no multiple of a vector, so
that both vectors and remaining elements are tested."""

import math

import pytest
import torch
import torch.nn.functional as F

from torch_ocl_compile import _C
from torch_ocl_compile.reference.scalar_ops import operation

COUNT = (1 << 17) + 7
LEAST = 2.0**-126  # The smallest normal number.


def sweep(low, high):
    """Returns random numbers in [low, high). If low < 0, a third of them is scaled by random powers of 10 towards 0."""
    generator = torch.Generator().manual_seed(0)
    x = low + (high - low) * torch.rand(COUNT, generator=generator, dtype=torch.float64)
    if low < 0:
        third = x[: COUNT // 3]
        third *= 10.0 ** (-8 * torch.rand(third.shape, generator=generator, dtype=torch.float64))
    return x.float()


def lost_by_division(device, name):
    """Returns how many ulp more OpenCL allows where division (2.5) and square root (3) are not rounded as in IEEE 754."""
    profile = torch.ocl.get_device_properties(device).profile
    exact = all(row["exact_division"] for row in _C.profiles() if row["name"] == profile)
    return 0 if exact else {"sqrt": 2.5, "rsqrt": 4.5}.get(name, 2.0)


def ulps(got, exact):
    """Returns the largest error divided by the spacing of floats at the exact value."""
    spacing = 2.0 ** (torch.floor(torch.log2(exact.abs().clamp_min(LEAST))) - 23)
    return ((got.double() - exact).abs() / spacing).max().item()


# Name of the op's row in ops.def, whose reference is exact in fp64; function; range; allowed error in ulp.
ROWS = [
    ("exp", torch.exp, (-87.3, 88.72), 1.0),
    ("tanh", torch.tanh, (-12.0, 12.0), 2.5),
    ("erf", torch.erf, (-5.0, 5.0), 2.0),
    ("sigmoid", torch.sigmoid, (-87.0, 87.0), 2.5),
    ("silu", F.silu, (-80.0, 80.0), 3.0),
    ("gelu_erf", F.gelu, (-2.5, 20.0), 8.0),
    ("gelu_erf", F.gelu, (-5.5, 0.0), 50.0),
    ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), (-1.0, 20.0), 6.0),
    ("log", torch.log, (1e-30, 1e4), 1.0),
    ("log1p", torch.log1p, (-0.99, 1e3), 1.5),
    ("rsqrt", torch.rsqrt, (1e-10, 1e5), 1.5),
    ("sqrt", torch.sqrt, (0.0, 1e5), 0.51),
]


@pytest.mark.parametrize("name, function, limits, most", ROWS, ids=[f"{row[0]}{row[2]}" for row in ROWS])
def test_ulp(ocl_device, name, function, limits, most):
    if name == "exp" and not torch.ocl.get_device_properties(ocl_device).is_cpu:
        most = 3.0  # what OpenCL allows; kernels for GPUs use its function
    x = sweep(*limits)
    got = torch.compile(function, backend="ocl", options={"fallback": "error"})(x.to(ocl_device)).cpu()
    assert ulps(got, operation(name)(x.double())) <= most + lost_by_division(ocl_device, name)


def test_slope_of_gelu(ocl_device):
    """The slope crosses zero, so its absolute error is compared: at most half of the sum of the rounding errors of erf
    and of the exponential."""

    def slope(x):
        return torch.ops.aten.gelu_backward(torch.ones_like(x), x)

    x = sweep(-8.0, 8.0)
    got = torch.compile(slope, backend="ocl", options={"fallback": "error"})(x.to(ocl_device)).cpu()
    assert (got - slope(x.double())).abs().max() <= 1.2e-7


def test_slope_of_the_approximation_of_gelu(ocl_device):
    """Where tanh is almost -1, the slope is small; its absolute error must be smaller still."""

    def slope(x):
        return torch.ops.aten.gelu_backward(torch.ones_like(x), x, approximate="tanh")

    x = torch.linspace(-8, -3, 4001)
    got = torch.compile(slope, backend="ocl", options={"fallback": "error"})(x.to(ocl_device)).cpu()
    assert (got - slope(x.double())).abs().max() <= 2e-8


@pytest.mark.parametrize("name, function", {row[0]: row[1] for row in ROWS[:8]}.items())
def test_special_arguments(ocl_device, name, function):
    """Compares infinities, nan, signed zeros, subnormal numbers and arguments beyond the range."""
    x = torch.tensor(
        [math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-40, -1e-40, 1e-30, -1e-30, 100.0, 3e38, -100.0, -3e38] * 3
    )
    got = torch.compile(function, backend="ocl", options={"fallback": "error"})(x.to(ocl_device)).cpu()
    expected = operation(name)(x.double()).float()
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=2e-7, equal_nan=True)
    zeros = x == 0
    assert torch.equal(torch.signbit(got[zeros]), torch.signbit(expected[zeros]))


# elu and hardswish are left out: on the CPU, eager mode gives NaN in full vectors but 1 in the remaining elements.
GRADIENTS = (F.gelu, F.silu, F.mish, F.softplus, F.logsigmoid, torch.sigmoid, torch.tanh)


def test_gradients_at_special_arguments(ocl_device):
    """Gradients are infinite or nan where those of eager mode are."""
    ends = torch.tensor([math.inf, -math.inf, math.nan, 0.0, 90.0, -90.0, 3.0, -3.0] * 3)

    def gradients(x):
        return [torch.autograd.grad(f(x).sum(), x)[0] for f in GRADIENTS]

    expected = gradients(ends.clone().requires_grad_())
    x = ends.to(ocl_device).requires_grad_()
    for function, want in zip(GRADIENTS, expected, strict=True):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="ocl", options={"fallback": "error"})
        got = torch.autograd.grad(compiled(x).sum(), x)[0].cpu()
        torch.testing.assert_close(
            got, want, rtol=1e-5, atol=1e-6, equal_nan=True, msg=lambda m, f=function: f"{f}: {m}"
        )


SHORT = {
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "slope of gelu": lambda x: torch.ops.aten.gelu_backward(torch.ones_like(x), x),
    "slope of gelu by tanh": lambda x: torch.ops.aten.gelu_backward(torch.ones_like(x), x, approximate="tanh"),
}


@pytest.mark.parametrize("family", ["group", "auto"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SHORT)
def test_short_functions(ocl_device, name, dtype, family):
    """The functions of GPUs and of the device for results of 16 bits, at all numbers of the type: as exact as fp32 rounded to the
    type, but for a tenth of its spacing, where fp32 has a number."""
    function = SHORT[name]
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[function(x.float()).isfinite()]
    options = {"fallback": "error", "kernel_family": family}
    got = torch.compile(function, backend="ocl", options=options)(x.to(ocl_device)).cpu().double()
    exact = function(x.double())
    bits, least = (8, 1e-6) if dtype is torch.bfloat16 else (11, 2.0**-14)
    spacing = 2.0 ** (torch.floor(torch.log2(exact.abs().clamp_min(least))) - bits + 1)
    # The native functions that these use are less exact on a CPU: Intel's native_exp2 has a relative error of 7e-5 where the
    # processor has no AVX-512, and native_recip one of 3e-4.
    is_cpu = _C.device_properties(torch.device(ocl_device).index or 0)["is_cpu"]
    native = 4e-4 if is_cpu and family == "group" else 0.0
    # The slope crosses zero, where its absolute error counts.
    assert ((got - exact).abs() <= 0.6 * spacing + native * exact.abs() + 5e-6 * ("slope" in name)).all()
