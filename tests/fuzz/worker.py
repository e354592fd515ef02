# tests/fuzz/worker.py: a process that generates and checks programs; it reads requests and writes answers, one per line.
"""A request is {"seed", "batch"} for all programs of a batch, with "member" for one of them, or {"program"} for a given
one.

Answers are lists of outcomes. If a device or a driver crashes this process, one request is lost (runner.py).
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

# The number of bytes that choices are read from; a program uses a few hundred.
OVERHEAD = 64 * 1024
BROKEN = "the fuzzer fails"
# The number of programs that are compiled as one.
TOGETHER = 5


def batch_size(seed: str, batch: int) -> int:
    """Returns how many programs a batch has. It is derived from the seed as its settings are."""
    return 1 if random.Random(f"{seed}/{batch}/size").random() < 0.25 else TOGETHER


class Source:
    """Generates programs from seed and batch: the same on every machine with the same torch and Hypothesis."""

    def __init__(self) -> None:
        self.settings: Any = None
        self.alone = False
        self.draw_settings, self.draw_program = (
            self._chooser(self.drawn_settings()),
            self._chooser(self.drawn_program()),
        )

    def drawn_settings(self) -> Any:
        from hypothesis import strategies as st

        from tests.fuzz.generate import settings_of
        from tests.fuzz.maker import Draw

        return st.composite(lambda draw: settings_of(Draw(draw)))()

    def drawn_program(self) -> Any:
        """Returns a Hypothesis strategy for programs with the current settings."""
        from hypothesis import strategies as st

        from tests.fuzz.generate import draw_program

        return st.composite(lambda draw: draw_program(draw, self.settings, alone=self.alone))()

    def _chooser(self, strategy: Any) -> Callable[[bytes], Any]:
        """Returns a function that returns what Hypothesis draws from given bytes."""
        from hypothesis import HealthCheck, given, settings

        found: list[Any] = []

        @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(strategy)
        def take(value: Any) -> None:
            found.append(value)

        read = take.hypothesis.fuzz_one_input

        def choose(data: bytes) -> Any:
            found.clear()
            read(data)
            return found[0] if found else None

        return choose

    def batch(self, seed: str, batch: int) -> list[Any]:
        return [program for _, program in self.with_bytes(seed, batch)]

    def with_bytes(self, seed: str, batch: int) -> list[tuple[bytes, Any]]:
        """Returns the programs of a batch, each with the bytes that it was drawn from, and sets the settings that they
        share."""
        generator = random.Random(f"{seed}/{batch}")
        size = batch_size(seed, batch)
        self.settings, self.alone = self.draw_settings(generator.randbytes(256)), size == 1
        found: list[tuple[bytes, Any]] = []
        while len(found) < size:
            data = generator.randbytes(OVERHEAD)
            made = self.draw_program(data)
            if made is not None:
                found.append((data, made))
        return found


def answer(request: dict[str, Any], source: Source, device: str) -> list[dict[str, Any]]:
    from tests.fuzz.check import OK, check
    from tests.fuzz.program import Program, merge

    if "ready" in request:  # Asked whether a worker can start.
        return [{"kind": OK, "text": "", "program": None}]
    if "show" in request:
        return [
            {"kind": OK, "text": "", "program": p.as_dict()} for p in source.batch(request["seed"], request["batch"])
        ]
    if "program" in request:
        program = Program.from_dict(request["program"])
        return [outcome(program, check(program, device, oracle=request["oracle"]), 0.0)]
    started = time.perf_counter()
    programs = source.batch(request["seed"], request["batch"])
    made = time.perf_counter() - started
    if "member" in request:
        programs = [programs[request["member"]]]
    if len(programs) > 1:
        whole = merge(programs)
        verdict = check(whole, device, oracle=False)
        if verdict.kind == OK:
            return [outcome(p, verdict, made / len(programs)) for p in programs]
        parts = [outcome(p, check(p, device), made / len(programs)) for p in programs]
        # The programs fail only when they are compiled together.
        if all(part["kind"] == OK for part in parts):
            return [outcome(whole, check(whole, device), made), *parts[1:]]
        return parts
    return [outcome(programs[0], check(programs[0], device), made)]


def outcome(program: Any, verdict: Any, made_s: float) -> dict[str, Any]:
    from tests.fuzz.check import OK

    return {
        "kind": verdict.kind, "text": verdict.text, "unstable": verdict.unstable, "fallbacks": verdict.fallbacks, "made_s": made_s,
        "statements": len(program.statements), "parts": program.parts(), "cpu_s": 0.0,
        "program": None if verdict.kind == OK else program.as_dict(),
    }  # fmt: skip


def prepare() -> None:
    """Switches off work that costs time and shows nothing."""
    import logging
    import warnings

    import torch
    import torch._dynamo.guards

    import torch_ocl_compile  # noqa: F401

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    # It flushes the processor's caches to time the guards, which takes 20 ms per compilation.
    if hasattr(torch._dynamo.guards, "profile_guard_manager"):
        torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0
    if planted := os.environ.get("TORCH_OCL_FUZZ_PLANT"):
        from tests.fuzz import planted as faults

        faults.plant(planted)


def main(answers: int, device: str) -> None:
    prepare()
    source = Source()
    for count, line in enumerate(sys.stdin):
        started = time.process_time()
        try:
            found = answer(json.loads(line), source, device)
        except Exception:
            found = [{"kind": BROKEN, "text": traceback.format_exc()[-1500:], "program": None}]
        found[0]["cpu_s"] = time.process_time() - started
        os.write(answers, json.dumps(found).encode() + b"\n")
        if count % 16 == 15:
            gc.collect()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
