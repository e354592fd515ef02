# torch_ocl_compile/compile/check.py: the option check: compares the results of every launch with the interpreter's.
"""csrc/exec calls a Checker before and after each step of a plan. Before a launch it copies the memory that the launch may
touch. Afterwards it computes the nodes of the launch from these copies, in fp64 and with a bound of the error of each element
(reference/error_bounds.py), and compares what the launch stored. So errors do not pile up over launches, and the first kernel that
is wrong is named.

Some values are in no memory that a launch reads: a template may read a packed copy of its operand, and the operand itself may
have been in registers only. `known` has them: what each buffer held when it was last read or written, or the values that the
interpreter expected."""

from __future__ import annotations

import concurrent.futures
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.compile.check_report import Compared, difference, save
from torch_ocl_compile.errors import KernelResultError
from torch_ocl_compile.reference.bounded import BoundedRun, Known
from torch_ocl_compile.reference.error_bounds import to_wide, unknown_where
from torch_ocl_compile.reference.scalar_ops import OPS
from torch_ocl_compile.reference.template_bounds import merged_statistics

log = logging.getLogger(__name__)

Tensor = torch.Tensor

_pool: tuple[int, concurrent.futures.ThreadPoolExecutor] | None = None
_installed = False


def install() -> None:
    """Makes new plans with the option check have a Checker."""
    global _installed
    if not _installed:
        _C.exec.set_check_factory(Checker)
        _installed = True


def _in_own_thread(function: Callable[..., None], *args: Any) -> None:
    """Runs a step of a check in a thread of its own, where no mode of the caller (functorch, fake tensors, default
    device) reaches it.
    """
    global _pool
    if _pool is None or _pool[0] != os.getpid():
        pool = concurrent.futures.ThreadPoolExecutor(1, "ocl_check", initializer=_C.never_compile_on_this_thread)
        _pool = (os.getpid(), pool)
    _pool[1].submit(function, *args).result()


@dataclass
class Region:
    """A copy of a part of the device's memory."""

    address: int
    data: Tensor

    def has(self, address: int) -> bool:
        return self.address <= address < self.address + len(self.data)


class Checker:
    """Checks the runs of one plan."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.graph = plan.graph()
        self.nodes = list(self.graph.nodes)
        self.buffers = list(self.graph.buffers)
        self.steps: list[dict[str, Any]] = plan.steps()
        self.last_use = self._last_uses()
        self.known: dict[int, Known] = {}
        self.changed_by: dict[int, int] = {}  # The step that last wrote each buffer.
        self.regions: list[Region] = []
        self.checked = 0
        self.unchecked: Counter[str] = Counter()
        self.reported: Any = None

    def begin(self) -> None:
        self.known, self.changed_by, self.regions = {}, {}, []
        self.checked, self.unchecked = 0, Counter()

    def before(self, step: int) -> None:
        _in_own_thread(self._copy_memory, step)

    def after(self, step: int) -> None:
        _in_own_thread(self._after, step)

    def end(self) -> None:
        self.known, self.regions = {}, []
        found = (self.checked, dict(self.unchecked))
        if found != self.reported:
            self.reported = found
            log.info("%s", self.summary())

    def summary(self) -> str:
        """Returns a text such as "forward_0: 12 launches checked, 1 not: eager calls (aten.sort.default) 1"."""
        text = f"{self.plan.label}: {self.checked} launches checked, {sum(self.unchecked.values())} not"
        return text + (": " + ", ".join(f"{why} {n}" for why, n in self.unchecked.items()) if self.unchecked else "")

    # What the nodes read and write

    def _last_uses(self) -> dict[int, int]:
        """Returns for each buffer the last step whose nodes read or write it."""
        last: dict[int, int] = {}
        for step, info in enumerate(self.steps):
            for number in info["nodes"]:
                for buffer in (*reads(self.nodes[number]), *writes(self.nodes[number])):
                    last[buffer] = step
        return last

    def _name(self, buffer: int) -> str:
        return str(self.buffers[buffer].name) or f"buffer {buffer}"

    # Memory

    def _copy_memory(self, step: int) -> None:
        """Copies the memory that a launch may read or change. Buffers that share memory share a region."""
        self.regions = []
        if not self.steps[step]["launched"]:
            return
        spans = sorted(
            (p["address"], p["address"] + p["bytes"])
            for p in self.plan.launch(step)["pointers"]
            if p["address"] and p["bytes"] and not p["scratch"]
        )
        joined: list[list[int]] = []
        for start, stop in spans:
            if joined and start < joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], stop)
            else:
                joined.append([start, stop])
        self.regions = [Region(start, self.plan.copied(start, stop - start)) for start, stop in joined]

    def _region(self, address: int) -> int:
        """Returns the number of the region at an address, or -1."""
        return next((k for k, region in enumerate(self.regions) if region.has(address)), -1)

    def _extent(self, buffer: int) -> tuple[list[int], list[int], torch.dtype, int]:
        """Returns sizes, strides, dtype, and bytes in memory."""
        sizes, strides, dtype = self.plan.shape(buffer)
        last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        return sizes, strides, dtype, 0 if 0 in sizes else (last + 1) * dtype.itemsize

    def _values(self, buffer: int, copies: bool) -> Tensor:
        """Returns the contents of a buffer. If `copies`, they come from the copies that were made before the launch, as
        far as these have the buffer. Otherwise they are the contents of memory now.
        """
        sizes, strides, dtype, size = self._extent(buffer)
        if not size:
            return torch.empty(sizes, dtype=dtype)
        address = self.plan.address(buffer)
        region = self._region(address) if copies else -1
        if region >= 0:
            start = address - self.regions[region].address
            data = self.regions[region].data[start : start + size].clone()
        else:
            data = self.plan.copied(address, size)
        return data.view(dtype).as_strided(sizes, strides)

    # The check

    def _after(self, step: int) -> None:
        info = self.steps[step]
        written = list(dict.fromkeys(b for n in info["nodes"] for b in writes(self.nodes[n])))
        if not info["launched"]:
            self.unchecked[f"eager calls ({self.nodes[info['nodes'][0]].origin.op})"] += 1
            self._remember(step, written, None)
            return
        if self.plan.launch(step)["empty"]:
            return
        inputs = self._inputs(step, written)
        kernel = {
            "cores": info["level"] in ("subgroup_matrix", "warp", "warpgroup"),
            "mixed": info["template"].startswith("winograd"),
            "short": {name for name in OPS if f"op_short_{name}" in info["text"]},
        }
        run = BoundedRun(self.graph, self.plan.symbols(), inputs, **kernel)
        try:
            for number in info["nodes"]:
                run.node(self.nodes[number])
        except NotImplementedError as error:
            self.unchecked[str(error)] += 1
            self._remember(step, written, None)
            return
        results = [c for b in written if self.plan.in_memory(b) for c in self._compared(run, info, b)]
        for result in results:
            found = difference(result.got, result.expected, result.allowed)
            if found is not None:
                self._report(step, inputs, results, f"{result.name}: {found}")
        self.checked += 1
        self._remember(step, written, run)

    def _inputs(self, step: int, written: Sequence[int]) -> dict[int, Known]:
        """Returns what the nodes of a launch read, and the old contents of what they write."""
        info = self.steps[step]
        found: dict[int, Known] = {}
        read = [b for n in info["nodes"] for b in reads(self.nodes[n])]
        for buffer in dict.fromkeys([*read, *written]):
            known = self.known.get(buffer)
            given = self.buffers[buffer].is_input
            if known is None and not given:
                continue  # The launch itself makes it.
            here = self.plan.in_memory(buffer) and (self._region(self.plan.address(buffer)) >= 0 or known is None)
            if not here:
                found[buffer] = known  # type: ignore[assignment]
                continue
            values = self._values(buffer, copies=True)
            if known is not None and not given and buffer in info["reads"]:
                self._expect_unchanged(step, buffer, values, known)
            found[buffer] = Known(values, None if known is None else known.error)
            if given:
                self.known[buffer] = found[buffer]
        return found

    def _expect_unchanged(self, step: int, buffer: int, values: Tensor, known: Known) -> None:
        """Raises KernelResultError if a buffer has other contents than after the launch that wrote it."""
        found = difference(values, to_wide(known.value), known.error)
        if found is None:
            return
        writer = self.changed_by[buffer]
        raise KernelResultError(
            f"{self._name(buffer)} in {self.plan.label} was changed after step {writer} had written it, by a step before {step} "
            f"that does not write this buffer: {found}\n  where: written by {self._title(writer)}, read by {self._title(step)}\n"
            "  do:    options={'debug': True} finds kernels that store beside their buffers; report it"
        )

    def _compared(self, run: BoundedRun, info: dict[str, Any], buffer: int) -> list[Compared]:
        """Returns a buffer that a launch wrote, as it is and as it should be."""
        got, expected = self._values(buffer, copies=False), run.known[buffer]
        name = f"{self._name(buffer)}, {str(got.dtype).removeprefix('torch.')} {list(got.shape)}"
        node = next(self.nodes[n] for n in info["nodes"] if buffer in writes(self.nodes[n]))
        if node.kind == "convolve" and buffer in node.outputs[1:]:
            whole = run.known[node.outputs[0]]
            pairs = merged_statistics(got.double(), to_wide(whole.value), whole.error)
            return [Compared(f"{part} in the slices of {name}", *pair, None) for part, pair in pairs.items()]
        slices = run.size(node.sizes[0]) // self._channels(run, node) if self._is_sliced(node) else 1
        if slices > 1:  # The slices are partial results, so only their sum is compared.
            allowed = None if expected.error is None else expected.error.unflatten(0, (slices, -1)).sum(0)
            total, whole = (x.double().unflatten(0, (slices, -1)).sum(0) for x in (got, expected.value))
            return [Compared(f"the sum of the slices of {name}", total, whole, allowed, None)]
        sizes, strides, dtype, _ = self._extent(buffer)
        region = self._region(self.plan.address(buffer)) if got.numel() else -1
        layout = None
        if region >= 0:
            layout = (region, self.plan.address(buffer) - self.regions[region].address, sizes, strides, dtype)
        return [Compared(name, got, to_wide(expected.value), expected.error, layout)]

    @staticmethod
    def _is_sliced(node: Any) -> bool:
        return bool(node.kind == "convolve" and node.convolve.kind == _C.ir.ConvolveKind.kWeight)

    @staticmethod
    def _channels(run: BoundedRun, node: Any) -> int:
        return max(run.size(node.operands[1].sizes[1]), 1)

    def _remember(self, step: int, written: Sequence[int], run: BoundedRun | None) -> None:
        """Notes what the written buffers hold now, and forgets what no later step reads."""
        for buffer in written:
            self.changed_by[buffer] = step
            if self.plan.in_memory(buffer):
                values = self._values(buffer, copies=False)
                error = None if run is None else run.known[buffer].error
                unknown = None if error is None else unknown_where(torch.isinf(error))
                unwritten = unknown is not None and bool(unknown.any())
                sliced = any(n for n in self.steps[step]["nodes"] if buffer in self.nodes[n].outputs)
                self.known[buffer] = Known(values, unknown if unwritten and not sliced else None)
            elif run is not None:
                self.known[buffer] = run.known[buffer]
        self.known = {b: k for b, k in self.known.items() if self.last_use.get(b, -1) > step}

    # The report

    def _title(self, step: int) -> str:
        info = self.steps[step]
        return f"{info['kernel']} ({info['origin']})" if info["launched"] else str(info["origin"])

    def _report(self, step: int, inputs: dict[int, Known], results: Sequence[Compared], what: str) -> None:
        info = self.steps[step]
        launch = self._launch(step)
        ops = dict.fromkeys(info["ops"])
        lines = "; ".join(f"{op} ({source})" if source else op for op, source in ops if op)
        names = (self.plan.label, info["kernel"], self.plan.device_name)
        texts = {"kernel.cl": info["text"], "group.txt": self._text(step)}
        folder = save(names, launch, {self._name(b): k.value for b, k in inputs.items()}, results, texts)
        raise KernelResultError(
            f"kernel {info['kernel']} computes something else than the interpreter on {self.plan.device_name}\n"
            f"  where: step {step} of {self.plan.label}: {lines or info['origin']}\n"
            f"  what:  {what}\n"
            f"  saved: {folder}\n"
            f"  do:    run python {folder / 'rerun.py'}; report it with the folder, which contains the tensors' values"
        )

    def _launch(self, step: int) -> dict[str, Any]:
        """Returns the launch for _C.exec.launch_alone, with the memory before it."""
        info, found = self.steps[step], self.plan.launch(step)
        regions = [region.data for region in self.regions]
        pointers = []
        for p in found["pointers"]:
            region = self._region(p["address"]) if not p["scratch"] else -1
            start = p["address"] - self.regions[region].address if region >= 0 else 0
            if region < 0:  # A workspace, or a tensor without elements.
                region = len(regions)
                regions.append(torch.zeros(max(p["bytes"], 1), dtype=torch.uint8))
            pointers.append((p["slot"], region, start // p["element_bytes"] + p["offset"], p["element_bytes"]))
        return {
            "name": info["kernel"],
            "text": info["text"],
            "global": found["global"],
            "local": found["local"],
            "pointers": pointers,
            "ints": found["ints"],
            "device": self.plan.device,
            "regions": regions,
        }

    def _text(self, step: int) -> str:
        """Returns the nodes of a launch in the IR's text, and the sizes of the run."""
        sizes = ", ".join(f"s{i} = {value}" for i, value in enumerate(self.plan.symbols()))
        return (f"# {sizes}\n" if sizes else "") + str(self.plan.text(step))


def reads(node: Any) -> list[int]:
    """Returns the buffers whose values a node's result depends on."""
    loaded = [detail[0] for name, _, _, detail in node.ops if name == "load"]
    return [*loaded, *(v.buffer for v in node.operands)]


def writes(node: Any) -> list[int]:
    return [*(s.buffer for s in node.stores), *node.outputs]
