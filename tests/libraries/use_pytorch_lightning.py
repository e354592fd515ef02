# tests/libraries/use_pytorch_lightning.py: the Trainer of pytorch_lightning.
from tests.libraries.harness import Tensors, trainer_steps

LIBRARY, WHAT = "pytorch-lightning", "Trainer: fit, predict"


def run(device: str) -> Tensors:
    import pytorch_lightning

    return trainer_steps(pytorch_lightning, device)
