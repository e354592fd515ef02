# torch_ocl_compile/lowering/movement/sorting.py: the keys of rows in sorted order.
"""Numbers become integer keys that have the wanted order (NaN last). Equal keys keep their order.

| rows of | are sorted |
|---|---|
| up to RANKED keys | by rank: each key counts the keys that go before it |
| up to BLOCK keys | by one work-item or work-group |
| more keys, or a symbolic length | by one digit of 8 bits after the other, the lowest first |

A digit takes three steps (SortStep in csrc/ir/graph.h):

    keys     | block | block | ...
    counts   [256, blocks]          how many keys of each block have each digit
    ends     [256, blocks]          the running sum: each block knows where its keys with each digit go
    keys     in the order of this digit

Of up to MOST_SUMMED blocks, each sums the counts itself, which saves a launch for each digit.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.term import Nest, Term
from torch_ocl_compile.lowering.reductions import scan

RANKED = 64
BLOCK = {ir.DType.kI32: 4096, ir.DType.kI64: 2048}  # Keys and their places take less than 32 KB of local memory.
MOST_SUMMED = 32
FEW = 128  # Of each block, up to this many keys are selected without sorting the block.
I32, I64 = ir.DType.kI32, ir.DType.kI64


@dataclass(frozen=True)
class Digits:
    """The digits in which keys differ: `count` digits of 8 bits from the bit `shift` on. The highest may have the sign.

    `end`: all keys are from 0 to end - 1. 0: not known.
    """

    shift: int
    count: int
    signed: bool
    end: int = 0

    def each(self) -> list[tuple[int, bool]]:
        """Returns (lowest bit, whether it has the sign) of each digit, the lowest first."""
        return [(self.shift + 8 * d, self.signed and d == self.count - 1) for d in range(self.count)]

    @staticmethod
    def below(end: ir.IndexExpr) -> Digits:
        """Returns the digits of the numbers from 0 to `end`. Five digits are enough for the elements of any tensor."""
        if not end.is_const():
            return Digits(0, 5, False)
        return Digits(0, (end.constant().bit_length() + 7) // 8, False, end.constant() + 1)


# The key of a float of 16 bits has zeros, or ones, in the bits that a float of 32 bits has in addition.
DIGITS = {
    ir.DType.kBool: Digits(0, 1, False),
    ir.DType.kU8: Digits(0, 1, False),
    ir.DType.kI8: Digits(0, 1, True),
    ir.DType.kI16: Digits(0, 2, True),
    ir.DType.kBF16: Digits(16, 2, True),
    ir.DType.kF16: Digits(13, 3, True),
    ir.DType.kI64: Digits(0, 8, True),
    ir.DType.kF64: Digits(0, 8, True),
}
FOUR_BYTES = Digits(0, 4, True)


@dataclass(frozen=True)
class Keys:
    """Integer keys [.., n] with their digits; `positions`: where they were in rows from which they have been selected."""

    values: ir.Value
    digits: Digits
    positions: ir.Value | None = None

    @property
    def length(self) -> ir.IndexExpr:
        return self.values.sizes[-1]


@dataclass(frozen=True)
class Sorted:
    """Keys [.., n] in sorted order, and where they were (int32)."""

    keys: ir.Value
    positions: ir.Value


def key_of(x: Term, descending: bool = False) -> Term:
    """Returns an int32 or int64 key that has the order of x; NaN is the greatest."""
    key = t.call("order_key", x) if ir.is_floating(x.dtype) else x if x.dtype == I64 else x.cast(I32)
    return t.call("bitwise_not", key) if descending else key


def number_of(key: Term, descending: bool) -> Term:
    """Returns the integer that has this key."""
    return t.call("bitwise_not", key) if descending else key


def keys_of(c: Context, x: ir.Value, descending: bool = False) -> Keys:
    nest = c.nest(x.sizes)
    key = key_of(nest.load(x, nest.i), descending)
    return Keys(nest.store((key, key.dtype))[0], DIGITS.get(x.dtype, FOUR_BYTES))


def sort_keys(c: Context, keys: Keys, keep: int | None = None) -> Sorted:
    """Sorts the keys along the last dimension. If `keep` is given, only the first `keep` of them are guaranteed to be there."""
    n, block = keys.length, BLOCK[keys.values.dtype]
    if n.is_const() and n.constant() <= RANKED:
        return _by_rank(c, keys)
    if n.is_const() and n.constant() <= block:
        return _by_blocks(c, keys, n.constant(), n.constant() if keep is None else keep)
    # The number of rounds must be known, so a symbolic length takes one.
    if keep is not None and keep <= FEW and (n.is_const() or keys.positions is None):
        best = _by_blocks(c, keys, block, keep)
        return sort_keys(c, Keys(best.keys, keys.digits, best.positions), keep)
    return _by_digits(c, keys)


def _by_rank(c: Context, keys: Keys) -> Sorted:
    """Stores each key at the number of keys before it."""
    rows, n = list(keys.values.sizes[:-1]), keys.length
    nest = Nest(c.builder, [*rows, n], [n])
    i, j = nest.i[-1], nest.r[0]
    mine, other = nest.load(keys.values, nest.i), nest.load(keys.values, [*nest.i[:-1], j])
    earlier = nest.index(j, I32) < nest.index(i, I32)
    before = (other < mine) | (other.eq(mine) & earlier)
    # Sums of floats take the vectors of a CPU, and are exact here.
    ranks = nest.reduce("sum", [before.cast(ir.DType.kF32)], [ir.DType.kF32])[0]
    result = Sorted(c.builder.buffer(keys.values.dtype, [*rows, n]), c.builder.buffer(I32, [*rows, n]))
    nest = Nest(c.builder, [*rows, n])
    at = [*nest.i[:-1], nest.load(ranks, nest.i).cast(I32).as_index()]
    position = nest.index(nest.i[-1], I32) if keys.positions is None else nest.load(keys.positions, nest.i)
    nest.add_store(result.keys, at, nest.load(keys.values, nest.i))
    nest.add_store(result.positions, at, position)
    nest.end()
    return result


def flat(c: Context, x: ir.Value) -> ir.Value:
    """Returns x as [rows, n]."""
    return c.builder.reshape(x, [ir.product(list(x.sizes[:-1])), x.sizes[-1]])


def _sorted(c: Context, keys: Keys, made: list[ir.Value]) -> Sorted:
    """Returns keys and positions [rows, m] with the dimensions of the rows."""
    rows = list(keys.values.sizes[:-1])
    return Sorted(*(c.builder.reshape(x, [*rows, x.sizes[-1]]) for x in made))


def _operands(c: Context, keys: Keys) -> list[ir.Value]:
    return [flat(c, x) for x in (keys.values, keys.positions) if x is not None]


def _by_blocks(c: Context, keys: Keys, block: int, keep: int) -> Sorted:
    """Sorts each block alone, and keeps the first `keep` keys of each."""
    d = keys.digits
    attrs = ir.SortAttrs(ir.SortStep.kBlocks, block, keep, d.shift, d.count, d.signed, d.end)
    return _sorted(c, keys, c.builder.sort(_operands(c, keys), attrs))


def _by_digits(c: Context, keys: Keys) -> Sorted:
    operands, block = _operands(c, keys), BLOCK[keys.values.dtype]
    for shift, signed in keys.digits.each():
        ends = _counts(c, operands[0], block, shift, signed)
        move = ir.SortAttrs(ir.SortStep.kMove, block, shift=shift, is_signed=signed)
        operands = c.builder.sort([*operands, ends], move)
    return _sorted(c, keys, operands)


def _counts(c: Context, keys: ir.Value, block: int, shift: int, signed: bool) -> ir.Value:
    """Returns how many keys of each block have each digit: of few blocks [rows, 256, blocks], else the running sum
    [rows, 256 * blocks]."""
    counts: ir.Value = c.builder.sort([keys], ir.SortAttrs(ir.SortStep.kCount, block, shift=shift, is_signed=signed))[0]
    rows, digits, blocks = counts.sizes
    if blocks.is_const() and blocks.constant() <= MOST_SUMMED:
        return counts
    return scan.along(c, scan.sum_row(I32), c.builder.reshape(counts, [rows, digits * blocks]), 1, [I32])[0]
