# tests/no_device/schedule/test_golden.py: kernel texts of a few graphs, each for one idea, for fixed capabilities.
"""`pytest tests/no_device/schedule/test_golden.py --update-golden` writes tests/golden/<name>.<caps>.cl. Review the diff like
code. A file of kernels/ is one line with its hash (tests/golden_text.py)."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests import golden_text
from tests.golden_text import shortened, whole
from tests.no_device.scheduling import Seen, collecting, render

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def pointwise_chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * 2 + y).relu().sigmoid()


def softmax(x: torch.Tensor) -> torch.Tensor:
    return (x * 0.125).softmax(-1)


def batch_norm_statistics(x: torch.Tensor) -> Any:
    return torch.var_mean(x, (0, 2, 3), correction=0)


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w, b).relu()


def spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.fft.rfft(x))


def independent_updates(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    return torch._foreach_add(torch._foreach_mul([x, y, z], 0.9), 1.0)


def columns_of_rows(x: torch.Tensor, rows: torch.Tensor) -> Any:
    return x[rows][:, 3:] * 2


def packed_weight(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    q = torch.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)
    weight = (q.to(x.dtype) - 8).reshape(len(packed), -1, 128) * scale[..., None]
    return F.linear(x, weight.reshape(len(packed), -1))


def zeros(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.zeros(s) for s in shapes]


GOLDENS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], tuple[str, ...]]] = {
    "pointwise_chain": (pointwise_chain, zeros((100, 33), (33,)), ("cpu16", "gpu")),
    "softmax": (softmax, zeros((64, 1000)), ("cpu16", "gpu")),
    "batch_norm_statistics": (batch_norm_statistics, zeros((8, 16, 28, 28)), ("cpu16", "gpu")),
    "linear_bias_relu": (linear, zeros((32, 100), (64, 100), (64,)), ("cpu16", "gpu")),
    "fourier": (spectrum, zeros((3, 60)), ("cpu16", "gpu")),
    "gather": (columns_of_rows, [*zeros((9, 5)), torch.zeros(4, dtype=torch.int64)], ("cpu16", "gpu")),
    "packed_weight": (
        packed_weight,
        [*zeros((1, 256)), torch.zeros(32, 128, dtype=torch.uint8), *zeros((32, 2))],
        ("cpu16", "gpu"),
    ),
    "batch": (independent_updates, zeros((100,), (7, 3), (1000,)), ("cpu16", "gpu")),
}


@pytest.mark.parametrize("name, caps", [(name, caps) for name, row in GOLDENS.items() for caps in row[2]])
def test_golden(name: str, caps: str, golden: Any) -> None:
    call, inputs, _ = GOLDENS[name]
    seen: list[Seen] = []
    collecting(call, seen, caps == "gpu", dynamic=False)(*inputs)
    assert len(seen) == 1
    rendered = render(seen[0].graph, caps)
    parts = []
    for kernel in rendered["kernels"]:
        parts.append(
            f"// {kernel['kind']}, groups {' x '.join(kernel['groups'])}, local {kernel['local']}\n{kernel['text']}"
        )
    text = "\n".join(parts)
    assert whole(shortened(text)) == text
    golden(f"{name}.{caps}.cl", shortened(text))


def test_a_changed_kernel_file_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = (GOLDEN / "linear_bias_relu.gpu.cl").read_text(encoding="utf-8")
    text = whole(stored)
    assert "__kernel" in text and shortened(text) == stored
    path = shutil.copytree(golden_text.KERNELS, tmp_path / "kernels") / "gemm" / "group.cl"
    old = path.read_text(encoding="utf-8")
    new = old.replace("barrier(", " barrier(", 1)
    path.write_text(new, encoding="utf-8")
    monkeypatch.setattr(golden_text, "KERNELS", tmp_path / "kernels")
    differing = set(shortened(text.replace(old, new)).splitlines()) ^ set(stored.splitlines())
    assert len(differing) == 2 and all(line.startswith('#include "kernels/gemm/group.cl"') for line in differing)
    with pytest.raises(ValueError, match=r"kernels/gemm/group\.cl changed: pytest --update-golden"):
        whole(stored)


def test_separate_traces_give_the_same_text() -> None:
    """Two graphs of the same function, traced one after the other, give the same kernels."""
    texts = []
    for factor in (2, 2):
        seen: list[Seen] = []
        collecting(lambda x, factor=factor: (x * factor).exp().sum(1), seen, dynamic=False)(torch.zeros(9, 40))
        texts.append([k["text"] for k in render(seen[0].graph, "cpu16")["kernels"]])
    assert texts[0] == texts[1]


def shuffled_sums(x: torch.Tensor) -> torch.Tensor:
    shuffled = x.view(2, 3, 2, 3, 4).transpose(1, 2).flatten()
    return F.pad(shuffled, (0, 1008 - 144)).view(2, 8, 9, 7).sum((0, 2, 3))


def test_loops_of_many_gathers_are_not_unrolled() -> None:
    """Only the inner loop is unrolled. With both loops unrolled, 63 copies of eight gathers took a compiler eight
    minutes."""
    seen: list[Seen] = []
    collecting(shuffled_sums, seen, dynamic=False)(*zeros((2, 6, 3, 4)))
    (kernel,) = render(seen[0].graph, "cpu16")["kernels"]
    lines = [line.strip() for line in kernel["text"].splitlines()]
    unrolled = [after for line, after in itertools.pairwise(lines) if line == "OCL_UNROLL"]
    assert unrolled and all("r2 < 7" in line for line in unrolled), kernel["text"]
