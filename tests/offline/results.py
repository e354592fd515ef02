# tests/offline/results.py: compiles many kernels for many chips at the same time, and keeps what was found in a file.
"""An entry's key is a hash of the kernel's text, the chip and the version of the compiler. So a second run compiles only
what has changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.offline.compilers import CHIPS, OPTIONS, CompileError, Report, compile_text, version

KEPT = Path(__file__).resolve().parents[2] / "build/offline/results.json"
SECONDS_BETWEEN_WRITES = 60


class Results:
    """What is known of kernels, from a file and from this process."""

    def __init__(self, path: Path = KEPT) -> None:
        self.path, self.compiled = path, 0
        self._lock = threading.Lock()
        self._entries: dict[str, dict[str, Any]] = self._read()

    def _read(self) -> dict[str, dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            return dict(json.loads(self.path.read_text(encoding="utf-8")))
        return {}

    @staticmethod
    def key(text: str, chip: str) -> str:
        asked = f"{version(CHIPS[chip].vendor)} {' '.join(OPTIONS)}"
        return f"{hashlib.sha256(text.encode()).hexdigest()[:24]} {chip} {asked}"

    def of(self, text: str, chip: str) -> Report | str:
        """Returns the report of the kernel in `text`, or the compiler's log if it does not build. KeyError if nobody asked."""
        entry = self._entries[self.key(text, chip)]
        return str(entry["error"]) if "error" in entry else Report(**entry["report"])

    def knows(self, text: str, chip: str) -> bool:
        return self.key(text, chip) in self._entries

    def add(self, cases: Iterable[tuple[str, str]], jobs: int, progress: bool = False) -> None:
        """Compiles texts, each for a chip, unless that is known. `jobs`: compilers that run at the same time."""
        wanted = {self.key(text, chip): (text, chip) for text, chip in cases}
        todo = {key: case for key, case in wanted.items() if key not in self._entries}
        begun = written = time.monotonic()
        with ThreadPoolExecutor(jobs) as pool:
            running = {pool.submit(self._compile, text, chip): key for key, (text, chip) in todo.items()}
            try:
                for count, done in enumerate(as_completed(running), 1):
                    self._entries[running[done]] = done.result()
                    self.compiled += 1
                    if time.monotonic() - written > SECONDS_BETWEEN_WRITES or count == len(todo):
                        self.write()
                        written = time.monotonic()
                        if progress:
                            print(
                                f"{count} of {len(todo)} compiled in {written - begun:.0f} s",
                                file=sys.stderr,
                                flush=True,
                            )
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    @staticmethod
    def _compile(text: str, chip: str) -> dict[str, Any]:
        begun = time.monotonic()
        try:
            reports = compile_text(text, CHIPS[chip])
            if len(reports) > 1:
                raise CompileError(f"the program has {len(reports)} kernels, and one was expected")
            entry: dict[str, Any] = {"report": asdict(reports[0])}
        except (CompileError, subprocess.TimeoutExpired) as error:
            entry = {"error": str(error)}
        return {**entry, "seconds": round(time.monotonic() - begun, 2), "day": time.strftime("%Y-%m-%d")}

    def write(self) -> None:
        """Adds what this process knows to the file. Another process may have added to it in the meantime."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._entries = {**self._read(), **self._entries}
        new = self.path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(self._entries, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(new, self.path)
