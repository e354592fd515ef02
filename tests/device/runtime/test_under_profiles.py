# tests/device/runtime/test_under_profiles.py: a device with a profile keeps the profile's limits, and computes the same.
"""A profile holds for a process, so each test starts one (TORCH_OCL_PROFILE)."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.own_process import run_python
from torch_ocl_compile import _C

ROOT = Path(__file__).resolve().parents[3]
ROWS = {row["name"]: row for row in _C.profiles()}
# They have the smallest limits of each kind: work-groups, work-items of kernels with many registers, fp64, local memory, fp16.
SMALLEST = ("adreno-740", "intel-uhd", "mali-g78", "nvidia-pascal", "powervr-ge8320")
# What `--sweep` runs under every profile.
FILES = ("ops/test_ops.py", "networks/test_models.py",
         *(f"kernels/test_{name}.py" for name in ("attention", "rows_group", "halves", "maths")))  # fmt: skip

pytestmark = pytest.mark.sampled()


def run(device, profile, program):
    """Runs a program on the device, which is its ocl:0. Returns its output."""
    status, out, err = run_python(program, TORCH_OCL_PROFILE=profile, TORCH_OCL_DEVICES=device.split(":")[1])
    assert status == 0, out + err
    return out


def facts(device, profile):
    program = """
        import dataclasses, json, torch
        properties = dataclasses.asdict(torch.ocl.get_device_properties(0))
        text = torch_ocl_compile._C.describe_device(0)
        print(json.dumps([properties, torch_ocl_compile._C.exec.store_prefix(0), text, torch_ocl_compile.identity.of_device(0)]))
    """
    return json.loads(
        run(device, profile, program.replace("import dataclasses", "import torch_ocl_compile.identity, dataclasses"))
    )


@pytest.mark.sampled(every=1)
def test_the_device_has_the_limits(ocl_device):
    plain, prefix, text, identity = facts(ocl_device, "")
    assert plain["profile"] == "" and "profile" not in text
    seen = {prefix}
    for name in ("mali-g78", "nvidia-pascal"):
        row = ROWS[name]
        found, prefix, text, other = facts(ocl_device, name)
        assert found["profile"] == name and not found["is_cpu"] and text.endswith(f", profile {name})")
        assert found["driver"] == plain["driver"] + f", profile {name}"
        for limit in ("max_group_size", "local_bytes", "total_memory", "max_alloc_bytes"):
            assert found[limit] == min(plain[limit], row[limit]), limit
        for limit in ("has_fp64", "unified_memory"):
            assert found[limit] == (plain[limit] and row[limit]), limit
        assert not found["has_mma"] and not found["has_wgmma"]
        seen.add(prefix)
        assert other != identity
    assert len(seen) == 3, "each profile has kernels, plans and checks of its own"


KERNELS = """
    import torch
    from torch_ocl_compile import errors

    def attempt(body, local=16):
        n = attempt.count = getattr(attempt, "count", 0) + 1
        kernel = torch_ocl_compile.kernel(
            f"profile_tests::k{n}", "__kernel void k(__global float* y, __global ushort* h) {" + body + "}", kernel="k",
            global_size=lambda y, h: 1024, local_size=local)
        try:
            kernel(torch.zeros(1024, device="ocl"), torch.zeros(1024, dtype=torch.uint16, device="ocl"))
            torch.ocl.synchronize()
            print("ran")
        except errors.OclError as error:
            print(type(error).__name__, str(error).replace("\\n", " "))
    attempt("y[get_global_id(0)] = 1.0f;")
    attempt("double d = y[0]; y[get_global_id(0)] = d;")
    attempt("__global half* p = (__global half*)h; half a = p[0]; p[1] = a * a;")
    attempt("vstore_half(vload_half(0, (__global half*)h) * 2.0f, 1, (__global half*)h);")
    attempt("__local float a[4200]; a[get_local_id(0)] = 1.0f; barrier(CLK_LOCAL_MEM_FENCE); y[0] = a[15 - get_local_id(0)];")
    attempt("atom_add((__global long*)y, 1L);")
    attempt("y[0] = sub_group_reduce_add(1.0f);")
    attempt("y[0] = 1.0f;", local=1024)
"""


def test_kernels_beyond_the_limits(ocl_device):
    lines = run(ocl_device, "powervr-ge8320", KERNELS).splitlines()
    expected = [
        "^ran",
        r"BuildError.* k .*profile 'powervr-ge8320' has no float64, and the kernel computes in double",
        "BuildError.*half",
        "^ran",
        r"UnsupportedError kernel k asks for 168\d\d bytes of local memory, but .*'powervr-ge8320' has 16384",
        r"BuildError.*calls atom_add, but .*'powervr-ge8320' has no functions beyond OpenCL 1.2",
        r"BuildError.*calls sub_group_reduce_add",
        r"1024.*(512|256)",  # a driver may allow fewer for a kernel than the profile
    ]
    for line, pattern in zip(lines, expected, strict=True):
        assert re.search(pattern, line), f"{line}\n  does not match {pattern}"


def test_errors_of_users(ocl_device):
    out = run(
        ocl_device,
        "powervr-ge8320",
        """
        import torch
        for attempt in (
            lambda: torch.empty(600 << 20, dtype=torch.uint8, device="ocl"),
            lambda: torch.ones(3, dtype=torch.float64).to("ocl"),
            lambda: torch.compile(lambda x: x.double() + 1, backend="ocl")(torch.ones(3, device="ocl")),
        ):
            try:
                attempt()
                print("ran")
            except Exception as error:
                print(str(error).replace("\\n", " "))
        """,
    )
    large, copied, computed = out.splitlines()
    assert "largest buffer" in large and "512" in large and "profile powervr-ge8320" in large
    for line in (copied, computed):
        assert "float64" in line and "profile powervr-ge8320" in line and "do: convert" in line, line
    assert "aten.add.Tensor computes in float64" in computed and "BuildError" not in computed


SORTS = """
    import torch

    for dtype, n in ((torch.float32, 4096), (torch.int64, 2000), (torch.int32, 9000)):
        x = torch.randint(-999, 999, (2, n), generator=torch.Generator().manual_seed(0)).to(dtype)
        expected = x.sort(dim=-1, stable=True)
        found = torch.compile(lambda x: x.sort(dim=-1, stable=True), backend="ocl")(x.to("ocl"))
        print(all(torch.equal(a.cpu(), b) for a, b in zip(found, expected)))
"""


def test_blocks_that_local_memory_cannot_hold(ocl_device):
    assert run(ocl_device, "powervr-ge8320", SORTS).split() == ["True"] * 3


@pytest.mark.sampled(first=4)
@pytest.mark.parametrize("profile", SMALLEST)
def test_training_steps(ocl_device, profile):
    """The training steps of `torch-ocl doctor`, in fp32 and fp16."""
    program = """
        import torch
        from torch_ocl_compile.tools import doctor
        doctor.CHECKS = [check for check in doctor.CHECKS if check.dtype != torch.bfloat16]
        for finding in doctor.examine(torch.device("ocl:0")):
            print(finding.check.name, finding.healthy, finding.error, finding.problem)
    """
    lines = run(ocl_device, profile, program).splitlines()
    assert len(lines) == 4
    assert all(" True " in line for line in lines), "\n".join(lines)


def test_kernels_fit_into_the_smallest_limits(ocl_device, tmp_path, monkeypatch):
    """Products, convolutions in each direction, attention, transforms and reductions. The profile's driver grants many of their
    kernels 32 to 128 work-items. A second process finds in the cache which kernels these are, and builds none."""
    program = """
        import torch
        import torch.nn.functional as F
        torch.manual_seed(0)
        attend = F.scaled_dot_product_attention
        cases = [
            ("mm", torch.mm, (70, 300), (300, 130)),
            ("conv", lambda x, w: F.conv2d(x, w, padding=1), (2, 36, 9, 11), (68, 36, 3, 3)),
            ("strided conv", lambda x, w: F.conv2d(x, w, stride=2, padding=1), (2, 20, 9, 11), (33, 20, 3, 3)),
            ("conv of colours", lambda x, w: F.conv2d(x, w, stride=2, padding=3), (2, 3, 20, 22), (40, 3, 7, 7)),
            ("conv to few", lambda x, w: F.conv2d(x, w), (2, 3, 20, 22), (12, 3, 3, 3)),
            ("depthwise conv", lambda x, w: F.conv2d(x, w, groups=32), (2, 32, 9, 11), (32, 1, 3, 3)),
            ("attention", attend, (1, 2, 40, 64), (1, 2, 70, 64), (1, 2, 70, 64)),
            ("attention of wide heads", attend, (1, 2, 40, 128), (1, 2, 70, 128), (1, 2, 70, 128)),
            ("softmax", lambda x: x.softmax(1) * x, (70, 3000)),
            ("sums of columns", lambda x: x.sum(0) + x.cumsum(1), (3000, 70)),
            ("transform", lambda x: torch.view_as_real(torch.fft.fft(x)), (4, 360)),
        ]
        items = set()
        for name, function, *shapes in cases:
            exact = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
            inputs = [x.detach().float().to("ocl").requires_grad_() for x in exact]
            compiled = torch.compile(function, backend="ocl")
            with torch.ocl.record() as launches:
                out = compiled(*inputs)
            items |= {launch.local_size[0] for launch in launches}
            dout = torch.randn(out.shape, dtype=torch.float64)
            got = [out, *torch.autograd.grad(out, inputs, dout.float().to("ocl"))]
            want = function(*exact)
            want = [want, *torch.autograd.grad(want, exact, dout)]
            error = max(((a.cpu() - b).abs().max() / b.abs().max()).item() for a, b in zip(got, want, strict=True))
            print(name, error < 1e-5, error)
        print(sorted(items))
        print(torch_ocl_compile._C.exec.build_counters())
    """
    monkeypatch.setenv("TORCH_OCL_CACHE_DIR", str(tmp_path))
    for process in range(2):
        *lines, items, counters = run(ocl_device, "powervr-ge8320", program).splitlines()
        assert len(lines) == 11
        assert all(" True " in line for line in lines), "\n".join(lines)
        assert {32, 64} <= set(json.loads(items)) and max(json.loads(items)) <= 512
        counters = ast.literal_eval(counters)
        assert process == 0 or counters["unkept"] or counters["built"] == 0, counters


@pytest.mark.sampled(every=1)
def test_copies_of_a_gpu(ocl_device):
    """Rows that are vectors, rows that are not aligned, broadcast and transposed elements; fills of large and of odd memory."""
    program = """
        import itertools, torch

        def views(x):
            return (x, x.t(), x[:, 1:], x[:, :50], x[1:, 8:40], x[:, ::2], x[:1].expand(33, 64), x[:, :1].expand(33, 64),
                    x.reshape(-1)[3:], x.reshape(-1)[8:1000], x.reshape(11, 3, -1).transpose(0, 1))

        dtypes = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64]
        for source, target in itertools.product(dtypes, dtypes):
            if source.is_complex != target.is_complex:
                continue
            x = (torch.rand(33, 64) * 99).to(source)
            for host, device in zip(views(x), views(x.to("ocl"))):
                wide = [torch.zeros(*host.shape[:-1], host.shape[-1] + 5, dtype=target, device=y.device) for y in (host, device)]
                for y, copied in zip((host, device), wide):
                    copied[..., 2:-3].copy_(y)
                assert torch.equal(wide[0], wide[1].cpu()), (source, target, host.shape, host.stride())
                assert torch.equal(host.to(target).contiguous(), device.to(target).contiguous().cpu())
        for dtype, shape in itertools.product(dtypes, [(1024, 1024), (513, 2049)]):
            x = torch.zeros(shape, dtype=dtype, device="ocl")
            x[16:].fill_(3)
            want = torch.zeros(shape, dtype=dtype)
            want[16:] = 3
            assert torch.equal(x.cpu(), want), dtype
    """
    run(ocl_device, "arc-a770", program)


@pytest.mark.needs("sweep")
@pytest.mark.parametrize("profile", ROWS)
def test_everything_else(ocl_device, profile):
    """The op tables and some networks, as a plain run samples them."""
    files = [f"tests/device/{name}" for name in FILES]
    run_module(profile, "pytest", "-q", "-p", "no:cacheprovider", "--ocl-devices", ocl_device.split(":")[1], *files)


@pytest.mark.needs("sweep")
@pytest.mark.parametrize("profile", ROWS)
def test_random_programs(ocl_device, profile, tmp_path):
    command = f"--count 100 --seed {profile} --device {ocl_device} --jobs 1 --out {tmp_path}"
    run_module(profile, "tests.fuzz", *command.split())


def run_module(profile, *command):
    """Runs a module in a process with the profile."""
    environment = os.environ | {"TORCH_OCL_PROFILE": profile}
    command = [sys.executable, "-m", *command]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
