# examples/gpt.py: trains a small GPT on Python's own documentation, character by character, on the device "ocl".
"""The text is the help texts that come with every Python (pydoc_data). The program prints the loss (nats per character) and
steps per second, then a sample of generated text. The defaults are for a GPU. For a CPU, use
--width 128 --heads 4 --context 64 --batch 16 --lr 2e-3 --steps 6000. This model's loss is below 1.6 after 1000 steps (--until 1.6
stops there)."""

from __future__ import annotations

import argparse
import math
import pydoc_data.topics
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_ocl_compile  # noqa: F401  (registers the device "ocl")


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Logits of the next character at every position."""

    def __init__(self, characters: int, context: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(x).flatten(0, 1), targets.flatten())

    def logits(self, x: Tensor) -> Tensor:
        h = self.characters(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def load_text() -> tuple[Tensor, str]:
    """The text as indices into its alphabet."""
    text = "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    alphabet = "".join(sorted(set(text)))
    index = {c: i for i, c in enumerate(alphabet)}
    return torch.tensor([index[c] for c in text]), alphabet


@torch.no_grad()
def sample(model: GPT, alphabet: str, device: str, context: int, length: int) -> str:
    written = torch.zeros(1, 1, dtype=torch.long)
    for _ in range(length):
        seen = F.pad(written[:, -context:], (0, max(0, context - written.shape[1])))  # one size: one set of kernels
        logits = model.logits(seen.to(device))[:, min(written.shape[1], context) - 1].float().cpu()
        written = torch.cat([written, torch.multinomial(logits.div(0.8).softmax(-1), 1)], 1)
    return "".join(alphabet[i] for i in written[0, 1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--backend", default="ocl", help="backend of torch.compile, or none")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--every", type=int, default=50, help="steps between lines")
    parser.add_argument(
        "--until", type=float, default=0.0, help="stop when the mean loss of --every steps is below this"
    )
    parser.add_argument("--sample", type=int, default=300, help="characters to write at the end")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="type of autocast")
    options = parser.parse_args()

    torch.manual_seed(0)
    data, alphabet = load_text()
    print(f"{len(data)} characters, {len(alphabet)} different ones")
    model = GPT(len(alphabet), options.context, options.layers, options.width, options.heads).to(options.device)
    step_model = model if options.backend == "none" else torch.compile(model, backend=options.backend, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.1, betas=(0.9, 0.95), fused=True)
    low = torch.autocast(options.device.split(":")[0], torch.bfloat16, enabled=options.dtype == "bfloat16")

    total = torch.zeros((), device=options.device)
    started = time.perf_counter()
    for step in range(1, options.steps + 1):
        # Warm up, then down a cosine to a tenth.
        done = step / options.steps
        rate = min(step / 100, 0.1 + 0.45 * (1 + math.cos(math.pi * done)))
        optimizer.param_groups[0]["lr"] = options.lr * rate
        first = torch.randint(len(data) - options.context - 1, (options.batch, 1))
        window = data[first + torch.arange(options.context + 1)].to(options.device)
        with low:
            loss = step_model(window[:, :-1], window[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % options.every == 0:
            mean = total.item() / options.every  # waits for the device
            speed = options.every / (time.perf_counter() - started)
            print(f"step {step}: loss {mean:.4f}, {speed:.2f} steps/s", flush=True)
            if mean < options.until:
                break
            total.zero_()
            started = time.perf_counter()
    if options.sample:
        print(sample(model, alphabet, options.device, options.context, options.sample))


if __name__ == "__main__":
    main()
