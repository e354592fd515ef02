# tests/fuzz/planted.py: plants typical compiler faults, and counts how many programs it takes to notice them.
"""TORCH_OCL_FUZZ_PLANT=<name> plants one fault in every worker.

`python -m tests.fuzz.planted` tries all faults and prints a table.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOT_FOUND = "not found"
FAULTS: dict[str, Callable[[], None]] = {}


def fault(function: Callable[[], None]) -> Callable[[], None]:
    FAULTS[function.__name__] = function
    return function


def plant(name: str) -> None:
    FAULTS[name]()


def wrap(target: str, around: Callable[..., Any]) -> None:
    """Replaces the lowering of an overload ("aten.add.Tensor") by around(old lowering, context, *arguments)."""
    from torch_ocl_compile.fx.overloads import overload
    from torch_ocl_compile.lowering.core.registry import LOWERINGS

    found = overload(target)
    old = LOWERINGS[found]
    LOWERINGS[found] = lambda c, *args, **kwargs: around(old, c, *args, **kwargs)


def replace(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replaces a method by around(old method, self, *arguments)."""
    # getattr raises if the method does not exist: a fault that is not planted would look like one that nobody notices.
    old = getattr(owner, name)
    setattr(owner, name, lambda self, *args, **kwargs: around(old, self, *args, **kwargs))


@fault
def alias_lost() -> None:
    """Results never share memory: each is a copy."""
    from torch_ocl_compile.lowering.core.results import PlanOutputs

    def position(old: Any, self: Any, node: Any, strides: Any) -> Any:
        self.shared.clear()
        return old(self, node, strides)

    replace(PlanOutputs, "position", position)
    replace(PlanOutputs, "_own", lambda old, self, node: self.context.builder.copy(self.env[node]))


@fault
def copy_dropped() -> None:
    """A vector that is an argument does not get its new contents."""
    from torch_ocl_compile.lowering.graphs.graph import _Lowering

    def store(old: Any, self: Any, node: Any, target: Any, value: Any) -> Any:
        return target if len(target.sizes) == 1 else old(self, node, target, value)

    replace(_Lowering, "store", store)


@fault
def stride_swapped() -> None:
    """Transposed matrices are returned contiguous."""
    from torch_ocl_compile.lowering.core.results import PlanOutputs

    def position(old: Any, self: Any, node: Any, strides: Any) -> Any:
        sizes = self.context.shape(node.meta["val"].shape)
        if len(strides) == 2 and strides[0].is_const(1) and not sizes[0].is_const(1):
            strides = [sizes[1], strides[0]]
        return old(self, node, strides)

    replace(PlanOutputs, "position", position)


@fault
def slice_one_off() -> None:
    """A slice that begins behind the first element begins one element earlier."""

    def slice_(old: Any, c: Any, x: Any, dim: int = 0, start: Any = None, *rest: Any) -> Any:
        return old(c, x, dim, start - 1 if isinstance(start, int) and start > 0 else start, *rest)

    wrap("aten.slice.Tensor", slice_)


@fault
def wrong_promotion() -> None:
    """torch.cat computes in the dtype of its first tensor."""

    def cat(old: Any, c: Any, xs: Any, dim: int = 0) -> Any:
        return old(c, [c.cast(x, xs[0].dtype) for x in xs], dim)

    wrap("aten.cat.default", cat)


@fault
def write_missing() -> None:
    """x[2:] = y does nothing."""

    def slice_scatter(old: Any, c: Any, x: Any, source: Any, dim: int = 0, start: Any = None, *rest: Any) -> Any:
        return x if isinstance(start, int) and start >= 2 else old(c, x, source, dim, start, *rest)

    wrap("aten.slice_scatter.default", slice_scatter)


@fault
def gradient_sign() -> None:
    """The gradient of tanh has the wrong sign."""

    def backward(old: Any, c: Any, grad: Any, y: Any) -> Any:
        return c.pointwise(lambda x: -x, old(c, grad, y))

    wrap("aten.tanh_backward.default", backward)


@fault
def broadcast_of_one() -> None:
    """A leading dimension of size 1 of a three-dimensional tensor is read as if it had its partner's size."""
    from torch_ocl_compile.lowering.core.term import Nest

    def load_broadcast(old: Any, self: Any, value: Any, sizes: Any, coords: Any) -> Any:
        skip = len(sizes) - len(value.sizes)
        fixed = [s.is_const(1) and not (d == 0 and len(value.sizes) == 3) for d, s in enumerate(value.sizes)]
        return self.load(value, [0 if one else coords[skip + d] for d, one in enumerate(fixed)])

    replace(Nest, "load_broadcast", load_broadcast)


@fault
def size_rounded_up() -> None:
    """n // 2 of a size that changes is rounded up."""
    from torch.utils._sympy.functions import FloorDiv

    from torch_ocl_compile._C import ir
    from torch_ocl_compile.lowering.core import symbolic

    symbolic._RULES.insert(0, (FloorDiv, lambda s, e: ir.ceildiv(s.translate(e.args[0]), s.translate(e.args[1]))))


@fault
def size_remembered() -> None:
    """The sum of a changing size and a number keeps its value of the first call."""
    import sympy

    from torch_ocl_compile._C import ir
    from torch_ocl_compile.lowering.core import symbolic

    def size(old: Any, self: Any, x: Any) -> Any:
        known = hasattr(x, "node") and isinstance(x.node.expr, sympy.Add) and x.node.hint is not None
        return ir.IndexExpr(int(x.node.hint)) if known else old(self, x)

    replace(symbolic.Symbols, "size", size)


@fault
def bf16_cut_off() -> None:
    """bf16 is rounded towards zero, which is half a unit too small on average."""
    from torch_ocl_compile._C import ir
    from torch_ocl_compile.lowering.core.term import Nest

    def store(old: Any, self: Any, *results: Any) -> Any:
        return old(
            self,
            *((x * (1 - 2.0**-9) if d == ir.DType.kBF16 and ir.is_floating(x.dtype) else x, d) for x, d in results),
        )

    replace(Nest, "store", store)


@fault
def last_of_equals() -> None:
    """max(dim) returns the position of the last of equal elements."""

    def max_dim(old: Any, c: Any, x: Any, dim: int, keepdim: bool = False) -> Any:
        value, _ = old(c, x, dim, keepdim)
        place = old(c, c.builder.flip(x, [dim % max(len(x.sizes), 1)] if x.sizes else []), dim, keepdim)[1]
        last = x.sizes[dim] - 1 if x.sizes else 0
        return value, c.pointwise(lambda p: -p + p.nest.index(c.size(last)), place, dtype=place.dtype)

    wrap("aten.max.dim", max_dim)


@fault
def reads_too_late() -> None:
    """A later line reads an argument after it was overwritten."""
    from torch_ocl_compile.lowering.graphs.graph import _Lowering

    replace(_Lowering, "keep_old_contents", lambda old, self, node, target: None)


@fault
def overwrites_too_early() -> None:
    """Scatters store into arguments whose old contents are still needed."""
    from torch_ocl_compile.lowering.graphs import graph

    replace(graph, "may_overwrite", lambda old, *arguments: True)


@fault
def alpha_ignored() -> None:
    """add(x, y, alpha=2) is x + y."""
    wrap("aten.add.Tensor", lambda old, c, x, y, **_: old(c, x, y))


@fault
def nan_ignored() -> None:
    """maximum ignores NaN."""

    def maximum(old: Any, c: Any, x: Any, y: Any) -> Any:
        return c.pointwise(lambda a, b: a.nest.op("where", a.ne(a), b, a.nest.op("where", b > a, b, a)), x, y)

    wrap("aten.maximum.default", maximum)


@fault
def variance_of_few() -> None:
    """var divides by n instead of n - 1."""
    wrap("aten.var.correction", lambda old, c, x, *args, **kwargs: old(c, x, *args, **{**kwargs, "correction": 0}))


@fault
def mask_inverted_at_the_edge() -> None:
    """where(x > 0) also takes the elements that are 0."""
    wrap("aten.gt.Scalar", lambda old, c, x, y: c.pointwise(lambda a: a >= y, x, compute=c.common_dtype([x, y])))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.planted", description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--seeds", nargs="*", default=["p1", "p2", "p3"])
    parser.add_argument("--most", type=int, default=2000, help="programs a fault may take")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz_planted"))
    given = parser.parse_args(arguments)
    missed = 0
    for name in given.names or FAULTS:
        found = [first_noticed(name, seed, given) for seed in given.seeds]
        missed += sum(kind == NOT_FOUND for _, kind in found)
        print(f"{name}: {', '.join(f'{count} ({kind})' for count, kind in found)}", flush=True)
    return int(missed > 0)


def first_noticed(name: str, seed: str, given: argparse.Namespace) -> tuple[int, str]:
    """Returns the number of programs until the first that fails because of the fault, and how it failed."""
    from tests.fuzz.__main__ import FINE
    from tests.fuzz.runner import Run, Worker

    os.environ["TORCH_OCL_FUZZ_PLANT"] = name
    for count, outcome in enumerate(Run(seed, given.most, given.device, 1, given.out).outcomes(), 1):
        if outcome["kind"] in FINE:
            continue
        del os.environ["TORCH_OCL_FUZZ_PLANT"]
        sound = Worker(given.device, 120, given.out / "sound.log")
        without = (
            sound.ask({"program": outcome["program"], "oracle": True})[0] if outcome["program"] else {"kind": "ok"}
        )
        sound.stop()
        os.environ["TORCH_OCL_FUZZ_PLANT"] = name
        if without["kind"] in FINE:
            return count, outcome["kind"]
    return given.most, NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
