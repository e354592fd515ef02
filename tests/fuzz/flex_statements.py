# tests/fuzz/flex_statements.py: FlexAttention with random score and mask functions.
from __future__ import annotations

from typing import Any

from tests.fuzz.statements import Lines, kind

CONDITIONS = ("i >= j", "(i - j).abs() <= 2", "j < 3", "i // 4 == j // 4", "(i + j + h) % 3 != 0", "j <= i + 2 * b",
              "i % 4 != 1", "j >= 0")  # fmt: skip
LENGTHS = (8, 4, 17, 1, 33, 5)


def operand(g: Any, shape: list[Any], before: Lines) -> str:
    """Returns a tensor of the shape: the elements of an existing one, or a new argument."""
    if all(isinstance(size, int) for size in shape) and g.chance(35):
        count = shape[0] * shape[1] * shape[2] * shape[3]
        fits = g.tensors(lambda t: str(t.dtype) == "torch.float32" and t.numel() >= count)
        fits = [x for x in fits if all(names[x].numel() >= count for names in g.names)]
        if fits:
            name = g.name()
            text = f"{g.pick(fits)}.flatten()[:{count}].view({tuple(shape)}).clamp(-4, 4).nan_to_num(0.5)"
            before.append(f"{name} = {text}")
            return str(name)
    return str(g.argument(_finite(g.layout(shape, "torch.float32"))))


def _finite(text: str) -> str:
    """A score of infinity minus infinity is NaN in some implementations only."""
    return text.replace("special(", "make(")


def score(g: Any, heads: int, depth: int) -> str:
    """Returns an expression of the score s and the indices b, h, i, j."""
    inner = score(g, heads, depth - 1) if depth else "s"
    captured = g.argument(_finite(g.layout([heads], "torch.float32"))) if g.chance(50) else ""
    choices = [
        f"{inner} + (i - j) * 0.25", f"{inner} * 0.5", f"torch.tanh({inner} / 2) * 2", f"{inner} - (i - j).abs()",
        f"torch.where(i >= j, {inner}, -float('inf'))", f"torch.where((i - j).abs() < 2, {inner}, {inner} - 1)",
        f"{inner} + b * 0.5 - h", f"{inner}.abs() * -0.5", f"torch.where(j % 3 != 0, {inner}, -1e4)", f"torch.sin({inner})",
        f"{inner} + torch.where(i // 4 == j // 4, 1.0, 0.0)",
    ]  # fmt: skip
    if captured:
        # A negative factor makes a score of minus infinity infinite, and softmax of that is NaN in some implementations only.
        factor = "+" if "inf" in inner else "*"
        choices = [f"{inner} + {captured}[h]", f"{inner} {factor} {captured}[h]", f"{inner} - {captured}[h] * (i - j).abs()",
                   f"{inner} + {captured}[i % {heads}] * {captured}[j % {heads}]"]  # fmt: skip
    return str(g.pick(choices))


def seen(g: Any, depth: int) -> str:
    """Returns a condition on the indices b, h, i, j."""
    if depth and g.chance(40):
        return f"({seen(g, depth - 1)}) {g.pick(['&', '|'])} ({seen(g, depth - 1)})"
    return str(g.pick(CONDITIONS))


@kind(2, "flex")
def flex_attention(g: Any) -> Lines:
    batch, heads, groups = g.pick((1, 2)), g.pick((1, 2, 3)), g.pick((1, 1, 2))
    depth, width = g.pick((8, 4, 16, 5)), g.pick((8, 8, 4, 3))
    rows, keys = g.pick(LENGTHS), g.pick(LENGTHS)
    if min(g.settings.calls) > 0 and len(set(g.settings.calls)) > 1 and g.chance(60):
        rows = "n"
    keys = rows if g.chance(50) else keys
    before: Lines = []
    q = operand(g, [batch, heads * groups, rows, depth], before)
    k = operand(g, [batch, heads, keys, depth], before)
    v = operand(g, [batch, heads, keys, width], before)
    more = []
    if g.chance(75):
        more.append(f"score_mod=lambda s, b, h, i, j: {score(g, heads * groups, g.integer(0, 2))}")
    if g.chance(70):
        mask = g.name("t")
        every = f"{batch}, {heads * groups}" if g.chance(50) else "None, None"
        text = seen(g, 2)
        every = f"{batch}, {heads * groups}" if "h" in text or "b" in text.replace("abs", "") else every
        before.append(
            f"{mask} = create_block_mask(lambda b, h, i, j: {text}, {every}, {q}.shape[2], {k}.shape[2], device=device)"
        )
        more.append(f"block_mask={mask}")
    if groups > 1:
        more.append("enable_gqa=True")
    if g.chance(15):
        more.append(f"scale={g.pick((0.5, 1.0, 0.1))}")
    out = g.name()
    if g.chance(20):
        more.append("return_lse=True")
        out = f"{out}, {g.name()}"
    return [*before, f"{out} = flex_attention({', '.join([q, k, v, *more])})"]
