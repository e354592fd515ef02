# torch_ocl_compile/package/export.py: one method of a package: torch.export's program, lowered, and what a call needs.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.export.passes import move_to_device_pass
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_unflatten

from torch_ocl_compile._C import Recipe, ir
from torch_ocl_compile.compile import constant_masks, gelu_pattern
from torch_ocl_compile.decompositions.registry import for_package
from torch_ocl_compile.decompositions.table import ocl_decomp_table
from torch_ocl_compile.eager.conditions import at_least_zero
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.fx.origin import describe
from torch_ocl_compile.lowering.core.context import ir_dtype
from torch_ocl_compile.lowering.core.symbolic import Number, Symbols
from torch_ocl_compile.lowering.elementwise.random import functionalise
from torch_ocl_compile.lowering.graphs.float_arguments import floats_to_tensors
from torch_ocl_compile.lowering.graphs.graph import lower_module
from torch_ocl_compile.lowering.graphs.lowered import Lowered
from torch_ocl_compile.package.batch_norms import constant_scales
from torch_ocl_compile.package.refusals import refuse_decisions

aten = torch.ops.aten
# Kinds of results that are the new values of tensors.
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


@dataclass
class MethodRows:
    """The rows of one method in the tables of a package (csrc/cache/package_file.h), without their positions."""

    name: str
    structure: str = "value"
    graph: str = ""
    arguments: list[tuple[str, str, str, str]] = field(default_factory=list)  # name, kind, dtype, sizes or the integer
    symbols: list[tuple[int, int]] = field(default_factory=list)  # argument, dimension or -1
    conditions: list[tuple[str, str]] = field(default_factory=list)  # expression, message
    inputs: list[tuple[str, int]] = field(default_factory=list)  # kind, number
    results: list[tuple[str, str, str]] = field(default_factory=list)  # name, kind, value


class Tensors(Protocol):
    """The tensors of all methods of a package."""

    def number(self, tensor: torch.Tensor, name: str) -> int:
        """Returns the number of a tensor in the package."""

    def write(self, tensor: torch.Tensor) -> None:
        """Notes that a method writes a tensor."""

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Returns whether a method writes memory of this tensor."""


class Exported:
    """A method for `device`. Make all methods of a package before the rows of the first: a tensor that one method writes is a
    constant for none."""

    def __init__(self, name: str, program: ExportedProgram, device: torch.device, tensors: Tensors) -> None:
        self.made = MethodRows(name)
        self.owned = {**program.state_dict, **program.constants}
        self.tensors = tensors
        with torch.no_grad(), for_package():
            self.program = _on_device(program, device).run_decompositions(ocl_decomp_table())
        self.gm = self.program.graph_module
        refuse_decisions(self.gm.graph)
        self.placeholders = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        specs = list(self.program.graph_signature.input_specs)
        self.kinds = [spec.kind for spec in specs]
        self.targets = [spec.target for spec in specs]
        self.users = [i for i, kind in enumerate(self.kinds) if kind is InputKind.USER_INPUT]
        # The name of each argument is its path: "x", "past.0.key".
        users = [self.placeholders[i] for i in self.users]
        self.names = dict(zip(users, _argument_names(self.program, [n.name for n in users]), strict=True))
        self.result_nodes = self.store_mutations()

    def rows(self) -> MethodRows:
        """Lowers the method. UnsupportedError if a part of it needs PyTorch at run time."""
        lowered = self.lower()
        self.symbols = Symbols(ir.Builder())
        self.symbols.bind_inputs([n.meta.get("val") for n in self.placeholders], range(len(self.placeholders)))
        self.add_arguments(lowered)
        self.add_conditions()
        self.add_inputs(lowered)
        self.add_results(lowered)
        self.made.graph = lowered.graph.str()
        return self.made

    # The graph

    def store_mutations(self) -> list[Any]:
        """Makes the graph store changed tensors itself, and return the user's results alone, in row-major order. Returns the
        nodes of these results."""
        graph = self.gm.graph
        output = next(iter(reversed(graph.nodes)))
        returned, results = list(output.args[0]), []
        with graph.inserting_before(output):
            for node, spec in zip(returned, self.program.graph_signature.output_specs, strict=True):
                if spec.kind is OutputKind.USER_OUTPUT:
                    results.append(self.dense(node))
                    continue
                if spec.kind not in _WRITES:
                    raise UnsupportedError(f"a package cannot have a result of kind {spec.kind.name}")
                position = self.position_of(spec)
                place = self.placeholders[position]
                if position in self.users:
                    raise UnsupportedError(
                        f"it writes into its argument {self.names[place]}\n"
                        "  do: return the new value, or keep the tensor as a buffer of the model"
                    )
                self.tensors.write(self.owned[self.targets[position]])
                if node is not place:
                    stored = graph.call_function(aten.copy_.default, (place, node))
                    stored.meta["val"] = place.meta["val"]
        output.args = (tuple(results),)
        self.gm.recompile()
        return results

    def position_of(self, spec: Any) -> int:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            return next(i for i, n in enumerate(self.placeholders) if n.name == spec.target)
        return self.targets.index(spec.target)

    def dense(self, node: Any) -> Any:
        """Returns a node with the value of `node` in row-major order."""
        fake = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if not isinstance(fake, torch.Tensor) or fake.is_contiguous():
            return node
        clone = self.gm.graph.call_function(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
        clone.meta.update(node.meta)
        clone.meta["val"] = torch.empty_like(fake, memory_format=torch.contiguous_format)
        return clone

    def lower(self) -> Lowered:
        constant_masks.rewrite(self.gm)
        gelu_pattern.rewrite(self.gm)
        floats_to_tensors(self.gm)
        functionalise(self.gm)
        self.compute_scales()
        lowered = lower_module(self.gm, parameters=self.parameters(), fallback="none")
        for node in lowered.graph.nodes:
            if node.kind == "call":
                raise UnsupportedError(
                    f"{node.origin.op} runs outside of compiled graphs, which needs PyTorch\n  where: {node.origin.source}"
                )
        if lowered.after is not None:
            function: Any = lowered.after[0]
            first = next(n for n in function.graph.nodes if n.op == "call_function")
            raise UnsupportedError(f"it computes a result on the CPU, which needs PyTorch\n{describe(first)}")
        return lowered

    def parameters(self) -> list[int]:
        """Returns the inputs that no method writes."""
        kept = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
        owned = [i for i, kind in enumerate(self.kinds) if kind in kept]
        return [i for i in owned if not self.tensors.is_written(self.owned[self.targets[i]])]

    def compute_scales(self) -> None:
        """Computes what batch norms make of parameters alone. Inputs that only this reads are no inputs any more."""
        if constant_scales(self.gm, {self.placeholders[i]: self.owned[self.targets[i]] for i in self.parameters()}):
            nodes = set(self.gm.graph.nodes)
            left = [i for i, node in enumerate(self.placeholders) if node in nodes]
            self.placeholders = [self.placeholders[i] for i in left]
            self.kinds, self.targets = [self.kinds[i] for i in left], [self.targets[i] for i in left]
            self.users = [i for i, kind in enumerate(self.kinds) if kind is InputKind.USER_INPUT]

    # Rows

    def shape(self, sizes: Sequence[Any]) -> str:
        return ", ".join(str(self.symbols.size(s)) for s in sizes)

    def add_arguments(self, lowered: Lowered) -> None:
        for position in self.users:
            node = self.placeholders[position]
            name, value = self.names[node], node.meta.get("val")
            if isinstance(value, torch.Tensor):
                self.made.arguments.append((name, "tensor", ir_name(value.dtype), self.shape(value.shape)))
            elif isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
                self.made.arguments.append((name, "integer", "i64", self.shape([value])))
            else:
                raise UnsupportedError(
                    f"argument {name} is {value!r}; arguments of a package are tensors and integers\n"
                    "  do: make it a constant of the model, or a tensor"
                )
        for symbol in lowered.recipe.symbols:
            if symbol.is_stride or symbol.leaf not in self.users:
                raise UnsupportedError("a size depends on a stride or on a weight, which a package does not know")
            self.made.symbols.append((self.users.index(symbol.leaf), symbol.dim))

    def condition(self, expression: ir.IndexExpr, message: str) -> None:
        self.made.conditions.append((str(expression), message))

    def add_conditions(self) -> None:
        names = {expr: f"s{i}" for i, expr in enumerate(self.symbols.names)}

        def place(expr: Any) -> str:
            source = self.symbols.sources[self.symbols.names.index(expr)]
            name = self.names[self.placeholders[source.leaf]]
            return name if source.dim < 0 else f"the size of dimension {source.dim} of {name}"

        for symbol, bounds in self.program.range_constraints.items():
            if symbol not in names:
                continue
            size = self.symbols.exprs[symbol]
            if bounds.lower.is_Integer and bounds.lower > 0:
                self.condition(size - int(bounds.lower), f"{place(symbol)} must be at least {bounds.lower}")
            if bounds.upper.is_Integer and bounds.upper < 2**62:
                self.condition(int(bounds.upper) - size, f"{place(symbol)} must be at most {bounds.upper}")
        for index, factor, rest in self.symbols.derived.values():
            if factor > 1:
                size = ir.IndexExpr.size(index)
                form = f"{factor} * n" + (f" {'+' if rest > 0 else '-'} {abs(rest)}" if rest else "")
                self.condition(
                    -ir.mod(size - rest, ir.IndexExpr(factor)), f"{place(self.symbols.names[index])} must be {form}"
                )
        for node in self.gm.graph.nodes:
            if node.target is aten._assert_scalar.default and isinstance(node.args[0], torch.fx.Node):
                checked = node.args[0].meta.get("val")
                guard = checked.node.expr if isinstance(checked, torch.SymBool) else sympy.true
                if guard.free_symbols:
                    readable = guard.xreplace({s: sympy.Symbol(n) for s, n in names.items()})
                    self.condition(at_least_zero(guard, self.symbols), f"{readable} must hold")

    def add_inputs(self, lowered: Lowered) -> None:
        for source in lowered.recipe.sources:
            match source.kind:
                case "tensor" if source.index in self.users:
                    self.made.inputs.append(("argument", self.users.index(source.index)))
                case "tensor":
                    self.made.inputs.append(("tensor", self.owned_number(source.index)))
                case "constant":
                    tensor = lowered.constants[source.index]
                    self.made.inputs.append(("tensor", self.tensors.number(tensor, f"{self.made.name}.constant")))
                case "state":
                    self.made.inputs.append(("random", source.count))
                case "moved":
                    self.made.inputs.append(self.host_input(source.index, lowered))
                case _:
                    raise UnsupportedError("it computes a number from sizes on the CPU")

    def owned_number(self, position: int) -> int:
        target = str(self.targets[position])
        return self.tensors.number(self.owned[target], target)

    def host_input(self, leaf: int, lowered: Lowered) -> tuple[str, int]:
        further = leaf - len(self.placeholders)
        if further < 0 and leaf not in self.users:
            return "tensor", self.owned_number(leaf)
        node: Any = self.placeholders[leaf] if further < 0 else None
        if lowered.before is not None and further >= 0:
            function: Any = lowered.before[0]
            output = next(iter(reversed(function.graph.nodes)))
            node = output.args[0][lowered.computed[:further].count(None)]
        raise UnsupportedError(f"a package cannot compute on the CPU\n{describe(node)}")

    def add_results(self, lowered: Lowered) -> None:
        names, self.made.structure = _structure(self.program)
        for node, name, result in zip(self.result_nodes, names, lowered.recipe.results, strict=True):
            self.made.results.append((name, *self.result(node, result, lowered)))

    def result(self, node: Any, result: Recipe.Result, lowered: Lowered) -> tuple[str, str]:
        match result.kind:
            case "output":
                if node.meta["val"].is_complex():
                    raise UnsupportedError(
                        f"it returns a tensor of complex numbers, which packages do not have\n{describe(node)}\n"
                        "  do:    return torch.view_as_real(...) of it"
                    )
                return "output", str(result.index)
            case "leaf" if result.index in self.users:
                return "argument", str(self.users.index(result.index))
            case "leaf" if result.index < len(self.placeholders):
                return "tensor", str(self.owned_number(result.index))
            case "leaf":
                constant = lowered.computed[result.index - len(self.placeholders)]
                if isinstance(constant, Number) and isinstance(constant.number, int):
                    return "integer", str(int(constant.number))
                if isinstance(constant, Number) and isinstance(constant.number, float):
                    return "real", repr(constant.number)
            case "size":
                return "integer", str(result.expression)
            case "none":
                return "none", ""
        raise UnsupportedError(f"it returns {node!r}; results of a package are tensors and numbers")


def ir_name(dtype: torch.dtype) -> str:
    """Returns the dtype's name in the text of a graph, such as f32. UnsupportedError if there are no kernels for it."""
    return ir_dtype(dtype).name[1:].lower()


def _on_device(program: ExportedProgram, device: torch.device) -> ExportedProgram:
    """Returns the program for `device`. Its weights are fake, so that nothing is copied there."""
    moved = program.run_decompositions({})
    mode = next(
        value.fake_mode
        for node in moved.graph.nodes
        for value in tree_leaves(node.meta.get("val"))
        if isinstance(value, FakeTensor)
    )
    for owned in (moved._state_dict, moved._constants):
        for name, value in owned.items():
            if isinstance(value, torch.Tensor):
                owned[name] = mode.from_tensor(value, static_shapes=True)
    return move_to_device_pass(moved, device)


def _argument_names(program: ExportedProgram, placeholders: list[str]) -> list[str]:
    """Returns the path of each argument: the name of forward's parameter, and the keys inside of containers."""
    spec, signature = program.call_spec.in_spec, program.module_call_graph[0].signature
    if spec is None or signature is None or signature.forward_arg_names is None:
        return placeholders
    given = signature.forward_arg_names
    names = []
    for (kind, first, *inside), _ in tree_flatten_with_path(tree_unflatten(range(spec.num_leaves), spec))[0]:
        parameter = given[int(_key(first))] if _key(kind) == "0" else _key(first)
        names.append(".".join([parameter, *map(_key, inside)]))
    return names


def _structure(program: ExportedProgram) -> tuple[list[str], str]:
    """Returns the names of the results and how they belong together: a word, or a Python literal that has the number of each
    result in its place, for containers in containers."""
    spec = program.call_spec.out_spec
    assert spec is not None
    numbered = tree_unflatten(range(spec.num_leaves), spec)
    if spec.is_leaf():
        return ["result"], "value"
    names = [".".join(map(_key, path)) for path, _ in tree_flatten_with_path(numbered)[0]]
    containers = _containers(numbered)
    inside = containers.values() if isinstance(containers, dict) else containers
    return names, type(containers).__name__ if all(isinstance(i, int) for i in inside) else repr(containers)


def _key(entry: Any) -> str:
    """Returns a key of a pytree's path: that of a mapping, the index of a sequence, or the name of an attribute."""
    return str(next(getattr(entry, name) for name in ("key", "idx", "name") if hasattr(entry, name)))


def _containers(value: Any) -> Any:
    """Returns a pytree as dicts, lists and tuples of numbers and words."""
    if isinstance(value, dict):
        return {k if isinstance(k, int) else str(k): _containers(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        inside = [_containers(v) for v in value]
        return inside if isinstance(value, list) else tuple(inside)
    return value if isinstance(value, int) else tuple(tree_leaves(value))
