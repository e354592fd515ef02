# torch_ocl_compile/reference/interpreter.py: runs a graph with plain torch ops on the CPU. This defines every IR op.
"""It is slow and simple. A loop nest is computed for all of its iterations at once: i* and r* are index tensors that
broadcast over the nest's space, loads are gathers, stores are scatters, and a reduction folds the trailing r
dimensions.

    results = run_graph(graph, [sizes..., tensors...])      mutated inputs are changed in place

It also runs scheduled graphs: Map nodes over i* and then r* (whole rows in one kernel), and both steps of split
reductions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.dtypes import NARROW, TORCH_DTYPES
from torch_ocl_compile.reference import reductions
from torch_ocl_compile.reference.attention import attention
from torch_ocl_compile.reference.scalar_ops import converted_operands, operation

Tensor = torch.Tensor


class Nest:
    """The iterations of one node, with sizes i*, then r*. Every tensor broadcasts over them."""

    def __init__(self, run: Run, sizes: Sequence[Any], reduce_sizes: Sequence[Any]) -> None:
        self.run = run
        self.shape = [run.size(s) for s in sizes]
        self.reduced = [run.size(s) for s in reduce_sizes]
        self.values: list[Tensor] = []

    def axis(self, position: int) -> Tensor:
        space = [*self.shape, *self.reduced]
        view = [1] * len(space)
        view[position] = space[position]
        return torch.arange(space[position]).view(view)

    def scalar(self, value: Any, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor(value, dtype=dtype).view([1] * (len(self.shape) + len(self.reduced)))

    def symbol(self, name: str) -> Tensor:
        """Returns the values of a symbol: s0 (size), i0 (loop), r0 (reduction loop) or v0 (op of the body)."""
        kind, number = name[0], int(name[1:])
        if kind == "i":
            return self.axis(number)
        if kind == "r":
            return self.axis(len(self.shape) + number)
        return self.scalar(self.run.symbols[number]) if kind == "s" else self.values[number].to(torch.int64)

    def index(self, expr: Any) -> Tensor:
        """Returns the values of an IndexExpr."""
        kind = expr.op()
        if kind == "const":
            return self.scalar(expr.constant())
        if kind == "symbol":
            return self.symbol(str(expr))
        args = [self.index(a) for a in expr.args()]
        result = args[0]
        for a in args[1:]:
            result = INDEX_OPS[kind](result, a)
        return result

    def coordinates(self, index: Sequence[Any], mask: Tensor | None) -> list[Tensor]:
        """Returns the coordinates of a load: 0 where the mask is false."""
        coords = [self.index(e) for e in index]
        return coords if mask is None else [torch.where(mask, c, 0) for c in coords]

    def elements(self, buffer: Tensor, coords: Sequence[Tensor], mask: Tensor | None) -> Tensor:
        """Returns elements of a buffer; 0 where the mask is false."""
        if not coords:
            loaded = buffer.view([1] * (len(self.shape) + len(self.reduced)))
        elif buffer.numel() == 0:
            space = torch.broadcast_shapes(*(c.shape for c in coords), () if mask is None else mask.shape)
            loaded = torch.zeros(space, dtype=buffer.dtype)
        else:
            loaded = buffer[tuple(torch.broadcast_tensors(*coords))]
        return loaded if mask is None else torch.where(mask, loaded, torch.zeros((), dtype=loaded.dtype))

    def gather(self, number: int, index: Sequence[Any], mask: Tensor | None) -> Tensor:
        """Loads elements of a buffer. IndexError if an index is outside of the buffer."""
        buffer, coords = self.run.buffers[number], self.coordinates(index, mask)
        for c, size in zip(coords, buffer.shape, strict=True) if buffer.numel() else ():
            if c.numel() and (int(c.min()) < 0 or int(c.max()) >= size):
                raise IndexError(f"load of {index} from {self.run.name(number)} {list(buffer.shape)} is outside")
        return self.elements(buffer, coords, mask)

    def evaluate(self, ops: Sequence[Any]) -> None:
        for name, ir_dtype, args, detail in ops:
            dtype = TORCH_DTYPES[ir_dtype]
            operands = [self.values[a] for a in args]
            if name == "load":
                value = self.gather(detail[0], detail[1], operands[0].bool() if operands else None)
            elif name == "constant":
                value = self.scalar(detail, dtype)
            elif name == "index":
                value = self.index(detail)
            elif name == "cast":
                value = operands[0]
            else:
                value = operation(name)(*converted_operands(name, operands))
            self.values.append(value.to(dtype))

    def full(self, value: Tensor) -> Tensor:
        return value.expand([*self.shape, *self.reduced])

    def places(self, store: Any) -> tuple[Tensor, ...]:
        """Returns the coordinates of a store, over the nest's space."""
        space = [*self.shape, *self.reduced]
        coords = [self.index(e) for e in store.index]
        return tuple((c.reshape(c.shape[: len(space)]) if c.dim() > len(space) else c).expand(space) for c in coords)

    def store(self, store: Any, value: Tensor) -> None:
        """Stores `value`, which has the nest's space. After a reduction, the space has only the loops i*."""
        if store.mask >= 0 or store.mode != ir.StoreMode.kWrite:
            self.store_partly(store, value)
            return
        if not math.prod([*self.shape, *self.reduced]):
            return
        target, where = self.run.buffers[store.buffer], self.places(store)
        if where:
            target[where] = value.to(target.dtype)
        else:
            target.copy_(value.reshape(target.shape))

    def store_partly(self, store: Any, value: Tensor) -> None:
        """Stores under a mask, or combines the old and the new value."""
        target = self.run.buffers[store.buffer]
        mask = self.full(self.values[store.mask] if store.mask >= 0 else self.scalar(1)).bool()
        where = tuple(self.full(self.index(e))[mask] for e in store.index)
        if not where:
            raise NotImplementedError("a masked store to a scalar")
        chosen = value[mask].to(target.dtype)
        if store.mode == ir.StoreMode.kAdd:
            target.index_put_(where, chosen, accumulate=True)
        elif store.mode == ir.StoreMode.kMaximum:
            flat = sum((w * s for w, s in zip(where, target.stride(), strict=True)), torch.zeros_like(where[0]))
            target.as_strided([target.untyped_storage().nbytes() // 4], [1], 0).scatter_reduce_(0, flat, chosen, "amax")
        else:
            target[where] = chosen


INDEX_OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "mod": torch.remainder,
    "min": torch.minimum,
    "max": torch.maximum,
}


class Run:
    def __init__(
        self, graph: Any, args: Sequence[Any], calls: Sequence[Callable[[list[Tensor]], list[Tensor]]]
    ) -> None:
        self.graph = graph
        self.calls = calls
        self.symbols = [int(a) for a in args[: graph.symbols]]
        self.buffers: dict[int, Tensor] = dict(zip(graph.inputs, args[graph.symbols :], strict=True))
        for number, buffer in enumerate(graph.buffers):
            if number not in self.buffers:
                shape = [self.size(s) for s in buffer.sizes]
                self.buffers[number] = torch.zeros(shape, dtype=TORCH_DTYPES[buffer.dtype])

    def size(self, expr: Any) -> int:
        return int(ir.evaluate(expr, {f"s{i}": value for i, value in enumerate(self.symbols)}))

    def name(self, buffer: int) -> str:
        return str(self.graph.buffers[buffer].name) or f"buffer {buffer}"

    def view(self, view: Any) -> Tensor:
        """Returns the elements of a view."""
        nest = Nest(self, view.sizes, [])
        buffer = self.buffers[view.buffer]
        if not view.coords:
            return buffer.expand(nest.shape)
        return buffer[tuple(nest.index(c).expand(nest.shape) for c in view.coords)]

    def node(self, node: Any) -> None:
        if node.kind in ("map", "reduce", "scan"):
            self.loops(node)
        elif node.kind == "contract":
            a, b = (self.view(v) for v in node.operands)
            self.write(node.outputs[0], torch.matmul(_compute(a), _compute(b)))
        elif node.kind == "convolve":
            self.write(
                node.outputs[0],
                convolve(node, [self.size(s) for s in node.sizes], *(_compute(self.view(v)) for v in node.operands)),
            )
            for statistics in node.outputs[1:]:  # The slices are merged later, so their assignment is arbitrary.
                channels = _compute(self.buffers[node.outputs[0]]).transpose(0, 1).flatten(1)
                whole = torch.stack(reductions.reduce("welford", "partial", [channels]))
                self.write(
                    statistics,
                    torch.zeros_like(self.buffers[statistics]).index_copy(1, torch.tensor([0]), whole[:, None]),
                )
        elif node.kind == "pack":
            matrix, (_, panels, _, width) = self.view(node.operands[0]), [self.size(s) for s in node.sizes]
            padded = torch.nn.functional.pad(matrix, (0, panels * width - matrix.shape[2]))
            self.write(node.outputs[0], padded.unflatten(2, (panels, width)).transpose(1, 2))
        elif node.kind == "sort":
            for output, result in zip(
                node.outputs, sort(node.sort, [self.view(v) for v in node.operands]), strict=True
            ):
                self.write(output, result)
        elif node.kind == "fft":
            x = torch.complex(*_complex_parts([self.view(v) for v in node.operands]))
            self.write(node.outputs[0], fft(node.fft, x))
        elif node.kind == "attention":
            results = attention(node.attention, [_compute(self.view(v)) for v in node.operands])
            for buffer, result in zip(node.outputs, results, strict=True):
                self.write(buffer, result)
        else:
            results = self.calls[node.call]([self.view(v) for v in node.operands])
            for buffer, result in zip(node.outputs, results, strict=True):
                self.write(buffer, result)

    def write(self, buffer: int, value: Tensor) -> None:
        self.buffers[buffer].copy_(value)

    def loops(self, node: Any) -> None:
        nest = Nest(self, node.sizes, node.reduce_sizes)
        if math.prod(nest.shape) == 0 or (node.kind == "scan" and not nest.reduced[0]):
            return
        nest.evaluate(node.ops)
        if node.kind == "map":
            for store in node.stores:
                nest.store(store, nest.full(nest.values[store.value]))
            return
        if node.kind == "scan":
            inputs = [nest.full(nest.values[v]) for v in node.reduced]
            reset = nest.full(nest.values[node.reset]).bool() if node.reset >= 0 else None
            for store in node.stores:
                nest.store(store, reductions.scan(node.reduction, inputs, reset)[store.value])
            return
        flat = [nest.full(nest.values[v]).reshape([*nest.shape, math.prod(nest.reduced)]) for v in node.reduced]
        results = reductions.reduce(node.reduction, node.stage, flat)
        nest.reduced = []
        for store in node.stores:
            nest.store(store, results[store.value])


def _compute(x: Tensor) -> Tensor:
    return x.int() if x.dtype is torch.int8 else x.float() if x.dtype in NARROW else x


def _complex_parts(parts: list[Tensor]) -> list[Tensor]:
    return parts if len(parts) == 2 else [parts[0], torch.zeros_like(parts[0])]


def fft(attrs: Any, x: Tensor) -> Tensor:
    """Returns the result of an Fft node for complex x [o, n, p, q], by its definition in graph.h: pairs [o, n * p * q * 2]."""
    n, p = x.shape[1:3]
    if attrs.form == ir.FftForm.kFromReal:
        y = torch.fft.rfft(torch.view_as_real(x).flatten(1), dim=1)
        return torch.view_as_real((y.conj() if attrs.inverse else y) * attrs.scale).flatten(1)
    if attrs.form == ir.FftForm.kToReal:
        y = torch.cat([x[:, :1].real + 0j, x[:, 1:-1], x[:, -1:].real + 0j], 1).flatten(1)
        line: Tensor = torch.fft.irfft(y if attrs.inverse else y.conj(), n=2 * n - 2, norm="forward").mul(attrs.scale)
        return line
    y = torch.fft.ifft(x, dim=1, norm="forward") if attrs.inverse else torch.fft.fft(x, dim=1)
    if attrs.root:
        turns = torch.outer(torch.arange(n), torch.arange(p)) % attrs.root
        angle = turns.double() * (2 * math.pi / attrs.root)
        root = torch.complex(angle.cos(), angle.sin() if attrs.inverse else -angle.sin())
        y = y * root.to(y.dtype)[:, :, None]
    return torch.view_as_real(y * attrs.scale).flatten(1)


def sort(attrs: Any, operands: list[Tensor]) -> list[Tensor]:
    """Returns the results of a step of sorting, by its definition in graph.h."""
    keys = operands[0]
    rows, n = keys.shape
    blocks = -(-n // attrs.block)
    digits = (keys >> attrs.shift & ir.DIGITS - 1) ^ (ir.DIGITS // 2 if attrs.is_signed else 0)
    if attrs.step == ir.SortStep.kCount:
        counted = torch.ones_like(digits)
        if len(operands) > 1:
            above = attrs.shift + 8
            counted = (keys >> above == operands[1][:, None] >> above).to(digits.dtype)
        place = digits * blocks + torch.arange(n) // attrs.block
        counts = torch.zeros(rows, ir.DIGITS * blocks, dtype=digits.dtype).scatter_add_(1, place.long(), counted)
        return [counts.reshape(rows, ir.DIGITS, blocks).int()]
    positions = torch.arange(n, dtype=torch.int32).expand(rows, n)
    if attrs.step == ir.SortStep.kMove:
        positions = operands[1] if len(operands) > 2 else positions
        order = torch.argsort(digits, dim=1, stable=True)
        return [keys.gather(1, order), positions.gather(1, order)]
    positions = operands[1] if len(operands) > 1 else positions
    missing = blocks * attrs.block - n
    filled = [(keys, torch.iinfo(keys.dtype).max), (positions, 0)]
    keys, positions = (torch.cat([x, x.new_full((rows, missing), v)], 1).reshape(rows, blocks, -1) for x, v in filled)
    order = torch.argsort(keys, dim=2, stable=True)[..., : attrs.keep]
    return [x.gather(2, order).reshape(rows, -1) for x in (keys, positions)]


def convolve(node: Any, sizes: list[int], a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns the result of a Convolve node, by its definition in graph.h."""
    attrs = node.convolve
    stride, padding, dilation, groups = list(attrs.stride), list(attrs.padding), list(attrs.dilation), attrs.groups
    if attrs.kind == ir.ConvolveKind.kForward:
        return torch.nn.functional.conv2d(a, b, bias, stride, padding, dilation, groups)
    settings = (stride, padding, dilation, groups)
    grad: Any = torch.nn.grad  # type: ignore[attr-defined]
    if attrs.kind == ir.ConvolveKind.kData:
        data: Tensor = grad.conv2d_input(sizes, b, a, *settings)
        return data
    # A template may split the sum into slices along the first dimension, which a Reduce node adds later. The assignment
    # to slices is therefore arbitrary.
    whole: Tensor = grad.conv2d_weight(a, [b.shape[1], *sizes[1:]], b, *settings)
    return torch.cat([whole, whole.new_zeros([sizes[0] - whole.shape[0], *sizes[1:]])])


def run_graph(
    graph: Any,
    args: Sequence[Any],
    calls: Sequence[Callable[[list[Tensor]], list[Tensor]]] = (),
    order: Sequence[int] | None = None,
) -> list[Tensor]:
    """Runs a graph on CPU tensors and returns its outputs. `args`: the sizes s0, s1, ... as ints, then the tensor
    inputs in order. `order`: positions of the nodes in the order in which a schedule launches them."""
    run = Run(graph, args, calls)
    nodes = list(graph.nodes)
    for position in range(len(nodes)) if order is None else order:
        run.node(nodes[position])
    results = []
    for output in graph.outputs:
        shape = [run.size(s) for s in output.sizes]
        buffer = run.buffers[output.buffer]
        if output.strides:
            strides = [run.size(s) for s in output.strides]
            is_input = output.buffer in graph.inputs
            memory = buffer if is_input else _laid_out(run, graph.buffers[output.buffer], buffer)
            offset = memory.storage_offset() if is_input else 0
            results.append(memory.as_strided(shape, strides, offset + run.size(output.offset)))
        else:
            results.append(buffer.reshape(shape))
    return results


def _laid_out(run: Run, buffer: Any, values: Tensor) -> Tensor:
    """Copies the values into the buffer's own strides."""
    if buffer.strides is None:
        return values.contiguous()
    strides = [run.size(s) for s in buffer.strides]
    laid = torch.empty_strided(values.shape, strides, dtype=values.dtype)
    return laid.copy_(values)


class ReferencePlan:
    """Runs a graph in the interpreter, where there is no device, as exec's Plan does on one."""

    def __init__(self, graph: Any, calls: Sequence[Callable[[list[Tensor]], list[Tensor]]]) -> None:
        self.graph, self.calls = graph, list(calls)

    def run(self, args: Sequence[Any]) -> list[Tensor]:
        return run_graph(self.graph, args, self.calls)
