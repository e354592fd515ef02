# benchmarks/distributed.py: bus bandwidth of collectives: ocl tensors, gloo on CPU tensors, and NCCL.
"""torchrun --nproc-per-node 2 -m benchmarks.distributed --save FILE prints one table, for 1 KiB to 1 GiB.

All sides run in turn for each size, so that a change of the machine's speed affects all of them. Bus bandwidth is the
bytes that a link must carry, divided by the median time. With n ranks these are 2 (n - 1) / n of the tensor's bytes for
allreduce, and (n - 1) / n of the bytes of the concatenated tensor for allgather and reduce_scatter."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from benchmarks import turns
from benchmarks.harness.side import device_facts, settings_in_effect
from benchmarks.harness.timing import seconds_of

COLLECTIVES = ("allreduce", "allgather", "reduce_scatter")
# Newer versions of torch rename these functions, and deprecate the old names.
all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def prepared(collective: str, size_bytes: int, device: str) -> tuple[Callable[[], object], float]:
    """Returns a function that calls the collective, and the bytes that a link carries. The concatenated tensor has
    `size_bytes` bytes."""
    ranks = dist.get_world_size()
    count = max(size_bytes // 4 // ranks, 1) * ranks
    whole, part = torch.ones(count, device=device), torch.ones(count // ranks, device=device)
    share = (ranks - 1) / ranks * count * 4
    if collective == "allreduce":
        return lambda: dist.all_reduce(whole, op=dist.ReduceOp.MAX), 2 * share
    if collective == "allgather":
        return lambda: all_gather(whole, part), share
    return lambda: reduce_scatter(part, whole, op=dist.ReduceOp.MAX), share


def seconds(call: Callable[[], object], device: str) -> float:
    dist.barrier()
    return seconds_of(call, torch.device(device))


def main() -> None:
    parser = turns.parser_of(__doc__, 9)
    parser.add_argument("--min-bytes", type=int, default=1 << 10)
    parser.add_argument("--max-bytes", type=int, default=1 << 30)
    arguments = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    ocl = f"ocl:{local % torch.get_device_module('ocl').device_count()}"
    torch.get_device_module("ocl").set_device(ocl)
    sides = {"ocl": ocl, "gloo (CPU)": "cpu"}
    backends = "cpu:gloo,ocl:ocl"
    if torch.cuda.is_available():
        backends += ",cuda:nccl"
        sides["NCCL (CUDA)"] = f"cuda:{local}"
    dist.init_process_group(backends)
    # The threads and precisions of the other sides are those of this process.
    common = settings_in_effect("ocl", torch.device(ocl), "highest")
    settings = {side: common | device_facts(torch.device(device)) | {"backend": side} for side, device in sides.items()}
    file = turns.ResultFile("collectives", arguments, ranks=dist.get_world_size())
    if dist.get_rank() == 0:
        print("collective      bytes       " + "".join(f"{side:>16}" for side in sides) + "   GB/s, bus")
    for collective in COLLECTIVES:
        size = arguments.min_bytes
        while size <= arguments.max_bytes:
            calls = {side: prepared(collective, size, device) for side, device in sides.items()}
            medians = turns.medians(
                {side: functools.partial(seconds, call, sides[side]) for side, (call, _) in calls.items()},
                arguments.rounds,
            )
            rates = [calls[side][1] / medians[side] / 1e9 for side in sides]
            if dist.get_rank() == 0:
                print(f"{collective:<15} {size:>11} " + "".join(f"{rate:>16.3f}" for rate in rates), flush=True)
                file.add(*({"collective": collective, "bytes": size, "side": side, "gbytes": rate, "settings": settings[side]}
                           for side, rate in zip(sides, rates, strict=True)))  # fmt: skip
            size *= 4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
