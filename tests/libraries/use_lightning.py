# tests/libraries/use_lightning.py: the Trainer and Fabric of lightning and of pytorch_lightning.
import importlib
from typing import Any

import torch
from torch import nn

from tests.libraries.harness import STEPS, Side, Tensors, add, loss_of, parameters

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


def where(side: Side) -> dict[str, Any]:
    if side.device == "cpu":
        return {"accelerator": "cpu"}
    return {"accelerator": "ocl", "devices": [torch.device(side.device).index or 0]}


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 2))


def trainer_steps(side: Side, package: str, **settings: Any) -> Tensors:
    """STEPS steps of the Trainer, and its predictions."""
    lightning = importlib.import_module(package)

    class Net(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers()
            self.losses: Tensors = []

        def forward(self, x: torch.Tensor) -> Any:
            return self.layers(x)

        def training_step(self, x: torch.Tensor, index: int) -> torch.Tensor:
            loss = loss_of(self(x))
            self.log("loss", loss)
            self.losses.append(loss.detach())
            return loss

        def predict_step(self, x: torch.Tensor, index: int) -> Any:
            return self(x)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-2)  # Adam divides by gradients that are nearly 0.

    model = Net()
    loader = torch.utils.data.DataLoader(torch.randn(4 * STEPS, 8), batch_size=4)
    if side.backend:
        model.compile(backend=side.backend)
    trainer = lightning.Trainer(max_epochs=1, **where(side), **QUIET, **settings)
    trainer.fit(model, loader)
    return [*trainer.predict(model, loader), *model.losses, *parameters(model)]


def fabric_steps(side: Side, package: str) -> Tensors:
    fabric = importlib.import_module(package).Fabric(**where(side))
    model, x = layers(), torch.randn(4, 8)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=1e-2))
    call, losses = side.compiled(model), []
    for (batch,) in fabric.setup_dataloaders(torch.utils.data.DataLoader([(x[i],) for i in range(4)], batch_size=4)):
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(call(batch))
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            losses.append(loss.detach())
    return [*losses, *parameters(model)]


for distribution in ("lightning", "pytorch-lightning"):
    package = distribution.replace("-", "_")
    add(distribution, "trainer", "Trainer: fit, predict, log", lambda side, p=package: trainer_steps(side, p))
    add(
        distribution,
        "clipped",
        "Trainer: clipped gradients, accumulated over two batches",
        lambda side, p=package: trainer_steps(side, p, gradient_clip_val=0.5, accumulate_grad_batches=2),
    )
add("lightning", "fabric", "Fabric: setup, backward, clip_gradients", lambda side: fabric_steps(side, "lightning"))
