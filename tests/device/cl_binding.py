"""tests/device/cl_binding.py: a small OpenCL binding over ctypes, which builds and runs a kernel file without the package.

CPU devices use the memory of torch CPU tensors directly. For other devices, tensors are copied before and after each
launch; for Oclgrind too, because it treats the host's memory as uninitialised."""

import ctypes as C
import itertools
from dataclasses import dataclass
from pathlib import Path

import torch

P = C.c_void_p
KERNELS = Path(__file__).resolve().parents[2] / "kernels"
try:
    lib = C.CDLL("libOpenCL.so.1")
    for _name in (
        "clCreateContext",
        "clCreateCommandQueue",
        "clCreateBuffer",
        "clCreateProgramWithSource",
        "clCreateKernel",
    ):
        getattr(lib, _name).restype = P
except OSError:  # This machine has no OpenCL loader; devices() returns an empty list.
    lib = None


def check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: OpenCL error {code}")


@dataclass(frozen=True)
class Long:
    """A 64-bit scalar argument. A plain int is passed as 32 bits."""

    value: int


class Device:
    def __init__(self, handle: int, platform: str) -> None:
        error = C.c_int()
        self.handle, self.platform = P(handle), platform
        kind, units, text = C.c_ulong(), C.c_uint(), C.create_string_buffer(300)
        lib.clGetDeviceInfo(self.handle, 0x1000, C.c_size_t(8), C.byref(kind), None)
        lib.clGetDeviceInfo(self.handle, 0x1002, C.c_size_t(4), C.byref(units), None)
        lib.clGetDeviceInfo(self.handle, 0x102B, C.c_size_t(300), text, None)
        self.is_cpu, self.units, self.name = bool(kind.value & 2), units.value, text.value.decode()
        self.in_place = self.is_cpu and platform != "Oclgrind"
        self.context = P(lib.clCreateContext(None, 1, C.byref(self.handle), None, None, C.byref(error)))
        check(error.value, "clCreateContext")
        self.queue = P(lib.clCreateCommandQueue(self.context, self.handle, C.c_ulong(0), C.byref(error)))
        check(error.value, "clCreateCommandQueue")
        self.programs: dict[str, P] = {}

    def __repr__(self) -> str:
        return f"{self.platform.split()[0]}-{self.name.split()[0]}"

    def build(self, files: str, kernel: str, **defines: object) -> "Kernel":
        """Builds kernels/base/types.cl followed by `files` of kernels/, separated by blanks, with the given macros. Builds
        are cached by their text."""
        text = "".join(f"#define {k} {v}\n" for k, v in defines.items())
        text += "".join((KERNELS / file).read_text() for file in ("base/types.cl", *files.split()))
        if text not in self.programs:
            source, error = C.c_char_p(text.encode()), C.c_int()
            program = P(lib.clCreateProgramWithSource(self.context, 1, C.byref(source), None, C.byref(error)))
            check(error.value, "clCreateProgramWithSource")
            if code := lib.clBuildProgram(program, 1, C.byref(self.handle), b"-cl-std=CL1.2", None, None):
                log = C.create_string_buffer(20000)
                lib.clGetProgramBuildInfo(program, self.handle, 0x1183, C.c_size_t(20000), log, None)
                raise RuntimeError(f"clBuildProgram: error {code}\n{log.value.decode(errors='replace')}")
            self.programs[text] = program
        return Kernel(self, self.programs[text], kernel)

    def finish(self) -> None:
        check(lib.clFinish(self.queue), "clFinish")


class Kernel:
    def __init__(self, device: Device, program: P, name: str) -> None:
        error = C.c_int()
        self.device, self.name = device, name
        self.handle = P(lib.clCreateKernel(program, name.encode(), C.byref(error)))
        check(error.value, f"clCreateKernel({name})")

    def bind(self, global_size, *args, local_size=None):
        """Sets the arguments (a tensor becomes a buffer and an offset), and returns a function that enqueues the
        kernel.

        If the device does not use the tensors' memory directly, `read` must copy each result back afterwards.
        """
        slot, keep = itertools.count(), []

        def put(value) -> None:
            i = next(slot)
            check(
                lib.clSetKernelArg(self.handle, i, C.c_size_t(C.sizeof(value)), C.byref(value)),
                f"{self.name}: argument {i}",
            )

        for a in args:
            if isinstance(a, torch.Tensor):
                error, size = C.c_int(), max(4, a.untyped_storage().nbytes())
                memory = P(
                    lib.clCreateBuffer(
                        self.device.context,
                        # CL_MEM_READ_WRITE, and CL_MEM_USE_HOST_PTR or CL_MEM_COPY_HOST_PTR.
                        C.c_ulong(1 | (8 if self.device.in_place else 32)),
                        C.c_size_t(size),
                        P(a.untyped_storage().data_ptr()),
                        C.byref(error),
                    )
                )
                check(error.value, "clCreateBuffer")
                keep.append((memory, a))
                put(memory)
                put(C.c_ulong(a.storage_offset()))
            else:
                put(C.c_long(a.value) if isinstance(a, Long) else C.c_int(a))
        n = len(global_size)
        size, group = (C.c_size_t * n)(*global_size), (C.c_size_t * n)(*(local_size or [1] * n))

        def call(keep=keep) -> None:
            check(
                lib.clEnqueueNDRangeKernel(self.device.queue, self.handle, n, None, size, group, 0, None, None),
                self.name,
            )

        return call

    def __call__(self, global_size, *args, local_size=None) -> None:
        call = self.bind(global_size, *args, local_size=local_size)
        call()
        self.device.finish()
        for x in args:
            if isinstance(x, torch.Tensor):
                self.read(call, x)

    def read(self, call, x: torch.Tensor) -> None:
        """Copies what a finished call wrote to x back to the host."""
        if self.device.in_place:
            return
        memory = next(m for m, t in call.__defaults__[0] if t is x)
        storage = x.untyped_storage()
        size, to = C.c_size_t(storage.nbytes()), C.c_void_p(storage.data_ptr())
        check(lib.clEnqueueReadBuffer(self.device.queue, memory, 1, C.c_size_t(0), size, to, 0, None, None), "read")


def devices(cpu_only: bool = True) -> list[Device]:
    if lib is None:
        return []
    n, out = C.c_uint(), []
    if lib.clGetPlatformIDs(0, None, C.byref(n)):
        return []
    platforms = (P * n.value)()
    lib.clGetPlatformIDs(n, platforms, None)
    for p in platforms:
        text, d = C.create_string_buffer(200), P()
        lib.clGetPlatformInfo(P(p), 0x0902, C.c_size_t(200), text, None)
        if lib.clGetDeviceIDs(P(p), C.c_ulong(2 if cpu_only else 0xFFFFFFFF), 1, C.byref(d), None) == 0:
            out.append(Device(d.value, text.value.decode()))
    return out
