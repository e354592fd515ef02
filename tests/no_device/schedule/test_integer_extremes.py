# tests/no_device/schedule/test_integer_extremes.py: maxima of signed integers where the assembler loses signs. Texts are not run.
import re

import pytest

from tests.no_device.scheduling import CAPS
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir

TYPES = {ir.DType.kI8: True, ir.DType.kI16: True, ir.DType.kI32: True, ir.DType.kI64: False, ir.DType.kU8: False}


def text(op, dtype, keeps_signs):
    """The text of op(op(a, -b), c) and of a reduction of it."""
    b = ir.Builder()
    sizes, strides = [ir.IndexExpr(7), ir.IndexExpr(64)], [ir.IndexExpr(64), ir.IndexExpr(1)]
    x, y, z = (b.input(dtype, sizes, strides, False, False) for _ in range(3))
    value = b.op(op, [b.op(op, [x, b.op("neg", [y])]), z])
    b.output(b.reduce("max" if "max" in op else "min", value, [0], False)[0], [ir.IndexExpr(1)])
    rendered = _C.exec.render(b.finish(), CAPS["gpu"] | {"extremes_keep_signs": keeps_signs}, True)
    return "".join(kernel["text"] for kernel in rendered["kernels"])


@pytest.mark.parametrize("op", ["minimum", "maximum", "fmin", "fmax"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_no_extreme_of_signed_integers(op, dtype):
    plain = re.compile(r"\b(?:min|max)\((?!op_other_sign)")
    assert plain.search(text(op, dtype, keeps_signs=True))
    changed = text(op, dtype, keeps_signs=False)
    assert bool(plain.search(changed)) != TYPES[dtype]
    assert ("op_other_sign" in changed) == TYPES[dtype]
