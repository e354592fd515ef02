# benchmarks/compare.py: the comparison to publish: networks on several sides, with what is needed to trust and repeat it.
"""python benchmarks/compare.py --models alexnet,resnet18 --sides eager,inductor,ocl --json run.json --plot run.png

docs/measuring.md explains the procedure, the columns and the options. Details:

The share of the roofline is the least time that the device allows, divided by the measured time. The least time follows from --flops and
--bandwidth, the network's multiply-adds (torch.utils.flop_counter, two operations each) and its least memory traffic: parameters
and inputs once, and for training Adam's seven passes over the parameters.

Weights are random, from one seed. Images are normal noise, tokens are uniform. If --merge finds a case in several files, the last file
counts."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import models
import networks
import torch

FORMAT = 1
PROTOCOLS = {"resident": {"from_host": False}, "from-host": {"from_host": True, "batch": 64}}
NAN = float("nan")


def work_of(name: str, mode: str, batch: int, size: int) -> tuple[float, float]:
    """The operations of one step, and the least number of bytes that it moves."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model, example, _ = networks.make(name, batch, size)
        if mode == "training":
            rows = batch if example.is_floating_point() else example.numel()
            loss = torch.nn.functional.cross_entropy(model(example), torch.zeros(rows, dtype=torch.int64))
            loss.backward()
        else:
            with torch.no_grad():
                model(example)
    parameters = sum(p.numel() for p in model.parameters())
    passes = 7 if mode == "training" else 1
    return counter.get_total_flops(), 4.0 * (passes * parameters + example.numel())


def roofline(row: dict, args: argparse.Namespace) -> float:
    """Least time that the device's peaks allow over the measured time; nan if no peak is given."""
    flops, moved = work_of(row["model"], row["mode"], row["batch"], args.size)
    least = [v for v in (flops / args.flops, moved / args.bandwidth) if v == v]
    return max(least) * 1e3 / row["ms"] if least else NAN


def run_networks(args: argparse.Namespace) -> list[dict]:
    rows = []
    for precision in args.precisions:
        for name in args.models:
            for mode in args.modes:
                settings = argparse.Namespace(**vars(args) | PROTOCOLS[args.protocol] | {"precision": precision})
                for row in models.compare(name, mode, settings):
                    row |= {"protocol": args.protocol, "roofline": roofline(row, args)}
                    rows.append(row)
                add_best(rows)
                for row in rows[-len(args.sides) :]:
                    print_row(row)
    return rows


def case_of(row: dict) -> tuple:
    return row["protocol"], row["precision"], row["model"], row["mode"], row["batch"]


def add_best(rows: list[dict]) -> None:
    """`against_best`: the time of the fastest other side over this one's."""
    for row in rows:
        others = [r["ms"] for r in rows if case_of(r) == case_of(row) and r["side"] != row["side"]]
        row["against_best"] = min(others) / row["ms"] if others else NAN


def print_head() -> None:
    print(f"{'network':16s} {'mode':10s} {'precision':9s} {'batch':>5s} {'side':9s} {'ms':>9s} {'spread':>7s} {'ratio':>6s} "
          f"{'to best':>7s} {'error':>8s} {'roofline':>8s}  device")  # fmt: skip


def print_row(row: dict) -> None:
    text = (f"{row['model']:16s} {row['mode']:10s} {row['precision']:9s} {row['batch']:5.0f} {row['side']:9s} {row['ms']:9.3f} "
            f"{row['spread']:7.1%} {row['ratio']:6.2f} {row['against_best']:7.2f} {row['error']:8.1e} {row['roofline']:8.1%}  "
            f"{row['device']}")  # fmt: skip
    print(text.replace("nan%", "-".rjust(4)).replace("nan", "  -"), flush=True)


def geometric_means(rows: list[dict]) -> list[dict]:
    """For each protocol, precision, mode and side: the means over networks of both ratios."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["protocol"], row["precision"], row["mode"], row["side"]), []).append(row)
    means = []
    for (protocol, precision, mode, side), members in groups.items():
        best = [r["against_best"] for r in members]
        means.append(
            {
                "protocol": protocol,
                "precision": precision,
                "mode": mode,
                "side": side,
                "networks": len(members),
                "ratio": statistics.geometric_mean(r["ratio"] for r in members),
                "against_best": NAN if any(b != b for b in best) else statistics.geometric_mean(best),
            }
        )
    return means


def print_means(rows: list[dict]) -> None:
    for m in geometric_means(rows):
        print(f"geometric mean of {m['networks']:2d}: {m['mode']:10s} {m['precision']:9s} {m['protocol']:9s} {m['side']:9s} "
              f"{m['ratio']:6.2f} to the first side, {m['against_best']:6.2f} to the best of the others".replace("nan", "  -"))  # fmt: skip


def merged(files: list[dict]) -> list[dict]:
    """Rows of all files. If several files have a case, the last one counts, with all its sides: they ran in turn, so they belong
    together."""
    cases: dict[tuple, list[dict]] = {}
    for content in files:
        own: dict[tuple, list[dict]] = {}
        for row in content["networks"]:
            own.setdefault(case_of(row), []).append(row)
        cases |= own
    return [row for rows in cases.values() for row in rows]


def read(path: Path) -> dict:
    content = json.loads(path.read_text())
    if content.get("format") != FORMAT:
        raise SystemExit(f"{path} is no result of compare.py (format {content.get('format')!r}, not {FORMAT})")
    content["networks"] = [{k: NAN if v is None else v for k, v in row.items()} for row in content["networks"]]
    return content


def write(content: dict, path: Path) -> None:
    """Writes JSON. NaN becomes null, because JSON has no NaN."""

    def plain(rows: list[dict]) -> list[dict]:
        return [{k: None if v != v else v for k, v in row.items()} for row in rows]

    settings = plain([content["settings"]])[0]
    content = content | {"settings": settings} | {k: plain(content[k]) for k in ("networks", "operations")}
    path.write_text(json.dumps(content, indent=1, allow_nan=False))


def plot(rows: list[dict], path: Path) -> None:
    """A bar chart of the speed relative to the first side, one panel for each protocol, precision and mode. Error bars: the spread."""
    try:
        import matplotlib
    except ImportError as error:
        raise SystemExit("--plot needs matplotlib: pip install 'torch-ocl-compile[bench]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[tuple, list[dict]] = {}
    for row in rows:
        panels.setdefault((row["protocol"], row["precision"], row["mode"]), []).append(row)
    widest = max(len({(r["model"], r["batch"]) for r in members}) for members in panels.values())
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(4 + 1.2 * widest, 3 * len(panels)), squeeze=False, layout="constrained"
    )
    for axis, (title, members) in zip(axes[:, 0], panels.items(), strict=True):
        cases = list(dict.fromkeys((r["model"], r["batch"]) for r in members))
        sides = list(dict.fromkeys(r["side"] for r in members))
        width = 0.8 / len(sides)
        for i, side in enumerate(sides):
            own = [r for r in members if r["side"] == side]
            places = [cases.index((r["model"], r["batch"])) + (i - (len(sides) - 1) / 2) * width for r in own]
            heights = [r["ratio"] for r in own]
            axis.bar(places, heights, width, label=side, yerr=[r["ratio"] * r["spread"] / 2 for r in own])
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xticks(range(len(cases)), [f"{model}\nbatch {batch}" for model, batch in cases])
        axis.set_ylabel(f"speed relative to {sides[0]}")
        axis.set_title(", ".join(reversed(title)))
        axis.legend()
    figure.savefig(path, dpi=120)
    print(f"plot in {path}")


def run_operations(args: argparse.Namespace) -> list[dict]:
    """Rows of ops.py, which prints its own table."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "ops.json"
        command = [sys.executable, str(Path(__file__).with_name("ops.py")), "--groups", ",".join(args.ops)]
        command += ["--sides", ",".join(s for s in args.sides), "--json", str(result), "--threads", str(args.threads)]
        command += ["--batch", str(args.batch), "--rounds", str(args.rounds), "--ocl-device", args.ocl_device]
        command += ["--flops", str(args.flops), "--bandwidth", str(args.bandwidth)]
        command += ["--tf32"] if args.precisions == ["high"] else []
        subprocess.run(command, check=True)
        return json.loads(result.read_text())


def commit() -> str | None:
    """The commit that is measured, with "-dirty" for a changed working tree; None outside of a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git
        return None
    return done.stdout.strip() or None


def precisions(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [n for n in names if n not in models.PRECISIONS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(models.PRECISIONS)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models.add_arguments(parser)
    parser.set_defaults(models=[], compile_times=False)
    parser.add_argument("--precision", dest="precisions", type=precisions, default=["highest"],
                        help=models.PRECISION_HELP + "; several with commas")  # fmt: skip
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="resident",
                        help="where inputs lie: on the device, or on the host, from which each step copies a batch of 64")  # fmt: skip
    parser.add_argument("--ops", type=models.names, default=[], help="groups of ops.py to run as well")
    parser.add_argument(
        "--flops", type=float, default=NAN, help="the device's peak in this precision, operations a second"
    )
    parser.add_argument("--bandwidth", type=float, default=NAN, help="the device's copy bandwidth, bytes a second")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="earlier results to print and plot")
    parser.add_argument("--plot", type=Path, help="write a plot to this file (needs matplotlib)")
    args = parser.parse_args()
    if not (args.models or args.ops or args.merge):
        parser.error("give --models, --ops or --merge")

    earlier = [read(path) for path in args.merge]
    settings = {
        k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k not in ("merge", "json", "plot")
    }
    result = {"format": FORMAT, "when": time.strftime("%Y-%m-%d %H:%M"), "host": platform.platform(), "torch": torch.__version__,
              "commit": commit(), "settings": settings, "networks": [], "operations": []}  # fmt: skip
    if args.models:
        batch = PROTOCOLS[args.protocol].get("batch", args.batch)
        print(f"torch {torch.__version__}; protocol {args.protocol}, batch {batch}, images {args.size} x {args.size}, {args.threads} CPU "
              f"threads; a warm-up round, then {args.rounds} interleaved rounds of {args.calls} calls, each waited for; medians; random "
              "weights and inputs from one seed")  # fmt: skip
    print_head()
    for content in earlier:
        for row in content["networks"]:
            print_row(row)
    if args.models:
        result["networks"] = run_networks(args)
    rows = merged([*earlier, result])
    print_means(rows)
    if args.ops:
        result["operations"] = run_operations(args)
    if args.json:
        write(result | {"networks": rows}, args.json)
    if args.plot:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
