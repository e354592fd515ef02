# examples/train_lightning.py: Lightning trains a small network on scikit-learn's digits, and tests it.
"""python examples/train_lightning.py --device ocl --epochs 3"""

import argparse

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import torch_ocl_compile  # noqa: F401


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(32 * 2 * 2, 10)),
        )

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, index):
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log("loss", loss)
        return loss

    def test_step(self, batch, index):
        images, labels = batch
        self.log("accuracy", (self(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3, fused=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    L.seed_everything(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None].div(16)
    train, test = random_split(TensorDataset(images, torch.tensor(digits.target)), [1408, 389])
    model = Digits()
    if args.device == "cpu":
        where = {"accelerator": "cpu"}
    else:
        index = torch.device(args.device).index
        where = {"accelerator": "ocl", "devices": [index or 0]}
        model.compile(backend="ocl")
    trainer = L.Trainer(max_epochs=args.epochs, logger=False, enable_checkpointing=False, **where)
    trainer.fit(model, DataLoader(train, batch_size=64, shuffle=True, drop_last=True))
    print("device", trainer.strategy.root_device)
    print(f"loss {trainer.callback_metrics['loss']:.4f}")
    trainer.test(model, DataLoader(test, batch_size=389))


if __name__ == "__main__":
    main()
