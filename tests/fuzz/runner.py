# tests/fuzz/runner.py: keeps worker processes busy with batches of programs; a crash or hang costs one program only.
from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.program import TORCH
from tests.fuzz.worker import batch_size
from tests.worker_process import WorkerProcess

CRASH, TIMEOUT = "crash", "timeout"
Outcome = dict[str, Any]


class Worker(WorkerProcess):
    """A process of worker.py. It is restarted when it has died or grown too large."""

    def __init__(self, device: str, limit_s: float, log: Path, largest_mb: int = 6000) -> None:
        super().__init__("tests.fuzz.worker", [device], log)
        self.errors, self.limit_s, self.largest_mb = log, limit_s, largest_mb

    def ask(self, request: dict[str, Any], limit_s: float = 0) -> list[Outcome]:
        line = self.exchange(json.dumps(request).encode(), limit_s or self.limit_s)
        if line:
            if self.megabytes() > self.largest_mb:
                self.stop()
            found: list[Outcome] = json.loads(line)
            return found
        hung = line is None
        code = None if hung or self.process is None else self.process.wait()
        self.stop()
        if hung:
            return [{"kind": TIMEOUT, "text": f"no answer within {limit_s or self.limit_s:.0f} s", "program": None}]
        return [{"kind": CRASH, "text": f"the process ended ({code}): {self._last_words()}", "program": None}]

    def _last_words(self) -> str:
        lines = self.errors.read_text(errors="replace").splitlines()
        fatal = next((i for i, line in enumerate(lines) if "Fatal" in line or "terminate" in line), len(lines))
        return " | ".join(line.strip() for line in lines[fatal : fatal + 6])[:500]

    def megabytes(self) -> int:
        """Returns the memory of the process; 0 if the system does not report it."""
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) if self.process else 0
        except OSError:
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE") >> 20


@dataclass
class Run:
    """What to run: the programs `first` to `first + count` of a seed, in whole batches."""

    seed: str
    count: int
    device: str
    jobs: int
    out: Path
    first: int = 0
    limit_s: float = 120.0
    # The run begins no batch after this time; 0: it goes on to the end.
    seconds: float = 0.0
    most_mb: int = field(default=0)
    # The first batch that did not run.
    next: int = field(default=0)

    def batches(self) -> list[int]:
        found, programs, batch = [], 0, self.first
        while programs < self.count:
            found.append(batch)
            programs += batch_size(self.seed, batch)
            batch += 1
        return found

    def outcomes(self) -> Iterator[Outcome]:
        """Yields the outcomes in the order in which they arrive, with "batch" and "member"."""
        done: queue.SimpleQueue[list[Outcome] | BaseException | None] = queue.SimpleQueue()
        batches = self.batches()
        waiting = iter(batches)
        taking = threading.Lock()
        started = time.monotonic()
        self.out.mkdir(parents=True, exist_ok=True)
        over = threading.Event()

        def take() -> int | None:
            """Returns the next batch. All batches before `self.next` have been taken."""
            with taking:
                if over.is_set() or (self.seconds and time.monotonic() - started > self.seconds):
                    return None
                batch = next(waiting, None)
                self.next = self.next if batch is None else batch + 1
                return batch

        def work(number: int) -> None:
            worker = Worker(self.device, self.limit_s, self.out / f"worker_{number}.log")
            try:
                while (batch := take()) is not None:
                    done.put(self._batch(worker, batch))
                    self.most_mb = max(self.most_mb, worker.megabytes())
                done.put(None)
            except BaseException as error:  # An error ends the run.
                done.put(error)
            finally:
                worker.stop()

        self.next = self.first
        working = min(self.jobs, len(batches))
        for number in range(working):
            threading.Thread(target=work, args=(number,), daemon=True).start()
        try:
            while working:
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                working -= found is None
                yield from found or ()
        finally:  # This also runs if the caller stops early.
            over.set()

    def _batch(self, worker: Worker, batch: int) -> list[Outcome]:
        request = {"seed": self.seed, "batch": batch}
        found = worker.ask(request)
        size = batch_size(self.seed, batch)
        whole = found[0]
        lost = whole["kind"] in (CRASH, TIMEOUT) and whole["program"] is None
        if (
            lost
            and whole["kind"] == CRASH
            and worker.ask({**request, "show": True})[0]["kind"] == CRASH
            and worker.ask({"ready": True})[0]["kind"] != CRASH
        ):
            found = [{**whole, "kind": TORCH, "text": f"drawn on the CPU by PyTorch alone: {whole['text']}"}] * size
        elif lost and size > 1:
            found = [worker.ask({**request, "member": m})[0] for m in range(size)]
            if not any(o["kind"] in (CRASH, TIMEOUT) for o in found):
                found[0] = {**whole, "text": f"only together: {whole['text']}"}
        return [{**o, "batch": batch, "member": m if size > 1 else None} for m, o in enumerate(found)]
