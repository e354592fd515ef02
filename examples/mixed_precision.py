# examples/mixed_precision.py: a classifier of 8x8 digits, trained with autocast in bf16 or fp16 and a GradScaler.
"""python examples/mixed_precision.py --device ocl --dtype float16 --steps 50"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    args = parser.parse_args()
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None].div(16).to(args.device)
    labels = torch.tensor(digits.target).to(args.device)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    ).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler(args.device, enabled=args.dtype == "float16")
    run = torch.compile(model, backend="ocl") if args.device != "cpu" else model
    for step in range(args.steps):
        batch = slice(step * 64 % 1728, step * 64 % 1728 + 64)
        with torch.autocast(args.device, dtype=getattr(torch, args.dtype)):
            loss = nn.functional.cross_entropy(run(images[batch]), labels[batch])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step == 0 or step == args.steps - 1:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
