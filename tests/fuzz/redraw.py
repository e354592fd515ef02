# tests/fuzz/redraw.py: lets Hypothesis redraw a failing program with smaller choices, while it fails in the same way.
"""This is the first of two steps of shrinking; shrink.py then removes what choices cannot remove."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.fuzz.program import Program
from tests.fuzz.worker import Source


class StillFails(Exception):
    pass


class OutOfTime(KeyboardInterrupt):
    """Ends Hypothesis at once: it does not catch a KeyboardInterrupt."""


def redraw(
    source: Source, seed: str, batch: int, member: int, fails: Callable[[Program], bool], seconds: float
) -> Program | None:
    """Returns the smallest failing program that Hypothesis finds within `seconds`; None if what it draws does not fail."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.database import InMemoryExampleDatabase

    data, _ = source.with_bytes(seed, batch)[member]
    until = time.monotonic() + seconds
    known: dict[Program, bool] = {}

    def check(program: Program) -> None:
        if program not in known:
            if time.monotonic() > until:
                raise OutOfTime
            known[program] = fails(program)
        if known[program]:
            raise StillFails

    test: Any = settings(
        database=InMemoryExampleDatabase(), deadline=None, phases=[Phase.reuse, Phase.shrink], print_blob=False,
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )(given(source.drawn_program())(check))  # fmt: skip
    for run in (lambda: test.hypothesis.fuzz_one_input(data), test):
        try:
            run()
        except (Exception, OutOfTime):  # StillFails, or the exceptions that Hypothesis derives from it.
            continue
    failing = [program for program, failed in known.items() if failed]
    return min(failing, key=lambda p: (len(p.statements), len(p.inputs), len(p.source())), default=None)
