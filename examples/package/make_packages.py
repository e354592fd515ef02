# examples/package/make_packages.py: writes the packages that the C and C++ programs of this folder run.
"""python examples/package/make_packages.py FOLDER [classify] [generate] [digits]

classify.ocl  a resnet18 of torchvision that takes an image of any size; random weights unless --pretrained
generate.ocl  a small GPT with a cache of keys and values: the methods prefill and decode
digits.ocl    a network that reads handwritten digits, trained here for some seconds on the device
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from torch_ocl_compile import package

SIDE = 224  # Pixels of an image for the network.


class Classifier(nn.Module):
    """Takes the bytes of an image [height, width, 3], samples it at 224 x 224 pixels and returns its five best classes."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]))

    def forward(self, image):
        steps = torch.arange(SIDE, device=image.device)
        rows, columns = steps * image.shape[0] // SIDE, steps * image.shape[1] // SIDE
        pixels = image.index_select(0, rows).index_select(1, columns).float() / 255
        batch = ((pixels - self.mean) / self.deviation).permute(2, 0, 1)[None]
        probability, label = self.network(batch).softmax(1).topk(5)
        return {"probability": probability[0], "label": label[0]}


def classify(folder, pretrained):
    import torchvision

    network = torchvision.models.resnet18(weights="DEFAULT" if pretrained else None)
    image = torch.zeros(256, 320, 3, dtype=torch.uint8)
    sides = {0: torch.export.Dim("height", min=16, max=16384), 1: torch.export.Dim("width", min=16, max=16384)}
    package.save(folder / "classify.ocl", Classifier(network).eval(), (image,), dynamic_shapes={"image": sides})


class Block(nn.Module):
    """A layer of a GPT. It keeps keys and values of all earlier tokens."""

    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))

    def forward(self, x, positions):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, v)
        seen = torch.arange(self.keys.shape[2], device=x.device) <= positions[:, None]
        a = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        x = x + self.out(a.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=256, width=128, heads=4, layers=4, length=256):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def next_token(self, tokens, positions):
        x = self.tokens(tokens) + self.places(positions)
        for block in self.blocks:
            x = block(x, positions)
        return self.head(self.norm(x[:, -1])).argmax(-1, keepdim=True)


class Prefill(nn.Module):
    """Reads the prompt [1, length]. Returns the next token and its position."""

    def __init__(self, gpt):
        super().__init__()
        self.gpt = gpt

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.gpt.next_token(tokens, positions), positions[-1:] + 1


class Decode(Prefill):
    """Reads one token [1, 1] at its position [1]. Returns the next ones."""

    def forward(self, token, position):
        return self.gpt.next_token(token, position), position + 1


def generate(folder, pretrained):
    torch.manual_seed(0)
    gpt = GPT().eval()
    length = torch.export.Dim("length", min=2, max=256)
    prompt, token = torch.zeros(1, 5, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.int64)
    methods = {
        "prefill": package.Method(Prefill(gpt), (prompt,), dynamic_shapes={"tokens": {1: length}}),
        "decode": package.Method(Decode(gpt), (token, torch.tensor([5]))),
    }
    package.save(folder / "generate.ocl", methods)


class Digits(nn.Module):
    """Takes images [batch, 8, 8] with values from 0 to 16. Returns the digit of each."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)
        )

    def forward(self, images):
        return self.layers(images[:, None] / 16)


class Reader(nn.Module):
    def __init__(self, digits):
        super().__init__()
        self.digits = digits

    def forward(self, images):
        return self.digits(images).argmax(1)


def digits(folder, pretrained):
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    images, labels = (torch.as_tensor(a) for a in load_digits(return_X_y=True))
    images, labels = images.float().reshape(-1, 8, 8).to("ocl"), labels.to("ocl")
    network = Digits().to("ocl")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, fused=True)

    @torch.compile(backend="ocl")
    def loss_of(x, y):
        return F.cross_entropy(network(x), y)

    for _ in range(60):
        optimizer.zero_grad()
        loss_of(images[:1500], labels[:1500]).backward()
        optimizer.step()
    batch = torch.export.Dim("batch", min=1, max=1024)
    reader = Reader(network.cpu()).eval()
    package.save(folder / "digits.ocl", reader, (torch.zeros(2, 8, 8),), dynamic_shapes={"images": {0: batch}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=["classify", "generate", "digits"])
    parser.add_argument("--pretrained", action="store_true", help="weights from torchvision's servers for classify.ocl")
    arguments = parser.parse_args()
    makers = {"classify": classify, "generate": generate, "digits": digits}
    for name in arguments.names:
        makers[name](arguments.folder, arguments.pretrained)


if __name__ == "__main__":
    main()
