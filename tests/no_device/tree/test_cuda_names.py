# tests/no_device/tree/test_cuda_names.py: torch.ocl has the public names of torch.cuda, or a reason for each that is missing.
from types import ModuleType

import pytest
import torch

import torch_ocl_compile  # noqa: F401  (registers the device)

TYPES = "a tensor or storage type of one dtype, which PyTorch has given up: use a dtype and a device"
MACHINERY = "a name that torch.cuda imports, or that torch.cuda's own code needs"
CAPTURE = "there are no captured graphs: a compiled function enqueues its kernels in one call"
NVML = "asks NVIDIA's management library; OpenCL has no such question"
ARCHES = "about the CUDA architectures that torch was built for; kernels are compiled on the device"
HANDLE = "a handle of a CUDA library"
POOLS = "there is one pool of memory for each device, and it cannot be replaced"
OLD = "a name that PyTorch has deprecated; the new name is there"
SUBMODULE = "a module of torch.cuda; its functions that make sense here are in torch.ocl itself"
RAW = "raw memory for other CUDA libraries; an address of ocl means nothing to the host"

MISSING = {
    **dict.fromkeys(
        ["BFloat16Storage", "BFloat16Tensor", "BoolStorage", "BoolTensor", "ByteStorage", "ByteTensor", "CharStorage",
         "CharTensor", "ComplexDoubleStorage", "ComplexFloatStorage", "DoubleStorage", "DoubleTensor", "FloatStorage",
         "FloatTensor", "HalfStorage", "HalfTensor", "IntStorage", "IntTensor", "LongStorage", "LongTensor", "ShortStorage",
         "ShortTensor"], TYPES),
    **dict.fromkeys(
        ["CudaError", "DEVICE_REQUIREMENT", "DeferredCudaCallError", "Device", "PYTORCH_RELEASES_CODE_CC", "check_error",
         "classproperty", "cudaStatus", "has_half", "has_magma"], MACHINERY),
    **dict.fromkeys(["CUDAGraph", "graph", "graph_pool_handle", "graphs", "make_graphed_callables"], CAPTURE),
    **dict.fromkeys(
        ["clock_rate", "list_gpu_processes", "memory_usage", "power_draw", "temperature", "utilization"], NVML),
    **dict.fromkeys(["get_arch_list", "get_gencode_flags"], ARCHES),
    **dict.fromkeys(["cudart", "current_blas_handle", "current_solver_handle"], HANDLE),
    **dict.fromkeys(
        ["CUDAPluggableAllocator", "MemPool", "caching_allocator_disabled", "caching_allocator_enable",
         "change_current_allocator", "get_allocator_backend", "use_mem_pool"], POOLS),
    **dict.fromkeys(
        ["max_memory_cached", "memory_cached", "reset_max_memory_allocated", "reset_max_memory_cached"], OLD),
    **dict.fromkeys(["amp", "profiler", "random", "streams"], SUBMODULE),
    **dict.fromkeys(["caching_allocator_alloc", "caching_allocator_delete"], RAW),
    "ExternalStream": "PyTorch has no way to wrap an OpenCL queue of another library",
    "GreenContext": "a part of an NVIDIA GPU; OpenCL's sub-devices are devices of their own",
    "StreamContext": "the class behind torch.cuda.stream; torch.ocl.stream is a function",
    "gds": "copies between NVIDIA GPUs and disks",
    "get_stream_from_external": "PyTorch has no way to wrap an OpenCL queue of another library",
    "get_sync_debug_mode": "does not exist yet: nothing reports the calls that wait for the device",
    "green_contexts": "parts of an NVIDIA GPU; OpenCL's sub-devices are devices of their own",
    "ipc_collect": "OpenCL shares no memory between processes",
    "jiterator": "compiles CUDA C++ for one operation; write an OpenCL kernel, docs/writing_kernels.md",
    "nccl": "NVIDIA's library for collectives; the process group ocl calls it",
    "nvtx": "marks for NVIDIA's profiler",
    "set_sync_debug_mode": "does not exist yet: nothing reports the calls that wait for the device",
    "sparse": "CUDA's classes of sparse tensors by dtype, as torch.cuda.FloatTensor",
    "tunable": "PyTorch's choice among cuBLAS kernels; here it is `torch-ocl tune`",
}  # fmt: skip


def public_names(module):
    """Yields the public names of a module, without those that it imports from Python's own modules."""
    foreign = {"typing", "functools", "collections.abc", "builtins"}
    for name in dir(module):
        value = getattr(module, name, None)
        outside = isinstance(value, ModuleType) and not value.__name__.startswith(module.__name__ + ".")
        if not name.startswith("_") and not outside and getattr(value, "__module__", "") not in foreign:
            yield name


@pytest.mark.parametrize("part", ["cuda", "cuda.memory"])
def test_every_name_is_there_or_has_a_reason(part):
    theirs = torch.cuda if part == "cuda" else torch.cuda.memory
    # These are imported from Python's standard library.
    names = set(public_names(theirs)) - {"TYPE_CHECKING", "deprecated", "signature"}
    unexplained = sorted(name for name in names if not hasattr(torch.ocl, name) and name not in MISSING)
    assert not unexplained, f"torch.ocl lacks names of torch.{part}: add them, or a reason: {unexplained}"


def test_memory_has_what_it_promises():
    assert all(getattr(torch.ocl, name) is getattr(torch.ocl.memory, name) for name in torch.ocl.memory.__all__)
    # PyTorch's guides use these names.
    needed = {"_record_memory_history", "_snapshot", "_dump_snapshot"}
    assert needed <= set(dir(torch.ocl.memory)) & set(dir(torch.cuda.memory))


def test_no_reason_is_left_over():
    """MISSING lists names of torch 2.13; other versions of torch have fewer or more."""
    found = sorted(name for name in MISSING if hasattr(torch.ocl, name))
    assert not found, f"torch.ocl has these: remove their reasons: {found}"
    if torch.__version__.startswith("2.13."):
        gone = sorted(set(MISSING) - set(dir(torch.cuda)))
        assert not gone, f"torch.cuda does not have these: {gone}"
