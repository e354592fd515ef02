# tests/fuzz/statements.py: statements that no op table has: views, in-place writes, indexing, creation, casts, numbers.
# ruff: noqa: E501, F541  (tables of lines)
"""Each function draws one statement for the existing tensors and returns its lines; `g` is a Maker.

PyTorch decides whether the lines are valid, so they need not be.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

Lines = list[str]
# (weight, function)
KINDS: list[tuple[int, Callable[[Any], Lines]]] = []


# Parts that are drawn more often (python -m tests.fuzz --more PART), and how often.
MORE = os.environ.get("TORCH_OCL_FUZZ_MORE", "").split(",")
OFTEN = 12


def kind(weight: int, part: str = "") -> Callable[[Callable[[Any], Lines]], Callable[[Any], Lines]]:
    def add(make: Callable[[Any], Lines]) -> Callable[[Any], Lines]:
        KINDS.append((weight * (OFTEN if part and part in MORE else 1), make))
        return make

    return add


NUMBERS = ("2", "0.5", "-1.5", "3", "1", "0", "-2", "0.3", "True")
DTYPES = ("torch.float32", "torch.int64", "torch.float16", "torch.bfloat16", "torch.int32", "torch.bool", "torch.uint8",
          "torch.float64", "torch.int16", "torch.int8")  # fmt: skip


def dim(g: Any, x: str) -> int:
    """Draws a dimension of x, counted from either end."""
    rank = g.rank(x)
    d = g.integer(0, max(rank - 1, 0))
    return d - rank if g.chance(30) else d


def slice_of(g: Any, size: int) -> str:
    """Draws a slice that is not empty most of the time."""
    start = g.pick(["", "1", "-2", "0", "2"])
    stop = g.pick(["", "-1", "3", "2", "1"])
    step = g.pick(["", "", "", ":2", ":3"])
    return f"{start}:{stop}{step}"


def index_of(g: Any, x: str) -> str:
    """Draws an index expression of slices and integers, which needs no other operand."""
    parts = []
    for size in g.shape(x)[: g.integer(1, max(g.rank(x), 1))]:
        choice = g.integer(0, 9)
        parts.append(":" if choice < 2 else g.pick(["0", "-1", "1"]) if choice == 9 else slice_of(g, size))
    if g.chance(10):
        parts.insert(g.integer(0, len(parts)), "None")
    if g.chance(15):
        parts.insert(0, "...")
    return ", ".join(parts)


def view_text(g: Any, x: str) -> str:
    """Draws a view of x as an expression."""
    rank, shape = g.rank(x), g.shape(x)
    d, e = dim(g, x), dim(g, x)
    size = g.size(x, d)
    grouped = "".join(f"{g.size(x, i)}, " for i in range(1, rank))
    choices = [
        lambda: f"{x}[{index_of(g, x)}]",
        lambda: f"{x}.transpose({d}, {e})",
        lambda: f"{x}.permute({', '.join(map(str, g.shuffled(range(rank))))})",
        lambda: f"{x}.view(-1)",
        lambda: f"{x}.unsqueeze({d})",
        lambda: f"{x}.narrow({d}, {g.integer(0, 2)}, {g.pick([1, 2, size + ' - 1'])})",
        lambda: f"{x}.select({d}, {g.integer(-1, 1)})",
        lambda: f"{x}.squeeze({g.pick(['', str(d)])})",
        lambda: f"{x}.expand({g.pick(['2', '3', '1'])}, {''.join(f'{g.size(x, i)}, ' for i in range(rank)).strip()})",
        lambda: f"{x}.flatten({g.pick(['', '1', '-2'])})",
        lambda: f"{x}.reshape(-1, {g.size(x, rank - 1) if rank else 1})",
        lambda: f"{x}.view({g.size(x, 0) if rank else 1}, -1)",
        lambda: f"{x}.diagonal({g.pick(['', '1', '0, -2, -1', '0, 1, 0'])})",
        lambda: f"{x}.unfold({d}, {g.integer(1, 3)}, {g.integer(1, 2)})",
        lambda: f"{x}.mT" if rank > 1 else f"{x}.T",
        lambda: f"{x}.movedim({d}, {e})",
        lambda: f"{x}.detach()",
        lambda: f"{x}.unflatten({d}, ({g.pick(['1', '2'])}, -1))",
        lambda: f"{x}.expand(-1, {g.pick(['3', '-1'])})" if rank == 2 else f"{x}.expand_as({g.tensor()})",
        lambda: f"{x}.view({grouped}-1)" if rank else f"{x}.view(1, 1)",
        lambda: f"{x}.as_strided({shape}, {tuple(g.meta(x).stride())}, {g.meta(x).storage_offset()})",
        lambda: f"{x}.view_as({g.tensor()})",
        lambda: f"{x}[: {g.size(x, 0)} // 2]" if rank else f"{x}[None]",
    ]
    text: str = g.pick(choices)()
    return text


@kind(18)
def view(g: Any) -> Lines:
    return [f"{g.name()} = {view_text(g, g.tensor())}"]


@kind(4)
def views(g: Any) -> Lines:
    """Draws an op that returns several views."""
    x = g.tensor()
    d = dim(g, x)
    size = g.shape(x)[d] if g.rank(x) else 0
    text, count = g.pick(
        [
            (f"{x}.chunk(2, {d})", 2 if size > 1 else 1),
            (f"{x}.split({max(size - 1, 1)}, {d})", 2 if size > 1 else 1),
            (f"{x}.unbind({d})", size),
            (f"{x}.tensor_split(2, {d})", 2),
            (f"{x}.split([1, {size - 1}], {d})", 2),
        ]
    )
    if not 1 <= count <= 4:
        return []
    names = [g.name() for _ in range(count)]
    return [f"{', '.join(names)}{',' if count == 1 else ''} = {text}"]


@kind(16)
def in_place(g: Any) -> Lines:
    """Draws a method that writes in place. Its target may be a view made for it, and its result may get a name."""
    x = g.target()
    y, number = g.like(x), g.pick(NUMBERS)
    if g.floating(x):
        more = [
            f"{x}.sin_()",
            f"{x}.sigmoid_()",
            f"{x}.mul_({y}).add_({number})",
            f"{x}.lerp_({y}, 0.5)",
            f"{x}.addcmul_({y}, {y})",
        ]
    else:
        more = [f"{x}.bitwise_or_({y})", f"{x}.remainder_(3)", f"{x}.logical_not_()", f"{x}.bitwise_xor_(1)"]
    text = g.pick(
        [
            f"{x}.add_({y})", f"{x}.mul_({y})", f"{x}.add_({number})", f"{x}.mul_({number})", f"{x}.copy_({y})", f"{x}.zero_()",
            f"{x}.fill_({number})", f"{x}.sub_({y})", f"{x}.neg_()", f"{x}.clamp_(-1, 2)", f"{x}.masked_fill_({y} > 0, {number})",
            f"{x}.add_({y}, alpha=2)", f"{x}.abs_()", f"{x}.copy_({y}.to(torch.float32) * 2)", f"{x}.fill_(torch.tensor({number}))",
            f"{x}.pow_(2)", f"{x}.cumsum_({dim(g, x)})", f"{x}.square_()", f"{x}.relu_()", *more,
        ]
    )  # fmt: skip
    return [f"{g.name()} = {text}" if g.chance(25) else text]


@kind(8)
def assign(g: Any) -> Lines:
    """Draws x[...] = y, x[mask] = number, x[...] += y or x += y."""
    x = g.target()
    y, number = g.like(x), g.pick(NUMBERS)
    at = g.pick([index_of(g, x), index_of(g, x), "...", f"{y} > 0"])
    value = g.pick([number, y, f"{y}[{at}]", f"{x}[{at}] * 2" if at != f"{y} > 0" else number, f"{y}.flip(0)"])
    return [
        g.pick(
            [
                f"{x}[{at}] = {value}",
                f"{x}[{at}] = {value}",
                f"{x}[{at}] += {number}",
                f"{x} += {y}",
                f"{x} *= {number}",
            ]
        )
    ]


@kind(4)
def whole_form(g: Any) -> Lines:
    """Draws a method that changes sizes and strides in place, for a variable or an argument."""
    x = g.tensor()
    d = dim(g, x)
    return [
        g.pick(
            [
                f"{x}.t_()",
                f"{x}.unsqueeze_({d})",
                f"{x}.squeeze_()",
                f"{x}.transpose_({d}, {dim(g, x)})",
                f"{x}.detach_()",
                f"{x}.squeeze_({d})",
                f"{x}.swapaxes_(0, {d})",
                f"{x}.as_strided_({g.shape(x)[::-1]}, {tuple(g.meta(x).stride())[::-1]})",
                f"{x}.resize_({', '.join(map(str, g.shape(x)[1:])) or '1'})",
                f"{x}.resize_as_({x}[:1])",
                f"{x}.set_({g.like(x)})",
                f"{x}.data = {g.like(x)}.detach()",
                f"{x}.data.mul_(2)",
            ]
        )
    ]


@kind(5)
def join(g: Any) -> Lines:
    x = g.tensor()
    y, d = g.like(x), dim(g, x)
    z = g.pick([x, y])
    text = g.pick(
        [f"torch.cat([{x}, {y}], {d})", f"torch.stack([{x}, {y}], {d})", f"torch.cat([{x}, {y}, {z}], {d})", f"torch.hstack([{x}, {y}])",
         f"torch.cat([{x}, {x}[:1]], 0)", f"torch.vstack([{x}, {y}])", f"torch.cat([{x}.flatten(), {g.tensor()}.flatten()])"]
    )  # fmt: skip
    return [f"{g.name()} = {text}"]


@kind(5)
def rearrange(g: Any) -> Lines:
    """Draws an op that returns new memory in another order."""
    x = g.tensor()
    d = dim(g, x)
    text = g.pick(
        [f"{x}.flip({d})", f"{x}.roll({g.integer(1, 2)}, {d})", f"{x}.clone()", f"{x}.contiguous()", f"{x}.repeat(2, {'1, ' * g.rank(x)})",
         f"{x}.clone(memory_format=torch.contiguous_format)", f"{x}.contiguous(memory_format=torch.channels_last)", f"{x}.rot90()",
         f"{x}.tril()", f"F.pad({x}, (1, {g.integer(0, 2)}))", f"{x}.repeat_interleave(2, {d})", f"torch.atleast_2d({x})", f"{x}.ravel()"]
    )  # fmt: skip
    return [f"{g.name()} = {text}"]


@kind(5)
def gathered(g: Any) -> Lines:
    """Draws an indexing by tensors."""
    x = g.target()
    size = min(g.least(x, 0), 50)
    if not g.rank(x) or not size:
        return []
    rows = ", ".join(str(g.integer(-size, size - 1)) for _ in range(g.integer(1, 3)))
    own = g.shuffled(range(size))[:3]
    i, v = g.name(), g.name()
    made = f"{i} = torch.tensor([{rows}], device=device)"
    alone = f"{i} = torch.tensor({own}, device=device)"
    y, number = g.like(x), g.pick(NUMBERS)
    return g.pick(
        [
            [made, f"{v} = {x}[{i}]"],
            [f"{v} = torch.where({y} > 0, {x}, {number})"],
            [alone, f"{x}[{i}] = {number}"],
            [alone, f"{x}.index_fill_(0, {i}, {number})"],
            [alone, f"{x}.index_add_(0, {i}, {x}[: {len(own)}].clone())"],
            [alone, f"{x}.index_copy_(0, {i}, {y}[: {len(own)}].clone())"],
            [made, f"{x}.index_put_(({i},), {x}[0] * 2, accumulate=True)"],
            [alone, f"{v} = {x}.index_select(0, {i})"],
        ]
    )


@kind(4)
def created(g: Any) -> Lines:
    x = g.tensor()
    sizes = "".join(f"{g.size(x, i)}, " for i in range(g.rank(x))).strip()
    dtype, number = g.pick(DTYPES), g.pick(NUMBERS)
    text = g.pick(
        [f"torch.ones_like({x})", f"torch.zeros(({sizes}), device=device)", f"torch.full_like({x}, {number})", f"{x}.new_full(({sizes}), {number})",
         f"torch.arange({g.size(x, 0) if g.rank(x) else 3}, device=device)", f"torch.full(({sizes}), {number}, device=device)",
         f"torch.zeros_like({x}, dtype={dtype})", f"torch.eye(3, device=device)", f"torch.linspace(0, 1, 5, device=device)",
         f"torch.empty_like({x}).fill_({number})", f"torch.ones((), dtype={dtype}, device=device)", f"torch.arange(0, 6, 2, device=device)",
         f"{x}.new_tensor([1, 2])", f"torch.tensor({number})", f"(torch.rand_like({x}) < 2).to(torch.float32)",
         f"torch.zeros(0, device=device)"]
    )  # fmt: skip
    return [f"{g.name()} = {text}"]


@kind(5)
def cast(g: Any) -> Lines:
    """Draws a cast. Casts from floating point to integers get only values that every integer type can hold, since
    devices differ beyond."""
    x, dtype = g.tensor(), g.pick(DTYPES)
    if not g.floating(x) or dtype_of(dtype).is_floating_point or dtype == "torch.bool":
        return [f"{g.name()} = {x}.to({dtype})"]
    y = g.name()
    return [f"{y} = {x}.nan_to_num(0, 9, 9).clamp(0, 99)", f"{g.name()} = {y}.to({dtype})"]


@kind(6)
def arithmetic(g: Any) -> Lines:
    """Draws an operator with tensors, numbers, sizes or CPU scalars."""
    x = g.tensor()
    y, number = g.like(x), g.pick(NUMBERS)
    other = g.pick([y, number, number, g.tensor(), f"torch.tensor({number})", g.size(x, 0) if g.rank(x) else number])
    operator = g.pick(["+", "*", "-", "/", ">", "==", "<=", "//", "%", "**"])
    if operator in ("//", "%") or (operator == "**" and other not in NUMBERS):
        other = "3"
    text = f"{x} {operator} {other}" if g.chance(80) else f"{other} {operator} {x}" if operator in "+*-" else f"-{x}"
    return [f"{g.name()} = {text}"]


@kind(4)
def numbers(g: Any) -> Lines:
    """Draws a Python number computed from sizes, and a tensor op that uses it."""
    x = g.tensor()
    s, v = g.name(), g.name()
    d = dim(g, x)
    size = f"{x}.shape[{d}]" if g.rank(x) else f"{x}.numel()"
    first = g.pick(
        [
            size,
            f"{size} * 2 + 1",
            f"{size} // 2",
            f"{x}.numel()",
            f"{size} / 3",
            f"math.sqrt({size} + 1)",
            f"max({size}, 3)",
        ]
    )
    second = g.pick([f"{x} * {s}", f"{x} + {s}", f"torch.full((2,), {s}, device=device)", f"{x} / ({s} + 1)", f"torch.scalar_tensor({s}, device=device)",
                     f"{x}[: int({s})]", f"torch.ops.aten.add({s}, 3.3) * {x}", f"torch.arange(int({s}), device=device)"])  # fmt: skip
    return [f"{s} = {first}", f"{v} = {second}"]


@kind(3)
def into(g: Any) -> Lines:
    """Draws a call with an out= argument, or a function that writes."""
    x = g.tensor()
    y, out = g.like(x), g.target()
    return [g.pick([f"torch.add({x}, {y}, out={out})", f"torch.mul({x}, 2, out={out})", f"torch.cat([{x}, {y}], out={out})",
                    f"torch.exp({x}, out={out})", f"torch.sum({x}, {dim(g, x)}, out={out})", f"F.relu({out}, inplace=True)",
                    f"F.hardtanh({out}.nan_to_num_(0.5), inplace=True)", f"torch._foreach_add_([{x}, {out}], 1)", f"torch.clamp({x}, max=1, out={out})",
                    f"torch.matmul({x}, {y}, out={out})", f"torch.cumsum({x}, {dim(g, x)}, out={out})", f"torch.where({x} > 0, {x}, {y}, out={out})", f"torch.stack([{x}, {y}], out={out})",
                    f"torch.mean({x}, {dim(g, x)}, out={out})", f"torch.tril({x}, out={out})", f"torch.softmax({x}, {dim(g, x)}, out={out})", f"torch.gt({x}, {y}, out={out})"])]  # fmt: skip


@kind(2)
def into_new(g: Any) -> Lines:
    """Draws a call whose out= argument is an empty tensor, which gets the size of the result."""
    x = g.tensor()
    y, d, v, i = g.like(x), dim(g, x), g.name(), g.name()
    dtype = str(g.meta(x).dtype)
    empty = [
        f"{v} = torch.empty(0, dtype={dtype}, device=device)",
        f"{i} = torch.empty(0, dtype=torch.int64, device=device)",
    ]
    text = g.pick(
        [
            f"torch.sort({x}, {d}, out=({v}, {i}))",
            f"torch.cummax({x}, {d}, out=({v}, {i}))",
            f"torch.mode({x}, {d}, out=({v}, {i}))",
        ]
    )
    if g.chance(50):
        return [*empty, text]
    text = g.pick(
        [
            f"torch.mul({x}, {y}, out={v})",
            f"torch.cat([{x}, {y}], {d}, out={v})",
            f"torch.index_select({x}, {d}, torch.tensor([0], device=device), out={v})",
            f"torch.maximum({x}, {y}, out={v})",
        ]
    )
    return [empty[0], text]


@kind(6)
def reduced(g: Any) -> Lines:
    x = g.tensor()
    d = dim(g, x)
    keep = g.pick(["", ", keepdim=True"])
    if not g.floating(x):
        return [
            f"{g.name()} = {x}.{g.pick(['sum()', f'sum({d})', f'amax({d}{keep})', f'argmax({d})', 'any()', f'all({d})', f'cumsum({d})'])}"
        ]
    text = g.pick([f"sum({d}{keep})", f"mean({d}{keep})", "sum()", "mean()", f"amax({d}{keep})", f"softmax({d})", f"var({d})", f"cumsum({d})",
                   f"logsumexp({d})", f"argmax({d})", f"prod({d})", f"norm(dim={d})", f"log_softmax({d})", "max()", f"sum({d}, dtype=torch.float64)"])  # fmt: skip
    return [f"{g.name()} = {x}.{text}"]


@kind(5)
def product(g: Any) -> Lines:
    """Draws a matrix product of existing tensors, with one side transposed where that fits."""
    x = g.tensor(lambda t: t.is_floating_point() and t.dim() > 0)
    y = g.like(x)
    text = g.pick([f"{x} @ {y}.mT", f"{x}.mT @ {y}", f"{x} @ {x}.mT", f"F.linear({x}, {y})", f"torch.einsum('ij,kj->ik', {x}, {y})", f"torch.matmul({x}, {y})",
                   f"F.scaled_dot_product_attention({x}, {y}, {x})", f"torch.softmax({x} @ {y}.transpose(-1, -2) / 2, -1) @ {y}",
                   f"F.layer_norm({x}, {x}.shape[-1:])", f"F.linear({x}, {y}, {y}[..., 0])", f"torch.outer({x}.flatten(), {y}.flatten())"])  # fmt: skip
    return [f"{g.name()} = {text}"]


def refused(g: Any) -> Lines:
    """Draws a statement that PyTorch refuses because of shapes, dtypes or overlaps."""
    x, y = g.tensor(), g.tensor()
    return [
        g.pick(
            [f"{g.name()} = {x} + {y}", f"{g.name()} = {x}.view(7, 11)", f"{x}.expand(4, {'-1, ' * g.rank(x)}).add_(1)", f"{x}.copy_({y})",
             f"{g.name()} = torch.cat([{x}, {y}], 1)", f"{x}.add_({y})", f"{g.name()} = {x}.squeeze(5)", f"{g.name()} = {x} @ {y}",
             f"{x}[...] = {y}", f"{g.name()} = {x}.transpose(0, 4)", f"{x}.div_(2)", f"{g.name()} = {x}.mean()", f"{x}.bitwise_and_({y})",
             f"torch.add({x}, 1.5, out={y})", f"{g.name()} = {x}.unfold(0, 9, 1)", f"{g.name()} = {x}[0, 0, 0, 0, 0]"]
        )
    ]  # fmt: skip


def dtype_of(text: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, text.removeprefix("torch."))
    return found
