# tests/fuzz/jagged_statements.py: nested tensors with layout=torch.jagged, from rows of a matrix and back to plain tensors.
from __future__ import annotations

import itertools
from typing import Any

from tests.fuzz.statements import Lines, kind


def step(g: Any, t: str, width: int) -> tuple[str, int]:
    """Returns an op of a jagged tensor [sequences, rows, width], and the width of its result."""
    if g.chance(25):
        out = g.pick((4, 5, 8))
        weight = g.argument(g.layout([out, width], "torch.float32").replace("special(", "make("))
        bias = g.argument(g.made((out,), "torch.float32")) if g.chance(50) else "None"
        return f"F.linear({t}, {weight}, {bias})", out
    if g.chance(10):
        return f"{t} * {g.argument(g.made((width,), 'torch.float32'))}", width
    choices = [
        f"{t} * 2", f"F.gelu({t})", f"{t}.sin()", f"{t} * {t}", f"F.layer_norm({t}, ({width},))", f"F.rms_norm({t}, ({width},))",
        f"{t}.softmax(-1)", f"F.relu({t})", f"torch.where({t} > 0, {t}, {t} * 2)", f"{t} + 1", f"F.silu({t})", f"{t}.clone()",
        f"{t}.masked_fill({t} > 1, 0)", f"{t} - {t}.mean(-1, keepdim=True)", f"{t}.unsqueeze(-1).flatten(-2)",
    ]  # fmt: skip
    return g.pick(choices), width


def attention(g: Any, t: str, width: int) -> Lines:
    """Returns the lines of attention with two heads of a jagged tensor to itself; the last one makes a jagged tensor."""
    q, out = g.name("t"), g.name("t")
    scale, causal = g.pick(("0.5", "1")), g.pick(("False", "True"))
    call = f"F.scaled_dot_product_attention({q}, {q} * {scale}, {q} + 1, is_causal={causal})"
    return [
        f"{q} = {t}.unflatten(-1, [2, {width // 2}]).transpose(1, 2)",
        f"{out} = {call}.transpose(1, 2).flatten(-2)",
    ]


@kind(2, "jagged")
def jagged(g: Any) -> Lines:
    x = g.tensor(lambda t: str(t.dtype) == "torch.float32" and t.dim() == 2 and t.numel() > 0)
    if g.rank(x) != 2 or not g.fixed_shape(x) or not g.meta(x).numel() or g.chance(30):
        x = g.argument(g.layout([g.pick((7, 4, 12)), g.pick((8, 4, 6))], "torch.float32").replace("special(", "make("))
    rows, width = g.shape(x)
    cuts = sorted(g.integer(0, rows) for _ in range(g.integer(0, 3)))
    # Lengths that differ from call to call.
    texts = [f"{cut} + k % 2" if cut < min(cuts[i + 1 :], default=rows) else f"{cut}" for i, cut in enumerate(cuts)]
    ends = f"torch.tensor([{', '.join(['0', *texts, str(rows)])}], device=device)"
    places = [0, *cuts, rows]
    known = ""
    if g.chance(40) or not cuts:
        ends = ends.replace(" + k % 2", "")
        lengths = [b - a for a, b in itertools.pairwise(places)]
        known = f", min_seqlen={min(lengths)}, max_seqlen={max(lengths)}"
    offsets = g.argument(ends)
    made = f"torch.nested.nested_tensor_from_jagged({x}, {offsets}{known})"
    lines: Lines = []
    if x.startswith("a") and g.chance(50):
        t = g.argument(made)
    else:
        t = g.name("t")
        lines.append(f"{t} = {made}")
    for _ in range(g.integer(1, 4)):
        if width % 2 == 0 and g.chance(20):
            lines += attention(g, t, width)
            t = lines[-1].split(" = ")[0]
            continue
        text, width = step(g, t, width)
        t = g.name("t")
        lines.append(f"{t} = {text}")
    back = [f"{t}.values()", f"{t}.values()", f"{t}.amax(-1).values()"]
    # After attention, PyTorch's CPU code pads to more than the longest sequence.
    back += [] if any("attention" in line for line in lines) else [f"{t}.to_padded_tensor(-1.0)"]
    # PyTorch's own gradient of a sum of rows is an error.
    back += [] if g.settings.gradient else [f"{t}.sum(1)", f"{t}.mean(1)"]
    return [*lines, f"{g.name()} = {g.pick(back)}"]
