# torch_ocl_compile/tools/warm.py: runs a program to compile its graphs and kernels, without launching the kernels.
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_ocl_compile import _C
from torch_ocl_compile.compile import call, debug
from torch_ocl_compile.tools.script import run_target


@dataclass(frozen=True)
class Work:
    """Counts of what was compiled, or came from the cache."""

    graphs_compiled: int
    graphs_loaded: int
    eager_compiled: int  # plans of eager ops
    eager_loaded: int
    kernels_built: int
    kernels_loaded: int
    kernels_at_launch: int  # of the kernels built: how many their runtime compiles once more at the first launch

    def since(self, before: Work) -> Work:
        earlier = asdict(before)
        return Work(**{name: count - earlier[name] for name, count in asdict(self).items()})

    def any(self) -> bool:
        return any(asdict(self).values())


def work_so_far() -> Work:
    """Returns the counts of this process so far."""
    eager, builds = _C.eager_counters(), _C.exec.build_counters()
    return Work(debug.compiled_graphs(), debug.loaded_graphs(), eager["compiled"], eager["from_cache"],
                builds["built"], builds["from_binary"], builds["unkept"])  # fmt: skip


class _StopProgram(BaseException):
    """Ends the program. As it is no Exception, `except Exception` does not catch it."""


class _IdleCalls:
    """Counts calls of compiled graphs that bring nothing new. Raises _StopProgram after `most` of them; 0: never."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls = 0
        self.seen = work_so_far()

    def watch(self, run: call.Boxed) -> call.Boxed:
        def watched(inputs: list[Any]) -> list[Any]:
            now = work_so_far()
            self.calls = self.calls + 1 if now == self.seen else 0
            self.seen = now
            if 0 < self.most <= self.calls:
                raise _StopProgram
            return run(inputs)

        return watched


def warm(target: str, arguments: list[str], idle: int) -> tuple[Work, bool]:
    """Runs a program. Returns what it compiled, and whether it was ended early because it compiled nothing new. It is
    ended after `idle` calls of compiled graphs without anything new; 0: never. Raises ToolError if it fails.
    """
    before = work_so_far()
    ended = False
    with _nothing_launched(_IdleCalls(idle).watch):
        try:
            returned = run_target(target, arguments)
            if isinstance(returned, tuple) and returned and callable(returned[0]):
                _step(*returned)
        except _StopProgram:
            ended = True
    return work_so_far().since(before), ended


def _step(model: Callable[..., Any], *inputs: Any) -> None:
    """Runs forward, and backward if a result requires gradients: without backward, the graphs of a training step are
    not stored.
    """
    made = tree_leaves(torch.compile(model, backend="ocl")(*inputs))
    learned = [leaf for leaf in made if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if learned:
        torch.autograd.backward(learned, [torch.ones_like(tensor) for tensor in learned])


@contextmanager
def _nothing_launched(watch: Callable[[call.Boxed], call.Boxed]) -> Iterator[None]:
    torch._dynamo.reset()  # graphs that were compiled earlier are not watched
    call.watch = watch
    _C.exec.skip_launches(True)
    try:
        yield
    finally:
        _C.exec.skip_launches(False)
        call.watch = None
        torch._dynamo.reset()
