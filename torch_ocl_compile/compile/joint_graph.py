# torch_ocl_compile/compile/joint_graph.py: rewrites the joint graph of forward and backward, and cuts it in two.
"""The rewrites decide what backward keeps. The partitioner recomputes what is cheap and saves the rest."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg
from torch.utils.checkpoint import CheckpointPolicy

from torch_ocl_compile import _C
from torch_ocl_compile.compile import ahead
from torch_ocl_compile.fx.graph_pass import Changes, graph_pass, set_policy
from torch_ocl_compile.lowering.elementwise.random import functionalise, own_attention

aten = torch.ops.aten
LOSS_GRADIENTS = (aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
ALIASES = (aten.alias.default, aten.detach.default)
GENERATED = (torch.ops.prims.iota.default, aten.full.default, aten.scalar_tensor.default, aten.index.Tensor,
             torch.ops.prims.convert_element_type.default)  # fmt: skip
COPIES = (*ALIASES, aten.clone.default)
CONVERT = torch.ops.prims.convert_element_type.default
HALVES = (torch.float16, torch.bfloat16)
ROUNDINGS = [{half, torch.float32} for half in HALVES]
POOL_GRADIENTS = (aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
# Gradients that only ask on which side of some numbers the input lies -> the activation, and its numbers by default. A result tells
# the same, if the numbers are not rounded: hardtanh(x) lies between the bounds where x does.
SIDES: dict[Any, tuple[Any, tuple[float, ...]]] = {
    aten.hardtanh_backward.default: (aten.hardtanh.default, (-1.0, 1.0)),
    aten.leaky_relu_backward.default: (aten.leaky_relu.default, (0.01,)),
}
# In training these ops use the statistics of the batch. The running statistics affect only their own update.
LEAST_BUDGET = 1e-9  # A fraction of the activations.
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)
LEAST_ROWS = 8192  # Of the other operand, for each weight that is rounded again in backward.
BATCH_NORM = {aten._native_batch_norm_legit_functional.default, aten.native_batch_norm_backward.default}


def ocl_partition(joint: torch.fx.GraphModule, joint_inputs: Any, **settings: Any) -> Any:
    """Serves as AOTAutograd's partition_fn. Returns the forward graph and the backward graph."""
    functionalise(joint)
    own_attention(joint)
    pool_by_offsets(joint)
    read_results(joint)
    cross_entropy(joint)
    keep_overwritten(joint)
    recompute_masks(joint)
    share_results(joint)
    recompute_weights(joint, settings.get("static_lifetime_input_indices") or ())
    compute_again = recomputes_operands(joint)
    with saves_are_kept(joint), functorch_config.patch(ban_recompute_materialized_backward=not compute_again):
        forward, backward = min_cut_rematerialization_partition(joint, joint_inputs, **settings)
    ahead.note(forward, backward)
    return forward, backward


@contextmanager
def saves_are_kept(joint: torch.fx.GraphModule) -> Iterator[None]:
    """Replaces a memory budget of 0 by the smallest other one. With 0, torch saves nothing but inputs, not even values
    marked MUST_SAVE: backward would draw other random numbers, and read inputs that forward has overwritten."""
    for node in joint.graph.nodes:
        if node.meta.get("memory_budget") == 0:
            node.meta["memory_budget"] = LEAST_BUDGET
    with functorch_config.patch(activation_memory_budget=functorch_config.activation_memory_budget or LEAST_BUDGET):
        yield


def recomputes_operands(joint: torch.fx.GraphModule) -> bool:
    """True if backward shall compute operands of its products again, such as results of activations and norms, where forward saves
    enough for that. On a GPU, a pass over an operand is short beside a product in fp32, and these operands are a third of what a
    transformer saves. Convolutions read more for each operation, and 16 bits make products faster: there a pass costs too much."""
    calls = [node for node in joint.graph.nodes if node.op == "call_function"]
    products = [node for node in calls if node.target in PRODUCTS]
    convolutions = [node for node in calls if node.target is aten.convolution.default]
    return len(products) > len(convolutions) and all(_is_fp32_on_gpu(node.meta["val"]) for node in products)


def _is_fp32_on_gpu(x: torch.Tensor) -> bool:
    ours = x.device.type == "ocl" and x.dtype is torch.float32
    return ours and not _C.device_properties(x.device.index)["is_cpu"]


@graph_pass
def pool_by_offsets(graph_module: torch.fx.GraphModule, changes: Changes) -> int:
    """Computes the gradient of max pooling from the window offsets that forward keeps, without indices and input.
    Returns the number of changes."""
    graph = graph_module.graph
    offsets_to_indices = torch.ops.prims._low_memory_max_pool_offsets_to_indices.default
    changed = 0
    for node in list(graph.nodes):
        if node.target not in POOL_GRADIENTS:
            continue
        grad, x, kernel, stride, padding, dilation, _, indices = node.args
        if indices.target is not offsets_to_indices:
            continue
        offsets, kernel, _, stride, padding, dilation = indices.args
        with graph.inserting_before(node):
            size = [_size(graph, x, d) for d in range(x.meta["val"].dim())]
            made = graph.call_function(
                torch.ops.ocl.max_pool_backward.default, (grad, offsets, size, kernel, stride, padding, dilation)
            )
        made.meta.update(node.meta)
        changes.replace(node, made)
        if not indices.users:
            changes.erase(indices)
        changed += 1
    return changed


@graph_pass
def read_results(graph_module: torch.fx.GraphModule, changes: Changes) -> int:
    """Lets the gradients of SIDES read the result of the activation, which the next product needs anyway, and not its input.
    Returns the number of changes."""
    changed = 0
    for node in list(graph_module.graph.nodes):
        if node.target not in SIDES:
            continue
        activation, defaults = SIDES[node.target]
        given, numbers = node.args[1], node.args[2 : 2 + len(defaults)]
        x = given
        while x.target in COPIES:  # An activation in place is given a copy, as its input is overwritten.
            x = x.args[0]
        if not _tells_sides(x.meta["val"].dtype, numbers):
            continue
        for user in x.users:
            found = user.target is activation and (*user.args[1:], *defaults[len(user.args) - 1 :]) == numbers
            # The caller may overwrite what it is given, before backward runs.
            if found and not any(reader.op == "output" for reader in user.users):
                node.update_arg(1, user)
                _erase_unread(given, changes)
                changed += 1
                break
    return changed


def _tells_sides(dtype: torch.dtype, numbers: tuple[Any, ...]) -> bool:
    """True if the result of an activation of SIDES with these numbers (two bounds, or the slope of leaky_relu) lies on the same
    side of them as its input. Numbers that change between calls are nodes."""
    if any(isinstance(n, torch.fx.Node) for n in numbers):
        return False
    if len(numbers) == 1:
        return bool(numbers[0] >= 0)
    return bool(numbers[0] <= numbers[1]) and all(torch.tensor(n, dtype=dtype).item() == n for n in numbers)


@graph_pass
def cross_entropy(graph_module: torch.fx.GraphModule, changes: Changes) -> int:
    """Computes the gradient of cross entropy from the logits and two numbers a row, in one pass over the logits. So forward
    need not store the log of the softmax, in fp32. Returns the number of changes."""
    changed = 0
    for node in list(graph_module.graph.nodes):
        if node.target is not aten._log_softmax_backward_data.default:
            continue
        slope, output, dim, dtype = node.args
        loss = _source(slope)
        if loss.target not in LOSS_GRADIENTS or dim != 1:
            continue
        softmax = _source(loss.args[1])
        if softmax.target is not aten._log_softmax.default or _source(output) is not softmax:
            continue
        x = softmax.args[0]
        if x.target is CONVERT and x.args[0].meta["val"].dtype in HALVES:  # The op computes in fp32 anyway.
            x = x.args[0]
        sums = _log_softmax_from_sums(softmax, x, changes)
        grad, given, *rest = loss.args
        unreads = (slope, output, given)
        with graph_module.graph.inserting_before(node):
            made = graph_module.graph.call_function(
                torch.ops.ocl.cross_entropy_backward.default, (grad, x, *sums, *rest, dtype)
            )
        made.meta.update(node.meta)
        changes.replace(node, made)
        for unread in unreads:
            _erase_unread(unread, changes)
        changed += 1
    return changed


def _erase_unread(node: Any, changes: Changes) -> None:
    """Erases a node without users, and then those that only it has read."""
    if node not in changes.erased and not node.users and node.op == "call_function":
        inputs = node.all_input_nodes
        changes.erase(node)
        for x in inputs:
            _erase_unread(x, changes)


def _source(x: Any) -> Any:
    """Returns the node whose values x has, but for rounding to fp16 or bf16, which the ops of cross entropy need not do."""
    while True:
        rounds = x.target is CONVERT and {n.meta["val"].dtype for n in (x, x.args[0])} in ROUNDINGS
        if not rounds and x.target not in ALIASES:
            return x
        x = x.args[0]


def _log_softmax_from_sums(softmax: Any, x: Any, changes: Changes) -> list[torch.fx.Node]:
    """Computes log_softmax in single ops, from the row sums of x. Returns the row sums, which are saved for backward."""
    graph, value = softmax.graph, x.meta["val"]
    narrow, wide = softmax.meta["val"].dtype, torch.float64 if value.dtype is torch.float64 else torch.float32

    def call(target: Any, *args: Any) -> Any:
        node = graph.call_function(target, args)
        with value.fake_mode:
            node.meta["val"] = target(*map_arg(args, lambda n: n.meta["val"]))
        return node

    with graph.inserting_before(softmax):
        pair = call(torch.ops.ocl.row_sums.default, x, 1)
        sums = [call(operator.getitem, pair, i) for i in (0, 1)]
        exact = x if value.dtype is wide else call(CONVERT, x, wide)
        made = call(aten.sub.Tensor, call(aten.sub.Tensor, exact, sums[0]), call(aten.log.default, sums[1]))
        rounded = made if narrow is wide else call(CONVERT, made, narrow)
    for node in sums:
        set_policy(node, CheckpointPolicy.MUST_SAVE)
    for user in list(softmax.users):
        if user.target is CONVERT and user.meta["val"].dtype is wide:
            changes.replace(user, made)
    changes.replace(softmax, rounded)
    return sums


@graph_pass
def keep_overwritten(graph_module: torch.fx.GraphModule, changes: Changes) -> None:
    """Saves inputs that the forward graph overwrites. Backward runs later, so it must neither read them nor recompute
    from them."""
    graph = graph_module.graph
    for copy in [n for n in graph.nodes if n.target is aten.copy_.default and n.args[0].op == "placeholder"]:
        target = copy.args[0]
        readers = [n for n in target.users if n is not copy and n.op != "output" and n.target not in BATCH_NORM]
        # If only the update itself uses the value, as in a counter, it need not be saved.
        if all(set(n.users) <= {copy} for n in readers):
            continue
        with graph.inserting_before(min(readers)):
            old = graph.call_function(aten.clone.default, (target,))
        old.meta.update(target.meta)
        set_policy(old, CheckpointPolicy.MUST_SAVE)
        for reader in readers:
            reader.replace_input_with(target, old)


def recompute_masks(joint: torch.fx.GraphModule) -> None:
    """Marks masks of attention that are computed from less than their size. Kernels compute such masks where they need them, so
    forward must not save them. The partitioner would: it keeps what a kernel reads."""
    for node in joint.graph.nodes:
        mask = node.args[6] if node.target is torch.ops.ocl.attention_backward.default else None
        for step in _expansion(mask) if isinstance(mask, torch.fx.Node) else ():
            set_policy(step, CheckpointPolicy.MUST_RECOMPUTE)


def share_results(joint: torch.fx.GraphModule) -> None:
    """Lets products read the saved result of an attention as a view in backward. Forward would save what the product after it reads
    beside the result, though both have the same elements."""
    for node in joint.graph.nodes:
        if node.target is not torch.ops.ocl.attention_backward.default:
            continue
        given = result = node.args[4]
        while result.target in ALIASES:
            result = result.args[0]
        if result.op != "call_function" or result.meta.get("recompute") is not None:
            continue
        node.replace_input_with(given, result)
        waiting = [result]
        while waiting:
            for user in waiting.pop().users:
                same = _is_copy(user) and user.meta["val"].numel() == result.meta["val"].numel()
                if same and user.meta.get("recompute") is None:
                    set_policy(user, CheckpointPolicy.MUST_RECOMPUTE)
                    waiting.append(user)


def _is_copy(node: torch.fx.Node) -> bool:
    return node.target in COPIES or getattr(node.target, "is_view", False)


def recompute_weights(joint: torch.fx.GraphModule, parameters: Sequence[int]) -> None:
    """Marks parameters that autocast has rounded to fp16 or bf16 for products with many rows. The parameter is there anyway, so
    forward must not save the rounded one. To round it again takes up to a fortieth of the time of its three products."""
    inputs = [node for node in joint.graph.nodes if node.op == "placeholder"]
    for position in parameters:
        for rounded in inputs[position].users:
            if rounded.target is not CONVERT or rounded.meta["val"].dtype not in HALVES:
                continue
            steps, products = {rounded}, set[torch.fx.Node]()
            waiting = [rounded]
            while waiting:
                for user in waiting.pop().users:
                    if not getattr(user.target, "is_view", False):
                        products.add(user)
                    elif user not in steps:
                        steps.add(user)
                        waiting.append(user)
            if products and all(p.target in PRODUCTS and _rows_for(p, rounded) for p in products):
                for step in steps:
                    set_policy(step, CheckpointPolicy.MUST_RECOMPUTE)


def _rows_for(product: torch.fx.Node, weight: torch.fx.Node) -> bool:
    """True if the product has many multiply-adds for each element of the weight."""
    depth = product.args[-1].meta["val"].shape[-2]  # type: ignore[union-attr]
    elements = product.meta["val"].numel() * depth
    return statically_known_true(elements >= LEAST_ROWS * weight.meta["val"].numel())


def _expansion(mask: torch.fx.Node) -> list[torch.fx.Node]:
    """Returns the pointwise ops and views that compute a value; none, if what they read is as large as the value."""
    if not _is_cheap(mask):
        return []
    steps, sources = {mask}, set[torch.fx.Node]()
    waiting = [mask]
    while waiting:
        for x in waiting.pop().all_input_nodes:
            if not _is_cheap(x):
                sources.add(x)
            elif x not in steps:
                steps.add(x)
                waiting.append(x)
    values = [x.meta.get("val") for x in (mask, *sources)]
    size, *read = (x.numel() * x.itemsize if isinstance(x, torch.Tensor) else 0 for x in values)
    return list(steps) if statically_known_true(sum(read) * 4 <= size) else []


def _is_cheap(node: torch.fx.Node) -> bool:
    # What keep_overwritten saves cannot be computed again.
    if node.op != "call_function" or node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE:
        return False
    tags = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags or node.target in GENERATED or getattr(node.target, "is_view", False)


def _size(graph: torch.fx.Graph, x: torch.fx.Node, dim: int) -> Any:
    size = x.meta["val"].shape[dim]
    if isinstance(size, int):
        return size
    node = graph.call_function(aten.sym_size.int, (x, dim))
    node.meta["val"] = size
    return node
