# tests/stress/__main__.py: `python -m tests.stress --minutes 60 --devices ocl:0,ocl:1` runs random work.
"""A round has a few hundred steps in one to four threads; each result is compared with that of the same steps, run
in sequence. A failure prints the round's seed and the last steps of the thread, and exits with 1. `--seed N --rounds 1`
repeats a round."""

from __future__ import annotations

import argparse
import sys
import threading
import time
import traceback

import torch

import torch_ocl_compile  # noqa: F401
from tests import long_runs
from tests.stress.delays import Delays
from tests.stress.kernels import Kernels
from tests.stress.program import Program


class Round:
    """One round: several threads, each of which runs a program."""

    def __init__(self, seed: int, steps: int, devices: list[str], kernels: dict[str, Kernels]) -> None:
        self.delays = Delays()
        self.programs = [Program(seed * 16 + i, devices, kernels, self.delays) for i in range(1 + seed % 4)]
        self.steps = steps
        self.failures: list[str] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._work, args=(p,)) for p in self.programs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.delays.end()

    @property
    def checked(self) -> int:
        return sum(p.checked for p in self.programs)

    def _work(self, program: Program) -> None:
        try:
            for _ in range(self.steps):
                if self.failures:
                    return
                program.step()
            program.check()
        except Exception:
            last = "\n".join(f"    {line}" for line in program.log[-25:])
            self.failures.append(f"{traceback.format_exc()}\n  the thread's last steps:\n{last}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--devices", default="all", help="as ocl:0,ocl:1; all: one run over all of them together")
    parser.add_argument("--rounds", type=int, default=0, help="stop after so many rounds; 0: by the time alone")
    parser.add_argument("--steps", type=int, default=300, help="of each thread in a round")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next has the next number")
    long_runs.add_options(parser, "the round of a SEED", minutes=1.0)
    given = parser.parse_args()
    devices = (
        [f"ocl:{i}" for i in range(torch.ocl.device_count())] if given.devices == "all" else given.devices.split(",")
    )
    long = long_runs.begin("streams, threads, devices", ",".join(devices), "rounds", given)
    seed = int(long.place or (time.time() % 1_000_000 if given.seed is None else given.seed))
    long.place = str(seed)
    print(f"devices {', '.join(torch.ocl.get_device_name(d) for d in devices)}; first seed {seed}", flush=True)
    kernels = {d: Kernels(d) for d in devices}
    rounds, steps, checked = 0, 0, 0
    while not long.over() and not (given.rounds and rounds >= given.rounds):
        one = Round(seed + rounds, given.steps, devices, kernels)
        one.run()
        rounds, steps, checked = rounds + 1, steps + len(one.programs) * given.steps, checked + one.checked
        if one.failures:
            print(f"\nround of seed {seed + rounds - 1} failed after {long.seconds():.0f} s:")
            print("\n".join(one.failures))
            long.end(rounds, [f"seed {seed + rounds - 1}"], str(seed + rounds))
            return 1
        if rounds % 20 == 0:
            held = sum(torch.ocl.memory_reserved(d) for d in devices) >> 20
            print(
                f"{long.seconds():6.0f} s: {rounds} rounds, {steps} steps, {checked} values compared, {held} MiB",
                flush=True,
            )
    print(f"no difference: {rounds} rounds, {steps} steps, {checked} values compared, {long.seconds():.0f} s")
    long.end(rounds, [], str(seed + rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
