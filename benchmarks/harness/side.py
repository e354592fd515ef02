# benchmarks/harness/side.py: one network on one side: how it runs, and what is known of it afterwards.
"""sides.py says how each side runs. network_side.py is the program of its process."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import platform
import re
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from benchmarks.harness import networks, sides
from benchmarks.harness.timing import seconds_of, wait

NAN = float("nan")


@dataclass(frozen=True)
class Settings:
    """What a side runs. `format`, `optimizer`: which of the side's own to use. If they are empty, it starts with its first,
    and choose() measures all."""

    side: str
    name: str
    mode: str
    batch: int = 8
    size: int = 224
    ocl_device: str = "ocl:0"
    threads: int = 1
    calls: int = 3
    precision: str = "highest"
    from_host: bool = False
    format: str = ""
    optimizer: str = ""
    model_alone: bool = False  # In training, the loss and the optimizer are not compiled.
    freezing: bool = True  # Whether a side that can freeze the weights of inference does.


class Way(NamedTuple):
    """What choose() chooses."""

    format: str
    optimizer: str  # A name of ADAM. "" in inference.


def device_of(side: str, ocl_device: str) -> torch.device:
    """The device of a side. Those of PyTorch run on CUDA if there is a CUDA device, otherwise on the CPU."""
    if sides.is_ours(side):
        import torch_ocl_compile  # noqa: F401  (registers the device also where torch has CUDA)

        return torch.device(ocl_device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def set_up(side: str, threads: int, precision: str, freezing: bool) -> None:
    """Gives PyTorch the settings of a side. `freezing`: a compiler that can freeze parameters may do so.

    Precision "highest" is full fp32. "high" allows TF32 or similar inside products and convolutions. bf16 and fp16 use
    autocast."""
    reduced = precision == "high"
    torch.set_num_threads(threads)
    torch.backends.cudnn.allow_tf32 = reduced
    torch.set_float32_matmul_precision("high" if reduced else "highest")
    # cuDNN times its kernels and takes the fastest.
    torch.backends.cudnn.benchmark = True
    if sides.SIDES[side].attention:
        for kernel in sides.ATTENTION:
            getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(kernel == sides.SIDES[side].attention)
    if sides.SIDES[side].freezing:
        from torch._inductor import config

        # In training it would take the gradients, which the compiled optimizer reads, for constants.
        config.freezing = freezing


def settings_in_effect(side: str, device: torch.device, precision: str) -> dict[str, Any]:
    """How this process runs its side, as PyTorch and the system tell it."""
    kind, on_cuda = sides.SIDES[side], device.type == "cuda"
    variables = [*kind.environment, *sides.HEAP]
    if sides.is_ours(side):
        from benchmarks.harness.origin import shown_variables

        variables += [*(name for name in sides.POCL_THREADS if name in os.environ), *shown_variables()]
    found: dict[str, Any] = device_facts(device) | {
        "backend": kind.backend,
        "mode": kind.mode,
        "attention": kind.attention,
    }
    found["torch"], found["dtype"] = torch.__version__, sides.PRECISIONS[precision]
    found["tf32"] = torch.get_float32_matmul_precision() != "highest"
    found["environment"] = {name: os.environ.get(name) for name in dict.fromkeys(variables)}
    found["threads"] = torch.get_num_threads()
    found["cores"] = sorted(os.sched_getaffinity(0))
    found["cudnn_benchmark"] = torch.backends.cudnn.benchmark if on_cuda else None
    found["compute_units"] = None
    if device.type == "ocl":
        module: Any = torch.get_device_module(device)
        found["compute_units"] = module.get_device_properties(device).multi_processor_count
    found["freezing"] = None
    if kind.backend == "inductor":
        from torch._inductor import config

        found["freezing"] = config.freezing
    return found


def device_facts(device: torch.device) -> dict[str, str | None]:
    """Name and driver of a device, and the versions of OpenCL, or of CUDA and cuDNN. None: the device has no such thing."""
    facts: dict[str, str | None] = {"opencl": None, "cuda": None, "cudnn": None}
    if device.type == "ocl":
        properties: Any = torch.get_device_module(device).get_device_properties(device)
        driver, _, opencl = properties.driver.partition(", ")
        return facts | {"device": f"{properties.name} ({properties.platform_name})", "driver": driver, "opencl": opencl}
    if device.type == "cuda":
        versions = {"cuda": torch.version.cuda, "cudnn": str(torch.backends.cudnn.version())}
        return facts | versions | {"device": torch.cuda.get_device_name(device), "driver": cuda_driver()}
    library = re.search(r"MKL-DNN v[\d.]+|oneDNN v[\d.]+", torch.__config__.show())
    return facts | {"device": cpu_name(), "driver": library.group(0) if library else "PyTorch's own kernels"}


def cuda_driver() -> str:
    """The version of NVIDIA's driver, or else the largest version of CUDA that it offers."""
    with contextlib.suppress(OSError):
        found = re.search(r"\d+\.\d+(\.\d+)?", Path("/proc/driver/nvidia/version").read_text())
        if found:
            return found.group(0)
    core: Any = torch._C
    return f"of CUDA {core._cuda_getDriverVersion() / 1000:g}"


def cpu_name() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
        if found:
            return found.group(1).strip()
    return platform.machine()


def autocast(device: torch.device, precision: str) -> Any:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return torch.autocast(device.type, dtype, enabled=dtype is not None)


class Side:
    """One network on one side. `step()` runs it once without waiting: inference, or forward, loss, backward and Adam.
    With `from_host`, the input is on the host and each step copies it to the device first.

    `model` and `optimizer` are those that the step uses, `way` says in which way it runs.
    """

    def __init__(self, settings: Settings) -> None:
        set_up(settings.side, settings.threads, settings.precision, settings.freezing and settings.mode == "inference")
        self.settings, self.kind = settings, sides.SIDES[settings.side]
        self.device = device_of(settings.side, settings.ocl_device)
        torch.manual_seed(0)
        self.host_model, self.example, classes = networks.make(settings.name, settings.batch, settings.size)
        rows = settings.batch if self.example.is_floating_point() else self.example.numel()
        self.labels = torch.randint(classes, (rows,))
        self.ways = self.possible_ways()
        self.ways_ms: dict[str, float] = {}
        self.busy_cores = self.page_faults = NAN
        self.use(self.ways[0])

    def possible_ways(self) -> list[Way]:
        given = self.settings
        has_images = self.example.dim() == 4
        formats = (
            [given.format] if given.format else [f for f in self.kind.formats if has_images or f == sides.CONTIGUOUS]
        )
        optimizers = [given.optimizer] if given.optimizer else list(self.kind.optimizers)
        return [Way(f, o) for f in formats for o in (optimizers if given.mode == "training" else [""])]

    def use(self, way: Way) -> None:
        """Makes `step` run in this way, with a new copy of the weights. The first step compiles."""
        self.way = way
        layout = torch.channels_last if way.format == sides.CHANNELS_LAST else torch.preserve_format
        model: Any = copy.deepcopy(self.host_model).train(self.settings.mode == "training")
        self.model: torch.nn.Module = model.to(self.device).to(memory_format=layout)
        x, y = self.example.to(self.device), self.labels.to(self.device)
        if way.format == sides.CHANNELS_LAST:
            x = x.contiguous(memory_format=layout)
        self.inputs = (x.cpu(), y.cpu()) if self.settings.from_host else (x, y)
        self.optimizer: torch.optim.Optimizer | None = None
        self.step = self.inference_step() if self.settings.mode == "inference" else self.training_step()

    def compiled(self, function: Any) -> Any:
        kind = self.kind
        return torch.compile(function, backend=kind.backend, mode=kind.mode) if kind.backend else function

    def inference_step(self) -> Callable[[], Any]:
        forward, x, device, precision = self.compiled(self.model), self.inputs[0], self.device, self.settings.precision

        def step() -> Any:
            self.begin_step()
            with torch.no_grad(), autocast(device, precision):
                return forward(x.to(device))

        return step

    def training_step(self) -> Callable[[], Any]:
        model, device, precision, inputs = self.model, self.device, self.settings.precision, self.inputs
        arguments: dict[str, Any] = sides.ADAM[self.way.optimizer]
        optimizer = self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **arguments)

        alone = self.settings.model_alone
        forward = self.compiled(model) if alone else model

        def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with autocast(device, precision):
                return F.cross_entropy(forward(x), y)

        loss = loss_of if alone else self.compiled(loss_of)
        update = optimizer.step if alone or self.way.optimizer == "fused" else self.compiled(optimizer.step)

        def step() -> Any:
            self.begin_step()
            optimizer.zero_grad(set_to_none=True)
            loss(*(t.to(device) for t in inputs)).backward()
            update()

        return step

    def begin_step(self) -> None:
        # Results of the last step may be overwritten now, for CUDA graphs.
        if self.kind.backend == "inductor":
            torch.compiler.cudagraph_mark_step_begin()

    def timed(self) -> float:
        """Seconds of one step, including the wait for its device."""
        return seconds_of(self.step, self.device)

    def choose(self) -> dict[str, str]:
        """Measures all ways and goes on in the fastest. There is only one network in memory at a time. Returns the way."""
        if len(self.ways) > 1:
            for way in self.ways:
                if way != self.way:
                    self.change_to(way)
                seconds = min(self.timed() for _ in range(2))
                calls = max(2, min(20, int(0.5 / seconds)))
                self.ways_ms[" ".join(way).strip()] = 1e3 * min(self.timed() for _ in range(calls))
            fastest = min(self.ways, key=lambda way: self.ways_ms[" ".join(way).strip()])
            if fastest != self.way:
                self.change_to(fastest)
                self.timed()
        return self.way._asdict()

    def change_to(self, way: Way) -> None:
        # What was compiled may hold weights.
        del self.model, self.optimizer, self.step
        torch._dynamo.reset()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.use(way)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def round(self) -> float:
        """Median time of some steps in seconds, after one step that wakes threads and fills caches. The peak of memory counts
        from here, without what compiling and choosing kernels took."""
        self.timed()
        if self.device.type != "cpu":
            torch.get_device_module(self.device).reset_peak_memory_stats(self.device)
        cpu, faults, start = time.process_time(), page_faults(), time.perf_counter()
        times = [self.timed() for _ in range(self.settings.calls)]
        self.busy_cores = (time.process_time() - cpu) / (time.perf_counter() - start)
        self.page_faults = (page_faults() - faults) / len(times)
        return statistics.median(times)

    def facts(self) -> dict[str, object]:
        """What is known of the side after its rounds:

        - `device`: its name.
        - `peak_mib`: peak memory of the device in the steps of the last round.
        - `error`: in inference, the largest difference from fp64 of four examples, divided by their largest output.
        - `busy_cores`: CPU time of the process divided by the time of the last round.
        - `page_faults`: page faults of one step of the last round that the system served without reading a file.
        - `settings`: how the side ran. `ways_ms`: what choose() has measured.
        - `build`: the code of this project that ran, "" if it is unknown.
        - `launches`: number of kernels of ocl in one step. `eager_kernels`: of these, those that no compiled graph launched.
        """
        if self.device.type == "cpu":
            # The CPU's allocator keeps no statistics.
            peak = NAN
        else:
            module: Any = torch.get_device_module(self.device)
            peak = module.max_memory_allocated(self.device) / 2**20
        settings = settings_in_effect(self.settings.side, self.device, self.settings.precision)
        found = {"device": settings["device"], "peak_mib": peak, "error": self.error(), "ways_ms": self.ways_ms,
                 "busy_cores": self.busy_cores, "page_faults": self.page_faults,
                 "settings": settings | self.way._asdict()}  # fmt: skip
        if self.device.type == "ocl":
            from torch_ocl_compile import identity

            with torch.ocl.record() as launches:  # type: ignore[attr-defined]
                self.step()
                wait(self.device)
            eager = sum(launch.graph.startswith("eager_") for launch in launches)
            found |= {"build": identity.of_code(), "launches": len(launches), "eager_kernels": eager}
        return found

    def error(self) -> float:
        """Compares the first four images or sequences: in fp64, a large batch takes a CPU longer than all that is timed."""
        if self.settings.mode != "inference":
            return NAN
        with torch.no_grad():
            example = self.example[:4].double() if self.example.is_floating_point() else self.example[:4]
            exact = copy.deepcopy(self.host_model).double().eval()(example)
        return float(((self.step()[: len(exact)].double().cpu() - exact).abs().max() / exact.abs().max()).item())

    def builds(self) -> dict[str, float]:
        """Counters of the kernels that this process has compiled. Empty for sides that do not count them."""
        if self.device.type != "ocl":
            return {}
        from torch_ocl_compile import _C

        counters = _C.exec.build_counters()
        return {key: counters[key] for key in ("built", "by_workers", "build_seconds")}


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
