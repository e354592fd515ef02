# tests/stress/delays.py: delays streams by some milliseconds.
from __future__ import annotations

import heapq
import itertools
import threading
import time
from typing import Any

import torch

from torch_ocl_compile import _C


class Delays:
    """Delays commands of streams: a gate blocks a stream's queue until a background thread opens it at the given
    time."""

    def __init__(self) -> None:
        self._gates: list[tuple[float, int, Any]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._open_in_time, daemon=True)
        self._thread.start()

    def hold(self, stream: torch.Stream, until: float) -> None:
        """Commands enqueued on the stream after this call start at `until`, a value of time.monotonic()."""
        gate = _C.testing.Gate(stream.device_index, stream.stream_id)
        with self._changed:
            heapq.heappush(self._gates, (until, next(self._numbers), gate))
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _open_in_time(self) -> None:
        while True:
            with self._changed:
                while not self._gates and not self._ended:
                    self._changed.wait()
                if not self._gates:
                    return
                until, _, gate = self._gates[0]
                left = until - time.monotonic()
                if left > 0 and not self._ended:
                    self._changed.wait(left)
                    continue
                heapq.heappop(self._gates)
            gate.open()
