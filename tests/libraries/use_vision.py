# tests/libraries/use_vision.py: networks for images: segmentation_models_pytorch, monai, open_clip, ultralytics, torchvision's from fastai.
from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from tests.libraries.harness import STEPS, Side, Tensors, add, parameters, program, steps_of

# Few stages: in deeper ones, norms over the few pixels that are left magnify rounding.
SEGMENTERS = {"Unet": {"decoder_channels": (32, 16, 8)}, "Linknet": {}, "MAnet": {"decoder_channels": (32, 16, 8)}}


def segmenter(name: str, settings: dict[str, Any], side: Side) -> Tensors:
    import segmentation_models_pytorch as smp

    model = getattr(smp, name)(
        "timm-mobilenetv3_small_minimal_100", encoder_weights=None, classes=3, encoder_depth=3, **settings
    )
    target = torch.arange(2 * 64 * 64).remainder(3).reshape(2, 64, 64)
    loss = smp.losses.DiceLoss("multiclass")
    return steps_of(model, [torch.randn(2, 3, 64, 64)], side, loss=lambda out: loss(out, target.to(side.device)))


for name, settings in SEGMENTERS.items():
    add("segmentation-models-pytorch", name.lower(), f"{name} with DiceLoss", partial(segmenter, name, settings))


@program("monai", "UNet in three dimensions, DiceCELoss")
def unet3d(side: Side) -> Tensors:
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
    target = torch.arange(16**3).remainder(2).reshape(1, 1, 16, 16, 16)
    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    return steps_of(model, [torch.randn(1, 1, 16, 16, 16)], side, loss=lambda out: loss(out, target.to(side.device)))


@program("monai", "ViT, and sliding_window_inference over it")
def sliding_window(side: Side) -> Tensors:
    from monai.inferers import sliding_window_inference
    from monai.networks.nets import UNETR

    sizes = {"feature_size": 4, "hidden_size": 16, "mlp_dim": 32, "num_heads": 4}
    model = UNETR(in_channels=1, out_channels=2, img_size=(16, 16, 16), **sizes).eval().to(side.device)
    call = side.compiled(model)
    with torch.no_grad():
        found = sliding_window_inference(
            torch.randn(1, 1, 20, 16, 16).to(side.device), (16, 16, 16), 1, call, overlap=0.5
        )
    return [found, *parameters(model)[:2]]


@program("open-clip-torch", "CLIP with its ClipLoss")
def clip(side: Side) -> Tensors:
    from open_clip import CLIP, ClipLoss

    vision = {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 8}
    text = {"context_length": 12, "vocab_size": 64, "width": 32, "heads": 4, "layers": 2}
    model, loss = CLIP(16, vision, text), ClipLoss()
    words = torch.arange(24).mul(5).remainder(61).add(1).reshape(2, 12)
    return steps_of(model, [torch.randn(2, 3, 32, 32), words], side, loss=lambda out: loss(out[0], out[1], out[2]))


def yolo(configuration: str, side: Side) -> Tensors:
    """The network and its loss; the trainer of ultralytics downloads data sets."""
    from ultralytics.cfg import get_cfg
    from ultralytics.nn.tasks import DetectionModel

    model = DetectionModel(configuration, ch=3, nc=3, verbose=False)
    model.args = get_cfg()
    for module in model.modules():
        if isinstance(module, nn.SiLU):
            module.inplace = False
    boxes = torch.tensor([[0.5, 0.5, 0.4, 0.3], [0.3, 0.6, 0.2, 0.2]])
    images = torch.rand(2, 3, 64, 64)
    batch = {
        "cls": torch.tensor([[0.0], [2.0]]),
        "bboxes": boxes,
        "batch_idx": torch.tensor([0.0, 1.0]),
    }
    model = model.to(side.device, side.dtype)
    call, x, given = side.compiled(model), side.moved(images), {key: y.to(side.device) for key, y in batch.items()}
    model.eval()
    with torch.no_grad():
        results = [call(x)[0]]
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model.loss(given, call(x))[0].sum()
        loss.backward()
        optimizer.step()
        results.append(loss.detach())
    return [*results, *[p for p in parameters(model) if p.numel() > 1]]


add("ultralytics", "yolo11n", "the network yolo11n and its loss", partial(yolo, "yolo11n.yaml"))
add("ultralytics", "yolov8n", "the network yolov8n and its loss", partial(yolo, "yolov8n.yaml"))


@program("fastai", "Learner: fit_one_cycle, get_preds", wrote="dls.to(device); ToDevice")
def learner(side: Side) -> Tensors:
    from fastai.callback import progress, schedule  # noqa: F401  (patch Learner)
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from fastai.learner import Learner
    from fastai.optimizer import SGD

    x, y = torch.randn(8, 6), torch.arange(8).remainder(3)
    rows = [(x[i], y[i]) for i in range(8)]
    loader = partial(DataLoader, bs=8, shuffle=False, device=torch.device(side.device))
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3)).to(side.device)
    data = DataLoaders(loader(rows), loader(rows), device=torch.device(side.device))
    made = Learner(data, side.compiled(model), loss_func=nn.CrossEntropyLoss(), opt_func=SGD, cbs=[])
    with made.no_bar(), made.no_logging():
        made.fit_one_cycle(STEPS, 0.1)
        predictions, _ = made.get_preds()
    return [predictions, *parameters(model)]
