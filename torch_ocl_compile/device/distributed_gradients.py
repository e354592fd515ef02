# torch_ocl_compile/device/distributed_gradients.py: averages DistributedDataParallel's gradients in one group of NCCL calls.
"""torch's Reducer copies gradients into buckets and reduces a bucket while the backward computes the next one. A GPU runs kernels of NCCL
and of OpenCL in turn, so nothing overlaps: buckets cost copies and more turns. Here the gradients are averaged in place when all of them
are there. A group of one rank has nothing to do.

The Reducer stays as it is, and does what this module does not (_active_for() lists it). It expects gradients only after a forward that told
it so, and such a forward tells either the Reducer or this module."""

from __future__ import annotations

import functools
import weakref
from types import ModuleType
from typing import Any

import torch
from torch import nn

from torch_ocl_compile.device.distributed import group_uses_nccl
from torch_ocl_compile.device.distributed_data_parallel import Together
from torch_ocl_compile.errors import ConfigError

Tensor = torch.Tensor
_LAST = (torch.channels_last, torch.channels_last_3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Gradients:
    """The gradients of one DistributedDataParallel. All ranks change its state alike, in forwards and at the end of backwards."""

    def __init__(self, module: Any, parameters: list[nn.Parameter]) -> None:
        self.module = weakref.ref(module)
        self.parameters = parameters
        # Numbers of parameters whose gradients are to come. None: no gradients are expected.
        self.missing: set[int] | None = None
        self.norms = _norms_with_all_buffers(module)
        self.buffers_are_equal = False  # On all ranks, since the last forward.
        for number, parameter in enumerate(parameters):
            node: Any = torch.autograd.graph.get_gradient_edge(parameter).node
            node.register_hook(functools.partial(_arrived, weakref.ref(self), number))

    def expect(self) -> None:
        self.missing = set(range(len(self.parameters)))

    def arrived(self, number: int) -> None:
        if self.missing is None:
            return
        if number not in self.missing:
            raise ConfigError(
                f"DistributedDataParallel: {self._names([number])} got a gradient twice after one forward. Each rank averages it once.\n"
                "  do: call backward() once for each forward, and use torch.utils.checkpoint with use_reentrant=False; "
                "static_graph=True allows parameters in several checkpoints"
            )
        self.missing.remove(number)
        if not self.missing:
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self.average)

    def check_complete(self) -> None:
        """Throws if a backward gave only some of the parameters their gradients. Other ranks may wait for this one then."""
        if self.missing and len(self.missing) < len(self.parameters):
            raise ConfigError(
                f"DistributedDataParallel: {len(self.missing)} of {len(self.parameters)} parameters got no gradient in the last backward "
                f"on this rank: {self._names(sorted(self.missing))}. So no gradients were averaged.\n"
                "  do: use all outputs of forward in the loss, or pass find_unused_parameters=True to DistributedDataParallel"
            )

    def _names(self, numbers: list[int]) -> str:
        names = {id(p): name for name, p in getattr(self.module(), "module", nn.Module()).named_parameters()}
        listed = [names.get(id(self.parameters[n]), f"parameter {n}") for n in numbers]
        return ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")

    @torch.no_grad()
    def average(self) -> None:
        """Averages all gradients over the ranks. The ranks get the buffers of rank 0 as well, if the next forward needs no others."""
        self.missing = None
        module: Any = self.module()
        if module is None or module.process_group.size() == 1:
            return
        averaged, replaced = self._placed()
        group, device = module.process_group, self.parameters[0].device
        buffers = Together(module.modules_buffers) if self._forward_ignores_buffers(module) else None
        if buffers and group.rank() == 0:
            buffers.gather()
        options = _average_options()
        group._start_coalescing(device)
        group.allreduce_coalesced(averaged, options)
        if buffers:
            group.broadcast(buffers.whole, 0)
        group._end_coalescing(device).wait()
        if replaced:
            torch._foreach_copy_([gradient for gradient, _ in replaced], [average for _, average in replaced])
        if buffers and group.rank() != 0:
            buffers.scatter()
        self.buffers_are_equal = buffers is not None

    def _placed(self) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        """Returns the tensors to average, whose elements have the same order in memory on all ranks, and pairs (gradient, the tensor that
        is averaged in its place)."""
        averaged, replaced, seen = [], [], set()
        for parameter in self.parameters:
            if parameter.grad is None:  # An optimizer's hook took it.
                parameter.grad = torch.zeros_like(parameter)
            gradient = parameter.grad.detach() if parameter.grad.requires_grad else parameter.grad
            alike = gradient.is_contiguous() and parameter.is_contiguous()
            alike = alike or any(all(t.is_contiguous(memory_format=f) for t in (gradient, parameter)) for f in _LAST)
            # Autograd may give two parameters gradients in the same memory.
            if not alike or gradient.data_ptr() in seen:
                replaced.append((gradient, torch.empty_like(parameter).copy_(gradient)))
                gradient = replaced[-1][1]
            seen.add(gradient.data_ptr())
            averaged.append(gradient)
        return averaged, replaced

    def _forward_ignores_buffers(self, module: Any) -> bool:
        """True if no output of the next forward depends on the module's buffers: they are statistics of batch norms in training. Then only
        those of rank 0 matter, and it does not matter when the other ranks get them."""
        return bool(self.norms) and module.broadcast_buffers and all(norm.training for norm in self.norms)

    def needs_no_broadcast(self, module: Any) -> bool:
        """True if the coming forward needs no buffers of rank 0. The buffers differ after it."""
        equal, self.buffers_are_equal = self.buffers_are_equal, False
        return equal and self._forward_ignores_buffers(module)


def _arrived(gradients: weakref.ref[Gradients], number: int, *_: Any) -> None:
    found = gradients()
    if found is not None:
        found.arrived(number)


@functools.cache
def _average_options() -> Any:
    from torch._C import _distributed_c10d as c10d

    made: Any = c10d
    options = made.AllreduceCoalescedOptions()
    options.reduceOp = made.ReduceOp.AVG
    return options


def _norms_with_all_buffers(module: Any) -> list[nn.Module]:
    """Returns the batch norms of a DistributedDataParallel. [] if there are other buffers."""
    norms: list[Any] = [part for part in module.module.modules() if type(part) in _NORMS]
    theirs = {id(b) for norm in norms for b in (norm.running_mean, norm.running_var, norm.num_batches_tracked)}
    return norms if module.modules_buffers and all(id(b) in theirs for b in module.modules_buffers) else []


_gradients: weakref.WeakKeyDictionary[Any, Gradients] = weakref.WeakKeyDictionary()


def _active_for(module: Any) -> Gradients | None:
    """Returns what averages the gradients of a DistributedDataParallel after this forward. None: the Reducer does."""
    found = _gradients.get(module)
    if (
        found is None
        or module.find_unused_parameters
        or module.static_graph
        or module._join_config.enable
        or hasattr(module, "buffer_hook")
    ):
        return None
    group = module.process_group
    return found if group.size() == 1 or group_uses_nccl(group) else None


def _can_average(module: Any, parameters: list[nn.Parameter], sparse: list[bool]) -> bool:
    """True if the gradients of a new DistributedDataParallel are dense tensors on one ocl device, and it asks for nothing special."""
    from torch._C import _distributed_c10d as c10d

    made: Any = c10d
    return not (
        any(sparse)
        or {p.device.type for p in parameters} != {"ocl"}
        or module.is_multi_device_module
        or module._use_python_reducer
        or module._delay_all_reduce_params
        or module.mixed_precision is not None
        or made.get_debug_level() == made.DebugLevel.DETAIL  # This compares collectives of all ranks one by one.
    )


def register_with(module: ModuleType) -> None:
    """Changes the class of `module`, torch.nn.parallel.distributed."""
    kind: Any = module.__dict__["DistributedDataParallel"]
    init_helper, pre_forward, post_forward = kind._ddp_init_helper, kind._pre_forward, kind._post_forward

    @functools.wraps(init_helper)
    def _ddp_init_helper(self: Any, parameters: Any, sparse: list[bool], *more: Any, **named: Any) -> None:
        init_helper(self, parameters, sparse, *more, **named)
        _gradients.pop(self, None)
        if _can_average(self, parameters, sparse):
            _gradients[self] = Gradients(self, parameters)

    @functools.wraps(pre_forward)
    def _pre_forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        active = _active_for(self)
        if active is None:
            return pre_forward(self, *inputs, **kwargs)
        if torch.is_grad_enabled():
            active.check_complete()
        wanted = self.require_forward_param_sync
        self.require_forward_param_sync = not active.needs_no_broadcast(self) and wanted
        try:
            return pre_forward(self, *inputs, **kwargs)
        finally:
            self.require_forward_param_sync = wanted

    @functools.wraps(post_forward)
    def _post_forward(self: Any, output: Any) -> Any:
        active = _active_for(self)
        if active is None or not (torch.is_grad_enabled() and self.require_backward_grad_sync):
            return post_forward(self, output)
        self.require_backward_grad_sync = False  # The Reducer does not expect gradients then.
        try:
            output = post_forward(self, output)
        finally:
            self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        active.expect()
        return output

    kind._ddp_init_helper, kind._pre_forward, kind._post_forward = _ddp_init_helper, _pre_forward, _post_forward
    for name in ("register_comm_hook", "_register_builtin_comm_hook"):
        setattr(kind, name, _leaving_it_to_the_reducer(getattr(kind, name)))


def _leaving_it_to_the_reducer(method: Any) -> Any:
    @functools.wraps(method)
    def leaving(self: Any, *arguments: Any, **named: Any) -> Any:
        _gradients.pop(self, None)
        return method(self, *arguments, **named)

    return leaving
