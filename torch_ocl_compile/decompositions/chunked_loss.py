# torch_ocl_compile/decompositions/chunked_loss.py: cross entropy of a linear layer, a part of the batch at a time.
"""The logits of a part are [rows, classes]; no more than those of one part need to be in memory. Forward computes the gradients
too, from the same logits. torch before 2.13 does not have the ops.

    loss = sum over rows of c_n (log softmax(x_n W^T + b))[t_n]      c_n: minus the weight of class t_n, 0 for ignored rows
    d loss / d logits = c_n (onehot(t_n) - softmax)                  mean: c_n is divided by the sum of all weights
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_ocl_compile.decompositions.registry import decompose

MODULE = "torch.nn.modules.linear_cross_entropy"
if importlib.util.find_spec(MODULE) is not None:
    importlib.import_module(MODULE)  # It registers the ops.


@dataclass(frozen=True)
class Part:
    """Rows of the batch, in the type in which the loss is computed."""

    x: Tensor  # [rows, features]
    is_target: Tensor  # [rows, classes]
    weight: Tensor  # [rows], of the class of each row; 0 for ignored rows
    shifted: Tensor  # [rows, classes], the logits minus the largest of their row
    exponentials: Tensor  # of `shifted`
    total: Tensor  # [rows], the sum of the exponentials

    def loss(self) -> Tensor:
        return self.weight * (self.total.log() - torch.where(self.is_target, self.shifted, 0).sum(1))

    def gradient(self, scale: Tensor) -> Tensor:
        """Returns the gradient of `scale` times the loss by the logits."""
        factor = (self.weight * scale)[:, None]
        return self.exponentials * (factor / self.total[:, None]) - torch.where(self.is_target, factor, 0)


def _weights(target: Tensor, weight: Tensor | None, ignore_index: int, dtype: torch.dtype) -> Tensor:
    ignored = target == ignore_index
    if weight is None:
        return (~ignored).to(dtype)
    return torch.where(ignored, 0, weight.to(dtype)[torch.where(ignored, 0, target)])


def _parts(
    x: Tensor, matrix: Tensor, bias: Tensor | None, target: Tensor, weights: Tensor, rows: int
) -> Iterator[Part]:
    dtype = weights.dtype
    matrix, classes = matrix.to(dtype), torch.arange(matrix.shape[0], device=x.device)
    for first in range(0, x.shape[0], rows):
        one = slice(first, first + rows)
        logits = x[one].to(dtype) @ matrix.mT
        if bias is not None:
            logits = logits + bias.to(dtype)
        shifted = logits - logits.amax(1, keepdim=True)
        exponentials = shifted.exp()
        is_target = target[one, None] == classes
        yield Part(x[one].to(dtype), is_target, weights[one], shifted, exponentials, exponentials.sum(1))


@decompose("torch_nn._linear_cross_entropy_batch_chunked.default")
def chunked(x: Tensor, matrix: Tensor, target: Tensor, *others: Any) -> Any:
    """Returns (loss, gradient of x, gradient of the matrix, gradient of the bias)."""
    bias, weight, reduction, ignore_index, _, rows, _, dtype, _, with_x, with_matrix, with_bias = others
    if not isinstance(x.shape[0], int):
        return NotImplemented
    weights = _weights(target, weight, ignore_index, dtype)
    scale = torch.ones((), dtype=dtype, device=x.device)
    if reduction == "mean":
        total = weights.sum()
        scale = torch.where(total == 0, math.nan, 1 / total)
    loss = torch.full((), math.nan if reduction == "mean" and x.shape[0] == 0 else 0.0, dtype=dtype, device=x.device)
    of_x, of_matrix = [x.new_zeros((0, x.shape[1]))], torch.zeros(matrix.shape, dtype=dtype, device=x.device)
    of_bias = torch.zeros(matrix.shape[:1], dtype=dtype, device=x.device)
    for part in _parts(x, matrix, bias, target, weights, rows):
        loss = loss + part.loss().sum() * scale
        if with_x or with_matrix or with_bias:
            gradient = part.gradient(scale)
            of_x.append((gradient @ matrix.to(dtype)).to(x.dtype))
            of_matrix = of_matrix + gradient.mT @ part.x
            of_bias = of_bias + gradient.sum(0)
    return (
        loss.to(x.dtype),
        torch.cat(of_x) if with_x else x.new_zeros((0, 0)),
        of_matrix.to(x.dtype) if with_matrix else x.new_zeros((0, 0)),
        of_bias.to(x.dtype) if with_bias else x.new_zeros((0,)),
    )


@decompose("torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default")
def chunked_rows(
    x: Tensor, matrix: Tensor, target: Tensor, bias: Tensor | None, weight: Tensor | None, ignore_index: int, rows: int,
    policy: str, dtype: torch.dtype,
) -> Any:  # fmt: skip
    """Returns the loss of each row. torch computes the gradient by other ops."""
    if not isinstance(x.shape[0], int):
        return NotImplemented
    weights = _weights(target, weight, ignore_index, dtype)
    losses = [part.loss().to(x.dtype) for part in _parts(x, matrix, bias, target, weights, rows)]
    return torch.cat([x.new_zeros((0,)), *losses])
