# torch_ocl_compile/lowering/complex_numbers/complex_contraction.py: products of complex matrices, as products of real ones twice as large.
"""A row of a, in memory, is a row of 2k real numbers. If each element x + iy of b becomes the matrix ((x, y), (-y, x)), the real
product is the complex one as it lies in memory."""

from __future__ import annotations

from typing import Any

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.complex_numbers.complex_pointwise import pointwise, scale
from torch_ocl_compile.lowering.complex_numbers.complex_term import Z
from torch_ocl_compile.lowering.core.complex_value import Complex, joined, real_dtype, split
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower_complex
from torch_ocl_compile.lowering.core.term import Nest
from torch_ocl_compile.lowering.products.contraction import contract as contract_real


def contract(c: Context, a: Complex, b: Complex) -> Complex:
    """Returns the batched product [b, m, k] x [b, k, n] -> [b, m, n]."""
    batch, rows, depth = a.sizes
    columns = b.sizes[2]
    dtype = ir_dtype(real_dtype(c.val.dtype))
    left = c.builder.reshape(joined(c.builder, a), [batch, rows, depth * 2])
    right = c.builder.reshape(_embedded(c, b), [batch, depth * 2, columns * 2])
    product = contract_real(c, left, right, dtype)
    return split(c.builder, c.builder.reshape(product, [batch, rows, columns, ir.IndexExpr(2)]))


def _embedded(c: Context, b: Complex) -> ir.Value:
    """Returns the matrices ((x, y), (-y, x)) of the elements x + iy: [b, k, 2, n, 2]."""
    batch, depth, columns = b.sizes
    two = ir.IndexExpr(2)
    target = c.builder.buffer(b.dtype, [batch, depth, two, columns, two])
    nest = Nest(c.builder, b.sizes)
    x, y = (nest.load(part, nest.i) for part in b)
    for row, terms in enumerate(((x, y), (-y, x))):
        for column, term in enumerate(terms):
            nest.add_store(target, [*nest.i[:2], row, nest.i[2], column], term)
    nest.end()
    return target


def product(c: Context, a: Complex, b: Complex) -> Complex:
    """Returns the product of two matrices."""
    made = contract(c, *(x.map(lambda part: c.builder.unsqueeze(part, 0)) for x in (a, b)))
    return made.map(lambda part: c.builder.squeeze(part, [0]))


def products(c: Context, a: Complex, b: Complex, index: int) -> Complex:
    """Returns the batched product a b, where b is argument `index` of the node. A matrix that is expanded over the batch
    multiplies all rows of the batch at once."""
    assert c.node is not None
    given: Any = c.node.args[index]
    stride = given.meta["val"].stride(0)
    if not isinstance(stride, int) or stride != 0:
        return contract(c, a, b)
    batch, rows, depth = a.sizes
    one = b.map(lambda part: c.builder.slice(part, 0, 0, 1, 1))
    merged = a.map(lambda part: c.builder.reshape(part, [1, batch * rows, depth]))
    made = contract(c, merged, one)
    return made.map(lambda part: c.builder.reshape(part, [batch, rows, b.sizes[2]]))


def add_scaled(c: Context, x: Any, y: Complex, beta: Any, alpha: Any) -> Complex:
    """Returns beta * x + alpha * y; x is not read if beta is 0."""

    def scaled(z: Z, factor: Z | None) -> Z:
        return z if factor is None else z * factor

    by = scale(alpha)
    if isinstance(beta, (int, float, complex)) and beta == 0:
        result: Complex = pointwise(c, lambda b, s=None: scaled(b, s), y, *by)
        return result
    if not isinstance(beta, (int, float, complex)) or beta != 1:
        x = pointwise(c, lambda a, s: a * s, x, beta)
    result = pointwise(c, lambda a, b, s=None: scaled(b, s) + a, x, y, *by)
    return result


@lower_complex("aten.mm.default")
def mm(c: Context, a: Complex, b: Complex) -> Complex:
    return product(c, a, b)


@lower_complex("aten.bmm.default")
def bmm(c: Context, a: Complex, b: Complex) -> Complex:
    return products(c, a, b, 1)


@lower_complex("aten.addmm.default")
def addmm(c: Context, x: Any, a: Complex, b: Complex, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    return add_scaled(c, x, product(c, a, b), beta, alpha)


@lower_complex("aten.baddbmm.default")
def baddbmm(c: Context, x: Any, a: Complex, b: Complex, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    return add_scaled(c, x, products(c, a, b, 2), beta, alpha)


@lower_complex("aten.mv.default")
def mv(c: Context, a: Complex, x: Complex) -> Complex:
    made = product(c, a, x.map(lambda part: c.builder.unsqueeze(part, 1)))
    return made.map(lambda part: c.builder.squeeze(part, [1]))


@lower_complex("aten.dot.default")
def dot(c: Context, x: Complex, y: Complex) -> Complex:
    return _inner(c, pointwise(c, Z.__mul__, x, y))


@lower_complex("aten.vdot.default")
def vdot(c: Context, x: Complex, y: Complex) -> Complex:
    return _inner(c, pointwise(c, lambda a, b: a.conj() * b, x, y))


def _inner(c: Context, terms: Complex) -> Complex:
    return terms.map(lambda part: c.builder.reduce("sum", part, [0], False, part.dtype)[0])
