# tests/fuzz/higher_statements.py: functions of functions: torch.func, checkpoints, no_grad, loops and branches as ops.
# ruff: noqa: E501  (tables of lines)
from __future__ import annotations

from typing import Any

from tests.fuzz.number_statements import pick_tame
from tests.fuzz.program import COMPILE
from tests.fuzz.statements import Lines, kind

# Functions without cancellation, because no noise (reference.py) moves what they compute inside: of z, and of a tensor w from outside.
BODIES = (
    "z.sin()", "z * {w}", "(z * 0.1).tanh()", "z.cumsum(-1)", "z.softmax(-1)", "F.layer_norm(z, z.shape[-1:])", "z @ z.mT", "z.square().mean(-1, keepdim=True) * z",
    "z.flip(-1) * z", "torch.where(z > 0, z, z * 0.5)", "z + {w}.mean()", "torch.cat([z, z.sin()], -1)", "z.sigmoid() * {w}.sum(0)", "F.silu(z).amax(-1)", "z.clone().mul_({w})", "z[..., 1:] * z[..., :-1]",
    "z.mT.contiguous() * 2", "z.logsumexp(-1)", "F.pad(z, (1, 1)) * 0.5", "z.unsqueeze(0).expand(2, *z.shape).sin()", "torch.zeros_like(z).add_(z) * {w}", "z.norm(dim=-1)", "z.square() * {w}",
    "z.var(-1)", "F.linear(z, z)", "z.roll(1, -1) * z", "F.log_softmax(z, -1)", "z.prod(-1)", "z.tril()", "z.select(-1, 0).exp()", "torch.outer(z.flatten(), {w}.flatten())", "z.to(torch.float64).sin()",
)  # fmt: skip
# Functions whose result is like z.
STEPS = (
    "z.sin()",
    "z * 0.5 + 1",
    "torch.sin(z * {w})",
    "z.flip(0) * 0.5",
    "(z + {w}).cos()",
    "z.softmax(-1)",
    "z * 1",
    "(z @ z.mT @ z) * 0.1",
)


def operands(g: Any) -> tuple[str, str]:
    """Returns a tensor of small finite numbers and one of the same shape; a new argument if there is none."""
    x = pick_tame(g, lambda t: str(t.dtype) == "torch.float32" and t.dim() > 0 and t.numel() > 0)
    if not x:
        x = g.argument(
            g.layout([g.pick((4, 3, 2, 5)) for _ in range(g.pick((2, 1, 3)))], "torch.float32").replace(
                "special(", "make("
            )
        )
    shape = g.shape(x)
    found = [
        y
        for y in g.tensors(lambda t: str(t.dtype) == "torch.float32" and tuple(t.shape) == shape)
        if pick_tame(g, lambda t, y=y: t is g.meta(y))
    ]
    return x, str(g.pick(found)) if found else x


def body(g: Any, bodies: tuple[str, ...], w: str) -> str:
    return str(g.pick(bodies)).format(w=w)


@kind(5, "higher")
def transformed(g: Any) -> Lines:
    """Draws a torch.func transform, a checkpoint or a region without gradients."""
    x, y = operands(g)
    f = f"lambda z: {body(g, BODIES, y)}"
    total = f"lambda z: ({body(g, BODIES, y)}).square().mean()"
    v = g.name()
    one = [
        f"torch.func.vmap({f})({x})", f"torch.func.vmap({f}, in_dims=-1, out_dims=-1)({x})", f"torch.func.grad({total})({x})", f"torch.func.vmap(torch.func.grad({total}))({x})",
        f"torch.func.jacrev({f})({x})", f"torch.func.jacfwd({f})({x})", f"checkpoint({f}, {x}, use_reentrant=False, preserve_rng_state=False)", f"checkpoint({f}, {x}, use_reentrant=False, preserve_rng_state=False) * {y}",
        f"torch.no_grad()({f})({x})", f"torch.func.vjp({f}, {x})[0]", f"torch.func.grad(lambda u: torch.func.grad({total})(u).square().sum())({x})",
        f"torch.func.vmap(lambda z, u: z * u.sum(), in_dims=(0, None))({x}, {y})", f"torch.vmap({f}, chunk_size=2)({x})",
    ]  # fmt: skip
    two = [f"torch.func.jvp({f}, ({x},), ({y},))", f"torch.func.grad_and_value({total})({x})"]
    text = g.pick([*one, *two])
    return [f"{v}, {g.name()} = {text}" if text in two else f"{v} = {text}"]


@kind(3, "higher")
def controlled(g: Any) -> Lines:
    """Draws a branch or a loop that the graph contains as an op."""
    if g.settings.mode != COMPILE:
        return []
    x, y = operands(g)
    f, other = (f"lambda z: {body(g, STEPS, w)}" for w in (y, x))
    first, rounds, limit = f"{x}[0] * 0.5", g.pick(("3", "1", "0")), g.pick(("0", "-99", "99"))
    v = g.name()
    text = g.pick(
        [f"cond({x}.sum() > {limit}, {f}, {other}, ({x},))",
         f"while_loop(lambda i, z: i < {rounds}, lambda i, z: (i + 1, ({f})(z)), (torch.zeros((), dtype=torch.int64, device=device), {x}.clone()))",
         f"scan(lambda c, z: (torch.sin(c + z), c * z), {first}, {x})", f"scan(lambda c, z: (c * 0.5 + z.sin(), z + c), {first}, {x}, reverse=True)"]
    )  # fmt: skip
    return [f"{v} = {text}" if text.startswith("cond") else f"{v}, {g.name()} = {text}"]
