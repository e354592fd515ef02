# torch_ocl_compile/demo.py: the demo: a small CNN learns handwritten digits through torch.compile(model, backend="ocl").
"""Trains on scikit-learn's digits (1,797 images of 8 x 8), compares with eager on the CPU, and plots loss and kernels."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ocl_compile.record import LaunchRecord, record


class DigitNet(nn.Module):
    """Two convolutions with batch norm, pooling and dropout: [n, 1, 8, 8] -> [n, 10]."""

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


def load_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Train images [n, 1, 8, 8] in 0..1 and labels, test images and labels: four fifths and one fifth, shuffled."""
    from sklearn.datasets import load_digits as sklearn_digits

    data = sklearn_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    split = len(labels) * 4 // 5
    train, test = order[:split], order[split:]
    return images[train], labels[train], images[test], labels[test]


def _step(model: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def _step_ms(step: Callable[[], Any], wait: Callable[[], None], rounds: int = 20) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def accuracy(model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> float:
    """Share of images whose most likely class is the label."""
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def plot(losses: list[float], launches: list[LaunchRecord], path: str) -> None:
    """Loss curve and the timeline of one step's kernels, as a PNG at `path`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(10, 7))
    top.plot(losses)
    top.set(title="training loss", xlabel="step", ylabel="cross entropy", yscale="log")
    kinds = sorted({launch.kind for launch in launches})
    if launches:
        origin = min(launch.start_ns for launch in launches)
        for launch in launches:
            bar = [((launch.start_ns - origin) / 1000, max(launch.time_us, 0.5))]
            bottom.broken_barh(bar, (kinds.index(launch.kind) - 0.4, 0.8), facecolors=f"C{kinds.index(launch.kind) % 10}")
    bottom.set(title="kernels of one training step", xlabel="microseconds on the device")
    bottom.set_yticks(range(len(kinds)), kinds)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def run_demo(device: str = "ocl", epochs: int = 20, output: str = "demo.png") -> int:
    """Runs the demo; returns 0 when the test accuracy reaches 97 %."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    console = Console()
    torch.manual_seed(0)
    where = torch.device(device)
    name = torch.ocl.get_device_name(where) if where.type == "ocl" else str(where)  # type: ignore[attr-defined]
    console.print(f"[bold]device[/bold] {where} = {name}")
    train_x, train_y, test_x, test_y = load_digits()
    x, y = train_x.to(where), train_y.to(where)
    model = DigitNet().to(where)
    compiled = torch.compile(model, backend="ocl")
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(2e-3), foreach=True)
    compiled_step = torch.compile(optimizer.step, backend="ocl")

    batch, losses = 64, []

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(compiled(images), labels)
        loss.backward()
        compiled_step()
        return loss.detach()

    start = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling", total=epochs)
        for epoch in range(epochs):
            model.train()
            for chunk in torch.randperm(len(y)).split(batch):
                if len(chunk) < batch:
                    continue
                chunk = chunk.to(where)
                losses.append(step(x.index_select(0, chunk), y.index_select(0, chunk)))
            progress.update(task, advance=1, description=f"epoch {epoch + 1}, loss {losses[-1].item():.3f}")
    seconds = time.perf_counter() - start
    model.eval()
    reached = accuracy(compiled, test_x.to(where), test_y.to(where))
    console.print(f"[bold]accuracy[/bold] {reached:.2%} on {len(test_y)} test images after {seconds:.1f} s")

    model.train()
    synchronize = torch.accelerator.synchronize if where.type == "ocl" else lambda: None
    with record(timing=True) as launches:
        step(x[:batch], y[:batch])
    table = Table(title=f"one training step: {len(launches)} kernels, {sum(k.ops for k in launches)} operations")
    for column in ("kernel kind", "launches", "ops fused (largest)", "time us"):
        table.add_column(column, justify="left" if column == "kernel kind" else "right")
    for kind, count in Counter(k.kind for k in launches).most_common():
        same = [k for k in launches if k.kind == kind]
        table.add_row(kind, str(count), str(max(k.ops for k in same)), f"{sum(k.time_us for k in same):.0f}")
    console.print(table)

    eager = DigitNet()
    eager_optimizer = torch.optim.Adam(eager.parameters(), lr=2e-3)
    ours = _step_ms(lambda: step(x[:batch], y[:batch]), synchronize)
    theirs = _step_ms(lambda: _step(eager, eager_optimizer, train_x[:batch], train_y[:batch]), lambda: None)
    console.print(f"[bold]time per step[/bold] compiled on {where} {ours:.2f} ms, eager on cpu {theirs:.2f} ms")
    fallbacks = torch.ocl.fallback_counts() if where.type == "ocl" else {}  # type: ignore[attr-defined]
    console.print(f"[bold]ops run on the CPU[/bold] {dict(fallbacks) or 'none'}")
    plot([loss.item() for loss in losses], launches, output)
    console.print(f"[bold]plot[/bold] {output}")
    if reached < 0.97:
        console.print("the accuracy is below 97 %")
        return 1
    return 0
