# torch_ocl_compile/_C/ir.pyi: types of csrc/python/ir_bindings.cpp. csrc/ir/*.h describes what they mean.
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias, overload

Index: TypeAlias = IndexExpr | int
Shape: TypeAlias = Sequence[Index]
Number: TypeAlias = bool | int | float

class _Enum:
    name: Final[str]
    value: Final[int]
    def __int__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...

class DType(_Enum):
    kBool: Final[DType]
    kU8: Final[DType]
    kI8: Final[DType]
    kI16: Final[DType]
    kI32: Final[DType]
    kI64: Final[DType]
    kF16: Final[DType]
    kBF16: Final[DType]
    kF32: Final[DType]
    kF64: Final[DType]
    kF8E4M3: Final[DType]
    kF8E5M2: Final[DType]
    kF8E4M3Fnuz: Final[DType]
    kF8E5M2Fnuz: Final[DType]

class ValueKind(_Enum):
    kView: Final[ValueKind]
    kConstant: Final[ValueKind]
    kIndex: Final[ValueKind]

class ConvolveKind(_Enum):
    kForward: Final[ConvolveKind]
    kData: Final[ConvolveKind]
    kWeight: Final[ConvolveKind]

class AttentionKind(_Enum):
    kForward: Final[AttentionKind]
    kQuery: Final[AttentionKind]
    kKeyValue: Final[AttentionKind]

class Level(_Enum):
    kGraph: Final[Level]
    kScheduled: Final[Level]

LARGEST_FFT_PRIME: int

def size_bytes(dtype: DType) -> int: ...
def is_floating(dtype: DType) -> bool: ...
def is_f8(dtype: DType) -> bool: ...
def compute_type(dtype: DType) -> DType: ...

class Range:
    low: int
    high: int
    divisor: int
    def __init__(self, low: int = ..., high: int = ..., divisor: int = 1) -> None: ...

class IndexExpr:
    """Symbols: s0 (size), i0 (loop), r0 (reduction loop), v0 (value of a body). // rounds down; % has the sign of the divisor."""

    def __init__(self, value: int = 0) -> None: ...
    @staticmethod
    def size(index: int) -> IndexExpr: ...
    @staticmethod
    def loop(index: int) -> IndexExpr: ...
    @staticmethod
    def reduce(index: int) -> IndexExpr: ...
    @staticmethod
    def value(index: int) -> IndexExpr: ...
    @staticmethod
    def parse(text: str) -> IndexExpr: ...
    @overload
    def is_const(self) -> bool: ...
    @overload
    def is_const(self, value: int) -> bool: ...
    def constant(self) -> int: ...
    def op(self) -> Literal["const", "symbol", "add", "mul", "floordiv", "mod", "min", "max"]: ...
    def args(self) -> list[IndexExpr]: ...
    def uses(self, symbol: str) -> bool: ...
    def __add__(self, other: Index) -> IndexExpr: ...
    def __radd__(self, other: Index) -> IndexExpr: ...
    def __sub__(self, other: Index) -> IndexExpr: ...
    def __rsub__(self, other: Index) -> IndexExpr: ...
    def __mul__(self, other: Index) -> IndexExpr: ...
    def __rmul__(self, other: Index) -> IndexExpr: ...
    def __floordiv__(self, other: Index) -> IndexExpr: ...
    def __rfloordiv__(self, other: Index) -> IndexExpr: ...
    def __mod__(self, other: Index) -> IndexExpr: ...
    def __rmod__(self, other: Index) -> IndexExpr: ...
    def __neg__(self) -> IndexExpr: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

def floordiv(a: Index, b: Index) -> IndexExpr: ...
def ceildiv(a: Index, b: Index) -> IndexExpr: ...
def mod(a: Index, b: Index) -> IndexExpr: ...
def min(a: Index, b: Index) -> IndexExpr: ...
def max(a: Index, b: Index) -> IndexExpr: ...
def product(factors: Shape) -> IndexExpr: ...
def evaluate(e: Index, values: dict[str, int]) -> int: ...

class Ranges:
    def __init__(self) -> None: ...
    def set(self, symbol: str, range: Range) -> None: ...
    def set_extent(self, symbol: str, extent: Index) -> None: ...
    def of(self, e: Index) -> Range: ...
    def known_nonnegative(self, e: Index) -> bool: ...
    def known_less(self, a: Index, b: Index) -> bool: ...
    def known_divides(self, d: Index, e: Index) -> bool: ...

def simplify(e: Index, ranges: Ranges) -> IndexExpr: ...

class Scalar:
    is_float: bool
    f: float
    i: int
    def __init__(self) -> None: ...

class Origin:
    op: str
    source: str
    def __init__(self, op: str = "", source: str = "") -> None: ...

class ConvolveAttrs:
    kind: ConvolveKind
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int
    def __init__(self) -> None: ...

class FftAttrs:
    def __init__(self, inverse: bool = False, scale: float = 1.0, root: int = 0) -> None: ...
    inverse: Final[bool]
    scale: Final[float]
    root: Final[int]

DIGITS: int

class SortStep(_Enum):
    kCount: Final[SortStep]
    kMove: Final[SortStep]
    kBlocks: Final[SortStep]

class SortAttrs:
    def __init__(
        self,
        step: SortStep,
        block: int,
        keep: int = 0,
        shift: int = 0,
        digits: int = 1,
        is_signed: bool = False,
    ) -> None: ...
    step: Final[SortStep]
    block: Final[int]
    keep: Final[int]
    shift: Final[int]
    digits: Final[int]
    is_signed: Final[bool]

MASK_BLOCK: int

class AttentionAttrs:
    kind: AttentionKind
    scale: float
    dropout: float
    causal: bool
    masked: bool
    blocks: int
    cap: float
    nan_rows: bool
    def __init__(self) -> None: ...

class Buffer:
    dtype: Final[DType]
    sizes: Final[list[IndexExpr]]
    strides: Final[list[IndexExpr] | None]
    is_input: Final[bool]
    input: Final[int]
    is_parameter: Final[bool]
    donated: Final[bool]
    name: Final[str]

class View:
    buffer: Final[int]
    sizes: Final[list[IndexExpr]]
    coords: Final[list[IndexExpr]]

class Store:
    buffer: Final[int]
    index: Final[list[IndexExpr]]
    value: Final[int]
    mask: Final[int]
    mode: Final[Literal["write", "maximum"]]

class Output:
    buffer: Final[int]
    sizes: Final[list[IndexExpr]]
    strides: Final[list[IndexExpr]]
    offset: Final[IndexExpr]

# (name, dtype of the value, operands, detail). The detail of a load is (buffer, coordinates), of a constant the number, of an index
# op the expression, otherwise None.
Op: TypeAlias = tuple[str, DType, list[int], Any]

class Node:
    kind: Final[Literal["map", "reduce", "scan", "contract", "convolve", "attention", "fft", "sort", "pack", "call"]]
    origin: Final[Origin]
    sizes: Final[list[IndexExpr]]
    reduce_sizes: Final[list[IndexExpr]]
    ops: Final[list[Op]]
    stores: Final[list[Store]]
    reduction: Final[str]
    stage: Final[Literal["whole", "partial", "final"]]
    reduced: Final[list[int]]
    reset: Final[int]
    operands: Final[list[View]]
    outputs: Final[list[int]]
    convolve: Final[ConvolveAttrs]
    attention: Final[AttentionAttrs]
    fft: Final[FftAttrs]
    sort: Final[SortAttrs]
    reduced_precision: Final[bool]
    call: Final[int]
    waits_for: Final[int]
    refused: Final[list[str]]  # Filled by the scheduler: "gemm_warp: refused, K = 7 is below 16".

class Graph:
    @staticmethod
    def parse(text: str) -> Graph: ...
    buffers: Final[list[Buffer]]
    nodes: Final[list[Node]]
    inputs: Final[list[int]]
    symbols: Final[int]
    symbol_ranges: Final[list[Range]]
    outputs: Final[list[Output]]
    def str(self, origins: bool = True) -> str: ...
    def simplify(self) -> bool: ...
    def without_donations(self) -> Graph: ...  # A copy that overwrites no donated input.
    def verify(self, level: Level = ...) -> None: ...

def parse_graph(text: str) -> Graph: ...

class TypeRule(_Enum):
    k_none: Final[TypeRule]
    k_same: Final[TypeRule]
    k_promoted: Final[TypeRule]
    k_floating: Final[TypeRule]
    k_bool: Final[TypeRule]
    k_test: Final[TypeRule]
    k_logical: Final[TypeRule]
    k_ordered: Final[TypeRule]
    k_bits: Final[TypeRule]
    k_second: Final[TypeRule]
    k_f32_of_i64: Final[TypeRule]
    k_i64: Final[TypeRule]

class OpErrorKind(_Enum):
    k_exact: Final[OpErrorKind]
    k_in_type: Final[OpErrorKind]
    k_rounded: Final[OpErrorKind]
    k_within: Final[OpErrorKind]
    k_recurrence: Final[OpErrorKind]

class OpError:
    kind: Final[OpErrorKind]
    relative: Final[float]
    absolute: Final[float]
    of_operand: Final[float]

class OpFacts:
    name: Final[str]
    arity: Final[int]
    rule: Final[TypeRule]
    error: Final[OpError]
    reference: Final[str]

def ops() -> list[OpFacts]: ...
def operand_dtypes(op: str, dtypes: Sequence[DType]) -> list[DType]: ...

class ReductionKind(_Enum):
    k_sum: Final[ReductionKind]
    k_product: Final[ReductionKind]
    k_monotone: Final[ReductionKind]
    k_position: Final[ReductionKind]
    k_spread: Final[ReductionKind]
    k_exponentials: Final[ReductionKind]

class ReductionFacts:
    name: Final[str]
    kind: Final[ReductionKind]
    identities: Final[list[str]]
    element: Final[list[str]]
    reference: Final[list[str]]
    result_accumulator: Final[list[int]]

def accumulator_dtype(reduction: str, accumulator: int, input: DType) -> DType: ...
def reductions() -> list[ReductionFacts]: ...

class Value:
    kind: Final[ValueKind]
    dtype: Final[DType]
    sizes: Final[list[IndexExpr]]
    buffer: Final[int]
    coords: Final[list[IndexExpr]]
    constant: Final[float | int]
    index: Final[IndexExpr]
    def __float__(self) -> float: ...  # UnsupportedError: a value of the graph is no constant.

class Builder:
    origin: Origin
    reduced_precision: bool
    reduced_convolutions: bool
    def __init__(self) -> None: ...
    graph: Final[Graph]
    def size_symbol(self, range: Range) -> IndexExpr: ...
    def input(
        self, dtype: DType, sizes: Shape, strides: Shape, is_parameter: bool = False, donated: bool = False
    ) -> Value: ...
    def constant(self, value: Number | Scalar, dtype: DType, sizes: Shape = ()) -> Value: ...
    def iota(self, sizes: Shape, expr: Index, dtype: DType) -> Value: ...
    def reshape(self, x: Value, sizes: Shape) -> Value: ...
    def permute(self, x: Value, dims: Sequence[int]) -> Value: ...
    def expand(self, x: Value, sizes: Shape) -> Value: ...
    def slice(self, x: Value, dim: int, start: Index, end: Index, step: Index) -> Value: ...
    def select(self, x: Value, dim: int, index: Index) -> Value: ...
    def flip(self, x: Value, dims: Sequence[int]) -> Value: ...
    def squeeze(self, x: Value, dims: Sequence[int]) -> Value: ...
    def unsqueeze(self, x: Value, dim: int) -> Value: ...
    def diagonal(self, x: Value, offset: int, dim1: int, dim2: int) -> Value: ...
    def as_strided(self, x: Value, sizes: Shape, strides: Shape, offset: Index) -> Value: ...
    def op(self, name: str, args: Sequence[Value], dtype: DType | None = None) -> Value: ...
    def cast(self, x: Value, dtype: DType) -> Value: ...
    def buffer(self, dtype: DType, sizes: Shape) -> Value: ...
    def realize(self, x: Value) -> Value: ...
    def copy(self, x: Value) -> Value: ...
    def reduce(
        self, reduction: str, x: Value, dims: Sequence[int], keepdim: bool, dtype: DType | None = None
    ) -> list[Value]: ...
    def concat(self, xs: Sequence[Value], dim: int) -> Value: ...
    def interleave(self, first: Value, second: Value) -> Value: ...
    def contract(self, a: Value, b: Value, dtype: DType) -> Value: ...
    def convolve(self, x: Value, w: Value, attrs: ConvolveAttrs, sizes: Shape, dtype: DType) -> Value: ...
    def attention(self, operands: Sequence[Value], attrs: AttentionAttrs) -> list[Value]: ...
    def fft(self, real: Value, imaginary: Value | None, attrs: FftAttrs) -> Value: ...
    def sort(self, operands: Sequence[Value], attrs: SortAttrs) -> list[Value]: ...
    def call(
        self,
        call: int,
        args: Sequence[Value],
        results: Sequence[tuple[DType, Shape]],
        strides: Sequence[Shape],
        waits_for: int = -1,
    ) -> list[Value]: ...
    def copy_into(self, target: Value, value: Value) -> None: ...
    def output(self, value: Value, strides: Shape) -> None: ...
    def place(self, value: Value, strides: Shape) -> Value: ...
    def output_window(self, base: Value, sizes: Shape, strides: Shape, offset: IndexExpr) -> None: ...
    def finish(self) -> Graph: ...

class BodyBuilder:
    def __init__(self, builder: Builder, sizes: Shape, reduce_sizes: Shape = ()) -> None: ...
    def load(self, value: Value, coords: Shape, mask: int = -1) -> int: ...
    def constant(self, value: Number | Scalar, dtype: DType) -> int: ...
    def index(self, expr: Index, dtype: DType) -> int: ...
    def cast(self, value: int, dtype: DType) -> int: ...
    def op(self, name: str, args: Sequence[int]) -> int: ...
    def dtype_of(self, value: int) -> DType: ...
    def as_index(self, value: int) -> IndexExpr: ...
    def store(self, values: Sequence[int], dtypes: Sequence[DType]) -> list[Value]: ...
    def add_store(self, target: Value, coords: Shape, value: int, mask: int = -1, maximum: bool = False) -> None: ...
    def end(self) -> None: ...
    def scan(self, reduction: str, values: Sequence[int], dtype: DType, reset: int = -1) -> None: ...
    def reduce(self, reduction: str, values: Sequence[int], dtypes: Sequence[DType]) -> list[Value]: ...
