# examples/mnist.py: an ordinary PyTorch training script; device and backend "ocl" make it use OpenCL.
"""Trains a small CNN on MNIST. --data is the folder of the four idx files, gzipped or not. Without them, it trains on scikit-learn's
digits."""

from __future__ import annotations

import argparse
import gzip
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torch_ocl_compile  # noqa: F401  (registers the device "ocl")


def read_idx(path: Path) -> Tensor:
    """One idx file (magic 0x0801 labels or 0x0803 images) as a uint8 tensor. Raises ValueError on another format."""
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    magic, count = struct.unpack(">II", raw[:8])
    if magic == 0x0801:
        return torch.frombuffer(bytearray(raw[8:]), dtype=torch.uint8)
    if magic == 0x0803:
        rows, cols = struct.unpack(">II", raw[8:16])
        return torch.frombuffer(bytearray(raw[16:]), dtype=torch.uint8).view(count, rows, cols)
    raise ValueError(f"{path} is no MNIST idx file (magic {magic:#x})")


def load_mnist(folder: Path) -> tuple[TensorDataset, TensorDataset] | None:
    """Train and test sets, or None when the files are not there."""
    sets = []
    for part in ("train", "t10k"):
        tensors = []
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
            found = [p for p in (folder / f"{part}-{kind}", folder / f"{part}-{kind}.gz") if p.exists()]
            if not found:
                return None
            tensors.append(read_idx(found[0]))
        images, labels = tensors
        sets.append(TensorDataset(images.float().div(255).unsqueeze(1), labels.long()))
    return sets[0], sets[1]


def load_digits() -> tuple[TensorDataset, TensorDataset]:
    """scikit-learn's digits, enlarged to 28 x 28. Four fifths are for training, the rest for the test."""
    from sklearn.datasets import load_digits as sklearn_digits

    data = sklearn_digits()
    images = torch.tensor(data.images, dtype=torch.float32).div(16).unsqueeze(1)
    images = F.interpolate(images, size=28, mode="bilinear")
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    split = len(labels) * 4 // 5
    return tuple(TensorDataset(images[i], labels[i]) for i in (order[:split], order[split:]))  # type: ignore[return-value]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.drop = nn.Dropout(0.2)
        self.fc1 = nn.Linear(32 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(self.drop(F.relu(self.fc1(x.flatten(1)))))


@torch.no_grad()
def evaluate(count_right: Callable[[Tensor, Tensor], Tensor], loader: DataLoader, device: torch.device) -> float:
    """Share of the images whose most likely class is the label."""
    right = sum(count_right(images.to(device), labels.to(device)).item() for images, labels in loader)
    return right / len(loader.dataset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="ocl")
    parser.add_argument(
        "--backend", help="backend of torch.compile (default: ocl on an ocl device, else nothing is compiled)"
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=Path("mnist.pt"),
        help="file that is written after each epoch; if it exists, training continues from it",
    )
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device(args.device)
    backend = args.backend or ("ocl" if device.type == "ocl" else None)
    train_set, test_set = load_mnist(args.data) or load_digits()
    pin = device.type != "cpu"
    train_loader = DataLoader(train_set, batch_size=args.batch, shuffle=True, drop_last=True, pin_memory=pin)
    test_loader = DataLoader(test_set, batch_size=args.batch, pin_memory=pin)

    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    first_epoch = 0
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch = state["epoch"]
        print(f"continuing from {args.checkpoint}, epoch {first_epoch}")

    # Three functions are compiled whole; what stays outside runs op by op.
    compiled = partial(torch.compile, backend=backend or "eager", disable=backend is None)

    @compiled
    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(images), labels)

    @compiled
    def count_right(images: Tensor, labels: Tensor) -> Tensor:
        return (model(images).argmax(1) == labels).sum()

    update = compiled(optimizer.step)

    for epoch in range(first_epoch, first_epoch + args.epochs):
        model.train()
        start, loss = time.perf_counter(), torch.tensor(0.0)
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = loss_of(images.to(device, non_blocking=True), labels.to(device, non_blocking=True))
            loss.backward()
            update()
        model.eval()
        accuracy = evaluate(count_right, test_loader, device)
        seconds = time.perf_counter() - start
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}, test accuracy {accuracy:.2%}, {seconds:.1f} s", flush=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
        torch.save(state, args.checkpoint)


if __name__ == "__main__":
    main()
