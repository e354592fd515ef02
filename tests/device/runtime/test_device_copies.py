# tests/device/runtime/test_device_copies.py: copies between two devices, by a link of CUDA's driver (with stand-ins) and by the host.
from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from tests.device.runtime import cuda_stand_in

BEGIN = """
import ctypes, os
import torch
from torch_ocl_compile import _C

cuda = ctypes.CDLL("libcuda.so.1")
def copies():
    # A thread gives copies to CUDA when the earlier work is done.
    torch.ocl.synchronize(0), torch.ocl.synchronize(1)
    return ctypes.c_int.in_dll(cuda, "stand_in_copies").value
"""


pytestmark = pytest.mark.usefixtures("two_devices")


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    return cuda_stand_in.build(tmp_path_factory.mktemp("stand_ins"))


@pytest.fixture
def run(stand_ins, selected_devices):
    """Runs a program in a process whose two devices seem to be GPUs of CUDA."""

    return lambda program, **env: cuda_stand_in.run(stand_ins, BEGIN + program, OCL_STAND_IN_GPUS="2", **env)


def layouts():
    """Returns (source, target) pairs on the host, as functions of a device."""
    grid = torch.arange(60.0).reshape(5, 12)
    return [
        (lambda d: grid.to(d), lambda d: torch.empty(5, 12, device=d)),
        (lambda d: grid.to(d)[1:, ::2], lambda d: torch.empty(4, 6, device=d)),
        (lambda d: grid.to(d).t(), lambda d: torch.empty(12, 5, device=d)),
        (lambda d: grid.to(d), lambda d: torch.empty(7, 24, device=d)[1:6, ::2]),
        (lambda d: grid.to(d)[:, 3:4], lambda d: torch.empty(5, 12, device=d)),
        (lambda d: grid.to(d), lambda d: torch.empty(5, 12, device=d, dtype=torch.float16)),
        (lambda d: grid.to(d).half().t(), lambda d: torch.empty(12, 5, device=d, dtype=torch.int64)),
        (lambda d: grid.to(d, torch.int32), lambda d: torch.empty(12, 5, device=d).t()),
        (lambda d: grid.to(d).to(torch.complex64) * 1j, lambda d: torch.empty(5, 12, device=d, dtype=torch.complex64)),
        (
            lambda d: (grid.to(torch.complex64) * 1j).to(d).conj(),
            lambda d: torch.empty(5, 12, device=d, dtype=torch.complex64),
        ),
        (lambda d: torch.ones(3 << 18, device=d), lambda d: torch.empty(3 << 18, device=d)),
        (lambda d: torch.ones(0, device=d), lambda d: torch.empty(0, device=d)),
        (lambda d: torch.tensor(5.0, device=d), lambda d: torch.empty((), device=d, dtype=torch.uint8)),
    ]


def check_layouts(first, second):
    for make_source, make_target in layouts():
        for source, target in ((first, second), (second, first)):
            expected = make_target("cpu").copy_(make_source("cpu"))
            for non_blocking in (False, True):
                got = make_target(target).copy_(make_source(source), non_blocking=non_blocking)
                assert_close(got.cpu(), expected, rtol=0, atol=0)


def test_layouts_and_types_by_the_host():
    check_layouts("ocl:0", "ocl:1")


def test_a_copy_by_the_host_is_ordered():
    """The copy comes after the earlier work of both streams, and the source may change at once afterwards."""
    for count in (1000, 1 << 20):
        x, y = torch.zeros(count, device="ocl:0"), torch.zeros(count, device="ocl:1")
        for step in range(1, 20):
            x += 1
            y -= 1
            y.copy_(x, non_blocking=True)
            x.mul_(1)
            x.add_(1).sub_(1)
            y += 1
            assert y.sum().item() == (step + 1) * count


def test_layouts_and_types_by_a_link(run):
    run("""
from tests.device.runtime.test_device_copies import check_layouts
if not torch.ocl.can_device_access_peer(0, 1):
    print("no layers")
    raise SystemExit
check_layouts("ocl:0", "ocl:1")
assert copies() > 40
""")


def test_new_memory_is_used_in_place(run):
    run("""
old = torch.arange(1000.0, device="ocl:0")
assert not _C.is_shared_with_cuda(old)
assert torch.equal(old.to("ocl:1").cpu(), old.cpu())  # Memory that CUDA cannot use is copied on its device.
large = torch.ones(1 << 20, device="ocl:0")
assert _C.is_shared_with_cuda(large) and _C.is_shared_with_cuda(large.to("ocl:1"))
before = copies()
parts = torch.arange(210 << 20, dtype=torch.uint8, device="ocl:0")  # Too large to be shared: it is copied in four pieces.
assert not _C.is_shared_with_cuda(parts)
there = parts.to("ocl:1")
assert copies() == before + 4 and torch.equal(there.cpu(), parts.cpu())
for _ in range(3):  # Both streams are busy, so a piece may be copied while the blocks hold others.
    parts.mul_(3), there.mul_(5)
    there.copy_(parts)
    parts.add_(1), there.add_(1)
torch.ocl.synchronize(0), torch.ocl.synchronize(1)
assert torch.equal(there.cpu(), parts.cpu())
""")


@pytest.mark.parametrize("first", range(3))
def test_random_programs(run, first):
    run(f"""
from tests.device.runtime.test_two_devices import ACTIONS, TWO, check_programs
torch.ones(3, device="ocl:0").to("ocl:1")
check_programs(range({first}, 36, 3))
assert copies() > 20
""")


def test_peers(run):
    run("""
assert torch.ocl.can_device_access_peer(0, 1) and torch.ocl.can_device_access_peer("ocl:1", 0)
os.environ["OCL_STAND_IN_NO_PEERS"] = "1"
""")
    run(
        """
assert not torch.ocl.can_device_access_peer(0, 1) and torch.ocl.can_device_access_peer(1, 1)
assert torch.ones(3, device="ocl:1").to("ocl:0").tolist() == [1, 1, 1] and copies() == 1
""",
        OCL_STAND_IN_NO_PEERS="1",
    )


def test_without_memory_for_cuda_the_host_copies(run):
    run("""
x = torch.arange(1000.0, device="ocl:0")
os.environ["OCL_STAND_IN_FULL"] = "1"
assert x.to("ocl:1").tolist() == x.tolist() and copies() == 0
del os.environ["OCL_STAND_IN_FULL"]
assert x.to("ocl:1").tolist() == x.tolist() and copies() == 1
""")


def test_a_copy_that_fails(run):
    run("""
torch.ones(3, device="ocl:0").to("ocl:1")
x, y = torch.ones(1 << 20, device="ocl:0"), torch.zeros(1 << 20, device="ocl:1")  # CUDA can use them.
y.copy_(x)
assert copies() == 2
os.environ["OCL_STAND_IN_NO_COPIES"] = "1"
def fails(call):
    try:
        call()
    except Exception as error:
        return "cuMemcpyPeerAsync failed" in str(error)
gate = _C.testing.Gate(0, 0)  # The copy is not tried before the gate opens.
y.copy_(x)
gate.open()
assert fails(torch.ocl.synchronize) and fails(lambda: torch.ocl.synchronize(1))
torch.ocl.synchronize(), torch.ocl.synchronize(1)
assert fails(lambda: y.copy_(x)), "nothing else is to be done first, so the call itself fails"
del os.environ["OCL_STAND_IN_NO_COPIES"]
assert torch.equal(y.copy_(x).cpu(), x.cpu())
""")
