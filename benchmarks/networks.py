# benchmarks/networks.py: the networks that benchmarks and tests share: name -> model and input.
from __future__ import annotations

import torch
from torch import Tensor, nn


def import_torchvision():
    """torchvision's models; beside a CPU-only torch its C++ ops are missing, so the two that its import needs are declared first."""
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_torchvision.library = library  # keeps the registration alive
        import sys

        for name in [n for n in sys.modules if n.startswith("torchvision")]:
            del sys.modules[name]
        import torchvision
    return torchvision


class LeNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))  # fmt: skip


def mlp(width: int = 256, layers: int = 4) -> nn.Module:
    hidden = [m for _ in range(layers - 2) for m in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def make(name: str, batch: int, size: int = 224) -> tuple[nn.Module, Tensor, int]:
    """Model with torchvision's random initialisation, an input of the given batch and image size, and the class count."""
    if name == "mlp":
        return mlp(), torch.randn(batch, 64), 10
    if name == "lenet":
        return LeNet(), torch.randn(batch, 1, 28, 28), 10
    models = import_torchvision().models
    settings: dict[str, object] = {}
    if name in ("googlenet", "inception_v3"):  # the latter's second head needs images of 299 x 299
        settings = {"init_weights": False, "aux_logits": name == "googlenet" or size >= 299}
    if name.startswith("vit"):
        settings = {"image_size": size}
    return getattr(models, name)(weights=None, **settings), torch.randn(batch, 3, size, size), 1000
