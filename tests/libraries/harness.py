# tests/libraries/harness.py: what the programs of this folder share: inference and three training steps, on two devices.
"""A program has `LIBRARY`, the name of a distribution, `WHAT`, what it runs, and `run(device)`, which returns tensors: outputs of
inference, losses and parameters. run() is called with "cpu", where nothing is compiled, and with an ocl device. Models come from
configuration classes, with random weights; nothing is downloaded."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

STEPS = 3
TOLERANCE = 2e-3  # Relative to the largest element. Three steps of fp32 training differ by less.

Tensors = list[torch.Tensor]


def compiled(function: Any, device: str) -> Any:
    """The function or module, compiled where the device is ocl."""
    return function if device == "cpu" else torch.compile(function, backend="ocl")


def loss_of(output: Any) -> torch.Tensor:
    """A loss whose gradient differs from element to element."""
    flat = output.float().flatten()
    weights = torch.arange(flat.numel(), device=flat.device).remainder(7).add(1)
    return (flat * weights).square().mean() / weights.square().float().mean()


def steps_of(
    model: nn.Module,
    inputs: Sequence[Any],
    device: str,
    *,
    loss: Callable[[Any], torch.Tensor] = loss_of,
    output: Callable[[Any], torch.Tensor] = lambda out: out,
) -> Tensors:
    """Inference and STEPS training steps. `output` takes a tensor out of what the model returns."""
    model = model.to(device)
    inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in inputs]
    call = compiled(model, device)
    with torch.no_grad():
        results = [output(call(*inputs)).clone()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(output(call(*inputs)))
        value.backward()
        optimizer.step()
        results.append(value.detach())
    return [*results, *parameters(model)]


def parameters(model: nn.Module) -> Tensors:
    return [p.detach() for p in model.parameters()]


def error_of(found: Tensors, expected: Tensors) -> float:
    """The largest difference, relative to the largest element of its tensor."""
    assert len(found) == len(expected) > 1, (len(found), len(expected))
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        a, b = a.detach().cpu().double(), b.detach().cpu().double()
        assert a.shape == b.shape and bool(torch.isfinite(b).all()), (a.shape, b.shape)
        scale = max(float(b.abs().max()), 1e-3) if b.numel() else 1.0
        worst = max(worst, float((a - b).abs().max()) / scale if b.numel() else 0.0)
    return worst


def row_of(program: ModuleType, device: str) -> dict[str, Any]:
    """Runs a program on the CPU and on the device, and returns its row of the table."""
    from torch._dynamo.utils import counters

    results = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        counters.clear()
        torch.ocl.reset_fallback_counts()
        results.append(program.run(where))
    error = error_of(results[1], results[0])
    assert any(x.device.type == "ocl" for x in results[1]), "nothing ran on the device"
    return {
        "library": program.LIBRARY,
        "version": importlib.metadata.version(program.LIBRARY),
        "what": program.WHAT,
        "right": error < TOLERANCE,
        "error": error,
        "fallbacks": sorted(torch.ocl.fallback_counts()),
        "breaks": sum(counters["graph_break"].values()),
    }


def trainer_steps(lightning: Any, device: str) -> Tensors:
    """STEPS steps of the Trainer of lightning or pytorch_lightning, and its predictions."""

    class Net(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 2))
            self.losses: Tensors = []

        def forward(self, x: torch.Tensor) -> Any:
            return self.layers(x)

        def training_step(self, x: torch.Tensor, index: int) -> torch.Tensor:
            loss = loss_of(self(x))
            self.losses.append(loss.detach())
            return loss

        def predict_step(self, x: torch.Tensor, index: int) -> Any:
            return self(x)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-2)  # Adam divides by gradients that are nearly 0.

    model = Net()
    loader = torch.utils.data.DataLoader(torch.randn(4 * STEPS, 8), batch_size=4)
    where: dict[str, Any] = {"accelerator": "cpu"}
    if device != "cpu":
        model.compile(backend="ocl")
        where = {"accelerator": "ocl", "devices": [torch.device(device).index or 0]}
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_epochs=1, **where, **quiet)
    trainer.fit(model, loader)
    return [*trainer.predict(model, loader), *model.losses, *parameters(model)]
