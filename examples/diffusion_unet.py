# examples/diffusion_unet.py: trains a small diffusion U-Net on scikit-learn's 8x8 digits and draws new digits with DDIM.
"""python examples/diffusion_unet.py --device ocl --steps 1000 --out digits.png

At time t in [0, 1], an image is cos(pi t / 2) * digit + sin(pi t / 2) * noise. The network sees image and t, and predicts the
image's derivative. Digits appear after about 1000 steps."""

import argparse
import itertools
import math
import time

import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn


class ResidualBlock(nn.Module):
    """Two convolutions behind group norm and SiLU. The time embedding is added between them."""

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(width, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, embedding):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(embedding)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    """Each pixel attends to all pixels."""

    def __init__(self, channels, heads=4):
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        qkv = self.qkv(self.norm(x)).unflatten(1, (3, self.heads, -1)).flatten(4)
        q, k, v = qkv.transpose(3, 4).unbind(1)  # each [batch, heads, pixels, channels of a head]
        h = F.scaled_dot_product_attention(q, k, v).transpose(2, 3)
        return x + self.out(h.reshape(x.shape))


class UNet(nn.Module):
    """8x8 -> 4x4 -> 8x8 pixels, with a connection across."""

    def __init__(self, channels):
        super().__init__()
        width = 4 * channels
        self.register_buffer("frequencies", 2 * math.pi * torch.logspace(-1, 2, channels // 2, base=2.0))
        self.time = nn.Sequential(nn.Linear(channels, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.down = ResidualBlock(channels, channels, width)
        self.smaller = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.middle1 = ResidualBlock(channels, 2 * channels, width)
        self.attention = Attention(2 * channels)
        self.middle2 = ResidualBlock(2 * channels, channels, width)
        self.larger = nn.Upsample(scale_factor=2, mode="nearest")
        self.up = ResidualBlock(2 * channels, channels, width)
        self.norm, self.last = nn.GroupNorm(8, channels), nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x, t):
        angles = t[:, None] * self.frequencies
        embedding = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        high = self.down(self.first(x), embedding)
        low = self.middle1(self.smaller(high), embedding)
        low = self.middle2(self.attention(low), embedding)
        h = self.up(torch.cat([self.larger(low), high], 1), embedding)
        return self.last(F.silu(self.norm(h)))


def weights(t):
    """How much of the digit and how much of the noise is in the image of time t."""
    angle = t * (math.pi / 2)
    return angle.cos(), angle.sin()


def loss_of(model, digits, noise, t):
    """The mean squared error of the predicted derivative."""
    of_digit, of_noise = (w[:, None, None, None] for w in weights(t))
    predicted = model(of_digit * digits + of_noise * noise, t)
    return F.mse_loss(predicted, of_digit * noise - of_noise * digits)


def ddim_step(model, x, t, next_t):
    """From the image of time t to that of the earlier time next_t."""
    of_digit, of_noise = (w[:, None, None, None] for w in weights(t))
    derivative = model(x, t)
    digit = (of_digit * x - of_noise * derivative).clamp(-1, 1)
    noise = of_noise * x + of_digit * derivative
    of_digit, of_noise = (w[:, None, None, None] for w in weights(next_t))
    return of_digit * digit + of_noise * noise


def save_grid(images, path, columns=8, scale=8):
    """Writes images of [-1, 1], [count, 1, 8, 8], as a PNG, with a dark border around each."""
    rows = (
        F.pad(images[:, 0], (1, 1, 1, 1), value=-1).unflatten(0, (-1, columns)).transpose(1, 2).flatten(2).flatten(0, 1)
    )
    pixels = rows.add(1).mul(127.5).round().clamp(0, 255).to(torch.uint8)
    picture = Image.fromarray(pixels.numpy())
    picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST).save(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--steps", type=int, default=1000, help="of training")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--ddim-steps", type=int, default=25)
    parser.add_argument("--out", default="digits.png", help="32 new digits")
    args = parser.parse_args()
    torch.manual_seed(0)
    digits = torch.tensor(load_digits().images, dtype=torch.float32)[:, None].div(8).sub(1)
    model = UNet(args.channels).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    compiled = torch.compile(backend="ocl", disable=args.device == "cpu")
    train_loss, denoise = compiled(loss_of), compiled(ddim_step)
    started = time.perf_counter()
    for step in range(1, args.steps + 1):
        chosen = torch.randint(len(digits), (args.batch,))
        batch = digits[chosen], torch.randn(args.batch, 1, 8, 8), torch.rand(args.batch)
        loss = train_loss(model, *(t.to(args.device) for t in batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step == args.steps or step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}, {time.perf_counter() - started:.1f} s", flush=True)
    x = torch.randn(32, 1, 8, 8).to(args.device)
    times = torch.linspace(1, 0, args.ddim_steps + 1)[:, None].expand(-1, 32).to(args.device)
    with torch.no_grad():
        for t, next_t in itertools.pairwise(times):
            x = denoise(model, x, t, next_t)
    save_grid(x.cpu(), args.out)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
