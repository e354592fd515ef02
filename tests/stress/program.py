# tests/stress/program.py: the random work of one thread on several streams and devices, with the expected values.
"""A thread owns numbered tensors ("slots"). A step computes one of them from others, on a stream of its choice, and at
once computes the same on the CPU.

The thread orders its streams as a correct program does: before a step reads a slot, its stream waits for the event
of the slot's last write; before it writes in place, also for the last reads. All other ordering is the device's task,
and is tested here: freed and reused memory, uploaded numbers, arenas of plans, packed weights. Values are small whole
numbers, so that results are exact in any order of additions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tests.stress.delays import Delays
from tests.stress.kernels import LIMIT, SIDE, Kernels

SLOTS = 12
MOST_STREAMS = 4
Tensor = torch.Tensor


class Mismatch(AssertionError):
    """A value differs from that of the same steps in sequence."""


@dataclass
class Slot:
    """A tensor on a device, its expected value, and the events of its last write and reads."""

    tensor: Tensor
    value: Tensor
    written: torch.Event
    # Stream id -> event of the last read on that stream.
    read: dict[int, torch.Event] = field(default_factory=dict)


class Program:
    """The work of one thread. `step` runs one random step; `check` compares all slots with their expected values."""

    def __init__(self, seed: int, devices: list[str], kernels: dict[str, Kernels], delays: Delays) -> None:
        self.random = random.Random(seed)
        self.devices, self.kernels, self.delays = devices, kernels, delays
        count = self.random.randint(1, MOST_STREAMS)
        self.streams = {d: [torch.ocl.default_stream(d), *(torch.Stream(d) for _ in range(count - 1))] for d in devices}
        self.slots: dict[int, Slot] = {}
        self.log: list[str] = []
        self.checked = 0
        self.actions: list[tuple[int, Callable[[], str]]] = [
            (6, self.upload),
            (10, self.eager),
            (6, self.eager_in_place),
            (8, self.plan),
            (4, self.plan_in_place),
            (3, self.inference),
            (3, self.gradient),
            (3, self.random_numbers),
            (4, self.move),
            (6, self.free),
            (4, self.garbage),
            (4, self.download),
            (3, self.delay),
            (1, self.synchronize),
            (1, self.empty_cache),
        ]

    def step(self) -> None:
        weights = [w for w, _ in self.actions]
        action = self.random.choices([a for _, a in self.actions], weights)[0]
        self.log.append(f"{action.__name__}: {action()}")
        del self.log[:-60]

    def check(self) -> None:
        for number in list(self.slots):
            self.compare(number)

    # Slots and streams

    def stream(self, device: str) -> torch.Stream:
        return self.random.choice(self.streams[device])

    def pick(self) -> int | None:
        return self.random.choice(list(self.slots)) if self.slots else None

    def on_device(self, device: torch.device) -> int:
        """Returns the number of an existing slot on the device."""
        return self.random.choice([n for n, s in self.slots.items() if s.tensor.device == device])

    def reads(self, stream: torch.Stream, *numbers: int) -> list[Tensor]:
        for n in numbers:
            stream.wait_event(self.slots[n].written)
        return [self.slots[n].tensor for n in numbers]

    def writes(self, stream: torch.Stream, number: int) -> Tensor:
        slot = self.slots[number]
        stream.wait_event(slot.written)
        for event in slot.read.values():
            stream.wait_event(event)
        slot.read.clear()
        return slot.tensor

    def mark(self, stream: torch.Stream) -> torch.Event:
        event = torch.Event(stream.device)
        event.record(stream)
        return event

    def was_read(self, stream: torch.Stream, *numbers: int) -> None:
        event = self.mark(stream)
        for n in numbers:
            self.slots[n].read[stream.stream_id] = event

    def put(self, number: int, tensor: Tensor, value: Tensor, stream: torch.Stream) -> None:
        self.slots[number] = Slot(tensor, value, self.mark(stream))

    def compare(self, number: int) -> None:
        slot = self.slots[number]
        stream = self.stream(str(slot.tensor.device))
        self.reads(stream, number)
        with torch.ocl.stream(stream):
            got = slot.tensor.cpu()
        self.checked += 1
        if not torch.equal(got, slot.value):
            places = (got != slot.value).flatten().nonzero().flatten()
            raise Mismatch(
                f"slot {number} on {slot.tensor.device} differs in {len(places)} of {got.numel()} places, the first at "
                f"{places[0].item()}: {got.flatten()[places[0]].item()} and not {slot.value.flatten()[places[0]].item()}"
            )

    # Steps. Each returns a description of what it did.

    def upload(self) -> str:
        number, device = self.random.randrange(SLOTS), self.random.choice(self.devices)
        stream = self.stream(device)
        value = torch.randint(0, LIMIT, (SIDE, SIDE), generator=self.generator()).float()
        pinned = self.random.random() < 0.5
        with torch.ocl.stream(stream):
            source = value.clone().pin_memory() if pinned else value.clone()
            tensor = source.to(device, non_blocking=True)
            if not pinned:
                # The copy must have read the pageable source before it returns, so changing the source now must not
                # matter.
                source.fill_(-1)
        self.put(number, tensor, value, stream)
        return f"slot {number} on stream {stream.stream_id} of {device}"

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.random.getrandbits(40))

    def eager(self) -> str:
        a = self.pick()
        if a is None:
            return self.upload()
        slot = self.slots[a]
        b, stream = self.on_device(slot.tensor.device), self.stream(str(slot.tensor.device))
        factor, number = float(self.random.randint(2, 9)), self.random.randrange(SLOTS)
        x, y = self.reads(stream, a, b)
        with torch.ocl.stream(stream):
            made = torch.remainder(x.mul(factor).add(y), LIMIT)
        value = torch.remainder(self.slots[a].value.mul(factor).add(self.slots[b].value), LIMIT)
        self.was_read(stream, a, b)
        self.put(number, made, value, stream)
        return f"slot {number} = {factor} * {a} + {b} on stream {stream.stream_id} of {made.device}"

    def eager_in_place(self) -> str:
        a = self.pick()
        if a is None:
            return self.upload()
        b, stream = self.on_device(self.slots[a].tensor.device), self.stream(str(self.slots[a].tensor.device))
        number = float(self.random.randint(1, 9))
        (y,) = self.reads(stream, b)
        x = self.writes(stream, a)
        with torch.ocl.stream(stream):
            x.add_(y).add_(number).remainder_(LIMIT)
        target, other = self.slots[a].value, self.slots[b].value
        target.add_(other).add_(number).remainder_(LIMIT)
        self.was_read(stream, b)
        self.slots[a].written = self.mark(stream)
        return f"slot {a} += {b} + {number} on stream {stream.stream_id}"

    def plan(self) -> str:
        a = self.pick()
        if a is None:
            return self.upload()
        device = self.slots[a].tensor.device
        b, stream, number = self.on_device(device), self.stream(str(device)), self.random.randrange(SLOTS)
        name, compiled, plain = self.random.choice(self.kernels[str(device)].plans)
        x, y = self.reads(stream, a, b)
        with torch.ocl.stream(stream):
            made = compiled(x, y)
        value = plain(self.slots[a].value, self.slots[b].value)
        self.was_read(stream, a, b)
        self.put(number, made, value, stream)
        return f"slot {number} = {name}({a}, {b}) on stream {stream.stream_id} of {device}"

    def plan_in_place(self) -> str:
        a = self.pick()
        if a is None:
            return self.upload()
        device = self.slots[a].tensor.device
        b, stream = self.on_device(device), self.stream(str(device))
        if a == b:
            return "nothing"
        compiled, plain = self.kernels[str(device)].update
        (y,) = self.reads(stream, b)
        x = self.writes(stream, a)
        with torch.ocl.stream(stream):
            compiled(x, y)
        plain(self.slots[a].value, self.slots[b].value)
        self.was_read(stream, b)
        self.slots[a].written = self.mark(stream)
        return f"update({a}, {b}) on stream {stream.stream_id} of {device}"

    def inference(self) -> str:
        """Runs the layer of this thread. Another stream may just have written its weights, whose packed copy is
        kept."""
        a = self.pick()
        if a is None:
            return self.upload()
        device = self.slots[a].tensor.device
        stream, number = self.stream(str(device)), self.random.randrange(SLOTS)
        layer = self.kernels[str(device)].layer(self)
        if self.random.random() < 0.4:
            layer.change(self, self.stream(str(device)))
        (x,) = self.reads(stream, a)
        with torch.ocl.stream(stream), torch.no_grad():
            made = layer.run(x, stream)
        value = layer.expected(self.slots[a].value)
        self.was_read(stream, a)
        self.put(number, made, value, stream)
        return f"slot {number} = layer({a}) on stream {stream.stream_id} of {device}"

    def gradient(self) -> str:
        a = self.pick()
        if a is None:
            return self.upload()
        device = self.slots[a].tensor.device
        b, stream, number = self.on_device(device), self.stream(str(device)), self.random.randrange(SLOTS)
        x, y = self.reads(stream, a, b)
        with torch.ocl.stream(stream):
            leaf = x.clone().requires_grad_()
            (made,) = torch.autograd.grad(self.kernels[str(device)].loss(leaf, y), leaf)
        value = torch.remainder(self.slots[b].value, 5) * 2
        self.was_read(stream, a, b)
        self.put(number, made, value, stream)
        return f"slot {number} = gradient at {a}, {b} on stream {stream.stream_id} of {device}"

    def random_numbers(self) -> str:
        number, device = self.random.randrange(SLOTS), self.random.choice(self.devices)
        stream, seed = self.stream(device), self.random.randrange(8)
        with torch.ocl.stream(stream):
            generator = torch.Generator(device).manual_seed(seed)
            made = torch.randint(0, LIMIT, (SIDE, SIDE), device=device, generator=generator, dtype=torch.float32)
        self.put(number, made, self.kernels[device].drawn[seed].clone(), stream)
        return f"slot {number} = random numbers of seed {seed} on stream {stream.stream_id} of {device}"

    def move(self) -> str:
        a = self.pick()
        if a is None:
            return self.upload()
        source, target = self.slots[a].tensor.device, self.random.choice(self.devices)
        stream, number = self.stream(str(source)), self.random.randrange(SLOTS)
        other = stream if str(source) == target else self.stream(target)
        (x,) = self.reads(stream, a)
        with torch.ocl.stream(stream), torch.ocl.stream(other):
            made = x.to(target, copy=True)
        self.was_read(stream, a)
        self.put(number, made, self.slots[a].value.clone(), other)
        return f"slot {number} = copy of {a} on stream {other.stream_id} of {target}"

    def free(self) -> str:
        a = self.pick()
        if a is None:
            return "nothing"
        del self.slots[a]
        return f"slot {a}"

    def garbage(self) -> str:
        """Allocates memory that other steps have freed, and overwrites it."""
        device = self.random.choice(self.devices)
        stream = self.stream(device)
        sizes = [self.random.choice((1, 2, 3, 8)) * SIDE * SIDE for _ in range(3)]
        with torch.ocl.stream(stream):
            for size in sizes:
                torch.empty(size, device=device).fill_(-77)
        return f"{sizes} on stream {stream.stream_id} of {device}"

    def download(self) -> str:
        a = self.pick()
        if a is None:
            return "nothing"
        self.compare(a)
        return f"slot {a}"

    def delay(self) -> str:
        device = self.random.choice(self.devices)
        stream = self.stream(device)
        seconds = self.random.choice((0.0, 0.001, 0.005, 0.02))
        self.delays.hold(stream, time.monotonic() + seconds)
        return f"stream {stream.stream_id} of {device} for {seconds * 1000} ms"

    def synchronize(self) -> str:
        device = self.random.choice(self.devices)
        torch.ocl.synchronize(device)
        return device

    def empty_cache(self) -> str:
        if self.random.random() < 0.2:
            torch.ocl.empty_cache()
        return ""
