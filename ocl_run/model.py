# ocl_run/model.py: an open package as a Python object whose methods are called with arrays or tensors.
from __future__ import annotations

import ast
import os
import sys
import weakref
from collections.abc import Sequence
from ctypes import byref, c_int64, c_void_p, sizeof
from typing import Any

from ocl_run.library import DTYPES, INTEGER, REAL, TENSOR, Info, Options, PackageError, Value, library

__all__ = ["Method", "Model", "PackageError", "load"]


def load(
    path: str | os.PathLike[str],
    *,
    device: int | str = "",
    cache: str | os.PathLike[str] | None = None,
    trust_binaries: bool = False,
) -> Model:
    """Opens a package on a device. `device`: its number in `devices()` or a part of its name. `cache`: a file in which built
    kernels are kept; None: the user's cache folder. `trust_binaries`: use the native code in the package, which can do anything:
    only for packages that you made. PackageError if the package or the device cannot be used."""
    return Model(path, device=device, cache=cache, trust_binaries=trust_binaries)


class Model:
    """A package on a device. Calling it calls its only method, or the method "forward". `methods` has all of them by name.
    State that methods write stays on the device."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: int | str = "",
        cache: str | os.PathLike[str] | None = None,
        trust_binaries: bool = False,
    ) -> None:
        self._library = library()
        kept = os.fsencode(_cache_file() if cache is None else cache)
        options = Options(sizeof(Options), str(device).encode(), kept, int(trust_binaries), 0)
        handle = c_void_p()
        self._library.ocl_open(os.fsencode(path), byref(options), byref(handle))
        self._handle = handle
        self._close = weakref.finalize(self, self._library.ocl_close, handle)
        count = self._library.ocl_method_count(handle)
        self.methods = {method.name: method for method in (Method(self, i) for i in range(count))}

    def __call__(self, *arguments: Any) -> Any:
        method = self.methods.get("forward")
        if method is None and len(self.methods) == 1:
            method = next(iter(self.methods.values()))
        if method is None:
            raise PackageError(f"the package has several methods: {', '.join(self.methods)}", "bad input")
        return method(*arguments)

    def __getattr__(self, name: str) -> Method:
        methods: dict[str, Method] = self.__dict__.get("methods", {})
        if name not in methods:
            raise AttributeError(f"the package has no method {name!r}; it has {', '.join(methods)}")
        return methods[name]

    def close(self) -> None:
        """Closes the file and frees the weights. The model cannot be called afterwards."""
        self.methods.clear()
        self._close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self) -> None:
        """Gives state that methods write its first contents again."""
        self._library.ocl_reset(self._handle)

    def seed(self, seed: int) -> None:
        """Sets the seed of random numbers, which is 0 at first."""
        self._library.ocl_seed(self._handle, seed)

    def synchronize(self) -> None:
        """Waits for the weights, which are uploaded while the program goes on, and for all work on the device."""
        self._library.ocl_synchronize(self._handle)


class Method:
    """A method of a package. `arguments`: (name, description) of each, such as ("x", "float32 [s0, 3, 224, 224]"). `conditions`: what
    sizes and integers must fulfil, such as "the size of dimension 0 of x must be at most 64"."""

    def __init__(self, model: Model, number: int) -> None:
        self._model, self._number, self._library = weakref.ref(model), number, model._library
        self.name: str = self._library.ocl_method_name(model._handle, number).decode()
        self.structure: str = self._library.ocl_result_structure(model._handle, number).decode()
        self.arguments = self._described("argument", model)
        self.results = self._described("result", model)
        conditions = range(self._library.ocl_condition_count(model._handle, number))
        self.conditions: list[str] = [
            self._library.ocl_condition_text(model._handle, number, i).decode() for i in conditions
        ]

    def _described(self, what: str, model: Model) -> list[tuple[str, str]]:
        listed, info = [], Info()
        for i in range(getattr(self._library, f"ocl_{what}_count")(model._handle, self._number)):
            getattr(self._library, f"ocl_{what}_info")(model._handle, self._number, i, byref(info))
            sizes = info.sizes.decode()
            number = f"int, always {sizes}" if sizes.lstrip("-").isdigit() else f"int {sizes}"
            text = {TENSOR: f"{DTYPES[info.dtype]} {sizes}", INTEGER: number, REAL: "float"}
            listed.append((info.name.decode(), text.get(info.kind, "None")))
        return listed

    def prepare(self) -> None:
        """Builds the kernels of the method, which the first call does otherwise."""
        self._library.ocl_prepare(self._open()._handle, self._number)

    def __call__(self, *arguments: Any) -> Any:
        """Runs the method and waits for its results."""
        model = self._open()
        torch = sys.modules.get("torch")
        wants_torch = torch is not None and any(isinstance(a, torch.Tensor) for a in arguments)
        given = (Value * len(arguments))()
        results = (Value * len(self.results))()
        try:
            for i, argument in enumerate(arguments):
                given[i] = self._value(model, argument)
            self._library.ocl_call(model._handle, self._number, given, len(arguments), results, len(results))
            values = [self._result(value, torch if wants_torch else None) for value in results]
        finally:
            for value in (*given, *results):
                if value.kind == TENSOR:
                    self._library.ocl_tensor_release(value.tensor)
        match self.structure:
            case "value":
                return values[0]
            case "dict":
                return dict(zip((name for name, _ in self.results), values, strict=True))
            case "list" | "tuple":
                return values if self.structure == "list" else tuple(values)
        return _placed(ast.literal_eval(self.structure), values)

    def _open(self) -> Model:
        model = self._model()
        if model is None or not model._close.alive:
            raise PackageError("the model of this method is closed: keep the Model", "bad input")
        return model

    def _value(self, model: Model, argument: Any) -> Value:
        if isinstance(argument, int) and not isinstance(argument, bool):
            return Value(INTEGER, None, argument, 0.0)
        dtype, sizes, address, _kept = _memory_of(argument)
        tensor = c_void_p()
        places = (c_int64 * len(sizes))(*sizes)
        self._library.ocl_tensor_create(model._handle, DTYPES.index(dtype), len(sizes), places, address, byref(tensor))
        return Value(TENSOR, tensor, 0, 0.0)

    def _result(self, value: Value, torch: Any) -> Any:
        if value.kind != TENSOR:
            return {INTEGER: value.integer, REAL: value.real}.get(value.kind)
        dtype = DTYPES[self._library.ocl_tensor_dtype(value.tensor)]
        sizes = self._library.ocl_tensor_sizes(value.tensor)[: self._library.ocl_tensor_dims(value.tensor)]
        if torch is not None:
            made = torch.empty(sizes, dtype=getattr(torch, dtype))
            address = made.data_ptr()
        else:
            import numpy

            # numpy has no bfloat16. Its bits are the upper half of a float32's.
            made = numpy.empty(sizes, dtype="uint16" if dtype == "bfloat16" else dtype)
            address = made.ctypes.data
        self._library.ocl_tensor_read(value.tensor, address, self._library.ocl_tensor_bytes(value.tensor))
        if torch is None and dtype == "bfloat16":
            return (made.astype("uint32") << 16).view("float32")
        return made


def _placed(containers: Any, values: list[Any]) -> Any:
    """Returns containers with values in place of their numbers."""
    if isinstance(containers, dict):
        return {key: _placed(inside, values) for key, inside in containers.items()}
    if isinstance(containers, (list, tuple)):
        return type(containers)(_placed(inside, values) for inside in containers)
    return values[containers]


def _memory_of(argument: Any) -> tuple[str, Sequence[int], int, Any]:
    """Returns dtype, sizes and address of an array or a tensor, and the object that owns the memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(argument, torch.Tensor):
        held = argument.detach().cpu().contiguous()
        return str(held.dtype).removeprefix("torch."), tuple(held.shape), held.data_ptr(), held
    import numpy

    array = numpy.ascontiguousarray(argument).reshape(numpy.shape(argument))
    if array.dtype.name not in DTYPES:
        raise PackageError(f"an argument has dtype {array.dtype.name}, which packages do not have", "bad input")
    return array.dtype.name, array.shape, array.ctypes.data, array


def _cache_file() -> str:
    folder = os.environ.get("TORCH_OCL_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "torch_ocl_compile"
    )
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, "cache.sqlite")
