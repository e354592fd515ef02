# benchmarks/harness/memory_peak.py: what the peak memory of one step of a side consists of.
"""One step runs while the allocator records every block. Replaying the record finds the moment of the peak, and the blocks
that were held at this moment. The parts of the peak:

- weights (parameters and buffers), gradients, optimizer state, input: blocks of tensors of the program.
- saved tensors, results, arena, packed weights: blocks of compiled graphs of ocl, by the purpose that it records.
- activations: other blocks that were allocated in the step. PyTorch does not tell which of them backward needs.
- held between steps: other blocks that were there before the step, such as workspaces of cuBLAS and pools of CUDA graphs.
- padding: what the allocator adds to the sizes of its blocks, where the record has the sizes without it.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from benchmarks.harness.side import Side

HOLDERS = 12  # Number of the largest holders that are reported.
# Beginning of the purpose that ocl records -> part of the peak.
PURPOSES = {
    "intermediate results of ": "arena",
    "packed weights of ": "packed weights",
    "results of forward": "saved tensors",
    "results of backward": "gradients",
    "results of ": "results",
}


@dataclass(eq=False)
class Block:
    """A block of device memory from its allocation to its end."""

    bytes: int
    frames: list[dict[str, Any]] = field(default_factory=list)
    is_old: bool = False  # It was there before the step.

    @property
    def purpose(self) -> str:
        """What ocl allocated it for. "" if that is not known."""
        frame = self.frames[0] if self.frames else {}
        return str(frame["name"]) if frame.get("filename") == "torch_ocl_compile" else ""

    def place(self) -> str:
        """The innermost line outside of PyTorch that allocated it."""
        for frame in self.frames:
            if "/torch/" not in frame["filename"] and "/torch_ocl_compile/" not in frame["filename"]:
                return f"{frame['filename'].rsplit('/', 1)[-1]}:{frame['line']} {frame['name']}"
        return "not recorded"


def measure(side: Side) -> dict[str, Any]:
    """Runs steps of a side. Returns the bytes of the peak, of its parts, and its largest holders."""
    device, module = side.device, torch.get_device_module(side.device)
    graphs = run_and_explain(side)
    for _ in range(2):
        side.timed()
    gc.collect()
    index = device.index or 0
    module.memory._record_memory_history(max_entries=1_000_000)
    before = module.memory._snapshot()
    first_event = len(before["device_traces"][index])
    module.reset_peak_memory_stats(device)
    side.timed()
    events = module.memory._snapshot()["device_traces"][index][first_event:]
    module.memory._record_memory_history(None)
    old = blocks_before(before, index, sizes="size" if device.type == "ocl" else "requested_size")
    at_peak, at_end = replay(old, events)
    owners = {id(at_end[address]): owner for address, owner in owned(side) if address in at_end}
    peak = module.max_memory_allocated(device)
    parts, holders = parts_of(at_peak, owners)
    parts["padding"] = peak - sum(parts.values())
    return {"peak_bytes": peak, "reserved_bytes": module.max_memory_reserved(device), "parts": parts, "holders": holders,
            "tensors": graph_tensors(graphs, {block.purpose for block in at_peak})}  # fmt: skip


def run_and_explain(side: Side) -> list[Any]:
    """Compiles the network again and runs one step. Returns the graphs of ocl with their tensors."""
    if side.device.type != "ocl":
        side.timed()
        return []
    from torch_ocl_compile.report import watch

    with watch("", timing=False) as found:
        side.change_to(side.way)
        side.timed()
    return found.explanation.graphs


def blocks_before(snapshot: dict[str, Any], index: int, sizes: str) -> dict[int, Block]:
    """Address -> block, for the blocks that tensors hold. `sizes`: the key of the sizes that the events have, too."""
    found = {}
    for segment in (s for s in snapshot["segments"] if s["device"] == index):
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                found[block["address"]] = Block(block[sizes], block["frames"], is_old=True)
    return found


def replay(old: dict[int, Block], events: list[dict[str, Any]]) -> tuple[list[Block], dict[int, Block]]:
    """Returns the blocks that are held when their sum is largest, and the blocks at the end by address."""
    held, total = dict(old), sum(block.bytes for block in old.values())
    most, at_peak = total, list(held.values())
    is_growing = False
    for event in [*events, {"action": "end"}]:
        if event["action"] == "alloc":
            held[event["addr"]] = Block(event["size"], event["frames"])
            total += event["size"]
            is_growing = True
            continue
        # A peak ends with the first free after it.
        if is_growing and total > most and event["action"] in ("free_requested", "end"):
            most, at_peak, is_growing = total, list(held.values()), False
        if event["action"] == "free_requested" and event["addr"] in held:
            total -= held.pop(event["addr"]).bytes
    return at_peak, held


def owned(side: Side) -> Iterator[tuple[int, tuple[str, str]]]:
    """The address, part and name of each tensor that the program holds."""
    tensors = [("weights", name, t) for name, t in [*side.model.named_parameters(), *side.model.named_buffers()]]
    names: dict[Any, str] = {parameter: name for name, parameter in side.model.named_parameters()}
    tensors += [("gradients", f"{name}.grad", p.grad) for p, name in names.items() if p.grad is not None]
    if side.optimizer is not None:
        for parameter, state in side.optimizer.state.items():
            tensors += [("optimizer state", f"{names[parameter]}, {key}", t) for key, t in state.items()]
    tensors += [("input", f"input {i}", t) for i, t in enumerate(side.inputs)]
    for part, name, tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.device.type == side.device.type:
            yield tensor.untyped_storage().data_ptr(), (part, name)


def parts_of(at_peak: list[Block], owners: dict[int, tuple[str, str]]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Returns the bytes of each part, and the largest holders."""
    sums: dict[str, int] = defaultdict(int)
    holders: dict[tuple[str, str], list[int]] = defaultdict(list)
    for block in at_peak:
        part, name = owners.get(id(block)) or part_and_name(block)
        sums[part] += block.bytes
        holders[part, name].append(block.bytes)
    largest = sorted(holders.items(), key=lambda item: -sum(item[1]))[:HOLDERS]
    rows = [{"part": part, "name": name, "bytes": sum(sizes), "blocks": len(sizes)} for (part, name), sizes in largest]
    return dict(sorted(sums.items(), key=lambda item: -item[1])), rows


def part_and_name(block: Block) -> tuple[str, str]:
    """The part and name of a block that no tensor of the program owns."""
    for beginning, part in PURPOSES.items():
        if block.purpose.startswith(beginning):
            return part, block.purpose
    return ("held between steps" if block.is_old else "activations"), block.purpose or block.place()


def graph_tensors(graphs: list[Any], purposes: set[str]) -> list[dict[str, Any]]:
    """The largest tensors in those blocks of graphs of ocl that are held at the peak: results, packed parameters, and what
    the arena holds when it is fullest. A workspace of a kernel is called "scratch"."""
    found = []
    for graph in graphs:
        kinds = {"result": f"results of {graph.label}", "intermediate": f"intermediate results of {graph.label}"}
        kinds["scratch"] = kinds["intermediate"]
        kinds["packed parameter"] = f"packed weights of {graph.label}"
        for tensor in graph.memory.tensors:
            if kinds.get(tensor.what) in purposes:
                found.append({"graph": graph.label, "what": tensor.what, "tensor": tensor.tensor, "bytes": tensor.bytes,
                              "op": tensor.op, "line": tensor.line})  # fmt: skip
    return sorted(found, key=lambda row: -row["bytes"])[:HOLDERS]
