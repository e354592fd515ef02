# torch_ocl_compile/user_kernel/kernel.py: torch_ocl_compile.kernel(): an OpenCL C kernel as a torch op.
"""The op is registered with torch.library, so eager code, autograd, fake tensors and torch.compile know it. A kernel that
writes into its arguments gets a second op without effects, which compiled graphs call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import DispatchKey

from torch_ocl_compile import _C, config
from torch_ocl_compile.errors import BuildError, ConfigError
from torch_ocl_compile.user_kernel import messages, registry, signature
from torch_ocl_compile.user_kernel.signature import OPENCL_TYPES, SCALARS, Parameter, element, number_bytes

Function = Callable[..., Any]
_KEPT = 64  # Builds that a kernel keeps, one for each device and set of macros.


def kernel(
    name: str,
    source: str,
    *,
    kernel: str = "",
    outputs: Mapping[str, Function] | None = None,
    values: Mapping[str, Any] | None = None,
    global_size: Any,
    local_size: Any = None,
    defines: Any = None,
    options: str = "",
    strided: Sequence[str] = (),
) -> Kernel:
    """Makes a torch op of a kernel in OpenCL C. The op takes the kernel's parameters in their order, without those that
    `outputs` and `values` name: tensors for `__global` pointers, floats and ints for numbers.

    name: "library::op". A second registration of a name is a ConfigError.
    source: the program. Tensors with elements of type T are `__global T*` parameters, those that are only read `const`.
    kernel: the kernel's name, by default that of the op, or the only kernel of the source.
    outputs: parameter -> a function that returns the new tensor into which the kernel writes. The op returns these.
        A pointer that is neither const nor an output is an argument that the op changes.
    values: parameter -> a number, or a function that returns it. For `__local` memory: how many elements.
    global_size: the number of work-items, or a tuple of up to three; it is rounded up to a multiple of `local_size`.
    local_size: the same for a work-group. None: what the source requires, otherwise the runtime chooses.
    defines: macro -> text, number or dtype (which becomes OpenCL's type).
    options: options of clBuildProgram.
    strided: tensors that need not be contiguous; pass their strides through `values`. All others must be contiguous.

    Every function gets the op's arguments. `global_size`, `local_size` and `defines` may be functions too."""
    return Kernel(
        name,
        source,
        kernel,
        dict(outputs or {}),
        dict(values or {}),
        Sizes(global_size, local_size),
        defines,
        options,
        tuple(strided),
    )


@dataclass(frozen=True)
class Sizes:
    global_size: Any
    local_size: Any


@dataclass(frozen=True)
class Prepared:
    """A launch without its tensors. `arguments`: see csrc/python/user_kernel_bindings.cpp."""

    text: str
    arguments: list[Any]
    global_size: list[int]
    local_size: list[int] | None


@dataclass(frozen=True)
class Specialised:
    """The program for one set of macros. `elements` has the (scalar type, vector width) of each parameter."""

    text: str
    elements: dict[str, tuple[str, int]]


class Kernel:
    """An op made of a kernel: `z = saxpy(x, y, 2.0)`. `op` is the overload in torch.ops."""

    def __init__(
        self,
        name: str,
        source: str,
        kernel: str,
        outputs: dict[str, Function],
        values: dict[str, Any],
        sizes: Sizes,
        defines: Any,
        options: str,
        strided: tuple[str, ...],
    ) -> None:
        self.name, self.source, self.outputs, self.values = name, source, outputs, values
        self.sizes, self.defines, self.options, self.strided = sizes, defines, options, strided
        messages.check_name(name, registry.KERNELS)
        self.signature = signature.parse(source, kernel, name)
        self.parameters = self.signature.parameters
        messages.check_parameters(self)
        self.inputs = [p for p in self.parameters if p.name not in outputs and p.name not in values]
        self.changed = [p.name for p in self.inputs if p.written]
        self._macros = signature.macros_of(source)
        self._builds: dict[tuple[int, str], Any] = {}
        self._lock = threading.Lock()
        self._formulas: list[Function] = []
        self._reference: Function | None = None
        self._text = self.signature.text()
        self._programs: dict[tuple[tuple[str, str], ...], Specialised] = {}
        self.known_elements = messages.elements_without_macros(self)
        self._define()
        registry.KERNELS[name] = self
        registry.BY_OVERLOAD[self.functional] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            messages.check_call(self, args, kwargs)
        return self.op(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<torch_ocl_compile.kernel {self.op._schema}>"

    def reference(self, function: Function) -> Function:
        """Registers a function that computes the op for CPU tensors. May be used as a decorator. For an op that changes
        arguments, the function changes them too.
        """
        self._reference = function
        return function

    def register_autograd(self, backward: Function, /, *, setup_context: Function | None = None) -> None:
        """Registers the formula of the gradient, as torch.library.register_autograd does: backward(ctx, *gradients)
        returns a gradient or None for each argument of the op. ConfigError for an op that changes its arguments.
        """
        if self.changed:
            raise ConfigError(
                f"{self.name} changes {', '.join(self.changed)}, so it can have no gradient.\n  do: give it outputs."
            )
        self._formulas = [backward, *([setup_context] if setup_context else [])]
        torch.library.register_autograd(self.op, backward, setup_context=setup_context, lib=self._library)

    def program(self, *args: Any) -> str:
        """Returns the text that is compiled for these arguments: macros first, then the source."""
        return self._specialised(self._define_texts(args)).text

    # Registration

    def _define(self) -> None:
        namespace, own = self.name.split("::")
        self._own_name = own
        self._library = torch.library.Library(namespace, "FRAGMENT")
        changes = {name: f"(a{i}!)" for i, name in enumerate(self.changed)}
        listed = [(self._schema_type(p), p.name) for p in self.inputs]
        returned = len(self.outputs)
        tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)

        def define(name: str, types: list[tuple[str, str]], count: int) -> Any:
            returns = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
            self._library.define(f"{name}({', '.join(f'{t} {n}' for t, n in types)}) -> {returns}", tags=tags)
            return getattr(getattr(torch.ops, namespace), name).default

        self.op = define(own, [(t + changes.get(n, ""), n) for t, n in listed], returned)
        self.functional = self.op
        self._library.impl(own, self._run, "PrivateUse1")
        self._library.impl(own, self._on_cpu, "CPU")
        torch.library.register_fake(self.op, self._fake, lib=self._library)
        if not self.changed:
            return
        self.functional = define(own + "_functional", listed, returned + len(self.changed))
        self._library.impl(own + "_functional", lambda *args: self._on_copies(self._run, args), "PrivateUse1")
        self._library.impl(own + "_functional", lambda *args: self._on_copies(self._on_cpu, args), "CPU")
        torch.library.register_fake(self.functional, lambda *args: self._on_copies(self._fake, args), lib=self._library)
        self.op.py_impl(DispatchKey.CompositeImplicitAutograd)(self._functionally)

    def _schema_type(self, p: Parameter) -> str:
        if p.space:
            return "Tensor"
        kind, width = element(p.type, self._macros, f"{self.name}: parameter {p.name}")
        if width != 1:
            raise ConfigError(
                f"{self.name}: {p.name} is a {p.type}.\n  do: an op passes single numbers; take {width} of them."
            )
        return "float" if SCALARS[kind][0] in "efd" else "SymInt"

    def _functionally(self, *args: Any) -> Any:
        """Runs the op that changes arguments, by calling the op that returns them changed."""
        results = self.functional(*args)
        results = results if isinstance(results, tuple) else (results,)
        given = self._named(args)
        for name, result in zip(self.changed, results[len(self.outputs) :], strict=True):
            given[name].copy_(result)
        return _returned(results[: len(self.outputs)])

    def _on_copies(self, function: Function, args: Sequence[Any]) -> Any:
        copied = [a.clone() if p.name in self.changed else a for p, a in zip(self.inputs, args, strict=True)]
        made = function(*copied)
        made = () if made is None else made if isinstance(made, tuple) else (made,)
        return _returned((*made, *(a for p, a in zip(self.inputs, copied, strict=True) if p.name in self.changed)))

    def _on_cpu(self, *args: Any) -> Any:
        if self._reference is not None:
            return self._reference(*args)
        raise ConfigError(
            f"{self.name} was called with CPU tensors, but it has no reference for them.\n"
            "  do: move the tensors to 'ocl', or register a function: @op.reference"
        )

    # What registered functions compute

    def _named(self, args: Sequence[Any]) -> dict[str, Any]:
        return {p.name: a for p, a in zip(self.inputs, args, strict=True)}

    def _fake(self, *args: Any) -> Any:
        self._check_tensors(self._named(args))
        return _returned(self._outputs(args))

    def _outputs(self, args: Sequence[Any]) -> list[torch.Tensor]:
        made = [self.outputs[p.name](*args) for p in self.parameters if p.name in self.outputs]
        for p, tensor in zip((p for p in self.parameters if p.name in self.outputs), made, strict=True):
            messages.check_tensor(self, p, tensor, "output")
        return made

    def _check_tensors(self, given: dict[str, Any]) -> None:
        devices = {t.device for t in given.values() if isinstance(t, torch.Tensor)}
        if len(devices) > 1:
            raise messages.other_device(self.name, given)
        for p in self.inputs:
            if p.space:
                messages.check_tensor(self, p, given[p.name], "argument")

    def _run(self, *args: Any) -> Any:
        """Calls the kernel: allocates the outputs, enqueues, returns."""
        given = self._named(args)
        self._check_tensors(given)
        results = self._outputs(args)
        tensors = [given[p.name] for p in self.inputs if p.space] + results
        prepared = self.prepare(args, tensors)
        index = tensors[0].device.index
        launch = self.launch(prepared, index)
        launch.run(tensors)
        return _returned(results)

    def prepare(self, args: Sequence[Any], tensors: Sequence[torch.Tensor], changed: Sequence[int] = ()) -> Prepared:
        """Returns the launch for these arguments. `tensors` are the arguments, then the outputs. `changed` has the
        positions of the changed arguments among `tensors`, if they are not at their own place.
        """
        args = [_plain(a) for a in args]
        given = self._named(args)
        specialised = self._specialised(self._define_texts(args))
        places = {p.name: i for i, p in enumerate(p for p in self.inputs if p.space)}
        places.update(
            {p: len(places) + i for i, p in enumerate(n.name for n in self.parameters if n.name in self.outputs)}
        )
        places.update(zip(self.changed, changed, strict=False))
        arguments: list[Any] = []
        for p in self.parameters:
            kind, width = specialised.elements[p.name]
            if p.space == "global":
                arguments.append([places[p.name]] if p.written else places[p.name])
                continue
            value = given[p.name] if p.name in given else self.values[p.name]
            value = _plain(value(*args) if callable(value) else value)
            if p.space == "local":
                arguments.append((int(value) * SCALARS[kind][1] * (4 if width == 3 else width),))
            else:
                arguments.append(number_bytes(value, kind, f"{self.name}: {p.name}"))
        local = self._size(self.sizes.local_size, args, "local_size") if self.sizes.local_size is not None else None
        return Prepared(specialised.text, arguments, self._size(self.sizes.global_size, args, "global_size"), local)

    def launch(self, prepared: Prepared, index: int, **plan: Any) -> Any:
        """Returns the launch on the device with this index. `plan`: further arguments of _C.exec.UserLaunch."""
        built = self.build(prepared.text, index)
        local = prepared.local_size or [*built.required_local]
        items = local[0] * local[1] * local[2]
        if items > built.most_items:
            raise messages.group_too_large(self, local, items, built.most_items)
        memory = sum(a[0] for a in prepared.arguments if isinstance(a, tuple))
        if memory and memory > (most := _C.device_properties(index)["local_bytes"]):
            raise ConfigError(f"{self.name} asks for {memory} bytes of __local memory, but the device has {most}.")
        rounded = [-(-g // step) * step if step else g for g, step in zip(prepared.global_size, local, strict=True)]
        return _C.exec.UserLaunch(built, self.name, prepared.arguments, rounded, local, **plan)

    def build(self, text: str, index: int) -> Any:
        """Returns the built kernel. BuildError with the compiler's log and the lines of the source that it names."""
        key = (index, text)
        found = self._builds.get(key)
        if found is None:
            config.configure_core()
            try:
                found = _C.exec.UserKernel(index, self.signature.kernel, text, self.name)
            except BuildError as error:
                raise BuildError(messages.with_lines(str(error), self, text)) from None
            with self._lock:
                while len(self._builds) >= _KEPT:
                    self._builds.pop(next(iter(self._builds)))
                self._builds[key] = found
        return found

    def _size(self, size: Any, args: Sequence[Any], what: str) -> list[int]:
        made = size(*args) if callable(size) else size
        listed = [int(s) for s in (made if isinstance(made, (tuple, list)) else (made,))]
        if not 1 <= len(listed) <= 3 or any(s < 0 for s in listed):
            raise ConfigError(f"{self.name}: {what} is {made}, but it must be one to three numbers from 0 on.")
        return [*listed, 1, 1][:3]

    def _define_texts(self, args: Sequence[Any]) -> dict[str, str]:
        made = self.defines(*args) if callable(self.defines) else self.defines or {}
        return {name: messages.macro_text(self.name, name, value, OPENCL_TYPES) for name, value in made.items()}

    def _specialised(self, texts: dict[str, str]) -> Specialised:
        """Returns the program and the types of its parameters for these macros."""
        key = tuple(texts.items())
        found = self._programs.get(key)
        if found is None:
            macros = {**self._macros, **texts}
            elements = {p.name: element(p.type, macros, f"{self.name}: {p.name}") for p in self.parameters}
            head = f"//@options {self.options}\n" if self.options else ""
            head += "".join(f"#define {name} {text}\n" for name, text in texts.items())
            found = Specialised(f'{head}#line 1 "{self.name.replace("::", ".")}"\n{self._text}\n', elements)
            with self._lock:
                while len(self._programs) >= _KEPT:
                    self._programs.pop(next(iter(self._programs)))
                self._programs[key] = found
        return found

    # For the keys of stored graphs

    def texts(self) -> list[str]:
        return [
            self.name,
            self.source,
            self.signature.kernel,
            self.options,
            repr(self.strided),
            repr(sorted(self.outputs)),
        ]

    def functions(self) -> list[Any]:
        return [self.outputs, self.values, self.sizes.global_size, self.sizes.local_size, self.defines, self._formulas]


def _plain(value: Any) -> Any:
    """Returns the value; a SymInt becomes a Python int."""
    return int(value) if isinstance(value, torch.SymInt) else value


def _returned(results: Sequence[torch.Tensor]) -> Any:
    return None if not results else results[0] if len(results) == 1 else tuple(results)
