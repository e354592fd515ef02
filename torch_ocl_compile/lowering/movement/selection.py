# torch_ocl_compile/lowering/movement/selection.py: the key at a given place of the sorted order, without sorting.
"""The digits of the key are found one after the other, the highest first. Of the keys that have the digits found so far, it is counted
how many have each next digit. The digit at which the running sum of these counts exceeds the place is the key's; the place then
counts among the keys with this digit."""

from __future__ import annotations

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.term import Nest
from torch_ocl_compile.lowering.movement.sorting import BLOCK, I32, I64, Keys, flat
from torch_ocl_compile.lowering.reductions import scan


def pays(keys: Keys) -> bool:
    """Returns whether selecting is faster than sorting: rows are longer than a block, or may be."""
    n = keys.length
    return not n.is_const() or n.constant() > BLOCK[keys.values.dtype]


def position_at(c: Context, keys: Keys, place: ir.Value) -> ir.Value:
    """Returns where the key at the place [..] of each sorted row is: the first position of equal keys (int64)."""
    rows = list(place.sizes)
    values, rest = flat(c, keys.values), c.builder.reshape(place, [ir.product(rows)])
    chosen: ir.Value | None = None
    for shift, signed in reversed(keys.digits.each()):
        chosen, rest = _next_digit(c, values, chosen, rest, shift, signed)
    assert chosen is not None
    nest = Nest(c.builder, values.sizes[:1], values.sizes[1:])
    row, i = nest.i[0], nest.r[0]
    low = nest.constant(keys.digits.shift, values.dtype)
    key, wanted = nest.load(values, [row, i]), nest.load(chosen, [row])
    same = t.call("shift_right", key, low).eq(t.call("shift_right", wanted, low))
    found = nest.reduce("min", [t.where(same, nest.index(i), nest.index(keys.length - 1))], [I64])[0]
    return c.builder.reshape(found, rows)


def _next_digit(
    c: Context, keys: ir.Value, chosen: ir.Value | None, rest: ir.Value, shift: int, signed: bool
) -> tuple[ir.Value, ir.Value]:
    """Returns the key's digits so far, as a key whose lower bits are 0, and its place among the keys that have them."""
    operands = [keys] if chosen is None else [keys, chosen]
    attrs = ir.SortAttrs(ir.SortStep.kCount, BLOCK[keys.dtype], shift=shift, is_signed=signed)
    counts = c.builder.sort(operands, attrs)[0]
    rows, _, blocks = counts.sizes
    nest = Nest(c.builder, counts.sizes[:2], [blocks])
    totals = nest.reduce("sum", [nest.load(counts, [*nest.i, nest.r[0]])], [I32])[0]
    ends = scan.along(c, scan.sum_row(I32), totals, 1, [I32])[0]
    nest = Nest(c.builder, [rows], [ir.IndexExpr(ir.DIGITS)])
    passed = nest.load(ends, [nest.i[0], nest.r[0]]).cast(I64) <= nest.load(rest, nest.i)
    digits = nest.reduce("sum", [passed.cast(I64)], [I64])[0]
    nest = Nest(c.builder, [rows])
    digit = t.minimum(nest.load(digits, nest.i), ir.DIGITS - 1)
    before = nest.load(ends, [nest.i[0], t.maximum(digit - 1, 0).as_index()], digit > 0).cast(I64)
    key = (digit - (ir.DIGITS // 2 if signed else 0)) * (1 << shift)
    if chosen is not None:
        key = key + nest.load(chosen, nest.i).cast(I64)
    made = nest.store((key.cast(keys.dtype), keys.dtype), (nest.load(rest, nest.i) - before, I64))
    return made[0], made[1]
