# torch_ocl_compile/bench/side.py: one network on one side (eager, inductor, ocl), in a process of its own.
"""Reads commands from standard input, a word a line, and answers each with a line of JSON. process.py starts it."""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

if __package__:
    from torch_ocl_compile.bench import networks
else:  # started by its path: the import of torch_ocl_compile would register the device on every side
    import networks  # type: ignore[no-redef]


def device_of(side: str, ocl_device: str) -> torch.device:
    """The device of a side: eager and inductor run on CUDA where there is one, else on the CPU."""
    if side == "ocl":
        import torch_ocl_compile  # noqa: F401  (registers the device also where torch has CUDA)

        return torch.device(ocl_device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def set_precision(precision: str) -> None:
    """ "highest": fp32 in full; "high": TF32 or the like inside products and convolutions; bf16 and fp16 are autocast's."""
    reduced = precision == "high"
    torch.backends.cudnn.allow_tf32 = reduced
    torch.set_float32_matmul_precision("high" if reduced else "highest")


def autocast(device: torch.device, precision: str) -> Any:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return torch.autocast(device.type, dtype, enabled=dtype is not None)


class Side:
    """`step()` runs the network once, without waiting: inference, or forward, loss, backward and Adam. With `from_host` the
    input lies on the host and each step copies it to the device first."""

    def __init__(self, side: str, name: str, mode: str, batch: int, size: int, ocl_device: str,
                 precision: str = "highest", from_host: bool = False) -> None:  # fmt: skip
        set_precision(precision)
        self.device = device_of(side, ocl_device)
        torch.manual_seed(0)
        self.model, self.example, classes = networks.make(name, batch, size)
        self.exact = copy.deepcopy(self.model) if mode == "inference" else None
        model = self.model.to(self.device).train(mode == "training")
        rows = batch if self.example.is_floating_point() else self.example.numel()
        x, y = self.example.to(self.device), torch.randint(classes, (rows,)).to(self.device)

        def compiled(function: Any) -> Any:
            return function if side == "eager" else torch.compile(function, backend=side)

        given = (self.example, y.cpu()) if from_host else (x, y)
        if mode == "inference":
            forward = compiled(model)

            def step() -> Any:
                with torch.no_grad(), autocast(self.device, precision):
                    return forward(given[0].to(self.device))
        else:
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=True)

            def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                with autocast(self.device, precision):
                    return F.cross_entropy(model(x), y)

            loss = compiled(loss_of)
            update = compiled(optimizer.step)

            def step() -> Any:
                optimizer.zero_grad(set_to_none=True)
                loss(*(t.to(self.device) for t in given)).backward()
                update()

        self.step: Callable[[], Any] = step

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        elif self.device.type == "ocl":
            torch.ocl.synchronize(self.device)  # type: ignore[attr-defined]

    def timed(self) -> float:
        """Seconds of one step, with the wait for its device."""
        start = time.perf_counter()
        self.step()
        self.synchronize()
        return time.perf_counter() - start

    def round(self, calls: int) -> float:
        """Median of `calls` steps after one that wakes threads and caches."""
        self.timed()
        return statistics.median(self.timed() for _ in range(calls))

    def facts(self) -> dict[str, object]:
        """Device, peak memory in MiB, and for inference the largest difference of the output to fp64 over the largest output."""
        if self.device.type == "cuda":
            name, peak = torch.cuda.get_device_name(), torch.cuda.max_memory_allocated() / 2**20
        elif self.device.type == "ocl":
            ocl: Any = torch.ocl  # type: ignore[attr-defined]
            name, peak = ocl.get_device_name(self.device), ocl.max_memory_allocated(self.device) / 2**20
        else:
            name, peak = (
                f"CPU, {torch.get_num_threads()} threads",
                float("nan"),
            )  # the CPU's allocator keeps no statistics
        error = float("nan")
        if self.exact is not None:
            with torch.no_grad():
                example = self.example.double() if self.example.is_floating_point() else self.example
                exact = self.exact.double().eval()(example)
            error = ((self.step().double().cpu() - exact).abs().max() / exact.abs().max()).item()
        return {"device": name, "peak_mib": peak, "error": error}

    def builds(self) -> dict[str, float]:
        """Kernels that this process has compiled; empty for sides that do not count them."""
        if self.device.type != "ocl":
            return {}
        from torch_ocl_compile import _C

        counters = _C.exec.build_counters()
        return {key: counters[key] for key in ("built", "by_workers", "build_seconds")}


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(settings["threads"])
    sys.stdout, answers = sys.stderr, sys.stdout  # what the libraries print is not an answer
    start = time.perf_counter()
    keys = ("side", "name", "mode", "batch", "size", "ocl_device", "precision", "from_host")
    side = Side(*(settings[key] for key in keys))
    commands: dict[str, Callable[[], Any]] = {
        "first": side.timed,
        "round": lambda: side.round(settings["calls"]),
        "facts": side.facts,
        "builds": side.builds,
        "setup": lambda: time.perf_counter() - start,
    }
    for line in sys.stdin:
        print(json.dumps(commands[line.strip()]()), file=answers, flush=True)


if __name__ == "__main__":
    main()
