# torch_ocl_compile/reference/bounded.py: runs nodes of a graph in fp64, with a bound of the error that a kernel may have.
"""This is the interpreter with a bound for every element: see error_bounds.py. The check of kernels (compile/check.py) runs
the nodes of one launch on the values that the launch had in memory.

  run = BoundedRun(graph, sizes, {buffer: Known(values)})
  for node in nodes: run.node(node)
  run.known[buffer]              what is in the buffer then; run.written[buffer] says which elements the nodes stored
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.dtypes import TORCH_DTYPES
from torch_ocl_compile.reference import reduction_bounds, template_bounds
from torch_ocl_compile.reference.error_bounds import (
    SHORT_ABSOLUTE,
    SHORT_RELATIVE,
    UNIT,
    Error,
    added,
    apply,
    cast,
    finite,
    normalized_bound,
    to_wide,
    unknown_where,
    wide_dtype,
)
from torch_ocl_compile.reference.interpreter import Nest, Run

Tensor = torch.Tensor
Extent = tuple[int, int]

# Largest number of iterations of a loop nest that are computed at once. Every op of a body holds that many numbers.
MAX_ITERATIONS = 1 << 18
# Largest relative error of rounding operands, probabilities and score gradients on tensor cores, by the operands' type.
UNIT_16BIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
TF32 = 2.0**-11


@dataclass
class Known:
    """The contents of a buffer. `error` says how far each element may be off. It is infinite for elements that are
    unknown, as in memory that nobody wrote, and None if all values are exact.
    """

    value: Tensor
    error: Error = None

    def copy(self) -> Known:
        return Known(to_wide(self.value).clone(), None if self.error is None else self.error.clone())


class _BoundedNest(Nest):
    """Some iterations of a node: `ranges` has a (start, stop) for each loop i*, then r*."""

    run: BoundedRun

    def __init__(self, run: BoundedRun, loops: int, ranges: Sequence[Extent]) -> None:
        self.run = run
        self.ranges = list(ranges)
        self.shape = [stop - start for start, stop in ranges[:loops]]
        self.reduced = [stop - start for start, stop in ranges[loops:]]
        self.values: list[Tensor] = []
        self.errors: list[Error] = []

    def axis(self, position: int) -> Tensor:
        view = [1] * len(self.ranges)
        view[position] = -1
        return torch.arange(*self.ranges[position]).view(view)

    def uncertain_index(self, index: Sequence[Any]) -> Tensor | None:
        """Returns a mask that is true where an index uses a value that is not exact."""
        found: Tensor | None = None
        for number, error in enumerate(self.errors):
            if error is not None and any(e.uses(f"v{number}") for e in index):
                found = error > 0 if found is None else found | (error > 0)
        return found

    def load(self, number: int, index: Sequence[Any], mask: Tensor | None) -> tuple[Tensor, Error]:
        known, coords, unsure = self.run.known[number], self.coordinates(index, mask), self.uncertain_index(index)
        if unsure is not None:
            coords = [c.clamp(0, max(size - 1, 0)) for c, size in zip(coords, known.value.shape, strict=True)]
        loaded = self.elements(to_wide(known.value), coords, mask)
        error = None if known.error is None else self.elements(known.error, coords, mask)
        if unsure is not None:
            error = unknown_where(unsure if mask is None else unsure & mask, error)
        return loaded, normalized_bound(error)

    def evaluate(self, ops: Sequence[Any]) -> None:
        types: list[torch.dtype] = []
        for name, ir_dtype, args, detail in ops:
            dtype = TORCH_DTYPES[ir_dtype]
            operands, errors = [self.values[a] for a in args], [self.errors[a] for a in args]
            error: Error = None
            if name == "load":
                mask = operands[0].bool() if operands else None
                value, error = self.load(detail[0], detail[1], mask)
                value = value.to(wide_dtype(dtype))
                if errors and errors[0] is not None:
                    error = unknown_where(errors[0] > 0, error)
            elif name == "constant":
                value = self.scalar(detail, dtype).to(wide_dtype(dtype))
            elif name == "index":
                value = self.index(detail).to(wide_dtype(dtype))
            elif name == "cast":
                value, error = cast(operands[0], errors[0], dtype, types[args[0]])
            else:
                value, error = apply(name, dtype, operands, errors)
                if name in self.run.short:
                    error = added(error, finite(value) * SHORT_RELATIVE + SHORT_ABSOLUTE)
            self.values.append(value)
            self.errors.append(error)
            types.append(dtype)
        self.types = types

    def put(self, store: Any, value: Tensor, error: Error, source: torch.dtype) -> None:
        """Stores values of the type `source`, which have the nest's space. After a reduction, the space has only the
        loops i*.
        """
        space = [*self.shape, *self.reduced]
        if not math.prod(space):
            return
        target = self.run.target(store.buffer)
        dtype = TORCH_DTYPES[self.run.graph.buffers[store.buffer].dtype]
        value, error = cast(value, error, dtype, source)
        unsure = self.uncertain_index(store.index)
        if unsure is not None and bool(unsure.any()):
            self.run.forget(store.buffer)
            return
        where, value = self.places(store), value.expand(space)
        full = torch.zeros(space, dtype=torch.float64) if error is None else error.expand(space)
        if store.mask >= 0:
            unsure = self.errors[store.mask]
            mask = self.values[store.mask].bool().expand(space)
            if unsure is not None:
                mask = mask | (unsure > 0).expand(space)
                full = torch.where((unsure > 0).expand(space), math.inf, full)
            where, value, full = tuple(w[mask] for w in where), value[mask], full[mask]
        if store.mode == ir.StoreMode.kAdd:
            self.add(store.buffer, where, value, full)
            return
        if store.mode == ir.StoreMode.kMaximum:
            strides = [math.prod(target.value.shape[d + 1 :]) for d in range(target.value.dim())]
            flat = sum((w * s for w, s in zip(where, strides, strict=True)), torch.zeros_like(where[0])).flatten()
            target.value.view(-1).scatter_reduce_(0, flat, value.to(target.value.dtype).flatten(), "amax")
            self.run.mark(store.buffer, where, None)
            return
        if where:
            target.value[where] = value.to(target.value.dtype)
        else:
            target.value.copy_(value.reshape(target.value.shape))
        self.run.mark(store.buffer, where, None if error is None and store.mask < 0 else full)

    def add(self, buffer: int, where: tuple[Tensor, ...], value: Tensor, error: Tensor) -> None:
        """Adds values to elements. Each addition rounds once more, by at most the sum of the magnitudes."""
        target = self.run.target(buffer)
        unit = UNIT.get(TORCH_DTYPES[self.run.graph.buffers[buffer].dtype], 0.0)
        sums = [torch.zeros(target.value.shape, dtype=torch.float64) for _ in range(3)]
        for total, part in zip(sums, (torch.ones_like(error), value.abs().double(), error), strict=True):
            total.index_put_(where, part, accumulate=True)
        count, magnitude, inherited = sums
        magnitude += target.value.abs()
        target.value.index_put_(where, value.to(target.value.dtype), accumulate=True)
        before = 0.0 if target.error is None else target.error
        self.run.mark(buffer, where, (inherited + before + count * unit * magnitude)[where])


class BoundedRun(Run):
    """A run of nodes. `known` has the buffers that the nodes read, or change only in part. The contents of other
    buffers are unknown at the start.
    """

    def __init__(
        self,
        graph: Any,
        symbols: Sequence[int],
        known: Mapping[int, Known],
        *,
        cores: bool = False,
        mixed: bool = False,
        short: Collection[str] = (),
    ) -> None:
        self.graph = graph
        self.symbols = list(symbols)
        self.known: dict[int, Known] = dict(known)
        self.written: dict[int, Tensor] = {}
        self.cores = cores  # the kernel uses tensor cores
        self.mixed = mixed  # the kernel uses Winograd's algorithm
        self.short = short  # ops whose short function the kernel uses
        self._owned: set[int] = set()

    def target(self, buffer: int) -> Known:
        """Returns the contents of a buffer that is about to be changed."""
        if buffer not in self._owned:
            self._owned.add(buffer)
            shape = [self.size(s) for s in self.graph.buffers[buffer].sizes]
            dtype = wide_dtype(TORCH_DTYPES[self.graph.buffers[buffer].dtype])
            if buffer in self.known:
                self.known[buffer] = self.known[buffer].copy()
            else:
                unknown = torch.full(shape, math.inf, dtype=torch.float64)
                self.known[buffer] = Known(torch.zeros(shape, dtype=dtype), unknown)
            self.written[buffer] = torch.zeros(shape, dtype=torch.bool)
        return self.known[buffer]

    def mark(self, buffer: int, where: tuple[Tensor, ...], error: Error) -> None:
        """Notes that elements were stored with this bound."""
        known, written = self.known[buffer], self.written[buffer]
        if where:
            written[where] = True
        else:
            written.fill_(True)
        if error is not None and known.error is None:
            known.error = torch.zeros(known.value.shape, dtype=torch.float64)
        if known.error is None:
            return
        if where:
            known.error[where] = 0.0 if error is None else error
        else:
            known.error.copy_(torch.zeros(()) if error is None else error.reshape(known.error.shape))

    def forget(self, buffer: int) -> None:
        """Makes the contents of a buffer unknown, because the place of a store depends on a value that is not exact."""
        known = self.target(buffer)
        known.error = torch.full(known.value.shape, math.inf, dtype=torch.float64)
        self.written[buffer].fill_(True)

    def seen(self, view: Any) -> tuple[Tensor, Error]:
        """Returns the elements of a view."""
        sizes = [self.size(s) for s in view.sizes]
        known = self.known[view.buffer]
        plain = [str(c) for c in view.coords] == [f"i{d}" for d in range(len(sizes))]
        if plain and list(known.value.shape) == sizes:
            return to_wide(known.value), known.error
        nest = _BoundedNest(self, len(sizes), [(0, s) for s in sizes])
        if not view.coords:
            where: Any = ...
        else:
            where = tuple(nest.index(c).expand(nest.shape) for c in view.coords)
        value, error = to_wide(known.value)[where], None if known.error is None else known.error[where]
        return value.expand(sizes), None if error is None else normalized_bound(error.expand(sizes))

    def write(self, buffer: int, value: Tensor, error: Error = None) -> None:
        known = self.target(buffer)
        dtype = TORCH_DTYPES[self.graph.buffers[buffer].dtype]
        source = torch.float64 if dtype is torch.float64 else torch.float32
        value, error = cast(value, error, dtype, source if value.is_floating_point() else dtype)
        known.value.copy_(value)
        self.mark(buffer, (), None if error is None else error.expand(known.value.shape))

    def node(self, node: Any) -> None:
        if node.kind in ("map", "reduce", "scan"):
            self.loops(node)
            return
        integers = any(self.graph.buffers[v.buffer].dtype == ir.DType.kI8 for v in node.operands)
        if node.kind in ("pack", "sort") or (node.kind == "contract" and integers):
            super().node(node)
            return
        types = [TORCH_DTYPES[self.graph.buffers[v.buffer].dtype] for v in node.operands]
        unit = UNIT[torch.float64 if types[0] is torch.float64 else torch.float32] * (8 if self.cores else 1)
        low = TF32 if node.reduced_precision and types[0] is torch.float32 else 0.0
        operands = [self.seen(v) for v in node.operands]
        if node.kind == "contract":
            self.write(node.outputs[0], *template_bounds.contract(operands[0], operands[1], unit, low))
        elif node.kind == "convolve":
            sizes = [self.size(s) for s in node.sizes]
            self.write(node.outputs[0], *template_bounds.convolution(node, sizes, operands, unit, low, self.mixed))
            for statistics in node.outputs[1:]:
                self.forget(statistics)
        elif node.kind == "fft":
            self.write(node.outputs[0], *template_bounds.fft(node.fft, operands, unit))
        elif node.kind == "attention":
            if any(error is not None for _, error in operands):
                raise NotImplementedError("attention to values that are not in memory")
            low = max(low, UNIT_16BIT.get(types[0], 0.0) if self.cores else 0.0)
            results = template_bounds.attention(node.attention, [v for v, _ in operands], unit, low)
            for buffer, result in zip(node.outputs, results, strict=True):
                self.write(buffer, *result)
        else:
            raise NotImplementedError(f"a node {node.kind}")

    def view(self, view: Any) -> Tensor:
        return self.seen(view)[0]

    def loops(self, node: Any) -> None:
        for store in node.stores:
            self.target(store.buffer)
        sizes, reduced = ([self.size(s) for s in list_] for list_ in (node.sizes, node.reduce_sizes))
        if math.prod(sizes) == 0 or (node.kind == "scan" and not reduced[0]):
            return
        space = [*sizes, *reduced] if node.kind == "map" else sizes
        inner = 1 if node.kind == "map" else max(math.prod(reduced), 1)
        for ranges in parts(space, inner):
            if node.kind == "map":
                nest = _BoundedNest(self, len(sizes), ranges)
                nest.evaluate(node.ops)
                for store in node.stores:
                    nest.put(
                        store, nest.full(nest.values[store.value]), nest.errors[store.value], nest.types[store.value]
                    )
                continue
            self.reduction(node, ranges, reduced)

    def reduction(self, node: Any, ranges: list[Extent], reduced: list[int]) -> None:
        """Computes a Reduce or a Scan for some of its loops i*. Its body is computed in parts, its reduction at once."""
        inputs: list[list[tuple[Tensor, Error]]] = [[] for _ in node.reduced]
        resets: list[Tensor] = []
        outer = math.prod(stop - start for start, stop in ranges)
        # The stores of a scan read its whole body.
        whole = [[(0, r) for r in reduced]]
        for part in whole if node.kind == "scan" else parts(reduced, max(outer, 1)):
            nest = _BoundedNest(self, len(ranges), [*ranges, *part])
            nest.evaluate(node.ops)
            space = [*nest.shape, math.prod(nest.reduced)]
            for found, v in zip(inputs, node.reduced, strict=True):
                error = nest.errors[v]
                found.append(
                    (
                        nest.full(nest.values[v]).reshape(space),
                        None if error is None else nest.full(error).reshape(space),
                    )
                )
            if node.reset >= 0:
                resets.append(nest.full(nest.values[node.reset]).bool().reshape(space))
        joined = [_joined(found) for found in inputs]
        kind = nest.types[node.reduced[0]]
        unit = UNIT[torch.float64 if kind is torch.float64 else torch.float32]
        if node.kind == "scan":
            results = reduction_bounds.scan(node.reduction, joined, torch.cat(resets, -1) if resets else None, unit)
            nest.ranges = [*ranges, (0, reduced[0])]
            nest.reduced = [reduced[0]]
        else:
            results = reduction_bounds.reduce(node.reduction, node.stage, joined, unit)
            nest.reduced = []
        for store in node.stores:
            value, error = results[store.value]
            nest.put(store, value, error, kind if value.is_floating_point() else value.dtype)


def _joined(found: list[tuple[Tensor, Error]]) -> tuple[Tensor, Error]:
    if len(found) == 1:
        return found[0]
    value = torch.cat([v for v, _ in found], -1)
    if all(e is None for _, e in found):
        return value, None
    return value, torch.cat([torch.zeros(v.shape, dtype=torch.float64) if e is None else e for v, e in found], -1)


def parts(sizes: Sequence[int], inner: int) -> Iterator[list[Extent]]:
    """Yields ranges that cover loops of these sizes. The iterations of a range times `inner` are at most
    MAX_ITERATIONS, as far as ranges of one iteration allow it.
    """
    if not sizes:
        yield []
        return
    rest = math.prod(sizes[1:]) * inner
    if rest > MAX_ITERATIONS:
        for k in range(sizes[0]):
            for tail in parts(sizes[1:], inner):
                yield [(k, k + 1), *tail]
        return
    step = max(1, MAX_ITERATIONS // max(rest, 1))
    for start in range(0, sizes[0], step):
        yield [(start, min(start + step, sizes[0])), *((0, s) for s in sizes[1:])]
    if not sizes[0]:
        yield [(0, s) for s in sizes]
