# tests/device/kernels/test_user_kernels.py: torch_ocl_compile.kernel(): kernels of the user in eager and compiled code.
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch

import torch_ocl_compile
from torch_ocl_compile import _C
from torch_ocl_compile.compile import foreign_ops, python_code
from torch_ocl_compile.errors import BuildError, ConfigError, UnsupportedError
from torch_ocl_compile.user_kernel import messages, signature

pytestmark = pytest.mark.sampled(first=2, every=12)

SOURCE = """
/* Several kernels
   in one source. */
__kernel void saxpy(__global const float* x, __global const float* restrict y,  // the operands
                    __global float* z, float a, int n) {
  int i = get_global_id(0);
  if (i < n) z[i] = a * x[i] + y[i];
}
kernel void scale(global float* x, float a, uint n) {
  if (get_global_id(0) < n) x[get_global_id(0)] *= a;
}
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void row_sums(__global const T* x, __global float* sums, __local float* parts, const int cols, int stride) {
  int lane = get_local_id(0), row = get_group_id(0);
  float sum = 0;
  for (int c = lane; c < cols; c += 16) sum += x[row * stride + c];
  parts[lane] = sum;
  for (int half_of = 8; half_of > 0; half_of /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < half_of) parts[lane] += parts[lane + half_of];
  }
  if (lane == 0) sums[row] = parts[0];
}
"""
saxpy = torch_ocl_compile.kernel(
    "ocl_tests::saxpy",
    SOURCE.replace("T*", "float*"),
    outputs={"z": lambda x, y, a: torch.empty_like(x)},
    values={"n": lambda x, y, a: x.numel()},
    global_size=lambda x, y, a: x.numel(),
    local_size=64,
)
saxpy.reference(lambda x, y, a: a * x + y)
saxpy.register_autograd(
    lambda ctx, grad: (grad * ctx.a, grad, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "a", inputs[2]),
)
scale = torch_ocl_compile.kernel(
    "ocl_tests::scale_",
    SOURCE.replace("T*", "float*"),
    kernel="scale",
    values={"n": lambda x, a: x.numel()},
    global_size=lambda x, a: x.numel(),
)


@scale.reference
def _(x, a):
    x.mul_(a)


row_sums = torch_ocl_compile.kernel(
    "ocl_tests::row_sums",
    SOURCE,
    outputs={"sums": lambda x: x.new_empty(x.shape[0], dtype=torch.float32)},
    values={"parts": 16, "cols": lambda x: x.shape[1], "stride": lambda x: x.stride(0)},
    global_size=lambda x: x.shape[0] * 16,
    defines=lambda x: {"T": x.dtype},
    strided=("x",),
)


def compiled(function, **settings):
    torch._dynamo.reset()
    return torch.compile(function, backend="ocl", fullgraph=True, options={"fallback": "error"}, **settings)


def data(device, *sizes):
    torch.manual_seed(0)
    host = [torch.randn(n) for n in sizes]
    return host, [x.to(device) for x in host]


@pytest.mark.parametrize("n", [0, 1, 63, 64, 1000])
def test_eager(ocl_device, n):
    (x, y), (ours_x, ours_y) = data(ocl_device, n, n)
    torch.testing.assert_close(saxpy(ours_x, ours_y, 2.0).cpu(), saxpy(x, y, 2.0))
    torch.testing.assert_close(saxpy(ours_x, a=2.0, y=ours_y).cpu(), 2 * x + y)


def test_views_have_their_offset(ocl_device):
    (x, y), (ours_x, ours_y) = data(ocl_device, 200, 300)
    torch.testing.assert_close(saxpy(ours_x[3:103], ours_y[110:210], 0.5).cpu(), 0.5 * x[3:103] + y[110:210])


def test_in_place(ocl_device):
    (x,), (ours,) = data(ocl_device, 100)
    scale(ours[10:], 3.0)
    scale(x[10:], 3.0)
    torch.testing.assert_close(ours.cpu(), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8], ids=str)
def test_local_memory_strides_and_type_macro(ocl_device, dtype):
    x = (torch.rand(5, 70) * 9).to(dtype)
    part = x.to(ocl_device)[1:, :50]
    torch.testing.assert_close(row_sums(part).cpu(), x[1:, :50].float().sum(1))
    torch.testing.assert_close(compiled(lambda t: row_sums(t) + 1)(part).cpu(), x[1:, :50].float().sum(1) + 1)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled(ocl_device, dynamic):
    def function(x, y):
        h = saxpy(x * 2, y, 0.5) + 1
        scale(h, 2.0)
        return h.relu()

    run = compiled(function, dynamic=dynamic)
    before = torch.ocl.fallback_counts()
    for n in (100, 101, 777):
        (x, y), (ours_x, ours_y) = data(ocl_device, n, n)
        torch.testing.assert_close(run(ours_x, ours_y).cpu(), ((x + y + 1) * 2).relu())
    assert torch.ocl.fallback_counts() == before


def test_compiled_writes_its_argument(ocl_device):
    def function(x):
        scale(x, 2.0)
        return x + 1

    (x,), (ours,) = data(ocl_device, 100)
    torch.testing.assert_close(compiled(function)(ours).cpu(), 2 * x + 1)
    torch.testing.assert_close(ours.cpu(), 2 * x)


def test_gradients(ocl_device):
    def function(x, y):
        return (saxpy(x * 3, y, 0.5) * y).sum()

    (x, y), ours = data(ocl_device, 50, 50)
    expected = torch.func.grad(lambda x, y: ((1.5 * x + y) * y).sum(), argnums=(0, 1))(x, y)
    for run in (function, compiled(function)):
        leaves = [t.clone().requires_grad_() for t in ours]
        run(*leaves).backward()
        for leaf, gradient in zip(leaves, expected, strict=True):
            torch.testing.assert_close(leaf.grad.cpu(), gradient)


@pytest.fixture
def late(ocl_device):
    """Returns a function that holds a stream back: what is enqueued on it from now on starts 0.2 seconds later."""
    timers = []

    def hold(stream):
        timers.append(threading.Timer(0.2, _C.testing.Gate(stream.device_index, stream.stream_id).open))
        timers[-1].start()

    yield hold
    for timer in timers:
        timer.join()


def test_streams(ocl_device, late):
    """A launch goes to the current stream, and the memory of its result belongs to that stream."""
    late(torch.ocl.default_stream(ocl_device))
    (a, b), (x, y) = data(ocl_device, 1000, 1000)
    # The device is named: without a name, PyTorch waits for the current device, which may be another one.
    torch.ocl.synchronize(ocl_device)
    stream = torch.Stream(device=ocl_device)
    with torch.ocl.record() as launches, torch.ocl.stream(stream):
        z = saxpy(x, y, 1.0)
    assert [(k.kernel, k.stream) for k in launches] == [("saxpy", stream.stream_id)]
    stream.synchronize()
    torch.testing.assert_close(z.cpu(), a + b)


def test_late_streams(ocl_device, late):
    """A launch waits for what its stream waits for. Memory that a late launch reads or writes is not reused before."""
    with torch.ocl.device(ocl_device):
        default, side = torch.ocl.default_stream(), torch.Stream(ocl_device)
        saxpy(*(torch.zeros(1000, device=ocl_device) for _ in range(2)), 1.0)
        torch.ocl.synchronize()
        late(default)
        (a, b), (x, y) = data(ocl_device, 1000, 1000)
        side.wait_stream(default)
        with torch.ocl.stream(side):
            z = saxpy(x, y, 1.0)
            scale(z[10:], 3.0)
            w = saxpy(z, z, 2.0)
        expected = a + b
        scale(expected[10:], 3.0)
        default.synchronize()
        late(side)
        with torch.ocl.stream(side):
            u = saxpy(x, w, 1.0)
            scale(y, 2.0)
            v = saxpy(y, y, 1.0)
        del x, y, w
        for value in range(8):  # These would get the memory of x, y or w.
            torch.full((1000,), float(value), device=ocl_device)
        default.synchronize()
        side.synchronize()
        torch.testing.assert_close(z.cpu(), expected)
        torch.testing.assert_close(u.cpu(), a + 3 * expected)
        torch.testing.assert_close(v.cpu(), 4 * b)


def test_records_and_explain_name_the_kernel(ocl_device):
    _, (x, y) = data(ocl_device, 100, 100)
    run = compiled(lambda x, y: saxpy(x, y, 2.0).exp())
    run(x, y)
    with torch.ocl.record() as launches:
        run(x, y)
    first = launches[0]
    assert (first.kernel, first.kind, first.global_size, first.local_size) == ("saxpy", "user", (128, 1, 1), (64, 1, 1))
    assert first.title.startswith("saxpy 128 @ ocl_tests::saxpy") and first.bytes == 1200
    with torch.ocl.profile() as profile:
        run(x, y)
    assert "saxpy" in str(profile)
    assert "saxpy" in str(torch_ocl_compile.explain(lambda x, y: saxpy(x, y, 2.0).exp(), x, y))


def test_opcheck(ocl_device):
    """opcheck tests the registration of autograd only for CPU tensors, so it runs for both devices."""
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    host, ours = data(ocl_device, 20, 20)
    leaves = [x.requires_grad_() for x in ours]
    torch.library.opcheck(saxpy.op, (*leaves, 2.0), test_utils=tests)
    torch.library.opcheck(saxpy.op, (*(x.requires_grad_() for x in host), 2.0))
    torch.library.opcheck(scale.op, (torch.ones(8, device=ocl_device), 2.0), test_utils=tests)
    torch.library.opcheck(scale.op, (torch.ones(8), 2.0))
    torch.library.opcheck(row_sums.op, (torch.ones(3, 8, device=ocl_device),), test_utils=tests)


# Wrong use


def test_wrong_arguments(ocl_device):
    x = torch.ones(8, device=ocl_device)
    for call, message in (
        (lambda: saxpy(x, x), "3 arguments are needed, not 2"),
        (lambda: saxpy(x, x, "2"), "a must be a number"),
        (lambda: saxpy(x, 1.0, 2.0), "y must be a tensor"),
        (lambda: saxpy(x, x.int(), 2.0), "argument y has dtype torch.int32.*pointer to float"),
        (lambda: saxpy(x, x.cpu(), 2.0), "x on ocl.*y on cpu"),
        (lambda: saxpy(x[::2], x[:4], 2.0), "argument x is not contiguous"),
        (lambda: row_sums(x[None].cpu()), "no reference"),
        (lambda: compiled(lambda t: saxpy(t[::2], t[:4], 2.0))(x), "argument x is not contiguous"),
    ):
        with pytest.raises((ConfigError, torch._dynamo.exc.TorchRuntimeError), match=f"(?s){message}"):
            call()


def made(name, source, **settings):
    settings.setdefault("global_size", 1)
    return torch_ocl_compile.kernel(f"ocl_tests::{name}", source, **settings)


def test_limits_of_the_device(ocl_device):
    x = torch.ones(8, device=ocl_device)
    suffix = f"_{ocl_device.replace(':', '')}"
    body = "kernel void k(global float* x, int n, local float* t) { x[0] = n; }"
    wide = made("wide" + suffix, body, kernel="k", values={"t": 1}, local_size=1 << 20)
    with pytest.raises(ConfigError, match=r"1048576 work-items, but this device allows \d+"):
        wide(x, 1)
    large = made("large" + suffix, body, kernel="k", values={"t": 1 << 28})
    with pytest.raises(ConfigError, match="1073741824 bytes of __local memory"):
        large(x, 1)
    small = made("small" + suffix, body, kernel="k", values={"t": 1})
    with pytest.raises(ConfigError, match=r"n = 3000000000 does not fit the type int"):
        small(x, 3_000_000_000)


def test_a_build_error_shows_the_line(ocl_device):
    source = "// first\n__kernel void k(__global float* x,\n  int n) {\n  x[0] = nonsense;\n}\n"
    broken = made(f"broken_{ocl_device.replace(':', '')}", source, kernel="k")
    with pytest.raises(BuildError, match=r"(?s)nonsense.*\n  line 4: x\[0\] = nonsense;"):
        broken(torch.ones(2, device=ocl_device), 1)


def test_lines_of_a_compiler_that_ignores_line_directives():
    kernel = made("numbered", "__kernel void k(__global float* x,\n  int n) {\n  x[0] = nonsense;\n}\n", kernel="k")
    text = f'#define T float\n#line 1 "ocl_tests.numbered"\n{kernel.source}'
    message = messages.with_lines("log\n  <kernel>:5:10: error: nonsense\n  do: mend it", kernel, text)
    assert message == "log\n  <kernel>:5:10: error: nonsense\n  line 3: x[0] = nonsense;\n  do: mend it"
    message = messages.with_lines("ocl_tests.numbered:3:10: error", kernel, text)
    assert message == "ocl_tests.numbered:3:10: error\n  line 3: x[0] = nonsense;"


def test_bad_signatures():
    for source, settings, message in (
        ("kernel void k(global float* x) {}", {"kernel": "other"}, "no kernel 'other', its kernels are: k"),
        ("kernel void k(constant float* x) {}", {}, "pointer must be __global or __local"),
        ("kernel void k(image2d_t x) {}", {}, "an op passes tensors, numbers"),
        ("kernel void k(global float* x, local float* t) {}", {}, "how many elements the __local memory t has"),
        (
            "kernel void k(global const float* x) {}",
            {"outputs": {"x": torch.empty}},
            "output x must be a `__global` pointer",
        ),
        ("kernel void k(global float* x) {}", {"values": {"m": 1}}, "no parameter 'm'"),
        ("kernel void k(global Thing* x) {}", {}, "none of OpenCL's"),
        ("kernel void k(int n) {}", {}, "has no tensor"),
    ):
        with pytest.raises(ConfigError, match=message):
            made("bad", source, **settings)
    with pytest.raises(ConfigError, match="exists already"):
        torch_ocl_compile.kernel("ocl_tests::saxpy", SOURCE, global_size=1)


def test_lines_of_the_text_stay():
    text = signature.parse(SOURCE, "saxpy", "a::saxpy").text()
    for line, own in zip(text.splitlines(), SOURCE.splitlines(), strict=True):
        assert own in line or "saxpy" in own or "n) {" in own


# Stored graphs

PROGRAM = """
    import torch, torch_ocl_compile
    from torch_ocl_compile.compile import debug
    def backward(ctx, grad):
        return grad * FACTOR
    op = torch_ocl_compile.kernel(
        "stored::twice",
        "kernel void twice(global const float* x, global float* y)"
        "{{ y[get_global_id(0)] = x[get_global_id(0)] * {factor}; }}",
        outputs={{"y": lambda x: torch.empty_like(x)}}, global_size=lambda x: x.numel())
    FACTOR = {gradient}
    op.register_autograd(backward)
    x = torch.ones(8, device="ocl", requires_grad=True)
    y = torch.compile(lambda x: op(x) + 1, backend="ocl")(x)
    y.sum().backward()
    print(y[0].item(), x.grad[0].item(), debug.loaded_graphs())
"""


@pytest.mark.needs("sweep")
@pytest.mark.usefixtures("selected_devices")
def test_stored_graphs_follow_the_source(tmp_path):
    """A second process loads the stored graph. If the kernel, or a number that its gradient uses, has changed, it
    compiles again."""

    def run(factor, gradient):
        program = textwrap.dedent(PROGRAM).format(factor=factor, gradient=gradient)
        command = [sys.executable, "-c", program]
        environment = {**os.environ, "TORCH_OCL_CACHE_DIR": str(tmp_path / "cache")}
        found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert found.returncode == 0, found.stderr
        return found.stdout.split()

    assert run(2, 2.0) == ["3.0", "2.0", "0"]
    assert run(2, 2.0) == ["3.0", "2.0", "2"]
    assert run(3, 2.0) == ["4.0", "2.0", "0"]
    assert run(3, 5.0) == ["4.0", "5.0", "0"]


def test_what_cannot_be_compared_is_not_stored():
    held = object()
    with pytest.raises(UnsupportedError, match="cannot be compared"):
        python_code.digest([lambda x: (x, held)], "op", foreign_ops.describe_op)
