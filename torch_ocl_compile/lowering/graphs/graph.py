# torch_ocl_compile/lowering/graphs/graph.py: lowers an FX graph to an ir.Graph, each node by its lowering or the fallback.
from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from torch_ocl_compile._C import Recipe, Refused, ir
from torch_ocl_compile.dtypes import IR_DTYPES
from torch_ocl_compile.errors import CutNeeded, FallbackError, InternalError, OclError, UnsupportedError
from torch_ocl_compile.fx.effects import effect_of
from torch_ocl_compile.fx.host_part import Part, classify, extract, first_argument, graph_device, tensors_of
from torch_ocl_compile.fx.origin import describe, describe_value, origin
from torch_ocl_compile.fx.split import CHECKED_BY_GUARDS, is_view, reason_to_cut
from torch_ocl_compile.lowering.core.complex_value import (
    Complex,
    form_of,
    is_complex,
    memory_layout,
    read_once,
    real_dtype,
    split,
    with_bits,
)
from torch_ocl_compile.lowering.core.context import Context, allows_tf32, ir_dtype
from torch_ocl_compile.lowering.core.registry import find
from torch_ocl_compile.lowering.core.results import PlanOutputs, storage, stored
from torch_ocl_compile.lowering.core.symbolic import Number, SizeFunction, Symbols
from torch_ocl_compile.lowering.graphs import fallback as eagerly
from torch_ocl_compile.lowering.graphs.checks import BadArguments, refuse_bad_arguments
from torch_ocl_compile.lowering.graphs.floats8 import refuse_arithmetic
from torch_ocl_compile.lowering.graphs.host_constants import host_constant, packed_dtype
from torch_ocl_compile.lowering.graphs.in_place import Environment, may_overwrite, scatters_into_inputs, views
from torch_ocl_compile.lowering.graphs.index_checks import bounds_of, note_outside
from torch_ocl_compile.lowering.graphs.lowered import Lowered
from torch_ocl_compile.lowering.graphs.size_numbers import formula_of, number_from_sizes
from torch_ocl_compile.lowering.graphs.sparse import refuse_sparse
from torch_ocl_compile.lowering.graphs.user_kernel import lowering_of

log = logging.getLogger(__name__)

aten = torch.ops.aten


def lower_module(
    gm: torch.fx.GraphModule,
    *,
    saved_from: int | None = None,
    separate_views: bool = False,
    parameters: Sequence[int] = (),
    donated: Sequence[int] = (),
    aliases: Sequence[int] = (),
    written_back: Mapping[int, int] = MappingProxyType({}),
    fallback: str = "eager",
    place: Callable[[torch.fx.Node], str] | None = None,
    crashing: Collection[tuple[str, str]] = (),
) -> Lowered:
    """Lowers a graph. UnsupportedError if it cannot be lowered, CutNeeded if it can be lowered in pieces.

    `saved_from`: results from this position on may have any strides. `separate_views`: results that are views of one tensor
    get separate memory. `parameters`, `donated`: positions of such inputs. `aliases`: positions of results that are
    views of inputs. `written_back`: result position -> position of the input into which the caller copies it.
    `fallback`: for ops without kernels "eager" or "error"; "none" lets nothing run on the host, also no arithmetic on sizes.
    `place`: describes a node whose indices are out of range. None: indices are not checked.
    `crashing`: (op, source line) of nodes that run eagerly, because the driver's compiler ends on their kernels.

    meta["leaf"] of a placeholder is its leaf of a call (csrc/torch/recipe.h). Without it, the leaves are the arguments in order."""
    lowering = _Lowering(gm, saved_from, separate_views, set(parameters), set(donated), fallback, place, crashing)
    return lowering.run(set(aliases), written_back)


class _Lowering:
    def __init__(
        self,
        gm: torch.fx.GraphModule,
        saved_from: int | None,
        separate_views: bool,
        parameters: set[int],
        donated: set[int],
        fallback: str,
        place: Callable[[torch.fx.Node], str] | None,
        crashing: Collection[tuple[str, str]],
    ) -> None:
        self.gm = gm
        self.saved_from = saved_from
        self.separate_views = separate_views
        self.parameters = parameters
        self.donated = donated
        self.fallback = fallback
        self.place, self.crashing = place, crashing
        self.expressions: dict[Any, ir.Value] = {}
        self.formulas: list[Recipe.Formula] = []
        self.faults: list[str] = []
        self.builder = ir.Builder()
        self.builder.reduced_precision, self.builder.reduced_convolutions = allows_tf32()
        self.symbols = Symbols(self.builder, compute=None if fallback == "none" else self.computed_leaf)
        self.context = Context(self.builder, self.symbols, gm.meta)
        self.context.from_sizes = self.add_expression
        self.env = Environment(gm.graph)
        # Results that view one tensor become windows of it, so it is read with them.
        self.read_at_the_end = {storage(source) for source in gm.graph.output_node().all_input_nodes}
        self.memory: dict[torch.fx.Node, Any] = {}  # Inputs without their conjugate and negative bits.
        self.sources: list[Recipe.Source] = []
        self.constants: list[torch.Tensor] = []
        self.device = graph_device(gm.graph)
        self.parts = classify(gm.graph, self.device)
        self.placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.leaves: dict[torch.fx.Node, int] = {n: n.meta.get("leaf", i) for i, n in enumerate(self.placeholders)}
        self.floats = [n for n in self.placeholders if isinstance(n.meta.get("val"), torch.SymFloat)]
        # The leaves that are no arguments, see Lowered.computed.
        self.computed: list[torch.fx.Node | SizeFunction | Number] = []
        self.states: dict[torch.fx.Node, int] = {}  # Random state -> its number among `sources`.
        self.into_inputs = scatters_into_inputs(gm.graph)
        self.refused: list[Refused] = []
        self.cuts: dict[torch.fx.Node, str] = {}  # The nodes that cannot be in a plan -> why.

    def run(self, aliases: set[int], written_back: Mapping[int, int]) -> Lowered:
        self.symbols.bind_inputs([n.meta.get("val") for n in self.placeholders], list(self.leaves.values()))
        for position, node in enumerate(self.placeholders):
            if self.parts[node] is Part.DEVICE and _has_kernels(node.meta["val"]):
                try:
                    fake = node.meta["val"]
                    source = Recipe.Source.tensor(self.leaf(node), form_of(fake))
                    self.memory[node] = self.add_input(fake, source, position)
                    self.env[node] = with_bits(self.builder, read_once(self.builder, self.memory[node], fake), fake)
                except UnsupportedError as error:
                    raise UnsupportedError(f"{error}: input {describe_value(node)}") from error
        self.add_host_values()
        self.add_numbers()
        for node in self.gm.graph.nodes:
            if node.op == "get_attr" and self.parts[node] is Part.DEVICE and node not in self.env:
                self.add_attribute(node)
            elif node.op == "call_function" and self.parts[node] is Part.DEVICE:
                self.env[node] = self.lower_node(node)
            elif node.target is aten._local_scalar_dense.default and self.must_wait(node):
                self.env[node] = self.cut(node, "the host needs its value")
        if self.cuts:
            node, reason = next(iter(self.cuts.items()))
            raise CutNeeded(f"{reason}\n{describe(node)}", self.cuts)
        return self.finish(aliases, written_back)

    # Inputs

    def add_input(self, fake: torch.Tensor, source: Recipe.Source, position: int = -1) -> Any:
        self.sources.append(source)
        sizes, strides, _ = memory_layout(fake)
        memory = self.builder.input(
            ir_dtype(real_dtype(fake.dtype)),
            self.context.shape(sizes),
            self.context.shape(strides),
            position in self.parameters,
            position in self.donated,
        )
        return split(self.builder, memory) if fake.is_complex() else memory

    def add_attribute(self, node: torch.fx.Node) -> None:
        tensor = attrgetter(str(node.target))(self.gm)
        if isinstance(tensor, torch.Tensor) and _has_kernels(tensor):
            tensor = tensor.resolve_conj().resolve_neg()
            self.constants.append(tensor)
            self.memory[node] = self.add_input(tensor, Recipe.Source.constant(len(self.constants) - 1))
            self.env[node] = with_bits(self.builder, self.memory[node], tensor)

    def add_host_values(self) -> None:
        """Provides the CPU values that device nodes read: known numbers as constants, 0-dimensional values packed into
        one tensor per dtype, others moved to the device. Also provides random states."""
        wanted: dict[torch.fx.Node, None] = {}
        for node in self.gm.graph.nodes:
            if node.target is torch.ops.ocl.rng_reserve.default and self.parts[node] is Part.BEFORE:
                self.states[node] = len(self.sources)
                self.env[node] = self.add_input(node.meta["val"], Recipe.Source.state(node.args[1]))
            if node.op == "call_function" and self.parts[node] is Part.DEVICE:
                for source in node.all_input_nodes:
                    is_tensor = self.parts[source] is Part.BEFORE and tensors_of(source.meta.get("val"))
                    if is_tensor and source not in self.states:
                        wanted[source] = None
        groups: dict[torch.dtype, list[torch.fx.Node]] = {}
        for node in wanted:
            fake, constant = node.meta["val"], host_constant(self.gm, self.context, node)
            if constant is not None:
                self.env[node] = constant
            elif fake.device.type == "cpu" and fake.dim() == 0 and fake.is_complex():
                self.env[node] = self.add_input(fake, Recipe.Source.tensor(self.leaf(node)))
            elif fake.device.type == "cpu" and fake.dim() == 0:
                groups.setdefault(packed_dtype(node), []).append(node)
            else:
                self.env[node] = self.add_input(fake, Recipe.Source.moved(self.leaf(node)))
        for dtype, nodes in groups.items():
            self.set_packed(nodes, dtype)

    def add_numbers(self) -> None:
        """Packs the float arguments into one tensor input, so that a new value needs no new plan."""
        if nodes := [n for n in self.floats if n.users]:
            self.set_packed(nodes, self.number_dtype())

    def set_packed(self, nodes: list[torch.fx.Node], dtype: torch.dtype) -> None:
        for node, value in zip(nodes, self.packed([self.leaf(n) for n in nodes], dtype), strict=True):
            self.env[node] = value

    def packed(self, leaves: list[int], dtype: torch.dtype) -> list[ir.Value]:
        """Packs numbers into one tensor input. Returns the value of each."""
        self.sources.append(Recipe.Source.numbers(leaves, dtype))
        numbers = self.builder.input(ir_dtype(dtype), [ir.IndexExpr(len(leaves))], [ir.IndexExpr(1)], False, False)
        return [self.builder.select(numbers, 0, ir.IndexExpr(k)) for k in range(len(leaves))]

    def add_expression(self, expr: Any) -> ir.Value:
        if self.fallback == "none":
            return number_from_sizes(expr, self.symbols, ir_dtype(self.number_dtype()))
        if expr not in self.expressions:
            try:
                floats = {n.meta["val"].node.expr: self.leaf(n) for n in self.floats}
                self.formulas.append(formula_of(expr, self.symbols, floats))
                leaf = -len(self.formulas)
            except UnsupportedError:
                leaf = self.computed_leaf(self.symbols.evaluator(expr))
            (self.expressions[expr],) = self.packed([leaf], self.number_dtype())
        return self.expressions[expr]

    def number_dtype(self) -> torch.dtype:
        """Returns float64 if any input tensor is float64, else float32, because few devices support float64."""
        wide = any(
            real_dtype(t.dtype) is torch.float64 for n in self.placeholders for t in tensors_of(n.meta.get("val"))
        )
        return torch.float64 if wide else torch.float32

    def leaf(self, node: torch.fx.Node) -> int:
        """Returns the leaf that holds a node's value at a call."""
        if node.op == "placeholder":
            return self.leaves[node]
        return self.computed_leaf(node)

    def computed_leaf(self, value: torch.fx.Node | SizeFunction | Number) -> int:
        if value not in self.computed:
            self.computed.append(value)
        return len(self.placeholders) + self.computed.index(value)

    # Cuts

    def must_wait(self, node: torch.fx.Node) -> bool:
        """Returns whether a number that an op returns is known only after a plan has run, or is needed before it runs."""
        value = node.meta.get("val")
        unknown = isinstance(value, torch.SymInt) and not value.node.expr.free_symbols <= self.symbols.exprs.keys()
        return unknown or self.parts[first_argument(node)] in (Part.DEVICE, Part.AFTER)

    def cut(self, node: torch.fx.Node, reason: str) -> Any:
        """Notes that the graph must be cut at the node. Returns inputs in place of its results, to find all such nodes."""
        self.cuts[node] = reason
        leaves, spec = tree_flatten(node.meta.get("val"))
        self.symbols.bind_inputs(leaves, [0] * len(leaves))
        return tree_unflatten([self.stand_in(leaf) for leaf in leaves], spec)

    def stand_in(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu" and _has_kernels(value):
            return with_bits(self.builder, self.add_input(value, Recipe.Source.tensor(0, form_of(value))), value)
        return self.packed([0], self.number_dtype())[0] if isinstance(value, torch.SymFloat) else value

    # Nodes

    def argument(self, a: Any) -> Any:
        if isinstance(a, torch.fx.Node):
            value = self.env.get(a, a.meta.get("val"))
            for tensor in tensors_of(value):
                ir_dtype(tensor.dtype)
                raise UnsupportedError(f"{a.name} is not available on {self.device}")
            return value
        if isinstance(a, (list, tuple)):
            return [self.argument(x) for x in a]
        return a

    def lower_node(self, node: torch.fx.Node) -> Any:
        c = self.context
        if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
            return self.env[node.args[0]][node.args[1]]
        try:
            refuse_bad_arguments(node)
            refuse_sparse(node)
            refuse_arithmetic(node)
            args = [self.argument(a) for a in node.args]
            kwargs = {k: self.argument(v) for k, v in node.kwargs.items()}
            c.node, c.val = node, node.meta.get("val")
            c.in_place = node in self.into_inputs and may_overwrite(node, args[0], self.env, self.into_inputs)
            self.builder.origin = origin(node)
            return self.apply(node, args, kwargs)
        except FallbackError as error:
            remedy = eagerly.REMEDY if self.fallback == "error" else eagerly.REMEDY_WITHOUT_FALLBACK
            raise FallbackError(f"{error}\n{describe(node)}\n{remedy}", error.reason) from error
        except BadArguments:
            raise
        except UnsupportedError as error:
            if is_view(node) and not all(map(_has_kernels, tensors_of(node.meta["val"]))):
                return node.meta["val"]  # What reads it cannot be in the plan either.
            return self.cut(node, str(error))
        except OclError as error:
            raise type(error)(f"{error}\n{describe(node)}") from error
        except Exception as error:
            raise InternalError(f"{type(error).__name__}: {error}\n{describe(node)}") from error

    def apply(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        target, name = node.target, str(node.target)
        if name in CHECKED_BY_GUARDS:
            return None
        if target is aten.copy_.default:
            return self.store(node, args[0], args[1])
        if not isinstance(target, OpOverload):
            raise UnsupportedError(reason_to_cut(node))
        if self.place is not None:
            for bound in bounds_of(target, args, kwargs):
                self.sources.append(Recipe.Source.fault(len(self.faults)))
                self.faults.append(bound.message(self.place(node)))
                one = [ir.IndexExpr(1)]
                note_outside(self.context, bound, self.builder.input(ir.DType.kI32, one, one, False, False))
        lowering = find(target, is_complex(args, kwargs, self.context.val)) or lowering_of(target)
        crashes = (self.builder.origin.op, self.builder.origin.source) in self.crashing
        result = NotImplemented if lowering is None or crashes else lowering(self.context, *args, **kwargs)
        if result is not NotImplemented:
            return result
        reason = eagerly.reason_for(lowering, crashes)
        if self.fallback != "eager":
            forbids = "options={'fallback': 'error'} forbids to run it eagerly"
            because = forbids if self.fallback == "error" else "there is no PyTorch that could run it"
            raise FallbackError(f"{name}: {reason}, and {because}.", f"{name}: {reason}")
        if target._schema.is_mutable:  # A call in a plan gets other tensors than those of the caller.
            raise UnsupportedError("it changes its arguments")
        self.refused.append(eagerly.record(eagerly.refused(name, reason)))
        return eagerly.lower_call(self.context, target, args, kwargs)

    def store(self, node: torch.fx.Node, target: Any, value: Any) -> Any:
        """Lowers copy_ into an input. Values that still view the old contents, and are read later, are copied first."""
        fake = first_argument(node).meta["val"]
        target = self.memory.get(first_argument(node), target)
        value = with_bits(self.builder, self.context.converted(value, fake.dtype), fake)
        pairs = list(zip(target, value, strict=True)) if isinstance(target, Complex) else [(target, value)]
        pairs = [(part, new) for part, new in pairs if not views(new, part.buffer) or new.coords != part.coords]
        if not pairs:
            return target  # A scatter in place has stored the value already.
        self.keep_old_contents(node, pairs[0][0])
        # A new part may be a view of another part's old contents.
        pairs = [(part, self.builder.copy(new) if views(new, part.buffer) else new) for part, new in pairs]
        for part, new in pairs:
            if len(new.sizes) != len(part.sizes) or new.sizes != part.sizes:
                new = self.builder.expand(new, part.sizes)
            self.builder.copy_into(part, new)
        return with_bits(self.builder, target, fake)

    def keep_old_contents(self, node: torch.fx.Node, target: ir.Value) -> None:
        def kept(part: Any) -> Any:
            return self.builder.copy(part) if views(part, target.buffer) else part

        for read in self.env.viewers(target.buffer):
            if storage(read) is storage(first_argument(node)):
                continue
            if read in self.read_at_the_end or self.env.is_read_from(node, read):
                self.env[read] = tree_map(kept, self.env[read])

    # Results

    def finish(self, aliases: set[int], written_back: Mapping[int, int]) -> Lowered:
        output = next(iter(reversed(self.gm.graph.nodes)))
        returned = output.args[0] if isinstance(output.args[0], (list, tuple)) else [output.args[0]]
        end = len(returned) if self.saved_from is None else self.saved_from
        shown, saved = ([n for n in x if isinstance(n, torch.fx.Node)] for x in (returned[:end], returned[end:]))
        outputs = PlanOutputs(self.context, self.env, self.memory, [] if self.separate_views else shown)
        views = [returned[k] for k in aliases if returned[k] not in saved]  # A write back would change a saved one.
        outputs.place_in_inputs(views, stored(returned, self.placeholders, written_back))
        results = [self.result(node, position, outputs) for position, node in enumerate(returned)]
        after = self.host_part_after(returned, results, outputs)
        before = self.host_part_before()
        recipe = Recipe(Recipe.Kind.PLAN)
        recipe.graph, recipe.results, recipe.formulas = self.builder.finish(), results, self.formulas
        recipe.sources, recipe.symbols, recipe.faults = self.sources, self.symbols.sources, self.faults
        return Lowered(
            recipe=recipe,
            calls=self.context.calls,
            device=self.device,
            constants=self.constants,
            traced=[n.meta.get("val") if isinstance(n, torch.fx.Node) else n for n in returned],
            before=before,
            computed=[None if isinstance(x, torch.fx.Node) else x for x in self.computed],
            after=after,
            awaited=self.context.awaited,
            refused=self.refused,
        )

    def result(self, node: Any, position: int, outputs: PlanOutputs) -> Recipe.Result:
        if not isinstance(node, torch.fx.Node):
            return self.number_result(node)
        part = self.parts[node]
        if part is Part.SIZE and node.op != "placeholder":
            return self.number_result(node.meta.get("val"))
        if part is Part.AFTER:
            return Recipe.Result()
        return self.tensor_result(node, outputs, self.saved_from is not None and position >= self.saved_from)

    def tensor_result(self, node: torch.fx.Node, outputs: PlanOutputs, free: bool = False) -> Recipe.Result:
        """`free`: the scheduler may choose the strides."""
        if node in self.states:
            return Recipe.Result.input(self.states[node])
        if node.op == "placeholder" or self.parts[node] is Part.BEFORE:
            return Recipe.Result.leaf(self.leaf(node))
        if self.env.get(node) is None:
            return Recipe.Result()
        fake = node.meta["val"]
        # AOTAutograd needs known strides: a saved tensor with symbolic strides keeps its traced layout. So does a complex one,
        # because a dimension of its memory has no stride of its own.
        free = free and not fake.is_complex() and all(isinstance(s, int) for s in (*fake.shape, *fake.stride()))
        strides = [] if free else self.context.shape(memory_layout(fake)[1])
        return Recipe.Result.output(outputs.position(node, strides), form_of(fake))

    def number_result(self, value: Any) -> Recipe.Result:
        if value is None:
            return Recipe.Result()
        if type(value) is int or isinstance(value, torch.SymInt):
            try:
                return Recipe.Result.size(self.symbols.size(value))
            except UnsupportedError:
                log.debug("a result is computed in Python, because %s has no index form", value)
        is_symbolic = isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
        return Recipe.Result.leaf(self.computed_leaf(self.symbols.evaluator(value) if is_symbolic else Number(value)))

    def host_part_before(self) -> tuple[Callable[..., Any], list[int]] | None:
        wanted = [x for x in self.computed if isinstance(x, torch.fx.Node)]
        nodes = [n for n in self.gm.graph.nodes if n.op == "call_function" and self.parts[n] is Part.BEFORE]
        nodes = [n for n in nodes if n not in self.states]
        if not wanted and all(effect_of(n) is None for n in nodes):
            return None
        function, taken = extract(self.gm, nodes, wanted)
        return function, [self.placeholders.index(n) for n in taken]

    def host_part_after(
        self, returned: Sequence[Any], results: list[Recipe.Result], outputs: PlanOutputs
    ) -> tuple[Callable[..., Any], int, list[int]] | None:
        """Adds what the function takes to `results`."""
        nodes = [n for n in self.gm.graph.nodes if n.op == "call_function" and self.parts[n] is Part.AFTER]
        if not nodes:
            return None
        positions = [i for i, n in enumerate(returned) if isinstance(n, torch.fx.Node) and n in nodes]
        function, taken = extract(self.gm, nodes, [returned[i] for i in positions])
        results += [self.tensor_result(node, outputs) for node in taken]
        return function, len(taken), positions


def _has_kernels(tensor: torch.Tensor) -> bool:
    return real_dtype(tensor.dtype) in IR_DTYPES and tensor.layout is torch.strided
