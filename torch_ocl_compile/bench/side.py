# torch_ocl_compile/bench/side.py: runs one network on one side (eager, inductor, ocl), in a process of its own.
"""Reads commands from standard input, one word per line, and answers each with a line of JSON. process.py starts this
program."""

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
else:
    # This file is started by its path, because an import of torch_ocl_compile would register the device on every side.
    import networks  # type: ignore[no-redef]


def device_of(side: str, ocl_device: str) -> torch.device:
    """The device of a side. eager and inductor run on CUDA if there is a CUDA device, otherwise on the CPU."""
    if side == "ocl":
        import torch_ocl_compile  # noqa: F401  (registers the device also where torch has CUDA)

        return torch.device(ocl_device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def set_precision(precision: str) -> None:
    """Sets the precision. "highest": full fp32. "high": TF32 or similar inside products and convolutions. bf16 and fp16
    use autocast."""
    reduced = precision == "high"
    torch.backends.cudnn.allow_tf32 = reduced
    torch.set_float32_matmul_precision("high" if reduced else "highest")


def autocast(device: torch.device, precision: str) -> Any:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return torch.autocast(device.type, dtype, enabled=dtype is not None)


class Side:
    """One network on one side. `step()` runs it once without waiting: inference, or forward, loss, backward and Adam.
    With `from_host`, the input is on the host and each step copies it to the device first."""

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
        """Seconds of one step, including the wait for its device."""
        start = time.perf_counter()
        self.step()
        self.synchronize()
        return time.perf_counter() - start

    def round(self, calls: int) -> float:
        """Median time of `calls` steps in seconds, after one step that wakes threads and fills caches."""
        self.timed()
        return statistics.median(self.timed() for _ in range(calls))

    def facts(self) -> dict[str, object]:
        """The device's name and the peak memory in MiB. For inference also the error: the largest difference from fp64
        divided by the largest output."""
        if self.device.type == "cuda":
            name, peak = torch.cuda.get_device_name(), torch.cuda.max_memory_allocated() / 2**20
        elif self.device.type == "ocl":
            ocl: Any = torch.ocl  # type: ignore[attr-defined]
            name, peak = ocl.get_device_name(self.device), ocl.max_memory_allocated(self.device) / 2**20
        else:
            # The CPU's allocator keeps no statistics.
            name, peak = f"CPU, {torch.get_num_threads()} threads", float("nan")
        error = float("nan")
        if self.exact is not None:
            with torch.no_grad():
                example = self.example.double() if self.example.is_floating_point() else self.example
                exact = self.exact.double().eval()(example)
            error = ((self.step().double().cpu() - exact).abs().max() / exact.abs().max()).item()
        return {"device": name, "peak_mib": peak, "error": error}

    def builds(self) -> dict[str, float]:
        """Counters of the kernels that this process has compiled. Empty for sides that do not count them."""
        if self.device.type != "ocl":
            return {}
        from torch_ocl_compile import _C

        counters = _C.exec.build_counters()
        return {key: counters[key] for key in ("built", "by_workers", "build_seconds")}


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(settings["threads"])
    # Output of the libraries must not mix with the answers.
    sys.stdout, answers = sys.stderr, sys.stdout
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
