# tests/stress/kernels.py: what all threads of a stress run share per device: compiled functions, expected random numbers.
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from tests.stress.program import Program

# The number of rows and columns of the matrices in slots.
SIDE = 48
# Values are whole numbers below LIMIT, so that sums of SIDE products are exact in float32.
LIMIT = 31
SEEDS = 8
Tensor = torch.Tensor


def product(x: Tensor, y: Tensor) -> Tensor:
    return torch.remainder(x @ y, LIMIT)


def chain(x: Tensor, y: Tensor) -> Tensor:
    """Runs several kernels, whose intermediate results are in the plan's arena."""
    z = torch.remainder(x.cumsum(0) + y.cumsum(1), LIMIT)
    z = torch.remainder(z @ x.t() + z.sum(0), LIMIT)
    return torch.remainder(z.cumsum(0) @ y, LIMIT)


def rows(x: Tensor, y: Tensor) -> Tensor:
    return torch.remainder(x - x.amax(-1, keepdim=True) + y.sum(-1, keepdim=True) + x.sort(-1).values, LIMIT)


def update(x: Tensor, y: Tensor) -> None:
    """Writes to its input and returns nothing."""
    z = torch.remainder(y.cumsum(0) @ y, LIMIT)
    x.add_(z).remainder_(LIMIT)


def loss(x: Tensor, y: Tensor) -> Tensor:
    return (x * (torch.remainder(y, 5) * 2)).sum()


class Layer:
    """A linear layer whose weights `change` replaces, on a stream that the caller chooses."""

    def __init__(self, compiled: Callable[..., Tensor], device: str, generator: torch.Generator) -> None:
        self.compiled = compiled
        self.linear = torch.nn.Linear(SIDE, SIDE, bias=False)
        self.value = torch.randint(0, LIMIT, (SIDE, SIDE), generator=generator).float()
        with torch.no_grad():
            self.linear.weight.copy_(self.value)
        self.linear = self.linear.to(device)
        torch.ocl.synchronize(device)
        self.written: torch.Event | None = None
        self.read: dict[int, torch.Event] = {}

    def change(self, program: Program, stream: torch.Stream) -> None:
        if self.written is not None:
            stream.wait_event(self.written)
        for event in self.read.values():
            stream.wait_event(event)
        self.read.clear()
        self.value = torch.randint(0, LIMIT, (SIDE, SIDE), generator=program.generator()).float()
        with torch.ocl.stream(stream), torch.no_grad():
            self.linear.weight.copy_(self.value.pin_memory(), non_blocking=True)
        self.written = program.mark(stream)

    def run(self, x: Tensor, stream: torch.Stream) -> Tensor:
        if self.written is not None:
            stream.wait_event(self.written)
        made = self.compiled(self.linear, x)
        event = torch.Event(stream.device)
        event.record(stream)
        self.read[stream.stream_id] = event
        return made

    def expected(self, x: Tensor) -> Tensor:
        return torch.remainder(F.linear(x, self.value), LIMIT)


class Kernels:
    """The compiled functions and layers of one device. They are compiled before the threads start."""

    def __init__(self, device: str) -> None:
        self.device = device
        x = torch.ones(SIDE, SIDE, device=device)
        self.plans: list[tuple[str, Any, Any]] = []
        for plain in (product, chain, rows):
            compiled = torch.compile(plain, backend="ocl", dynamic=False)
            compiled(x, x)
            self.plans.append((plain.__name__, compiled, plain))
        self.update = torch.compile(update, backend="ocl", dynamic=False), update
        self.update[0](x.clone(), x)
        self.loss = torch.compile(loss, backend="ocl", dynamic=False)
        leaf = x.clone().requires_grad_()
        self.loss(leaf, x).backward()
        self.layer_of = torch.compile(lambda m, x: torch.remainder(m(x), LIMIT), backend="ocl", dynamic=False)
        with torch.no_grad():
            self.layer_of(torch.nn.Linear(SIDE, SIDE, bias=False).to(device), x)
        self.drawn = []
        for seed in range(SEEDS):
            generator = torch.Generator(device).manual_seed(seed)
            made = torch.randint(0, LIMIT, (SIDE, SIDE), device=device, generator=generator, dtype=torch.float32)
            self.drawn.append(made.cpu())
        self._layers = threading.local()

    def layer(self, program: Program) -> Layer:
        """Returns the layer of the calling thread. Each thread has its own, so that kept weights of several modules
        exist at the same time."""
        if getattr(self._layers, "program", None) is not program:
            self._layers.program = program
            self._layers.layer = Layer(self.layer_of, self.device, program.generator())
        found: Layer = self._layers.layer
        return found
