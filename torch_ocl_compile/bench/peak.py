# torch_ocl_compile/bench/peak.py: measures the multiply-adds per second that an OpenCL CPU device reaches, by a small kernel.
"""The kernel multiplies and adds twelve vectors in registers in a loop. It loads nothing, and twelve independent chains
hide the latency.

op_side.py runs it in every round, for about as long as it times an operation. So the operation and the peak are
measured in the same second, also on a shared machine.
"""

from __future__ import annotations

import ctypes as C
import time
from typing import Any

P = C.c_void_p
VECTORS, STEPS, SECONDS = 12, 1 << 16, 0.06
SOURCE = """
#define F OCL_CAT(float, VW)
#define OCL_CAT(a, b) OCL_CAT_(a, b)
#define OCL_CAT_(a, b) a##b
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) __attribute__((vec_type_hint(float4)))
void peak(__global float* y, const float scale) {
  F sum[VECTORS];
  const F x = (F)(scale), add = (F)((float)get_global_id(0));
  __attribute__((opencl_unroll_hint)) for (int i = 0; i < VECTORS; ++i) sum[i] = (F)((float)i);
  for (int k = 0; k < STEPS; ++k)
    __attribute__((opencl_unroll_hint)) for (int i = 0; i < VECTORS; ++i) sum[i] = fma(sum[i], x, add);
  __attribute__((opencl_unroll_hint)) for (int i = 1; i < VECTORS; ++i) sum[0] += sum[i];
  OCL_CAT(vstore, VW)(sum[0], get_global_id(0), y);
}
"""


def _platforms(lib: C.CDLL) -> list[P]:
    """The platforms of the OpenCL loader, and those of runtimes that are installed only by pip."""
    from torch_ocl_compile.device.runtimes import vendor_libraries

    def ask(function: Any) -> list[P]:
        count = C.c_uint()
        if function(0, None, C.byref(count)) or not count.value:
            return []
        found = (P * count.value)()
        function(count, found, None)
        return [P(p) for p in found]

    found = ask(lib.clGetPlatformIDs)
    for path in vendor_libraries():
        vendor = C.CDLL(path)
        vendor.clGetExtensionFunctionAddress.restype = P
        address = vendor.clGetExtensionFunctionAddress(b"clIcdGetPlatformIDsKHR")
        if address:
            found += ask(C.CFUNCTYPE(C.c_int, C.c_uint, P, P)(address))
    return found


class Peak:
    """`Peak(name)()` measures the peak of the CPU device with that name, in operations per second. A multiply-add
    counts as two."""

    def __init__(self, name: str) -> None:
        lib = self.lib = C.CDLL("libOpenCL.so.1")
        for made in ("Context", "CommandQueue", "Buffer", "ProgramWithSource", "Kernel"):
            getattr(lib, "clCreate" + made).restype = P
        device = next((d for p in _platforms(lib) for d in self._devices(p) if self._text(d) == name), None)
        if device is None:
            raise LookupError(f"no OpenCL CPU device is called {name!r}")
        width, units, error = C.c_uint(), C.c_uint(), C.c_int()
        # 0x103A: native vector width of float.
        lib.clGetDeviceInfo(device, 0x103A, C.c_size_t(4), C.byref(width), None)
        lib.clGetDeviceInfo(device, 0x1002, C.c_size_t(4), C.byref(units), None)
        vector, self.items = min(16, max(4, width.value)), 32 * units.value
        self.operations = 2.0 * vector * VECTORS * STEPS * self.items
        context = P(lib.clCreateContext(None, 1, C.byref(device), None, None, C.byref(error)))
        self.queue = P(lib.clCreateCommandQueue(context, device, C.c_ulong(0), C.byref(error)))
        program = P(
            lib.clCreateProgramWithSource(context, 1, C.byref(C.c_char_p(SOURCE.encode())), None, C.byref(error))
        )
        options = f"-cl-std=CL1.2 -DVW={vector} -DVECTORS={VECTORS} -DSTEPS={STEPS}"
        if code := lib.clBuildProgram(program, 1, C.byref(device), options.encode(), None, None):
            raise RuntimeError(f"the kernel that measures the peak does not build: OpenCL error {code}")
        self.kernel = P(lib.clCreateKernel(program, b"peak", C.byref(error)))
        memory = P(lib.clCreateBuffer(context, C.c_ulong(1), C.c_size_t(4 * vector * self.items), None, C.byref(error)))
        lib.clSetKernelArg(self.kernel, 0, C.c_size_t(8), C.byref(memory))
        lib.clSetKernelArg(self.kernel, 1, C.c_size_t(4), C.byref(C.c_float(0.5)))
        self()

    def _devices(self, platform: P) -> list[P]:
        found, count = (P * 8)(), C.c_uint()
        # 2 selects CPUs.
        if self.lib.clGetDeviceIDs(platform, C.c_ulong(2), 8, found, C.byref(count)):
            return []
        return [P(d) for d in found[: count.value]]

    def _text(self, device: P) -> str:
        text = C.create_string_buffer(300)
        self.lib.clGetDeviceInfo(device, 0x102B, C.c_size_t(300), text, None)
        return text.value.decode().strip()

    def __call__(self) -> float:
        size, one = (C.c_size_t * 1)(self.items), (C.c_size_t * 1)(1)
        start, runs, passed = time.perf_counter(), 0, 0.0
        while passed < SECONDS:
            if self.lib.clEnqueueNDRangeKernel(self.queue, self.kernel, 1, None, size, one, 0, None, None):
                raise RuntimeError("the kernel that measures the peak cannot be enqueued")
            self.lib.clFinish(self.queue)
            runs, passed = runs + 1, time.perf_counter() - start
        return runs * self.operations / passed
