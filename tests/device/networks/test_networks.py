# tests/device/networks/test_networks.py: networks that are no classifiers of torchvision: recurrent, U-Net, VAE, diffusion.
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.device.networks.whole_models import check

pytestmark = pytest.mark.sampled(first=4, keep="vae")


class Recurrent(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.cells = kind(6, 8, batch_first=True, **settings)
        self.head = nn.Linear(8 * (1 + self.cells.bidirectional), 3)

    def forward(self, x):
        out, _ = self.cells(x)
        return self.head(out)


def double_conv(channels_in, channels):
    return nn.Sequential(
        *(nn.Conv2d(channels_in, channels, 3, padding=1), nn.GroupNorm(2, channels), nn.SiLU()),
        *(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()),
    )


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1, self.down2, self.bottom = (
            double_conv(3, width),
            double_conv(width, 2 * width),
            double_conv(2 * width, 4 * width),
        )
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge2 = double_conv(4 * width, 2 * width)
        self.merge1 = double_conv(3 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.bottom(F.avg_pool2d(b, 2))
        y = self.merge2(torch.cat([self.up2(y), b], 1))
        y = self.merge1(torch.cat([F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False), a], 1))
        return self.head(y)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(8 * 49, 8))
        self.decode = nn.Sequential(
            *(nn.Linear(4, 8 * 49), nn.Unflatten(1, (8, 7, 7)), nn.Softplus()),
            *(nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Sigmoid()),
        )

    def forward(self, x, noise):
        mean, log_variance = self.encode(x).chunk(2, 1)
        y = self.decode(mean + noise * (0.5 * log_variance).exp())
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        return F.binary_cross_entropy(y, x.sigmoid(), reduction="sum") / len(x) + divergence, y


class DiffusionBlock(nn.Module):
    """Time embedding, residual convolutions, self-attention over pixels and cross-attention to a condition."""

    def __init__(self, width=16, heads=4, condition=12):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width))
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm3, self.norm4 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.to_q, self.to_kv, self.out = (
            nn.Linear(width, width),
            nn.Linear(condition, 2 * width),
            nn.Linear(width, width),
        )
        self.heads = heads

    def embed(self, t, width):
        angles = t[:, None] * torch.exp(-torch.arange(width // 2, device=t.device, dtype=t.dtype) / (width // 2) * 9.2)
        return torch.cat([angles.sin(), angles.cos()], 1)

    def forward(self, x, t, condition):
        n, width, rows, cols = x.shape
        scale, shift = self.time(self.embed(t, width))[:, :, None, None].chunk(2, 1)
        y = self.conv1(F.silu(self.norm1(x)))
        x = x + self.conv2(F.silu(self.norm2(y) * (1 + scale) + shift))
        s = x.flatten(2).transpose(1, 2)
        z = self.norm3(s)
        s = s + self.self_attention(z, z, z, need_weights=False)[0]

        def split(t):
            return t.view(n, -1, self.heads, width // self.heads).transpose(1, 2)

        k, v = self.to_kv(condition).chunk(2, -1)
        attended = F.scaled_dot_product_attention(split(self.to_q(self.norm4(s))), split(k), split(v))
        s = s + self.out(attended.transpose(1, 2).reshape(n, -1, width))
        return s.transpose(1, 2).reshape(n, width, rows, cols)


def transformer():
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Whole(nn.Module):
    """Wraps a container of torch.nn: Dynamo does not compile the forward of a container that is called directly."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *inputs):
        return self.inner(*inputs)


NETWORKS = {
    "lstm": lambda: (Recurrent(nn.LSTM), [torch.randn(3, 5, 6)]),
    "lstm-deep": lambda: (Recurrent(nn.LSTM, num_layers=2, bidirectional=True), [torch.randn(3, 4, 6)]),
    "gru": lambda: (Recurrent(nn.GRU), [torch.randn(3, 5, 6)]),
    "rnn": lambda: (Recurrent(nn.RNN), [torch.randn(3, 5, 6)]),
    "unet": lambda: (UNet(), [torch.randn(2, 3, 16, 16)]),
    "vae": lambda: (VAE(), [torch.randn(4, 1, 14, 14), torch.randn(4, 4)]),
    "diffusion": lambda: (
        DiffusionBlock(),
        [torch.randn(2, 16, 8, 8), torch.tensor([3.0, 70.0]), torch.randn(2, 5, 12)],
    ),
    "transformer": lambda: (Whole(transformer()), [torch.randn(2, 7, 16)]),
}


# Two layers in both directions take minutes of PoCL's compiler; test_device.py trains the other cells.
SWEEP = ("lstm-deep", "gru", "rnn")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.needs("sweep") if n in SWEEP else ()) for n in NETWORKS]
)
def test_network(ocl_device, name):
    with torch._dynamo.config.patch(allow_rnn=True):
        check(NETWORKS[name], ocl_device)
