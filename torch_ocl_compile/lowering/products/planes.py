# torch_ocl_compile/lowering/products/planes.py: eager convolutions of 1 x 1 with stride 1 as products with the planes of each image.
"""Kernels of convolutions read images whose channels are neighbours in memory. An image of an eager call usually has whole planes,
one for each channel, so that x, y and their gradients would be copied. Products read planes in place, n images side by side:

    y [n, k, p]  = w [k, c]    x [n, c, p]
    gx [n, c, p] = w^T [c, k]  gy [n, k, p]
    gw [k, c]    = sum over n of gy [n, k, p] x^T [n, p, c]

On an H200, 256 channels of 56 x 56 in bf16 took two fifths of the time. On a CPU there was no gain.
"""

from __future__ import annotations

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.products.contraction import contract

Kind = ir.ConvolveKind
ROW = 8  # Elements of 16 bytes: kernels of 16-bit types read rows that are multiples of it in place.


def are_multiplied(
    c: Context, a: ir.Value, b: ir.Value, attributes: ir.ConvolveAttrs, sizes: list[ir.IndexExpr]
) -> bool:
    """True if `planar_products` computes this convolution. a, b: its operands, as ir.ConvolveKind defines them; sizes: its shape."""
    is_weight = attributes.kind == Kind.kWeight
    if not (c.is_eager and c.group_kernels and c.node) or ir.size_bytes(a.dtype) != 2:
        return False
    images = c.node.args[: 2 if "backward" in str(c.node.target) else 1]
    vals = [image.meta["val"] for image in images]  # type: ignore[union-attr]
    if any(v.dim() != 4 or not v.is_contiguous() or v.stride(1) == 1 for v in vals):
        return False
    plane = a.sizes[2] * a.sizes[3]
    filters = (sizes if is_weight else b.sizes)[2:]
    one = list(attributes.stride) == [1, 1] and list(attributes.padding) == [0, 0] and attributes.groups == 1
    if not one or not all(f.is_const(1) for f in filters) or not plane.is_const() or plane.constant() % ROW:
        return False
    if not is_weight:
        return True
    # The products of all images must not take more memory than the images.
    k, channels = b.sizes[1], a.sizes[1]
    known = k.is_const() and channels.is_const()
    return known and 2 * k.constant() * channels.constant() <= (k.constant() + channels.constant()) * plane.constant()


def planar_products(
    c: Context, kind: ir.ConvolveKind, a: ir.Value, b: ir.Value, sizes: list[ir.IndexExpr], dtype: ir.DType
) -> ir.Value:
    """Returns the convolution's result, of shape `sizes`."""
    build, plane = c.builder, a.sizes[2] * a.sizes[3]

    def planes(x: ir.Value) -> ir.Value:
        return build.reshape(x, [*x.sizes[:2], plane])

    if kind == Kind.kWeight:
        # a: x, b: gy.
        parts = contract(c, planes(b), build.permute(planes(a), [0, 2, 1]), ir.compute_type(dtype), a.dtype)
        return build.reshape(build.reduce("sum", parts, [0], False, dtype)[0], sizes)
    w = build.reshape(b, b.sizes[:2])
    if kind == Kind.kData:
        w = build.permute(w, [1, 0])
    each = build.expand(build.unsqueeze(w, 0), [a.sizes[0], *w.sizes])
    return build.reshape(contract(c, each, planes(a), dtype, a.dtype), sizes)
