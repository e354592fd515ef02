# tests/device/ops/test_checked_ops.py: eager ops that check values raise the errors of PyTorch.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch


def segments(*lengths: int) -> Callable[[torch.Tensor], Any]:
    return lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor(lengths, device=x.device))


def ctc(x: torch.Tensor, times: tuple[int, ...], lengths: tuple[int, ...]) -> torch.Tensor:
    """Returns the loss of two sequences of two steps."""
    targets = torch.ones(2, 2, dtype=torch.long, device=x.device)
    return torch.nn.functional.ctc_loss(x[:, None].expand(2, 2, 3).log_softmax(2), targets, times, lengths)


CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "cholesky": lambda x: torch.cholesky(-x @ x.mT),
    "cholesky of a batch": lambda x: torch.cholesky(torch.stack([x @ x.mT + 9, -x @ x.mT])),
    "cholesky of no square": lambda x: torch.cholesky(x),
    "negative segment": segments(-2, 4),
    "short segments": segments(1),
    "axis of segments": lambda x: torch.segment_reduce(x, "max", lengths=x[0].long(), axis=1),
    "histogram without range": lambda x: torch.histogram(x / 0, 3),
    "histogram of no bins": lambda x: torch.histogram(x, 0),
    "histogramdd without range": lambda x: torch.histogramdd(x / 0, [2, 2, 2]),
    "ctc_loss of long targets": lambda x: ctc(x, (1, 3), (1, 1)),
    "ctc_loss of long sequences": lambda x: ctc(x, (3, 1), (1, 1)),
    "ctc_loss of other lengths": lambda x: ctc(x, (1,), (1, 1)),
    "lstsq shape": lambda x: torch.linalg.lstsq(x.T, x, driver="gelss"),
    "lstsq driver": lambda x: torch.linalg.lstsq(x, x, driver="qr"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
def test_same_error(name: str, ocl_device: str) -> None:
    x = torch.arange(1.0, 7.0).view(2, 3)
    with pytest.raises(Exception) as expected:
        CASES[name](x)
    with pytest.raises(type(expected.value)) as ours:
        CASES[name](x.to(ocl_device))
    assert str(ours.value) == str(expected.value)


def test_ctc_loss_beside_a_compiled_graph(ocl_device):
    """Lengths on the host break the graph, and the op runs between its parts. Dynamo traces none of our own code."""
    targets, times, lengths = torch.tensor([[1, 2], [2, 1]]), torch.full((2,), 5), torch.tensor([2, 1])

    def loss(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.ctc_loss((x * 2).log_softmax(2), targets, times, lengths) + 1

    x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
    got = torch.compile(loss, backend="ocl", dynamic=True)(x.to(ocl_device), targets.to(ocl_device))
    torch.testing.assert_close(got.cpu(), loss(x.double(), targets).float())
