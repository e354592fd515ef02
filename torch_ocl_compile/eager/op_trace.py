# torch_ocl_compile/eager/op_trace.py: traces one call of an op on fake tensors in its functional form.
"""What a key of the call ignores (csrc/torch/eager_key.h) is a symbol of the trace."""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_flatten, tree_unflatten

from torch_ocl_compile import _C
from torch_ocl_compile._C import Recipe, ir
from torch_ocl_compile.decompositions.table import ocl_decomp_table
from torch_ocl_compile.eager.conditions import conditions_of
from torch_ocl_compile.eager.forms import form_of, form_of_numbers, functional_of, inputs_of
from torch_ocl_compile.eager.tracing import trace
from torch_ocl_compile.errors import InternalError, OclError, UnsupportedError
from torch_ocl_compile.fx.graph_pass import drop_dead_code
from torch_ocl_compile.lowering.core.complex_value import real_dtype

aten = torch.ops.aten


class Level(enum.IntEnum):
    """How much of its call a plan depends on; see csrc/torch/eager_key.h."""

    EXACT = 0
    NUMBERS = 1
    SIZES = 2


# Errors that ops raise for arguments that they do not take. Errors that only tracing raises have classes of their own.
_OF_ARGUMENTS = (RuntimeError, IndexError, ValueError)
# Errors that fake tensors raise for ops that they cannot handle.
_OF_TRACES = (
    DynamicOutputShapeException,
    DataDependentOutputException,
    UnsupportedOperatorException,
    UnsupportedFakeTensorException,
)


class Untraceable(Exception):
    """PyTorch cannot trace the op.

    `bad_arguments` is true if its arguments are the reason; the op itself will report the error. `lasting` is true if it
    can never be traced.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.bad_arguments = type(error) in (*_OF_ARGUMENTS, TypeError)
        self.lasting = isinstance(error, (*_OF_TRACES, NotImplementedError))


def _is_ours(error: BaseException) -> bool:
    """True if code of this package raised the error."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_globals.get("__name__", "").startswith("torch_ocl_compile")


class OpTrace:
    """The traced graph of one op, and the leaf of each of its placeholders."""

    def __init__(self, op: Any, args: list[Any], same: list[int], level: Level, fixed: bool) -> None:
        """`fixed`: floats, and integers that act as sizes, stay constants."""
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self.op = op
        self.form = form_of(op) if level is Level.EXACT or fixed else form_of_numbers(op)
        self.level = level
        self.leaves, self.spec = tree_flatten(args)
        self.same = same
        self.arguments = [i for i, a in enumerate(args) for _ in range(len(a) if isinstance(a, (list, tuple)) else 1)]
        # The argument whose floats vary, as in csrc/torch/eager_key.cpp. None: all arguments.
        self.free = next((i for i, a in enumerate(op._schema.arguments) if a.name == "lr"), None)
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]
        self.has_dims = any(t.dim() > 0 for t in self.tensors)
        self.numbers = {i: leaf.item() for i, leaf in enumerate(self.leaves) if _is_number(leaf)}
        self.symbols: dict[tuple[int, bool], Any] = {}  # (size or stride, is it a stride) -> SymInt.
        # sympy symbol -> (leaf, dimension, is it a stride). Dimension -1: the leaf is the integer itself.
        self.places: dict[Any, tuple[int, int, bool]] = {}
        self.float_places: dict[Any, int] = {}  # sympy symbol -> leaf.
        self.fixed = fixed
        self.constants: dict[int, float] = {}  # Leaf -> a number that the key ignores but the graph has as a constant.
        self.leaf_of: list[int] = []  # The leaf of each placeholder.
        # For each return: (is it a list, which elements exist), or (number,), or the position of the argument that is
        # returned.
        self.fresh: list[Any] = []
        # The out= arguments whose size differs from the result, as (leaf, sizes, strides of the result).
        self.resizes: list[tuple[int, list[int], list[int]]] = []
        if any(a.is_out for a in op._schema.arguments):
            self._check_out()
        if self.resizes and level is Level.SIZES:
            raise UnsupportedError("it resizes an argument")
        if not self.resizes:
            self.graph_module = self._trace()

    def _trace(self) -> torch.fx.GraphModule:
        with self.mode:
            fakes = [self._placeholder(i, leaf) for i, leaf in enumerate(self.leaves)]
            self.leaf_of = [i for i, fake in enumerate(fakes) if fake is not None]
            function = torch.func.functionalize(self._call, remove="mutations")
            try:
                made = trace(function, [fake for fake in fakes if fake is not None], ocl_decomp_table())
            except OclError:
                raise
            except Exception as error:
                if type(error) not in _OF_ARGUMENTS and _is_ours(error):
                    raise InternalError(f"{self.op} is traced: {type(error).__name__}: {error}") from error
                raise Untraceable(error) from error
        drop_dead_code(made)
        for leaf, node in zip(self.leaf_of, (n for n in made.graph.nodes if n.op == "placeholder"), strict=True):
            node.meta["leaf"] = leaf
        return made

    def conditions(self) -> Recipe.Conditions:
        """Returns the calls that the graph serves. Call it after lowering, which may decide something by a size too."""
        return conditions_of(self.env, self.places, self.constants, self.float_places)

    def _check_out(self) -> None:
        """Checks the arguments that the op writes to, by calling the op itself, because its functional form does not
        know them. Notes which ones it resizes. Raises Untraceable if a result cannot be cast to an argument's type, or if
        memory cannot be written to.
        """
        with FakeTensorMode(allow_non_fake_inputs=True):
            fakes: list[Any] = [
                _like(t, t.shape, t.stride())
                if isinstance(t, torch.Tensor) and not _is_number(t)
                else self._constant(i, t)
                for i, t in enumerate(self.leaves)
            ]
            args, kwargs = self._values([fakes[first] for first in self.same])
            try:
                self.op(*args, **kwargs)
            except Exception as error:
                if type(error) in (*_OF_ARGUMENTS, TypeError):
                    raise Untraceable(error) from error
            resized = [i for i, t in enumerate(fakes) if isinstance(t, FakeTensor) and t.shape != self.leaves[i].shape]
            functional, made = functional_of(self.op) if resized else None, ()
            try:
                if functional is not None:
                    made = functional(*args, **{k: v for k, v in kwargs.items() if k in inputs_of(functional)})
            except Exception as error:
                raise Untraceable(error) from error
        strides = {tuple(t.shape): t.stride() for t in tree_flatten(made)[0]}
        for i in resized:
            # The fake out= argument is contiguous, whatever the strides of the result are.
            shape = tuple(fakes[i].shape)
            self.resizes.append((i, list(shape), list(strides.get(shape, fakes[i].stride()))))

    def _placeholder(self, i: int, leaf: Any) -> Any:
        """Returns the fake argument for a leaf. None if the graph has it as a constant."""
        if self.same[i] != i:
            return None
        if isinstance(leaf, torch.Tensor):
            if _is_number(leaf):
                return self._number(i, leaf)
            sizes, strides = list(leaf.shape), list(leaf.stride())
            if self.level is Level.SIZES:
                sizes, strides = self._symbolic(i, leaf)
            return _like(leaf, sizes, strides)
        is_size = self.level is Level.SIZES and type(leaf) is int and leaf > 1 and self._acts_as_size(i)
        is_free = self.level is not Level.EXACT and isinstance(leaf, float) and self.free in (None, self.arguments[i])
        if self.fixed and (is_size or is_free):
            self.constants[i] = leaf
        elif is_size:
            return self._symbol(i, -1, leaf)
        elif is_free:
            return self._symbolic_float(i, leaf)
        return None

    def _acts_as_size(self, i: int) -> bool:
        return _C.acts_as_size(self.op._schema.arguments[self.arguments[i]].name)

    def _number(self, i: int, leaf: torch.Tensor) -> Any:
        """Returns the fake argument for a CPU scalar. None for a Python number that the graph has as a constant."""
        if not _C.is_wrapped_number(leaf):
            return torch.empty((), dtype=leaf.dtype)
        if self.level is Level.EXACT or leaf.is_complex() or leaf.dtype is torch.bool:
            return None
        return torch.empty((), dtype=self._number_type(leaf))

    def _number_type(self, leaf: torch.Tensor) -> torch.dtype:
        """Returns the dtype of a scalar tensor that stands for a Python number. It promotes the result as the number
        would.
        """
        kinds = [t.dtype for t in self.tensors if not _is_number(t)]
        if leaf.is_complex():
            kinds = [d for d in kinds if d.is_floating_point or d.is_complex] or [torch.get_default_dtype()]
            return functools.reduce(torch.promote_types, kinds, torch.complex32)
        kinds = [real_dtype(d) for d in kinds]
        if leaf.is_floating_point():
            kinds = [d for d in kinds if d.is_floating_point]
            plain = torch.get_default_dtype()
        else:
            kinds = [d for d in kinds if d is not torch.bool]
            plain = leaf.dtype
        if torch.float64 in kinds:
            return torch.float64
        return plain if self.has_dims or not kinds else functools.reduce(torch.promote_types, kinds)

    def _constant(self, i: int, leaf: Any) -> Any:
        """Returns a leaf without placeholder, in the form in which the op takes it."""
        if isinstance(leaf, torch.Generator):
            return None
        return torch.full((), self.numbers[i], dtype=self._number_type(leaf)) if i in self.numbers else leaf

    def _symbolic_float(self, i: int, value: float) -> Any:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        source = ConstantSource(f"number_{i}")
        symbol = self.env.create_unspecified_symbol(value, source=source, dynamic_dim=DimDynamic.DYNAMIC)
        self.float_places[symbol] = i
        return self.env.create_symfloatnode(symbol, hint=value, source=source)

    def _symbolic(self, i: int, leaf: torch.Tensor) -> tuple[list[Any], list[Any]]:
        """Returns sizes and strides as symbols, where equal sizes have the same symbol, and equal strides. The strides of a
        dense tensor follow from the sizes.
        """
        sizes = [self._symbol(i, d, size) for d, size in enumerate(leaf.shape)]
        given = list(leaf.stride())
        order = list(range(leaf.dim())) if leaf.is_contiguous() else sorted(range(leaf.dim()), key=lambda d: -given[d])
        strides: list[Any] = [1] * leaf.dim()
        step: Any = 1
        numel = 1
        for d in reversed(order):
            if leaf.shape[d] > 1 and given[d] != numel:
                return sizes, [self._symbol(i, d, stride, True) for d, stride in enumerate(given)]
            strides[d] = step
            step = step * (sizes[d] if leaf.shape[d] > 1 else 1)
            numel *= max(leaf.shape[d], 1)
        return sizes, strides

    def _symbol(self, i: int, d: int, value: int, is_stride: bool = False) -> Any:
        """Returns the symbol of a size or a stride of dimension d of leaf i, or for d = -1 of the integer that the leaf is. 0 and 1
        are constants."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        if value <= 1:
            return value
        if (value, is_stride) not in self.symbols:
            source = ConstantSource(f"{'stride' if is_stride else 'size'}_{i}_{d}")
            symbol = self.env.create_symbol(value, source=source, dynamic_dim=DimDynamic.DYNAMIC)
            self.places[symbol] = (i, d, is_stride)
            self.symbols[value, is_stride] = self.env.create_symintnode(symbol, hint=value, source=source)
        return self.symbols[value, is_stride]

    def _call(self, *given: Any) -> list[torch.Tensor]:
        """Calls the op on its leaves. Returns a list of the results that are not arguments."""
        placed = dict(zip(self.leaf_of, given, strict=True))
        leaves = [placed[i] if i in placed else self._constant(i, leaf) for i, leaf in enumerate(self.leaves)]
        for i, first in enumerate(self.same):
            if first != i:
                leaves[i] = leaves[first]
        args, kwargs = self._values(leaves)
        schema = self.op._schema
        made = self.form(*args, **kwargs)
        returned = made if isinstance(made, tuple) else (made,) if schema.returns else ()
        results: list[torch.Tensor] = []
        self.fresh = []
        for value, declared in zip(returned, schema.returns, strict=True):
            written = _written_argument(schema, declared)
            if written is not None:
                self.fresh.append(written)
                continue
            listed = list(value) if isinstance(value, (list, tuple)) else [value]
            if not all(t is None or type(t) is int or isinstance(t, torch.Tensor) for t in listed):
                raise UnsupportedError("it returns something that is no tensor")
            if type(value) is int:
                self.fresh.append((value,))
                continue
            self.fresh.append((isinstance(value, (list, tuple)), [t is not None for t in listed]))
            results += [t for t in listed if t is not None]
        return results

    def _values(self, leaves: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns the op's arguments: by position, and by name."""
        values = tree_unflatten(leaves, self.spec)
        kwargs = {a.name: v for a, v in zip(self.op._schema.arguments, values, strict=True) if a.kwarg_only}
        return values[: len(values) - len(kwargs)], kwargs

    def returns(self, results: Sequence[Recipe.Result]) -> tuple[list[Recipe.Result], list[tuple[bool, int]]]:
        """Groups `results` of the graph as the values that the schema returns. Returns Recipe.results and Recipe.returned."""
        made: list[Recipe.Result] = []
        groups: list[tuple[bool, int]] = []
        left = iter(results)
        for source in self.fresh:
            before = len(made)
            if isinstance(source, int):
                is_list = isinstance(self.op._schema.arguments[source].type, torch.ListType)
                made += [Recipe.Result.leaf(i) for i, a in enumerate(self.arguments) if a == source]
            elif len(source) == 1:
                is_list = False
                made.append(Recipe.Result.size(ir.IndexExpr(source[0])))
            else:
                is_list, present = source
                made += [next(left) if there else Recipe.Result() for there in present]
            groups.append((is_list, len(made) - before))
        return made, groups

    def generator(self) -> int:
        """Returns the leaf that is a generator, or -1."""
        return next((i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Generator)), -1)


def _like(t: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any]) -> torch.Tensor:
    """Returns a tensor with the dtype, the device, and the conjugate and negative bits of t."""
    made = torch.empty_strided(sizes, strides, dtype=t.dtype, device=t.device)
    made = torch.conj(made) if t.is_conj() else made
    return torch._neg_view(made) if t.is_neg() else made


def _is_number(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.device.type == "cpu" and t.dim() == 0


def _written_argument(schema: Any, declared: Any) -> int | None:
    """Returns the position of the argument that is returned. None for a new result."""
    if declared.alias_info is None or not declared.alias_info.is_write:
        return None
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set == declared.alias_info.before_set:
            return i
    return None
