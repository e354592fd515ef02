# examples/classify_timm.py: trains a small network of timm on the 8x8 digits of scikit-learn.
"""python examples/classify_timm.py --device ocl --steps 20 --model resnet10t"""

import argparse

import timm
import torch
from sklearn.datasets import load_digits


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--model", default="resnet10t")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=32, help="images are enlarged to this size")
    args = parser.parse_args()
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None].div(16)
    images = torch.nn.functional.interpolate(images, size=args.size, mode="bilinear")
    labels = torch.tensor(digits.target)
    model = timm.create_model(args.model, num_classes=10, in_chans=1).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run = torch.compile(model, backend="ocl") if args.device != "cpu" else model
    for step in range(args.steps):
        chosen = torch.arange(step * args.batch, (step + 1) * args.batch) % len(images)
        x, y = images[chosen].to(args.device), labels[chosen].to(args.device)
        loss = torch.nn.functional.cross_entropy(run(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0 or step == args.steps - 1:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
