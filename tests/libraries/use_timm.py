# tests/libraries/use_timm.py: models and optimizers of timm. A row is a model's name, the size of its images, and what makes it small.
from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import nn

from tests.libraries.harness import Side, Tensors, add, loss_of, parameters, steps_of

TINY = {"embed_dim": 32, "depth": 2, "num_heads": 4, "img_size": 32, "patch_size": 8}
MODELS: list[tuple[str, int, dict[str, Any]]] = [
    ("convnext_atto", 64, {"depths": (1, 1, 2, 1), "dims": (8, 16, 32, 64)}),
    ("convnextv2_atto", 32, {"depths": (1, 1, 1, 1), "dims": (8, 16, 16, 32)}),
    ("resnet18", 64, {"layers": (1, 1, 1, 1), "channels": (8, 16, 16, 32)}),
    ("seresnet18", 64, {"layers": (1, 1, 1, 1), "channels": (16, 16, 16, 32)}),
    ("resnext50_32x4d", 64, {"layers": (1, 1, 1, 1), "cardinality": 4, "base_width": 4}),
    ("test_efficientnet", 64, {}),
    ("mobilenetv2_035", 64, {}),
    ("mobilenetv3_small_050", 64, {}),
    ("mobilenetv4_conv_small_035", 64, {}),
    ("mnasnet_small", 64, {}),
    ("regnetx_002", 64, {}),
    ("test_byobnet", 64, {}),
    ("densenet121", 64, {"block_config": (2, 2), "growth_rate": 8}),
    ("ghostnet_050", 64, {}),
    ("test_nfnet", 64, {}),
    ("test_mambaout", 64, {}),
    ("test_convnext3", 64, {}),
    ("vit_tiny_patch16_224", 32, TINY),
    ("deit_tiny_distilled_patch16_224", 32, TINY),
    ("vit_relpos_small_patch16_224", 32, TINY),
    ("eva02_tiny_patch14_224", 32, TINY),
    ("beit_base_patch16_224", 32, TINY),
    ("cait_xxs24_224", 32, TINY),
    ("swin_tiny_patch4_window7_224", 56, {"embed_dim": 16, "depths": (1, 1), "num_heads": (2, 4), "img_size": 56}),
    ("swinv2_tiny_window8_256", 64, {"embed_dim": 16, "depths": (1, 1), "num_heads": (2, 4), "img_size": 64}),
    ("coatnet_nano_rw_224", 64, {"depths": (1, 1, 1, 1), "img_size": 64}),
    ("xcit_nano_12_p16_224", 64, {"depth": 2, "embed_dim": 32}),
    ("pvt_v2_b0", 64, {"depths": (1, 1, 1, 1)}),
    ("edgenext_xx_small", 64, {"depths": (1, 1, 1, 1)}),
    ("mobilevit_xxs", 64, {}),
]
OPTIMIZERS = {"adamw": 1e-2, "lamb": 1e-2, "lion": 1e-3, "adopt": 1e-2, "nadamw": 1e-2, "muon": 1e-2, "lars": 1e-1, "adafactor": 1e-2,
              "madgrad": 1e-3, "sgdw": 1e-2}  # fmt: skip


def model_of(name: str, settings: dict[str, Any]) -> nn.Module:
    import timm

    model: nn.Module = timm.create_model(name, num_classes=10, pretrained=False, **settings)
    return model


def steps(name: str, size: int, settings: dict[str, Any], side: Side) -> Tensors:
    return steps_of(model_of(name, settings), [torch.randn(2, 3, size, size)], side)


def optimized(name: str, rate: float, side: Side) -> Tensors:
    """Steps of an optimizer. Its step is not compiled."""
    from timm.optim import create_optimizer_v2, muon

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).to(
        side.device, side.dtype
    )
    optimizer = create_optimizer_v2(model, opt=name, lr=rate, weight_decay=0.01)
    call, x, losses = side.compiled(model), side.moved(torch.randn(4, 3, 8, 8)), []
    orthogonal = muon.zeropower_via_newtonschulz  # It computes in bfloat16, unless the exact result is asked for.
    exact = partial(orthogonal, dtype=side.dtype) if side.dtype == torch.float64 else orthogonal
    with mock.patch.object(muon, "zeropower_via_newtonschulz", exact):
        for _ in range(3):
            optimizer.zero_grad()
            loss = loss_of(call(x))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return [*losses, *parameters(model)]


for row in MODELS:
    add("timm", row[0], f"{row[0]}, made small", partial(steps, *row))
for optimizer, rate in OPTIMIZERS.items():
    add("timm", f"optimizer_{optimizer}", f"create_optimizer_v2({optimizer!r})", partial(optimized, optimizer, rate))
