# benchmarks/layers.py: the time of a network by kind of layer, for eager PyTorch (oneDNN, cuDNN) and ocl in the same run.
"""python -m benchmarks.layers --models resnet50,vgg16 --modes inference,training

Each side runs in a process of its own, as in `python -m benchmarks models`, and each records one step per round. The table
has the fastest of --rounds for each side. Its rows are convolutions by filter size, matrix products, the rest (norms,
activations, pools, loss, optimizer, packing), and the host: the time in which no operation runs. For both sides, the
rows add up to `all`, the time of the recorded step on the clock of the host. `without recording` is the time of a
step that is not recorded. GFLOP/s count the operations of direct convolution. ocl fuses activations and residual
additions into convolutions, so their time is in that row; for eager it is in the row "rest".
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from benchmarks import turns
from benchmarks.harness.layer_times import HOST
from benchmarks.harness.models import NetworkSettings
from benchmarks.harness.results import settings_text, way_of

SIDES = ["eager", "ocl"]


def measure(name: str, mode: str, rounds: int, settings: NetworkSettings) -> dict[str, dict[str, Any]]:
    """Returns for each side the rows of its fastest step, and "facts": the versions and settings of the side."""
    best: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        processes = {side: stack.enter_context(settings.process(side, name, mode)) for side in settings.sides}
        for process in processes.values():
            process.ask("choose")
            process.ask("round")
        for _ in range(rounds):
            for side, process in processes.items():
                process.ask("round")
                found = process.ask("layers")
                if side not in best or sum(found["rows"].values()) < sum(best[side]["rows"].values()):
                    best[side] = found
        for side, process in processes.items():
            best[side]["facts"] = process.ask("facts")
    return best


def report(name: str, mode: str, best: dict[str, dict[str, Any]]) -> None:
    eager, ocl = (best[side]["rows"] for side in SIDES)
    flops = best["eager"]["flops"] | best["ocl"]["flops"]
    print(
        f"\n{name} {mode:22s} {'eager ms':>9s} {'ocl ms':>9s} {'ratio':>6s} {'eager GFLOP/s':>14s} {'ocl GFLOP/s':>12s}"
    )
    rows = sorted(set(eager) | set(ocl), key=lambda row: (row == HOST, -eager.get(row, 0.0)))
    times = {row: (eager.get(row, 0.0), ocl.get(row, 0.0)) for row in rows}
    times["all"] = sum(eager.values()), sum(ocl.values())
    times["without recording"] = best["eager"]["plain_ms"], best["ocl"]["plain_ms"]
    for row, (a, b) in times.items():
        line = f"  {row:26s} {a:9.1f} {b:9.1f} {a / b if b else float('nan'):6.2f}"
        if flops.get(row) and a and b:
            line += f" {flops[row] / a / 1e6:14.0f} {flops[row] / b / 1e6:12.0f}"
        print(line)
    for side, found in best.items():
        print(f"  {side}: {way_of(found['facts'])}; {settings_text(found['facts']['settings'])}", flush=True)


def main() -> None:
    args = turns.parser_of_networks(__doc__, ["resnet50", "vgg16"], ["inference", "training"], [], 3).parse_args()
    file, settings = turns.ResultFile("layers", args), turns.settings_of(args, sides=SIDES, calls=1)
    for name in args.models:
        for mode in args.modes:
            best = measure(name, mode, args.rounds, settings)
            report(name, mode, best)
            for side, found in best.items():
                facts = found.pop("facts")
                file.add(
                    {
                        "model": name,
                        "mode": mode,
                        "side": side,
                        "batch": args.batch,
                        **found,
                        "settings": facts["settings"],
                    }
                )


if __name__ == "__main__":
    main()
