# torch_ocl_compile/tools/bench_side.py: times a model on one side, in a process of its own.
"""bench.py starts it by its path: an import of torch_ocl_compile would register the device on every side. It writes its device,
then it answers each line of its input with the seconds of a step."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import statistics
import sys
import time
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map


def step_of(made: Any, backend: str | None, device: torch.device, mode: str, dtype: torch.dtype | None) -> Any:
    """Returns a function that runs the model once: forward, or forward, the mean of the results, and backward."""
    model, *inputs = made
    model = model.to(device).train(mode == "training")
    inputs = tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, inputs)
    forward = torch.compile(model, backend=backend) if backend else model

    def step() -> None:
        with torch.set_grad_enabled(mode == "training"), torch.autocast(device.type, dtype, enabled=dtype is not None):
            results = [
                x for x in tree_leaves(forward(*inputs)) if isinstance(x, torch.Tensor) and x.is_floating_point()
            ]
        if mode == "training":
            model.zero_grad(set_to_none=True)
            torch.stack([x.float().mean() for x in results]).mean().backward()

    return step


def main() -> None:
    backend, target, mode, precision, name = sys.argv[1:]
    sys.stdout, answers = sys.stderr, sys.stdout  # Output of the program must not mix with the answers.
    sys.path[0] = os.getcwd()
    if backend == "ocl":
        import torch_ocl_compile  # noqa: F401
    else:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    torch.manual_seed(0)
    module, _, function = target.partition(":")
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    made = getattr(importlib.import_module(module), function)()
    step = step_of(made, None if backend == "eager" else backend, device, mode, dtype)
    wait = torch.get_device_module(device).synchronize if device.type != "cpu" else contextlib.nullcontext

    def seconds() -> float:
        start = time.perf_counter()
        step()
        wait()
        return time.perf_counter() - start

    seconds()
    print(json.dumps(str(torch.get_device_module(device).get_device_name(device)) if wait is not contextlib.nullcontext
                     else f"CPU, {torch.get_num_threads()} threads"), file=answers, flush=True)  # fmt: skip
    for calls in sys.stdin:
        seconds()
        print(statistics.median(seconds() for _ in range(int(calls))), file=answers, flush=True)


if __name__ == "__main__":
    main()
