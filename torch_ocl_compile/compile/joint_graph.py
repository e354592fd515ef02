# torch_ocl_compile/compile/joint_graph.py: rewrites the joint graph of forward and backward, and cuts it in two.
"""The rewrites decide what backward keeps. The partitioner recomputes what is cheap and saves the rest."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

from torch_ocl_compile.fx.graph_pass import Changes, graph_pass
from torch_ocl_compile.lowering.random import functionalise, own_attention

aten = torch.ops.aten
LOSS_GRADIENTS = (aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
HALVES = (torch.float16, torch.bfloat16)
POOL_GRADIENTS = (aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
# In training these ops use the statistics of the batch. The running statistics affect only their own update.
LEAST_BUDGET = 1e-9  # A fraction of the activations.
BATCH_NORM = {aten._native_batch_norm_legit_functional.default, aten.native_batch_norm_backward.default}


def ocl_partition(joint: torch.fx.GraphModule, joint_inputs: Any, **settings: Any) -> Any:
    """Serves as AOTAutograd's partition_fn. Returns the forward graph and the backward graph."""
    functionalise(joint)
    own_attention(joint)
    pool_by_offsets(joint)
    cross_entropy(joint)
    keep_overwritten(joint)
    with saves_are_kept(joint):
        return min_cut_rematerialization_partition(joint, joint_inputs, **settings)


@contextmanager
def saves_are_kept(joint: torch.fx.GraphModule) -> Iterator[None]:
    """Replaces a memory budget of 0 by the smallest other one. With 0, torch saves nothing but inputs, not even values
    marked MUST_SAVE: backward would draw other random numbers, and read inputs that forward has overwritten."""
    for node in joint.graph.nodes:
        if node.meta.get("memory_budget") == 0:
            node.meta["memory_budget"] = LEAST_BUDGET
    with functorch_config.patch(activation_memory_budget=functorch_config.activation_memory_budget or LEAST_BUDGET):
        yield


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
def cross_entropy(graph_module: torch.fx.GraphModule, changes: Changes) -> int:
    """Computes the gradient of cross entropy from the logits and two numbers a row, in one pass over the logits. So forward
    need not store the log of the softmax, in fp32. Returns the number of changes."""
    changed = 0
    for node in list(graph_module.graph.nodes):
        if node.target is not aten._log_softmax_backward_data.default:
            continue
        loss, softmax, dim, dtype = node.args[0], *(_aliased(a) for a in node.args[1:])
        if loss.target not in LOSS_GRADIENTS or dim != 1 or len(loss.users) != 1:
            continue
        if softmax.target is not aten._log_softmax.default or _aliased(loss.args[1]) is not softmax:
            continue
        if softmax.meta["val"].dtype in HALVES:
            continue
        x = softmax.args[0]
        if x.target is torch.ops.prims.convert_element_type.default and x.args[0].meta["val"].dtype in HALVES:
            x = x.args[0]  # The op computes in fp32, so the values of 16 bits are kept.
        sums = _log_softmax_from_sums(softmax, x, changes)
        grad, _, *rest = loss.args
        with graph_module.graph.inserting_before(node):
            made = graph_module.graph.call_function(
                torch.ops.ocl.cross_entropy_backward.default, (grad, x, *sums, *rest, dtype)
            )
        made.meta.update(node.meta)
        changes.replace(node, made)
        changes.erase(loss)
        changed += 1
    return changed


def _log_softmax_from_sums(softmax: torch.fx.Node, x: torch.fx.Node, changes: Changes) -> list[torch.fx.Node]:
    """Computes log_softmax in single ops, from the row sums of x. Returns the row sums, which are saved for backward."""
    graph, value = softmax.graph, x.meta["val"]
    with graph.inserting_before(softmax):
        pair = graph.call_function(torch.ops.ocl.row_sums.default, (x, 1))
        with value.fake_mode:
            pair.meta["val"] = torch.ops.ocl.row_sums.default(value, 1)
        sums = [graph.call_function(operator.getitem, (pair, i)) for i in (0, 1)]
        logarithm = graph.call_function(aten.log.default, (sums[1],))
        below_largest = graph.call_function(aten.sub.Tensor, (softmax.args[0], sums[0]))
        made = graph.call_function(aten.sub.Tensor, (below_largest, logarithm))
    for part, node in zip(pair.meta["val"], sums, strict=True):
        node.meta["val"] = logarithm.meta["val"] = part
        node.meta["recompute"], node.meta["ac_graph_id"] = CheckpointPolicy.MUST_SAVE, 0
    for node in (below_largest, made):
        node.meta.update(softmax.meta)
    changes.replace(softmax, made)
    return sums


def _aliased(x: Any) -> Any:
    while isinstance(x, torch.fx.Node) and x.target in (aten.alias.default, aten.detach.default):
        x = x.args[0]
    return x


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
        old.meta["recompute"], old.meta["ac_graph_id"] = CheckpointPolicy.MUST_SAVE, 0
        for reader in readers:
            reader.replace_input_with(target, old)


def _size(graph: torch.fx.Graph, x: torch.fx.Node, dim: int) -> Any:
    size = x.meta["val"].shape[dim]
    if isinstance(size, int):
        return size
    node = graph.call_function(aten.sym_size.int, (x, dim))
    node.meta["val"] = size
    return node
