# examples/demo.py: the demo: trains a small CNN on handwritten digits with torch.compile(..., backend="ocl").
"""python examples/demo.py [--device ocl] [--epochs 20] [--output demo.png] [--json]

It trains on scikit-learn's digits, compares with eager PyTorch on the CPU, and plots loss and kernels. It needs scikit-learn and
matplotlib: `pip install torch-ocl-compile[demo]`. Ends with status 1 if the accuracy on the test images stays below 97 %. `--device cpu`
trains without OpenCL."""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ocl_compile.device.record import LaunchRecord, record

BATCH = 64
ENOUGH = 0.97  # Test accuracy from which the demo counts as passed.

# The launches of one training step: "forward", "backward" and "optimizer".
Parts = dict[str, list[LaunchRecord]]


class DigitNet(nn.Module):
    """A network with two convolutions, batch norm, pooling and dropout. Maps [n, 1, 8, 8] to [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(64)
        self.drop = nn.Dropout(0.25)
        self.fc1 = nn.Linear(64 * 4 * 4, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = F.relu(self.fc1(self.drop(x.flatten(1))))
        return self.fc2(x)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Digits:
    """Images [n, 1, 8, 8] with values from 0 to 1, and labels [n]."""

    images: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Digits:
        return Digits(self.images.to(device), self.labels.to(device))

    def __len__(self) -> int:
        return len(self.labels)


def load_digits() -> tuple[Digits, Digits]:
    """Returns the training set (four fifths) and the test set (one fifth), shuffled."""
    from sklearn.datasets import load_digits as sklearn_digits

    data = sklearn_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    split = len(labels) * 4 // 5
    train, test = order[:split], order[split:]
    return Digits(images[train], labels[train]), Digits(images[test], labels[test])


class Trainer:
    """Trains the network on one device in plain PyTorch. With `backend`, three functions are compiled: the loss of a
    batch, the optimizer's step, and the prediction. The loss also gathers the batch, so nothing runs eagerly."""

    def __init__(self, device: torch.device, data: Digits, backend: str | None) -> None:
        torch.manual_seed(0)
        self.device = device
        self.data = data.to(device)
        self.model = DigitNet().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)

        def loss_of(batch: Tensor) -> Tensor:
            return F.cross_entropy(self.model(self.data.images[batch]), self.data.labels[batch])

        def predict(images: Tensor) -> Tensor:
            return self.model(images).argmax(1)  # type: ignore[no-any-return]

        def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
            return torch.compile(function, backend=backend) if backend else function

        self.loss_of = compiled(loss_of)
        self.update = compiled(self.optimizer.step)
        self.predict = compiled(predict)

    def batches(self) -> Iterator[Tensor]:
        """Yields the batches of one epoch in random order. The last, incomplete batch is left out, as with
        DataLoader(drop_last=True).
        """
        for batch in torch.randperm(len(self.data)).split(BATCH):
            if len(batch) == BATCH:
                yield batch.to(self.device)

    def step(self, batch: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss: Tensor = self.loss_of(batch)
        loss.backward()
        self.update()
        return loss.detach()

    def recorded_step(self, batch: Tensor) -> Parts:
        """Runs a step and records the time of each kernel."""
        self.optimizer.zero_grad(set_to_none=True)
        with record(timing=True) as forward:
            loss: Tensor = self.loss_of(batch)
        with record(timing=True) as backward:
            loss.backward()
        with record(timing=True) as optimizer:
            self.update()
        return {"forward": forward, "backward": backward, "optimizer": optimizer}

    @torch.no_grad()
    def predictions(self, images: Tensor) -> Tensor:
        """Returns the predicted labels, on the CPU."""
        self.model.eval()
        labels: Tensor = self.predict(images.to(self.device)).cpu()
        self.model.train()
        return labels

    def wait(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize()


def compare_steps(trainers: list[Trainer], rounds: int = 20) -> list[float]:
    """Returns the median time of a training step in milliseconds for each trainer. The trainers are measured in turn."""
    batch = torch.arange(BATCH)
    times: list[list[float]] = [[] for _ in trainers]
    for _ in range(rounds):
        for trainer, mine in zip(trainers, times, strict=True):
            there = batch.to(trainer.device)
            # An untimed step wakes threads and fills caches after the other trainer's turn.
            trainer.step(there)
            trainer.wait()
            start = time.perf_counter()
            trainer.step(there)
            trainer.wait()
            mine.append((time.perf_counter() - start) * 1000)
    return [statistics.median(mine) for mine in times]


def kernel_table(parts: Parts) -> Any:
    """Returns a table of the launches of a step and the ops fused into them, by kind."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    launches = [launch for part in parts.values() for launch in part]
    ops = sum(launch.ops for launch in launches)
    table = Table(title=f"One training step: {ops} operations in {len(launches)} kernels", box=SIMPLE_HEAD)
    table.add_column("kernels", no_wrap=True)
    for column in (*parts, "ops", "most in one", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = []
    for kind in {launch.kind for launch in launches}:
        same = [launch for launch in launches if launch.kind == kind]
        counts = [sum(launch.kind == kind for launch in part) for part in parts.values()]
        time_us = sum(launch.time_us for launch in same)
        rows.append((time_us, kind, counts, sum(k.ops for k in same), max(k.ops for k in same)))
    for time_us, kind, counts, kind_ops, most in sorted(rows, reverse=True):
        table.add_row(kind, *(str(n or "") for n in counts), str(kind_ops), str(most), f"{time_us:,.0f} us")
    total = sum(row[0] for row in rows)
    table.add_section()
    counts = [len(part) for part in parts.values()]
    table.add_row("all", *map(str, counts), str(ops), "", f"{total:,.0f} us")
    return table


def plot(losses: list[float], parts: Parts, test: Digits, predicted: Tensor, title: str, path: str) -> None:
    """Plots the loss, some test images with predictions, and the timeline of one step's kernels, as a PNG at `path`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    figure = plt.figure(figsize=(11, 8), layout="constrained")
    figure.suptitle(title)
    rows: Any = figure.subfigures(2, 1, height_ratios=(3, 2))
    upper, lower = rows
    left, right = upper.subfigures(1, 2, width_ratios=(3, 2))

    curve = left.subplots()
    curve.plot(losses, color="C0", alpha=0.3, label="each step")
    window = 20
    smooth = [statistics.mean(losses[max(0, i - window) : i + 1]) for i in range(len(losses))]
    curve.plot(smooth, color="C0", label=f"mean of {window} steps")
    curve.set(title="training loss", xlabel="step", ylabel="cross entropy", yscale="log")
    curve.legend()

    wrong = (predicted != test.labels).nonzero().flatten().tolist()
    shown = (wrong[:5] + [i for i in range(len(test)) if i not in wrong])[:20]
    right.suptitle(f"test images: {len(wrong)} of {len(test)} misread (red: read as)", fontsize="medium")
    for axes, i in zip(right.subplots(4, 5).flat, shown, strict=True):
        axes.imshow(test.images[i, 0], cmap="gray_r")
        axes.set_title(str(predicted[i].item()), color="red" if i in wrong else "black", fontsize="small", pad=2)
        axes.axis("off")

    timeline = lower.subplots()
    times: dict[str, float] = {}
    for launch in (launch for part in parts.values() for launch in part):
        times[launch.kind] = times.get(launch.kind, 0) + launch.time_us
    kinds = sorted(times, key=lambda kind: -times[kind])
    for row, part in enumerate(parts.values()):
        origin = min((launch.start_ns for launch in part), default=0)
        for launch in part:
            begin = (launch.start_ns - origin) / 1000
            color = f"C{kinds.index(launch.kind) % 10}"
            timeline.barh(row, launch.time_us, left=begin, color=color, edgecolor="white", linewidth=0.5)
    timeline.set(title="kernels of one training step, each part from its start", xlabel="microseconds on the device")
    timeline.set_yticks(range(len(parts)), [f"{name}\n{len(part)} kernels" for name, part in parts.items()])
    timeline.invert_yaxis()
    handles = [Patch(color=f"C{i % 10}") for i in range(len(kinds))]
    timeline.legend(handles, kinds, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


@dataclass
class Result:
    """The result of the demo. Times of a step are NaN if it did not run on ocl."""

    device: str
    accuracy: float  # On the test images, 0 to 1.
    steps: int
    seconds: float
    first_seconds: float  # The first step, including compilation.
    kernels: dict[str, int]  # Number of kernels in a step: "forward", "backward", "optimizer".
    fallbacks: dict[str, int]
    plot: str
    step_ms: float = float("nan")
    eager_cpu_step_ms: float = float("nan")

    @property
    def good(self) -> bool:
        return self.accuracy >= ENOUGH


def run_demo(device: str = "ocl", epochs: int = 20, output: str = "demo.png", console: Any = None) -> Result:
    """Runs the demo and prints to a console of rich."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # torch._dynamo would warn about the profiler's marks in the optimizer.
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    ocl: Any = torch.ocl  # type: ignore[attr-defined]
    console = console or Console(highlight=False)

    def say(what: str, text: str) -> None:
        console.print(f"[bold]{what:10s}[/bold] {text}")

    where = torch.device(device)
    on_ocl = where.type == "ocl"
    if on_ocl:
        properties = ocl.get_device_properties(where)
        name = f"{properties.name} ({properties.platform_name})"
    else:
        name = "without OpenCL"
    say("device", f"{where} = {name}")
    train, test = load_digits()
    say(
        "data",
        f"{len(train) + len(test)} handwritten digits of 8 x 8: {len(train)} to train on, {len(test)} to test with",
    )
    ours = Trainer(where, train, "ocl" if on_ocl else None)
    say("model", f"CNN with {sum(p.numel() for p in ours.model.parameters()):,} parameters, batch {BATCH}, Adam")
    if on_ocl:
        ocl.reset_fallback_counts()

    start = time.perf_counter()
    first: float | None = None
    losses: list[Tensor] = []
    columns = (TextColumn("[bold]{task.fields[what]:10s}[/bold]"), BarColumn(30), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        steps = epochs * (len(train) // BATCH)
        task = progress.add_task("building kernels (only the first time)", total=steps, what="compiling")
        for epoch in range(epochs):
            for batch in ours.batches():
                losses.append(ours.step(batch))
                if first is None:
                    ours.wait()
                    first = time.perf_counter() - start
                progress.update(task, advance=1, what="training")
            progress.update(task, description=f"epoch {epoch + 1}/{epochs}, loss {losses[-1].item():.4f}")
    seconds = time.perf_counter() - start
    predicted = ours.predictions(test.images)
    reached = (predicted == test.labels).float().mean().item()
    say("trained", f"{len(losses)} steps in {seconds:.1f} s; the first, with compilation, took {first or 0:.1f} s")
    result = Result(str(where), reached, len(losses), seconds, first or 0, {}, {}, output)
    say(
        "accuracy",
        f"{reached:.2%} of the test images" + ("" if result.good else f"; below {ENOUGH:.0%}, something is wrong"),
    )

    parts: Parts = {}
    if on_ocl:
        batch = torch.arange(BATCH).to(where)
        ours.step(batch)  # After the evaluation, threads of the device sleep; the first kernel would wait for them.
        ours.wait()
        parts = ours.recorded_step(batch)
        console.print(kernel_table(parts))
        result.kernels = {name: len(part) for name, part in parts.items()}
        counts = result.fallbacks = ocl.fallback_counts()
        say("fallbacks", ", ".join(f"{op} {n} times" for op, n in counts.items()) or "none: every op ran on the device")
        eager = Trainer(torch.device("cpu"), train, None)
        ours_ms, eager_ms = compare_steps([ours, eager])
        result.step_ms, result.eager_cpu_step_ms = ours_ms, eager_ms
        threads = torch.get_num_threads()
        say("a step", f"{ours_ms:.2f} ms compiled on {where}, {eager_ms:.2f} ms eager on the CPU ({threads} threads)")
    title = f"{len(losses)} training steps on {where}, {name}: test accuracy {reached:.1%}"
    plot([loss.item() for loss in losses], parts, test, predicted, title, output)
    say("plot", output)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--epochs", type=int, default=20, help="how often each digit is seen")
    parser.add_argument("--output", default="demo.png", help="where the plot goes")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args()
    from rich.console import Console

    result = run_demo(given.device, given.epochs, given.output, Console(quiet=given.json, highlight=False))
    if given.json:
        found = asdict(result) | {"good": result.good}
        print(json.dumps({k: None if v != v else v for k, v in found.items()}))
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
