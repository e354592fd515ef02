# tests/conformance/workers.py: runs cases in separate processes, so that a crash or hang costs one case only.
"""`run_all` keeps `jobs` workers busy. A worker (this file as a program) reads lines "case direction" and answers each
with one line of JSON on the file descriptor that it was given."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.worker_process import WorkerProcess

Task = tuple[str, str]  # (case, direction)


class Worker(WorkerProcess):
    def __init__(self, arguments: Sequence[str], limit_s: float) -> None:
        super().__init__("tests.conformance.workers", arguments)
        self.limit_s = limit_s

    def run(self, task: Task) -> dict[str, Any]:
        line = self.exchange(" ".join(task).encode(), self.limit_s)
        if line:
            found: dict[str, Any] = json.loads(line)
            if "DeviceError" in found.get("reason", ""):
                # After an error of the device, its context may be unusable, so the next case gets a new process.
                self.stop()
            return found
        code = None if line is None or self.process is None else self.process.wait()
        self.stop()
        reason = f"did not end within {self.limit_s:.0f} s" if line is None else f"the process ended ({code})"
        return {"case": task[0], "direction": task[1], "status": "fail", "reason": reason, "eager": {}}


def run_all(
    tasks: Sequence[Task], arguments: Sequence[str], jobs: int, limit_s: float, seconds: float = float("inf")
) -> Iterator[dict[str, Any]]:
    """Yields the outcomes in the order in which they arrive. No task is started after `seconds`."""
    end = time.monotonic() + seconds
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    done: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # None means that a worker has ended.
    for task in tasks:
        waiting.put(task)

    def work() -> None:
        worker = Worker(arguments, limit_s)
        while True:
            try:
                if time.monotonic() > end:
                    break
                task = waiting.get_nowait()
            except queue.Empty:
                break
            done.put(worker.run(task))
        worker.stop()
        done.put(None)

    workers = min(jobs, len(tasks))
    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()
    while workers:
        outcome = done.get()
        if outcome is None:
            workers -= 1
        else:
            yield outcome


def main(answers: int, device: str, most: str) -> None:
    import torch

    import torch_ocl_compile  # noqa: F401

    # Otherwise some samples of op_db would use CUDA devices.
    torch.cuda.is_available = lambda: False
    from tests.conformance import cases

    torch.set_num_threads(1)
    for line in sys.stdin:
        case, direction = line.split()
        try:
            limit = None if most == "all" else int(most)
            outcome = cases.run(cases.find(case), direction, device, most=limit).as_dict()
        except Exception as error:
            reason = f"the runner fails: {type(error).__name__}: {cases.first_line(error)}"
            outcome = {"case": case, "direction": direction, "status": "fail", "reason": reason, "eager": {}}
        os.write(answers, json.dumps(outcome).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:4])
