# tests/libraries/use_lightning.py: the Trainer of lightning.
from tests.libraries.harness import Tensors, trainer_steps

LIBRARY, WHAT = "lightning", "Trainer: fit, predict"


def run(device: str) -> Tensors:
    import lightning

    return trainer_steps(lightning, device)
