# tests/fuzz/edited.py: random programs that are edited, and whose numbers change, with a cache that earlier runs have filled.
"""python -m tests.fuzz.edited --count 500 --seed 1 --device ocl:0 [--minutes 60]

A program calls a compiled function several times with other Python numbers and sizes. The function uses ops of the program: a custom op
with a gradient, a composite op, a tensor subclass, helpers that read globals. An edit changes numbers in their bodies, in the calls or in
the bounds of sizes. A pair is a program and its edited form. Both run with one cache of stored graphs. The edited program must print
what it prints when no graph is stored. Kernels come from the cache in all runs."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass

from tests import fork_server

PRELUDE = """
import sys, torch, torch_ocl_compile, torch.nn.functional as F
torch._functorch.config.enable_autograd_cache = {stored}
from torch_ocl_compile.compile import debug
DEVICE = {device!r}

@torch.library.custom_op("edited::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    return x * {k0}

own.register_fake(lambda x: torch.empty_like(x))
own.register_autograd(lambda ctx, g: g * {k1})
LIBRARY = torch.library.Library("edited", "FRAGMENT")
LIBRARY.define("composite(Tensor x) -> Tensor")
LIBRARY.impl("composite", lambda x: x * {k2}, "CompositeImplicitAutograd")
SCALE = {k3}

@torch.library.custom_op("edited::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x + 1

scaled.register_fake(lambda x: torch.empty_like(x))
scaled.register_autograd(lambda ctx, g: helper(g))

def helper(g):
    return g * SCALE

class Own(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
    def __init__(self, inner):
        self.inner = inner
    def __tensor_flatten__(self):
        return ["inner"], None
    @staticmethod
    def __tensor_unflatten__(tensors, meta, size, stride):
        return Own(tensors["inner"])
    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        plain = [a.inner if isinstance(a, Own) else a for a in args]
        result = op(*plain, **(kwargs or {{}}))
        return Own(result * {k0}) if op is torch.ops.aten.sin.default else Own(result)
"""
# What a line may do with x: a float tensor of (n, 4). a and b are Python floats that change from call to call, m a Python int.
LINES = (
    "x = x * a",
    "x = x + b",
    "x = x.clamp(max=a)",
    "x = torch.add(x, x, alpha=b)",
    "x = F.leaky_relu(x, a * 0.1)",
    "x = F.elu(x, alpha=b)",
    "x = torch.lerp(x, x * x, a)",
    "x = x.abs() ** b",
    "x = x + torch.full_like(x, a)",
    "x = torch.addcmul(x * a, x, x, value=b)",
    "x = x.roll(m, 0)",
    "x = x + x.size(0) * m",
    "x = x * 2 if a > 1.5 else x * 3",
    "x = x if x.size(0) < {k} else x * 5",
    "x = x if x.size(0) % 2 else x + {f}",
    "x = x * (1 / (1 - 0.9 ** a)) + b ** 0.5",
    "x = x + {f}",
    "x = torch.ops.edited.own(x)",
    "x = torch.ops.edited.composite(x)",
    "x = torch.ops.edited.scaled(x)",
    "x = x * (x.detach().sum().item() + a)",
)
MAIN = """
def f(x, a, b, m):
    {lines}
    return x

g = torch.compile(f, backend="ocl")
for n, a, b, m in {calls}:
    x = (torch.arange(n * 4.0) / (n * 4)).reshape(n, 4).to(DEVICE)
    {marks}
    try:
        if {subclass}:
            print(torch.compile(lambda t: (t.sin() * 2), backend="ocl")(Own(x)).inner.sum().item())
        x.requires_grad_({gradient})
        y = g(x, a, b, m)
        if y.requires_grad:
            y.sum().backward()
        print([v.hex() for v in y.detach().flatten().tolist()], x.grad is not None and x.grad.flatten().tolist())
    except Exception as error:
        print(type(error).__name__)
print("loaded", debug.loaded_graphs(), file=sys.stderr)
"""


@dataclass
class Draft:
    """A program. `numbers`: what an edit may change. `text` needs them, and whether graphs are stored."""

    text: str
    numbers: dict[str, object]

    def program(self, device: str, stored: bool) -> str:
        return self.text.format(device=device, stored=stored, **self.numbers)


def draw(rng: random.Random) -> tuple[Draft, Draft]:
    """Returns a program and its edited form, which is sometimes the same."""
    lines = [line.format(k=rng.choice([4, 6, 9]), f="{f0}") for line in rng.sample(LINES, rng.randint(2, 5))]
    first = {f"k{i}": rng.choice([2.0, 3.0]) for i in range(4)} | {"f0": rng.choice([0.5, 1.5])}
    edited = {key: rng.choice([2.5, value]) for key, value in first.items()}
    calls = [_calls(rng), _calls(rng)] if rng.random() < 0.5 else [_calls(rng)] * 2
    marks = [
        rng.choice(["pass", "torch._dynamo.mark_dynamic(x, 0)", "torch._dynamo.mark_dynamic(x, 0, min=3, max=10)"])
        for _ in "12"
    ]
    subclass, gradient = rng.random() < 0.2, rng.random() < 0.5
    drafts = []
    for numbers, made, mark in ((first, calls[0], marks[0]), (edited, calls[1], marks[1])):
        main = MAIN.format(lines="\n    ".join(lines), calls=made, marks=mark, subclass=subclass, gradient=gradient)
        drafts.append(Draft(PRELUDE + main, numbers))
    return drafts[0], drafts[1]


def _calls(rng: random.Random) -> list[tuple[int, float, float, int]]:
    count, sizes, one_size = rng.randint(2, 5), (3, 5, 6, 8), rng.random() < 0.5
    size = rng.choice(sizes)
    return [
        (
            size if one_size else rng.choice(sizes),
            rng.choice([1.0, 1.25, 2.0, 3.0]),
            rng.choice([0.5, 1.0, 2.0]),
            rng.choice([1, 1, 2, 3]),
        )
        for _ in range(count)
    ]


def run_pair(seed: int, device: str, cache: str) -> tuple[bool, int]:
    """Returns (whether the edited program printed the same with stored graphs as without, how many graphs it loaded)."""
    first, edited = draw(random.Random(seed))
    environment = {**os.environ, "TORCH_OCL_CACHE_DIR": cache, "TORCH_OCL_DEVICES": device.split(":")[1]}
    runs = [
        fork_server.run(["-c", draft.program("ocl:0", stored)], environment)
        for draft, stored in ((first, True), (edited, True), (edited, False))
    ]
    loaded = int(runs[1].stderr.rsplit("loaded", 1)[-1].split()[0]) if "loaded" in runs[1].stderr else 0
    fine = runs[1].stdout == runs[2].stdout and runs[1].returncode == runs[2].returncode == 0
    if not fine:
        print(f"seed {seed}: with stored graphs\n{runs[1].stdout}{runs[1].stderr[-2000:]}\nwithout\n{runs[2].stdout}")
        print(edited.program("ocl:0", True))
    return fine, loaded


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    end, failing, loaded, done = time.monotonic() + 60 * options.minutes, [], 0, 0
    with tempfile.TemporaryDirectory() as cache:
        while done < options.count and time.monotonic() < end:
            seed = options.seed * 100_000 + done
            fine, found = run_pair(seed, options.device, cache)
            failing += [] if fine else [seed]
            loaded, done = loaded + found, done + 1
    print(f"{done} pairs, {len(failing)} failing {failing}; the edited programs loaded {loaded} graphs")
    return 1 if failing or done < options.count else 0


if __name__ == "__main__":
    sys.exit(main())
