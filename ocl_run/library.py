# ocl_run/library.py: libocl_run by ctypes: its structs, its functions, and its errors as exceptions.
from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

NOTHING, TENSOR, INTEGER, REAL = range(4)
# Order of ocl_dtype in ocl_run.h. numpy has no bfloat16.
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
_STATUS = {1: "bad input", 2: "unsupported", 3: "device", 4: "build", 5: "out of memory", 6: "internal"}


class PackageError(RuntimeError):
    """A package, a device or an argument cannot be used. `status` is one of "bad input", "unsupported", "device", "build",
    "out of memory", "internal"."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class Value(ctypes.Structure):
    """ocl_value"""

    _fields_ = (("kind", c_int), ("tensor", c_void_p), ("integer", c_int64), ("real", c_double))


class Options(ctypes.Structure):
    """ocl_options"""

    _fields_ = (
        ("size", c_size_t),
        ("device", c_char_p),
        ("cache", c_char_p),
        ("trust_binaries", c_int),
        ("kept_bytes", c_int64),
    )


class Info(ctypes.Structure):
    """ocl_info"""

    _fields_ = (("name", c_char_p), ("kind", c_int), ("dtype", c_int), ("sizes", c_char_p))


# Result type and argument types. Functions with the result _Status raise PackageError.
class _Status(c_int):
    pass


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ocl_version": (c_char_p,),
    "ocl_error": (c_char_p,),
    "ocl_add_runtime": (_Status, c_char_p),
    "ocl_device_count": (c_int,),
    "ocl_device_name": (c_char_p, c_int),
    "ocl_open": (_Status, c_char_p, POINTER(Options), POINTER(c_void_p)),
    "ocl_close": (None, c_void_p),
    "ocl_method_count": (c_int, c_void_p),
    "ocl_method_name": (c_char_p, c_void_p, c_int),
    "ocl_method_find": (_Status, c_void_p, c_char_p, POINTER(c_int)),
    "ocl_argument_count": (c_int, c_void_p, c_int),
    "ocl_result_count": (c_int, c_void_p, c_int),
    "ocl_argument_info": (_Status, c_void_p, c_int, c_int, POINTER(Info)),
    "ocl_result_info": (_Status, c_void_p, c_int, c_int, POINTER(Info)),
    "ocl_condition_count": (c_int, c_void_p, c_int),
    "ocl_condition_text": (c_char_p, c_void_p, c_int, c_int),
    "ocl_result_structure": (c_char_p, c_void_p, c_int),
    "ocl_prepare": (_Status, c_void_p, c_int),
    "ocl_call": (_Status, c_void_p, c_int, POINTER(Value), c_int, POINTER(Value), c_int),
    "ocl_reset": (_Status, c_void_p),
    "ocl_seed": (_Status, c_void_p, c_uint64),
    "ocl_synchronize": (_Status, c_void_p),
    "ocl_tensor_create": (_Status, c_void_p, c_int, c_int, POINTER(c_int64), c_void_p, POINTER(c_void_p)),
    "ocl_tensor_write": (_Status, c_void_p, c_void_p, c_size_t),
    "ocl_tensor_dtype": (c_int, c_void_p),
    "ocl_tensor_dims": (c_int, c_void_p),
    "ocl_tensor_sizes": (POINTER(c_int64), c_void_p),
    "ocl_tensor_bytes": (c_size_t, c_void_p),
    "ocl_tensor_read": (_Status, c_void_p, c_void_p, c_size_t),
    "ocl_tensor_release": (None, c_void_p),
}


_NAME = "ocl_run.dll" if sys.platform == "win32" else "libocl_run.so.0"


def folder() -> Path:
    """Returns the folder with the library and its headers. PackageError if they are not installed."""
    for entry in sys.path:
        place = Path(entry) / "torch_ocl_compile"
        if (place / _NAME).exists():
            return place
    raise PackageError(f"{_NAME} is not installed\n  do: pip install torch-ocl-compile", "bad input")


@cache
def library() -> Any:
    """Returns the library. PackageError if it is not installed."""
    loaded = ctypes.CDLL(str(folder() / _NAME))

    def checked(result: _Status, *_: Any) -> None:
        if result.value:
            raise PackageError(loaded.ocl_error().decode(errors="replace"), _STATUS.get(result.value, "internal"))

    for function, (result, *arguments) in _FUNCTIONS.items():
        getattr(loaded, function).argtypes = arguments
        getattr(loaded, function).restype = result
        if result is _Status:
            getattr(loaded, function).errcheck = checked
    _add_runtimes(loaded)
    return loaded


def devices() -> list[str]:
    """Returns the names of the OpenCL devices, "platform / device", in the order of their numbers."""
    loaded = library()
    return [loaded.ocl_device_name(i).decode(errors="replace") for i in range(loaded.ocl_device_count())]


def _add_runtimes(loaded: Any) -> None:
    """Adds OpenCL runtimes that pip installed beside Python."""
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        runtime = Path(prefix) / "lib" / "libintelocl.so"
        if runtime.exists():
            loaded.ocl_add_runtime(str(runtime).encode())
