# tests/fuzz/changing_statements.py: numbers and words as arguments, which change from call to call.
# ruff: noqa: E501  (tables of lines)
from __future__ import annotations

from typing import Any

from tests.fuzz.statements import Lines, dim, kind

FLOATS = ("0.5 * k + 0.25", "1.5 - k", "k / 4", "2.0 if k % 2 else 0.5", "n / 2", "float(k)")
INTEGERS = ("k + 1", "2 - k", "n + k", "3 if k % 2 else 1", "k % 2", "-k")
REDUCTIONS = ("'sum' if k % 2 else 'mean'", "('none', 'mean', 'sum')[k % 3]")
ROUNDINGS = ("'floor' if k % 2 else 'trunc'", "('trunc', 'floor')[k % 2]")
APPROXIMATIONS = ("'tanh' if k % 2 else 'none'",)


@kind(6, "changing")
def number(g: Any) -> Lines:
    """Draws an op with a number that Python passes to the function."""
    x = g.tensor(lambda t: not t.is_complex())
    y, d = g.like(x), dim(g, x)
    s = g.argument(g.pick((*FLOATS, *INTEGERS)))
    if g.chance(20):
        return [
            g.pick(
                [
                    f"{x}.mul_({s})",
                    f"{x}.add_({y}, alpha={s})",
                    f"{x}.fill_({s})",
                    f"{x}[:1] = {s}",
                    f"{x} += {s}",
                    f"{x}.clamp_(max={s})",
                ]
            )
        ]
    text = g.pick(
        [f"{x} * {s}", f"{x} + {s}", f"{s} - {x}", f"{x} / ({s} + 9)", f"{x} > {s}", f"torch.full_like({x}, {s})", f"{x}.clamp(max={s})", f"torch.add({x}, {y}, alpha={s})",
         f"F.leaky_relu({x}, {s} / 8)", f"torch.where({x} > {s}, {x}, {s})", f"torch.full((3,), {s}, device=device)", f"F.pad({x}, (1, 0), value={s})", f"{x}.masked_fill({y} > {s}, {s})",
         f"({x} if {s} > 1 else -{x}) * {s}", f"torch.tensor([{s}, 1], device=device)", f"F.softplus({x}, beta={s} + 3)", f"{x}.mean() * {s} // 1", f"torch.arange({s} + 3, device=device)",
         f"{x}.sum({d}) * round({s} * 2)", f"torch.lerp({x}, {y}, {s})", f"F.threshold({x}, {s}, {s} * 2)", f"math.sqrt(abs({s}) + 1) * {x}", f"{x} * torch.tensor({s}, device=device)"]
    )  # fmt: skip
    return [f"{g.name()} = {text}"]


@kind(3, "changing")
def integer(g: Any) -> Lines:
    """Draws an op whose sizes or places follow an integer that Python passes to the function."""
    x = g.tensor()
    d = dim(g, x)
    s = g.argument(g.pick(INTEGERS))
    text = g.pick(
        [f"{x}.roll({s}, {d})", f"{x}[abs({s}):]", f"{x}[..., : abs({s}) + 1]", f"F.pad({x}, (abs({s}), 1))", f"{x}.tril({s})", f"{x}.diagonal({s})" if g.rank(x) > 1 else f"{x} * {s}",
         f"{x}.narrow({d}, 0, {s} % 2 + 1)", f"{x}.sum({s} % {max(g.rank(x), 1)})", f"torch.zeros(abs({s}) + 1, 2, device=device) + 1", f"{x}.repeat_interleave(abs({s}) + 1, {d})",
         f"{x}.unsqueeze({s} % {g.rank(x) + 1})", f"{x}.transpose({s} % {max(g.rank(x), 1)}, {d})", f"{x}[{s} % {max(g.least(x, 0), 1)}]" if g.rank(x) else f"{x} + {s}",
         f"torch.cat([{x}] * (abs({s}) + 1), {d})", f"{x}.expand(abs({s}) + 1, {'-1, ' * g.rank(x)})", f"sum([{x}] * ({s} % 3 + 1))", f"{x}.cumsum({s} % {max(g.rank(x), 1)})"]
    )  # fmt: skip
    return [f"{g.name()} = {text}"]


@kind(2, "changing")
def word(g: Any) -> Lines:
    """Draws an op with a word that changes."""
    x = g.tensor(lambda t: t.is_floating_point())
    y = g.like(x)
    choices = [
        (REDUCTIONS, "F.mse_loss({x}, {y}, reduction={s})"),
        (REDUCTIONS, "F.smooth_l1_loss({x}, {y}, reduction={s})"),
        (ROUNDINGS, "torch.div({x}, 0.75, rounding_mode={s})"),
        (APPROXIMATIONS, "F.gelu({x}, approximate={s})"),
        (("'amax' if k % 2 else 'sum'",), "getattr({x}, {s})(0)"),
        (("torch.float64 if k % 2 else torch.float32", "torch.float32 if k % 2 else torch.bfloat16"), "{x}.to({s})"),
        (("k % 2 == 0",), "({x} * 2 if {s} else {x} + 1)"),
        (("k % 2 == 0", "k % 2 == 1"), "{x}.sum(0, keepdim={s})"),
    ]
    texts, line = g.pick(choices)
    return [f"{g.name()} = {line.format(x=x, y=y, s=g.argument(g.pick(texts)))}"]
