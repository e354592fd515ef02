# benchmarks/harness/networks.py: the networks that benchmarks and tests use, by name.
from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def import_torchvision() -> Any:
    """Imports torchvision. With a CPU-only torch its C++ ops are missing, so the two ops that its import needs are
    declared first."""
    try:
        import torchvision
    except ImportError as error:
        raise SystemExit("this network needs torchvision: pip install torchvision") from error
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_torchvision.library = library  # type: ignore[attr-defined]  # keeps the registration alive
        import sys

        for name in [n for n in sys.modules if n.startswith("torchvision")]:
            del sys.modules[name]
        import torchvision
    return torchvision


class LeNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))  # fmt: skip


def mlp(width: int = 256, layers: int = 4, inputs: int = 64, classes: int = 10) -> nn.Module:
    hidden = [m for _ in range(layers - 2) for m in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), *hidden, nn.Linear(width, classes))


class GPTBlock(nn.Module):
    """A transformer block: attention and a feed-forward layer, each after a norm, with residual connections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """A GPT with six layers of width 256 over characters. Maps [batch, 256] to the logits of all positions, [batch *
    256, characters]."""

    context = 256

    def __init__(self, characters: int = 256, width: int = 256, layers: int = 6, heads: int = 4) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, width), nn.Embedding(self.context, width)
        self.blocks = nn.Sequential(*(GPTBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)

    def forward(self, x: Tensor) -> Tensor:
        h = self.blocks(self.characters(x) + self.positions.weight)
        return self.head(self.norm(h)).flatten(0, 1)  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """A language model of transformers with random weights and no cache. Maps [batch, length] to the logits of all
    positions. `blocks`: the name of its list of equal layers."""

    length: int
    words: int
    blocks: str

    def __init__(self, kind: str, **config: Any) -> None:
        super().__init__()
        if importlib.util.find_spec("torchvision"):
            import_torchvision()  # Before transformers, which imports it.
        try:
            import transformers
        except ImportError as error:
            raise SystemExit("this network needs transformers: pip install 'transformers>=4.50'") from error
        made = getattr(transformers, f"{kind}Config")(use_cache=False, attn_implementation="sdpa", **config)
        self.model: Any = getattr(transformers, f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")(made)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits.flatten(0, 1)  # type: ignore[no-any-return]


class GPT2(Tokens):
    """GPT-2 with 124M parameters."""

    length, words, blocks = 512, 50257, "model.transformer.h"

    def __init__(self) -> None:
        super().__init__("GPT2")


class Llama(Tokens):
    """A Llama with 1.1 billion parameters."""

    length, words, blocks = 1024, 32000, "model.model.layers"

    def __init__(self) -> None:
        super().__init__("Llama", hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                         num_key_value_heads=8, vocab_size=self.words)  # fmt: skip


TOKENS: dict[str, type[GPT2 | Llama]] = {"gpt2": GPT2, "llama": Llama}
OWN = ("mlp", "mlp16", "gpt", "lenet", *TOKENS)


def unknown(names: Iterable[str]) -> str:
    """Returns what is wrong with the first name that no network has; "" if there is none."""
    for name in names:
        if name not in OWN and name not in (known := import_torchvision().models.list_models()):
            near = difflib.get_close_matches(name, [*OWN, *known], 3)
            listed = ", ".join([*OWN, *known])
            return f"no network is called {name!r}" + (
                f"; did you mean {' or '.join(near)}?" if near else f": there are {listed}"
            )
    return ""


def make(name: str, batch: int, size: int = 224) -> tuple[nn.Module, Tensor, int]:
    """Makes a network. Returns the model with random weights, an input of the given batch and image size, and the
    number of classes. The model gives a row of logits for each image, or for each element of an integer input."""
    if name == "mlp":
        return mlp(), torch.randn(batch, 64), 10
    if name == "mlp16":
        return mlp(16, inputs=16, classes=16), torch.randn(batch, 16), 16
    if name == "gpt":
        return GPT(), torch.randint(256, (batch, GPT.context)), 256
    if name in TOKENS:
        kind = TOKENS[name]
        return kind(), torch.randint(kind.words, (batch, kind.length)), kind.words
    if name == "lenet":
        return LeNet(), torch.randn(batch, 1, 28, 28), 10
    models = import_torchvision().models
    settings: dict[str, object] = {}
    # The second head of inception_v3 needs images of 299 x 299.
    if name in ("googlenet", "inception_v3"):
        settings = {"init_weights": False, "aux_logits": name == "googlenet" or size >= 299}
    if name.startswith("vit"):
        settings = {"image_size": size}
    if fault := unknown([name]):
        raise SystemExit(fault)
    return getattr(models, name)(weights=None, **settings), torch.randn(batch, 3, size, size), 1000
