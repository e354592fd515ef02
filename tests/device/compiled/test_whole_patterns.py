# tests/device/compiled/test_whole_patterns.py: constant masks, spelled-out gelu, cross entropy and padded rows in a whole model.
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_ocl_compile as toc

# Rows of 515 elements do not begin at multiples of 16 bytes; the matrices have more than a megabyte.
CLASSES, LENGTH = 515, 96


class Model(nn.Module):
    """A language model of one layer, with the expressions of transformers' GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(CLASSES, 32), nn.Linear(32, CLASSES, bias=False)
        self.qkv, self.up, self.down = nn.Linear(32, 96), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        positions = torch.arange(x.shape[1], device=x.device)
        mask = (positions[None, :] <= positions[:, None]).expand(x.shape[0], 1, -1, -1)
        q, k, v = (t.unflatten(-1, (2, 16)).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        h = h + F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        u = self.up(h)
        u = 0.5 * u * (1.0 + torch.tanh(0.7978845608028654 * (u + 0.044715 * torch.pow(u, 3.0))))
        return self.head(h + self.down(u)).flatten(0, 1)


def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, ignore_index=3)


@pytest.mark.sampled(first=4)
@pytest.mark.parametrize("family", ["auto", "group"])
@pytest.mark.parametrize("autocast", [False, True])
def test_training(ocl_device: str, family: str, autocast: bool) -> None:
    torch.manual_seed(0)
    model, x = Model(), torch.randint(CLASSES, (8, LENGTH))
    y = torch.randint(CLASSES, (8 * LENGTH,))
    exact = copy.deepcopy(model).double()
    expected = step(exact, x, y)
    expected.backward()
    net = copy.deepcopy(model).to(ocl_device)
    options: Any = {} if family == "auto" else {"kernel_family": family}

    def loss(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("ocl", dtype=torch.bfloat16, enabled=autocast):
            return step(net, x, y)

    compiled = torch.compile(loss, backend="ocl", options=options)
    got = compiled(x.to(ocl_device), y.to(ocl_device))
    got.backward()
    tolerance = 2e-2 if autocast else 1e-5
    torch.testing.assert_close(got.cpu().double(), expected, rtol=tolerance, atol=0)
    for mine, theirs in zip(net.parameters(), exact.parameters(), strict=True):
        error = (mine.grad.cpu().double() - theirs.grad).norm() / theirs.grad.norm()
        assert error <= (5e-2 if autocast else 2e-5)


def test_explain_shows_no_mask(ocl_device: str) -> None:
    model = Model().to(ocl_device).eval()
    report = str(toc.explain(model, torch.randint(CLASSES, (8, LENGTH), device=ocl_device)))
    assert "attention" in report
    assert "where" not in report and "tanh" not in report.replace("gelu_tanh", "")
