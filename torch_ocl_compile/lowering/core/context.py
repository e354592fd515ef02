# torch_ocl_compile/lowering/core/context.py: what a lowering works with: the graph builder, the traced result, sizes, dtypes.
"""A `Context` is the first argument of every lowering."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from torch_ocl_compile._C import ir
from torch_ocl_compile.dtypes import IR_DTYPES, TORCH_DTYPES
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core.complex_value import Complex, real_dtype
from torch_ocl_compile.lowering.core.symbolic import Symbols
from torch_ocl_compile.lowering.core.term import Nest, Number, Term, scalar


def ir_dtype(dtype: torch.dtype | ir.DType) -> ir.DType:
    """Returns the IR's dtype. UnsupportedError for a dtype that the IR lacks (float8_e8m0fnu, quantized), or has as pairs (complex)."""
    if isinstance(dtype, ir.DType):
        return dtype
    if dtype not in IR_DTYPES:
        raise UnsupportedError(f"dtype {dtype} has no kernels")
    return IR_DTYPES[dtype]


class Context:
    """The state of lowering one graph.

    `cpu_units`: compute units of the device if it is a CPU, else 0. `group_kernels`: whether it takes kernels of work-groups.
    `is_eager`: whether the graph is an eager op, whose tensors have the strides of their fake tensors. Only choices of speed may
    depend on them. Who lowers a graph for a device puts them into the meta of the GraphModule (compile/plan.py).
    `val` is the fake result of the node being lowered; it determines the result's dtype and sizes.
    """

    def __init__(self, builder: ir.Builder, symbols: Symbols, meta: Mapping[str, Any]) -> None:
        self.builder = builder
        self.symbols = symbols
        self.cpu_units: int = meta.get("cpu_units", 0)
        self.group_kernels: bool = meta.get("group_kernels", False)
        self.is_eager: bool = meta.get("is_eager", False)
        self.calls: list[Callable[[list[torch.Tensor]], list[Any]]] = []
        self.awaited: list[int] = []  # Positions of arguments that a collective may still be writing, see Lowered.
        self.val: Any = None
        self.node: torch.fx.Node | None = None
        # A function that returns a float expression of sizes as a value of rank 0.
        self.from_sizes: Callable[[Any], ir.Value] = _refuse_float
        # True if the node being lowered may store into the memory of its first argument.
        self.in_place = False
        # Buffer of a real view -> (the view, its halves).
        self.halves: dict[int, tuple[ir.Value, Complex]] = {}

    # Sizes and dtypes

    def size(self, x: Any) -> ir.IndexExpr:
        result: ir.IndexExpr = self.symbols.size(x)
        return result

    def shape(self, sizes: Sequence[Any]) -> list[ir.IndexExpr]:
        return [self.size(s) for s in sizes]

    @property
    def sizes(self) -> list[ir.IndexExpr]:
        """Returns the sizes of the node's result."""
        return self.shape(self.val.shape)

    @property
    def dtype(self) -> ir.DType:
        """Returns the storage dtype of the node's result."""
        return ir_dtype(self.val.dtype)

    def common_dtype(self, args: Sequence[Any]) -> ir.DType:
        """Returns the dtype to which PyTorch promotes these operands before comparing them."""
        operands = [_stand_in(a) if isinstance(a, ir.Value) else a for a in args if a is not None]
        found, _ = elementwise_dtypes(*operands, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH)
        return ir_dtype(found)

    # Values

    def constant(self, value: Number, dtype: ir.DType, sizes: Sequence[ir.IndexExpr] = ()) -> ir.Value:
        return self.builder.constant(scalar(value, dtype), dtype, list(sizes))

    def of_dtype(self, value: Number | complex, dtype: torch.dtype) -> ir.Value | Complex:
        """Returns a number as a value of rank 0."""
        if not dtype.is_complex:
            return self.constant(value.real if isinstance(value, complex) else value, ir_dtype(dtype))
        parts = (value.real, value.imag)
        return Complex(*(self.constant(part, ir_dtype(real_dtype(dtype))) for part in parts))

    def converted(self, x: ir.Value | Complex, dtype: torch.dtype) -> ir.Value | Complex:
        """Returns x as `dtype`. A complex number loses its imaginary part if the dtype is real. As a bool it is whether it is not 0."""
        to = ir_dtype(real_dtype(dtype))
        if isinstance(x, Complex) and dtype is torch.bool:
            nest = Nest(self.builder, x.re.sizes)
            re, im = (nest.load(part, nest.i).cast(to) for part in (x.re, x.im))
            return nest.store((re | im, to))[0]
        if isinstance(x, Complex):
            return x.map(lambda part: self.cast(part, to)) if dtype.is_complex else self.cast(x.re, to)
        return Complex(self.cast(x, to), self.constant(0, to, x.sizes)) if dtype.is_complex else self.cast(x, to)

    def number(self, x: Any, dtype: ir.DType, sizes: Sequence[ir.IndexExpr] = ()) -> ir.Value:
        """Returns a number as a value that needs no memory. A SymFloat is computed on the host and passed as an input."""
        if isinstance(x, torch.SymFloat):
            return self.builder.expand(self.cast(self.from_sizes(x.node.expr), dtype), list(sizes))
        if isinstance(x, torch.SymInt):
            return self.builder.iota(list(sizes), self.size(x.node.expr), dtype)
        if isinstance(x, ir.Value):  # A number that is an argument of the graph.
            return self.builder.expand(self.cast(x, dtype), list(sizes))
        return self.constant(x, dtype, sizes)

    def nest(self, sizes: Sequence[Any], reduce_sizes: Sequence[Any] = ()) -> Nest:
        return Nest(self.builder, self.shape(sizes), self.shape(reduce_sizes))

    def broadcast(self, args: Sequence[Any]) -> list[ir.IndexExpr]:
        """Returns the shape that the values among `args` broadcast to."""
        shapes = [a.sizes for a in args if isinstance(a, (ir.Value, Complex))]
        rank = max((len(s) for s in shapes), default=0)
        result = [ir.IndexExpr(1)] * rank
        for shape in shapes:
            for d, size in enumerate(shape, rank - len(shape)):
                if result[d].is_const(1):
                    result[d] = size
        return result

    def pointwise(
        self, formula: Callable[..., Any], *args: Any, dtype: ir.DType | None = None, **settings: Any
    ) -> ir.Value:
        """Returns the value of a formula with one result; see pointwise_tuple. `dtype`: of the result; None: the node's."""
        dtypes = [self.dtype if dtype is None else dtype]
        return self.pointwise_tuple(lambda *a, **k: (formula(*a, **k),), *args, dtypes=dtypes, **settings)[0]

    def pointwise_tuple(
        self,
        formula: Callable[..., Any],
        *args: Any,
        dtypes: Sequence[ir.DType],
        compute: ir.DType | None = None,
        raw: Sequence[int] = (),
        **settings: Any,
    ) -> tuple[ir.Value, ...]:
        """Builds one loop nest that computes `formula`, a tuple, of the broadcast arguments. `dtypes` are those of the
        results.

        Values become terms cast to `compute` (default: the first result's dtype), except values at the positions `raw`.
        Python numbers stay numbers, SymInts become terms.
        """
        compute = ir.compute_type(dtypes[0] if compute is None else compute)
        sizes = self.broadcast(args)
        nest = Nest(self.builder, sizes)

        def operand(a: Any, keep: bool) -> Any:
            if isinstance(a, ir.Value):
                term = nest.load_broadcast(a, sizes, nest.i)
                return term if keep else term.cast(compute)
            if isinstance(a, torch.SymFloat):
                return nest.load(self.from_sizes(a.node.expr), []).cast(compute)
            if isinstance(a, torch.SymInt):
                return nest.index(self.size(a.node.expr)).cast(compute)
            return a

        # A keyword argument that is a value has rank 0.
        terms_of = {k: operand(v, False) for k, v in settings.items()}
        made = formula(*(operand(a, position in raw) for position, a in enumerate(args)), **terms_of)
        terms = [m if isinstance(m, Term) else nest.constant(m, d) for m, d in zip(made, dtypes, strict=True)]
        return tuple(nest.store(*zip(terms, dtypes, strict=True)))

    def halves_of(self, x: ir.Value) -> Complex | None:
        """Returns the complex value whose real view x is, so that the view need not be stored. None if x is none."""
        view, halves = self.halves.get(x.buffer, (None, None))
        same = view is not None and x.kind == view.kind and x.sizes == view.sizes and x.coords == view.coords
        return halves if same else None

    def cast(self, x: ir.Value, dtype: ir.DType) -> ir.Value:
        return x if x.dtype == dtype else self.builder.cast(x, dtype)

    def numel(self, sizes: Sequence[ir.IndexExpr]) -> ir.IndexExpr:
        return ir.product(list(sizes))


def dims_of(dim: Any, rank: int) -> list[int]:
    """Returns a dim argument (None, int or list, negative allowed) as sorted dimensions; None and [] mean all."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(rank))
    listed = [dim] if isinstance(dim, int) else list(dim)
    return sorted(d % rank for d in listed) if rank else []


def static_int(x: Any, what: str) -> int:
    """Returns a size as an int. UnsupportedError if it is symbolic; `what` names it in the message."""
    if isinstance(x, int):
        return x
    if isinstance(x, torch.SymInt) and x.node.expr.is_number:
        return int(x.node.expr)
    raise UnsupportedError(f"{what} must be a known integer, not {x}")


def _refuse_float(expr: Any) -> ir.Value:
    raise UnsupportedError(f"the number {expr} is computed from sizes")


_STAND_INS: dict[tuple[ir.DType, bool], torch.Tensor] = {}


def _stand_in(value: ir.Value) -> torch.Tensor:
    """Returns a meta tensor of the value's dtype that is 0-dimensional if the value is: dtype promotion asks for both."""
    key = (value.dtype, bool(value.sizes))
    if key not in _STAND_INS:
        with torch._C._DisableTorchDispatch():
            _STAND_INS[key] = torch.empty((1,) if key[1] else (), dtype=TORCH_DTYPES[key[0]], device="meta")
    return _STAND_INS[key]


def allows_tf32() -> tuple[bool, bool]:
    """Returns whether the user allows TF32 (in matrix products, in convolutions).

    Every way of allowing TF32 sets these fields. The field of convolutions is set by default, so they need both.
    """
    cudnn: Any = torch.backends.cudnn  # torch adds `conv` at import, so type checkers do not see it.
    products = torch.backends.cuda.matmul.fp32_precision == "tf32"
    return products, products and cudnn.conv.fp32_precision == "tf32"
