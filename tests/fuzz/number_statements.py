# tests/fuzz/number_statements.py: complex numbers, 8-bit floats, and sizes as numbers.
# ruff: noqa: E501  (tables of lines)
from __future__ import annotations

from typing import Any

import torch

from tests.fuzz.program import VARYING
from tests.fuzz.statements import NUMBERS, Lines, dim, kind

FLOATS8 = ("torch.float8_e4m3fn", "torch.float8_e5m2", "torch.float8_e4m3fnuz", "torch.float8_e5m2fnuz")
FLOATS = ("torch.float32", "torch.float32", "torch.bfloat16", "torch.float16", "torch.int32", "torch.float64")
# Products of larger numbers soon overflow, and what infinity times a complex number is differs among kernels.
LARGEST = 64


def tame(t: torch.Tensor) -> bool:
    """Returns whether all numbers are finite and small."""
    t = torch.view_as_real(t.detach().resolve_conj()) if t.is_complex() else t.detach()
    return not t.numel() or bool(t.double().abs().max() <= LARGEST)


def pick_tame(g: Any, condition: Any) -> str:
    """Returns the name of such a tensor whose numbers are finite and small in every call; "" if there is none."""
    found = [x for x in g.tensors(condition) if all(tame(names[x]) for names in g.names)]
    return str(found[min(g.integer(0, len(found) - 1), g.integer(0, len(found) - 1))]) if found else ""


def complex_tensor(g: Any) -> str:
    """Returns an existing complex tensor, or a new argument."""
    found = pick_tame(g, lambda t: t.is_complex())
    if found and not g.chance(15):
        return found
    shape = [g.pick((4, 3, 2, 5, 1, 8, 0)) for _ in range(g.pick((2, 1, 3, 2)))]
    dtype = g.pick(("torch.complex64",) * 8 + ("torch.complex128",))
    return str(g.argument(g.layout(shape, dtype)))


@kind(3, "complex")
def complex_made(g: Any) -> Lines:
    """Draws complex numbers from real ones."""
    x = pick_tame(g, lambda t: t.dtype is torch.float32)
    if not x:
        return [f"{g.name()} = {complex_tensor(g)} * 1j"]
    y = g.like(x)
    text = g.pick(
        [f"torch.complex({x}, {x} * 0.5 + 1)", f"torch.complex({x}, {y})", f"torch.polar({x}.abs(), {x})", f"{x}.to(torch.complex64)", f"{x} * (0.5 - 2j)",
         f"torch.view_as_complex(torch.stack([{x}, {x} + 1], -1))", f"torch.fft.fft({x})", f"torch.fft.rfft({x})", f"{x} + 1j"]
    )  # fmt: skip
    return [f"{g.name()} = {text}"]


@kind(7, "complex")
def complex_math(g: Any) -> Lines:
    z = complex_tensor(g)
    shape, d, x = g.shape(z), dim(g, z), g.tensor(lambda t: t.dtype is torch.float32)
    others = [w for w in g.tensors(lambda t: t.is_complex() and tuple(t.shape) == shape) if tame(g.meta(w))]
    w = g.pick(others) if others else z
    # On the cut along the negative real numbers, the sign of a zero decides.
    off = f"({z} + (0.3 + 0.2j))"
    text = g.pick(
        [f"{z} * {w}", f"{z} + {w}", f"{z}.conj()", f"{z} * {w}.conj()", f"{z}.abs()", f"{z}.real", f"{z}.imag", f"torch.view_as_real({z})",
         f"{z} - {w} * 2", f"{z} * {x}", f"{z} / (9 - 1j)", f"{z} / {off}", f"{off}.angle()", f"{off}.log()", f"{off}.sqrt()", f"{off}.reciprocal()", f"{off}.sgn()",
         f"({z} * 0.1).exp()", f"({z} * 0.1).sin()", f"({z} * 0.1).cosh()", f"({z} * 0.1).tanh()", f"-{z}", f"{z}.square()", f"{z}.sum({d})", f"{z}.mean()",
         f"{z}.mean({d})", f"({z} * 0.25).prod({d})", f"{z}.cumsum({d})", f"{z}.mH", f"{z} @ {w}.mH", f"{z}.mT @ {w}", f"{z} @ {z}.mT.conj()", f"torch.vdot({z}.flatten(), {w}.flatten())",
         f"torch.einsum('ij,kj->ik', {z}, {w}.conj())", f"F.linear({z}, {w})", f"{z} == {w}", f"torch.where({x} > 0, {z}, {w})", f"torch.addcmul({z}, {w}, {w})",
         f"torch.linalg.vector_norm({z})", f"{z}.norm(dim={d})", f"torch.cat([{z}, {w}.conj()], {d})", f"torch.stack([{z}, {w}])", f"{z}.flip({d})", f"{z}.conj().imag", f"{z}.conj().resolve_conj()",
         f"torch.view_as_real({z}.conj().resolve_conj())", f"{z}.to(torch.complex128)", f"{z}.isfinite()", f"torch.fft.ifft({z})", f"torch.fft.fft({z}, dim={d})", f"torch.lerp({z}, {w}, 0.25)",
         f"{z}.clone()", f"{z}.conj().clone()", f"{z}.transpose(0, {d}).conj()", f"{z}.real * {w}.imag", f"torch.zeros_like({z})", f"{z} * {g.pick(NUMBERS)}", f"{z}.var()", f"{z}.pow(2)", f"torch.outer({z}.flatten(), {w}.flatten().conj())",
         f"{z}.tril()", f"torch.bmm({z}[None], {w}.mH[None])", f"{z}.conj_physical()", f"torch.conj(-{z})"]
    )  # fmt: skip
    return [f"{g.name()} = {text}"]


@kind(3, "complex")
def complex_in_place(g: Any) -> Lines:
    z = complex_tensor(g)
    if not all(step or size <= 1 for size, step in zip(g.shape(z), g.meta(z).stride(), strict=True)):
        return []
    shape = g.shape(z)
    w = g.pick(g.tensors(lambda t: t.is_complex() and tuple(t.shape) == shape) or [z])
    text = g.pick(
        [f"{z}.mul_({w}.conj())", f"{z}.add_({w}, alpha=2)", f"{z}.conj_physical_()", f"{z}.real.add_(1)", f"{z}.imag.zero_()", f"{z}.copy_({w}.conj())",
         f"{z}.neg_()", f"torch.view_as_real({z}).mul_(2)", f"{z}[...] = {w} * 1j", f"{z}.conj().mul_(0.5)", f"{z}.fill_(1 - 2j)", f"{z}.conj().fill_(1 - 2j)", f"{z}[:1] += 0.5j",
         f"{z}.conj().imag.add_(1)", f"{z} *= {g.pick(NUMBERS)}", f"{z}.sub_({w}.mH.mH)"]
    )  # fmt: skip
    return [text]


@kind(4, "float8")
def float8(g: Any) -> Lines:
    """Draws a conversion to an 8-bit float, or an op that moves such numbers or converts them back."""
    dtype = g.pick(FLOATS8)
    stored = g.tensors(lambda t: t.is_floating_point() and t.element_size() == 1)
    if not stored or g.chance(40):
        x = pick_tame(g, lambda t: t.is_floating_point() and t.element_size() > 1)
        if not x:
            shape = [g.pick((4, 3, 8, 1, 5)) for _ in range(g.pick((2, 1, 3)))]
            return [f"{g.name()} = {g.argument(g.made(shape, dtype))}.to({g.pick(FLOATS)})"]
        return [f"{g.name()} = {x}{g.pick(['', ' * 3', ' * 0.01', ' * 100'])}.to({dtype})"]
    v = g.pick(stored[:3])
    shape, d = g.shape(v), dim(g, v)
    same = g.tensors(lambda t: t.dtype == g.meta(v).dtype and tuple(t.shape) == shape)
    u, x = g.pick(same), g.like(v)
    text = g.pick(
        [f"{v}.to({g.pick(FLOATS[:2])})", f"{v}.to({g.pick(FLOATS)})", f"{v}.to(torch.float32) * 2", f"{v}.clone()", f"torch.cat([{v}, {u}], {d})", f"{v}[:2]", f"{v}.view(torch.uint8)", f"{v}.mT",
         f"torch.where({x} > 0, {v}, {u})", f"{v}.repeat(2, {'1, ' * g.rank(v)})", f"{v}.roll(1, {d})", f"{v}.isnan()", f"{v} == {u}", f"{v}.to({dtype})", f"{v}.flatten()",
         f"torch.zeros_like({v})", f"torch.full_like({v}, 1.5)", f"torch.stack([{v}, {u}])", f"{v}.to(torch.float32) @ {v}.to(torch.float32).mT", f"{v}.to(torch.bfloat16).mean()", f"F.pad({v}, (1, 1))",
         f"{v}.expand(2, {'-1, ' * g.rank(v)}).contiguous()", f"{v}.transpose(0, {d}).contiguous()", f"F.linear({v}.to(torch.float32), {u}.to(torch.float32) * 0.5)"]
    )  # fmt: skip
    if g.chance(15):
        return [
            g.pick(
                [f"{v}.copy_({u})", f"{v}.zero_()", f"{v}[:1] = {u}[:1].clone()", f"{v}.copy_({x})", f"{v}.fill_(2)"]
            )
        ]
    return [f"{g.name()} = {text}"]


@kind(6, "weights")
def size_of_weight(g: Any) -> Lines:
    """Draws what depends on a weight and on a size that changes, and then on another tensor: a compiler may keep the first
    between calls only if the size stays the same."""
    if not g.settings.weights:
        return []
    text = {name: text for name, text in g.inputs}
    fixed = [
        x for x in g.tensors(lambda t: t.is_floating_point() and t.dim() > 0) if not VARYING.search(text.get(x, "k"))
    ]
    moving = [y for y in g.tensors(lambda t: t.is_floating_point() and t.dim() > 0) if not g.fixed_shape(y)]
    if not fixed or not moving:
        return []
    x, y = g.pick(fixed), g.pick(moving)
    changing = [d for d in range(g.rank(y)) if len({names[y].shape[d] for names in g.names}) > 1]
    if not changing:
        return []
    made, last, size = g.name(), g.name(), f"{y}.shape[{g.pick(changing)}]"
    part = g.pick(
        [f"{x} * {size}", f"{x}[: {size}]", f"{x} + {size}", f"{x}.roll({size}, 0)", f"{x}[{size} % {x}.shape[0]]"]
    )
    whole = g.pick(
        [f"({part}).sum()", f"({part}).amax()", f"({part}).cumsum(0).mean()", f"({part}).flatten().softmax(0).var()"]
    )
    return [f"{made} = {whole}", f"{last} = {y} * {made}"]
