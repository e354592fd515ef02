# tests/device/distributed/distributed_world.py: starts a group of processes, which run checks by name and report the result of
# each.
"""Starting processes takes most of the time of a test. So one group of processes runs all checks of a module in turn.

`python distributed_world.py MODULE RANK SIZE DEVICE FOLDER CHECKS` is one process. A check is a function of MODULE
whose name begins with `check_`, with an argument of class Rank. CHECKS is a list with commas; empty: all checks."""

import datetime
import faulthandler
import importlib
import json
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from tests import fork_server

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TIMEOUT = 20  # seconds until a collective fails


@dataclass
class Rank:
    rank: int
    size: int
    device: torch.device
    folder: Path  # for files that all ranks share

    @property
    def uses_nccl(self):
        """True if the default group uses NCCL, or its stand-in."""
        from torch_ocl_compile import _C

        return _C.distributed.uses_nccl(dist.group.WORLD.group_name)


def run_world(module, devices, folder, checks=None, limit=300, of_rank=None, **env):
    """Starts a process for each device and waits for all of them. Returns {check: text of its failures, "" if it
    passed}.

    `of_rank(rank)` gives environment variables of one rank."""
    folder.mkdir(parents=True, exist_ok=True)
    processes = []
    for rank, device in enumerate(devices):
        command = [
            str(HERE / "distributed_world.py"),
            module,
            str(rank),
            str(len(devices)),
            str(device),
        ]
        path = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
        with open(folder / f"log{rank}", "w") as log:
            arguments = [*command, str(folder), ",".join(checks or [])]
            variables = {**os.environ, "PYTHONPATH": path, **env, **(of_rank(rank) if of_rank else {})}
            processes.append(fork_server.start(arguments, variables, stdout=log.fileno(), stderr=log.fileno()))
    try:
        statuses = [process.wait(timeout=limit) for process in processes]
    finally:
        for process in processes:
            process.kill()
    outcome = {}
    for rank, status in enumerate(statuses):
        results = folder / f"results{rank}.json"
        assert results.exists(), f"rank {rank} ended with {status}: " + (folder / f"log{rank}").read_text()[-3000:]
        for check, failure in json.loads(results.read_text()).items():
            outcome[check] = outcome.get(check, "") + (f"rank {rank}: {failure}\n" if failure else "")
    return outcome


def check_names(module):
    return [name for name in vars(importlib.import_module(module)) if name.startswith("check_")]


def main():
    module, rank, size, device, folder, chosen = sys.argv[1:]
    faulthandler.dump_traceback_later(280, exit=True)
    import torch_ocl_compile

    torch.set_num_threads(1)
    if os.environ.get("OCL_TESTS_COPY_HOST_MEMORY"):
        torch_ocl_compile._C.distributed.set_host_mapping(False)
    me = Rank(int(rank), int(size), torch.device(device), Path(folder))
    torch.ocl.set_device(me.device)
    store = "file://" + str(me.folder / "store")
    seconds = datetime.timedelta(seconds=TIMEOUT)
    dist.init_process_group(init_method=store, rank=me.rank, world_size=me.size, timeout=seconds)
    checks = importlib.import_module(module)
    results = {}
    for name in chosen.split(",") if chosen else check_names(module):
        torch.manual_seed(0)
        try:
            getattr(checks, name)(me)
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()[-3000:]
        (me.folder / f"results{me.rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
