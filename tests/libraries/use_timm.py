# tests/libraries/use_timm.py: a small ConvNeXt of timm.
import torch

from tests.libraries.harness import Tensors, steps_of

LIBRARY, WHAT = "timm", "ConvNeXt, two blocks a stage"


def run(device: str) -> Tensors:
    import timm

    model = timm.create_model("convnext_atto", depths=(1, 1, 2, 1), dims=(8, 16, 32, 64), num_classes=10)
    return steps_of(model, [torch.randn(2, 3, 64, 64)], device)
