# tests/device/runtime/test_cuda_memory.py: memory shared with CUDA, tested with stand-ins for libcuda and for OpenCL's import
# of memory.
"""With the stand-ins (cuda_stand_in.py), all of our code runs without NVIDIA's drivers: calls of CUDA, the allocator's
pool, DLPack capsules, views and lifetimes. tests/device/distributed/test_cuda_exchange.py tests the same with the drivers."""

from __future__ import annotations

import pytest
import torch

from tests.device.runtime import cuda_stand_in

BEGIN = """
import ctypes, os
import torch
from tests.device.runtime.cuda_stand_in import cuda_tensor, parts
from torch_ocl_compile import _C

cuda = ctypes.CDLL("libcuda.so.1")
def count(what):
    return ctypes.c_int.in_dll(cuda, "stand_in_" + what).value
def shared(values, device="ocl"):
    with torch.ocl.shared_with_cuda():
        return torch.tensor(values, device=device)
def as_cuda(tensor):
    return cuda_tensor(_C.cuda_capsule(tensor))
"""


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    return cuda_stand_in.build(tmp_path_factory.mktemp("stand_ins"))


@pytest.fixture
def run(stand_ins, selected_devices):
    return lambda program, **env: cuda_stand_in.run(stand_ins, BEGIN + program, **env)


def test_both_sides_see_one_memory(run):
    run("""
for index in range(torch.ocl.device_count()):
    x = shared([[0.0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], f"ocl:{index}")
    view = as_cuda(x.t()[1:])
    assert view.stride() == (1, 4) and torch.equal(view, x.t()[1:].cpu())
    view.mul_(2)
    assert x.tolist() == [[0, 2, 4, 6], [4, 10, 12, 14], [8, 18, 20, 22]]
    x += 1
    torch.ocl.synchronize(index)
    assert view.tolist() == x.t()[1:].tolist()
""")


def test_every_type_and_small_tensors(run):
    run("""
for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
              torch.float32, torch.float64, torch.complex64):
    with torch.ocl.shared_with_cuda():
        x = torch.ones(3, dtype=dtype).to("ocl")
    view = as_cuda(x)
    assert view.dtype == dtype and torch.equal(view, x.cpu())
scalar, empty = shared(3.0), shared([])
assert as_cuda(scalar).item() == 3 and as_cuda(empty).shape == (0,)
""")


def test_only_tensors_that_ask_are_in_shared_memory(run):
    run("""
assert not _C.is_shared_with_cuda(torch.ones(3, device="ocl")) and count("live") == 0
x, y = shared([1.0]), shared([2.0])
assert _C.is_shared_with_cuda(x) and count("live") == 1  # Both are in one slab.
assert not _C.is_shared_with_cuda(torch.ones(3, device="ocl"))
large = None
with torch.ocl.shared_with_cuda():
    large = torch.zeros(40 << 20, dtype=torch.uint8, device="ocl")
assert count("live") == 2 and as_cuda(large)[-1] == 0
""")


def test_memory_lives_as_long_as_a_tensor_of_either_side(run):
    run("""
x = shared([1.0, 2, 3])
view = as_cuda(x)
waits = count("waits")
del x
torch.ocl.empty_cache()
assert view.tolist() == [1, 2, 3] and count("live") == 1 and count("waits") == waits
back = _C.ocl_view_of_cuda(0, view.data_ptr(), view)
back.record_stream(torch.Stream(back.device))
del view
assert back.tolist() == [1, 2, 3]
del back
assert count("waits") == waits + 1  # CUDA was waited for before the memory was freed.
torch.ocl.empty_cache()
assert count("live") == 0 and count("contexts") == 0
_C.cuda_capsule(shared([1.0]))  # Nobody takes it.
torch.ocl.empty_cache()
assert count("live") == 0
""")


def test_a_capsule_waits_for_the_stream(run):
    run("""
x = shared([0.0] * 1000)
for _ in range(200):
    x += 1
assert as_cuda(x).tolist() == [200] * 1000
with torch.ocl.stream(torch.Stream(x.device)):
    y = torch.zeros(1000, device="ocl")
    for _ in range(200):
        y += 1
    with torch.ocl.shared_with_cuda():
        y = y.clone()
    assert as_cuda(y).tolist() == [200] * 1000
""")


def test_addresses_outside_of_shared_memory_are_unknown(run):
    run("""
x = shared([1.0])
view = as_cuda(x)
assert _C.ocl_view_of_cuda(0, torch.ones(1).data_ptr(), view) is None
address = view.data_ptr()
del x, view
assert _C.ocl_view_of_cuda(0, address, torch.ones(1)) is None  # Its memory is free.
""")


def test_packed_weights_see_writes_of_cuda(run):
    run("""
layer = torch.nn.Linear(256, 256, bias=False)
with torch.ocl.shared_with_cuda():
    layer.to("ocl")
compiled = torch.compile(layer, backend="ocl")
x = torch.ones(64, 256, device="ocl")
with torch.no_grad():
    first = compiled(x).cpu()
    weight = as_cuda(layer.weight.detach())
    for total in (2, 4):  # Powers of two round nothing.
        weight.mul_(2)
        assert torch.allclose(compiled(x).cpu(), first * total, atol=1e-5)
""")


def test_functions_of_torch_ocl(run):
    run("""
from torch_ocl_compile.device import cuda_exchange

torch.backends.cuda.is_built = lambda: True
torch.utils.dlpack.from_dlpack = (lambda plain: lambda capsule: cuda_tensor_by(plain, capsule))(torch.utils.dlpack.from_dlpack)
def cuda_tensor_by(plain, capsule):
    from tests.device.runtime import cuda_stand_in
    cuda_stand_in._content(capsule).device_type = 1
    return plain(capsule)
x, ordinary = shared([1.0, 2]), torch.tensor([1.0, 2], device="ocl")
torch.ocl.to_cuda(x)[0] = 5
torch.ocl.to_cuda(ordinary)[0] = 5
assert x.tolist() == [5, 2] and ordinary.tolist() == [1, 2]

class Stream:
    waits = 0
    def synchronize(self):
        Stream.waits += 1
torch.cuda.current_stream = lambda device: Stream()
cuda_exchange._check = lambda *_: None
_C.ocl_device_of_cuda = lambda index: 0
back = torch.ocl.from_cuda(torch.ocl.to_cuda(x))
assert Stream.waits == 1
back.add_(1)
assert x.tolist() == [6, 3]
foreign = torch.arange(6.0).reshape(2, 3).t()
copy = torch.ocl.from_cuda(foreign)
assert Stream.waits == 3 and copy.stride() == foreign.stride() and torch.equal(copy.cpu(), foreign)
torch.ocl.to_cuda(copy).zero_()
assert not copy.any() and foreign.any()
""")


def test_what_goes_wrong(run):
    run("""
def error(kind, text):
    try:
        shared([1.0])
    except kind as problem:
        assert text in str(problem), problem
    else:
        raise AssertionError("no " + str(kind))
from torch_ocl_compile.errors import ConfigError, UnsupportedError

os.environ["OCL_STAND_IN_OTHER_UUID"] = "1"
error(UnsupportedError, "no CUDA device has its UUID")
try:
    _C.ocl_device_of_cuda(0)
except UnsupportedError as problem:
    assert "no ocl device is the GPU cuda:0" in str(problem)
del os.environ["OCL_STAND_IN_OTHER_UUID"]
os.environ["OCL_STAND_IN_FULL"] = "1"
error(torch.OutOfMemoryError, "cuMemCreate failed: out of memory (2)")
del os.environ["OCL_STAND_IN_FULL"]
os.environ["OCL_STAND_IN_NO_IMPORT"] = "1"
error(UnsupportedError, "clCreateBufferWithProperties: CL_INVALID_PROPERTY")
del os.environ["OCL_STAND_IN_NO_IMPORT"]
assert count("live") == 0 and count("contexts") == 0
shared([1.0])
assert _C.ocl_device_of_cuda(0) == 0
""")


def test_a_driver_without_a_gpu(run):
    run(
        """
try:
    shared([1.0])
except torch_ocl_compile.errors.UnsupportedError as error:
    assert "there is no NVIDIA GPU that CUDA can use" in str(error)
else:
    raise AssertionError
assert not _C.is_shared_with_cuda(torch.ones(1, device="ocl"))
""",
        OCL_STAND_IN_NO_GPU="1",
    )


@pytest.mark.needs("cpu")
def test_a_device_without_cuda(ocl_device):
    from torch_ocl_compile.errors import UnsupportedError

    with (
        pytest.raises(UnsupportedError, match=r"CUDA cannot be used|shares no memory with CUDA"),
        torch.ocl.shared_with_cuda(),
    ):
        torch.ones(3, device=ocl_device)
    assert torch.ones(3, device=ocl_device).tolist() == [1, 1, 1]


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA")
def test_a_torch_without_cuda():
    from torch_ocl_compile.errors import ConfigError

    for function in (torch.ocl.to_cuda, torch.ocl.from_cuda):
        with pytest.raises(ConfigError, match="built without CUDA"):
            function(torch.ones(3))
