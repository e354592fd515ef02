# torch_ocl_compile/decompositions/ctc.py: the loss of connectionist temporal classification, and its gradient.
"""The states of a target of S labels are blank, label 1, blank, label 2, .., blank: 2 S + 1. ocl.ctc_paths, whose kernel is in
user_kernel/ctc.py, gives for each time and state the log of the summed probability of all paths to it (alpha), or from it (beta).

    loss = -log(sum of alpha over the last two states, at the last time)
    d loss / d log p[t, c] = p[t, c] - sum of exp(alpha + beta + loss - log p) over the states with label c

The second line is PyTorch's: it is the gradient for log p that comes from log_softmax.
Source: Graves et al., "Connectionist Temporal Classification", 2006.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten
Tensor = torch.Tensor
Lengths = Tensor | Sequence[int]


def _lengths(given: Lengths, device: torch.device) -> Tensor:
    """Returns lengths as int64 [batch] on the device."""
    if isinstance(given, Tensor):
        return given.to(torch.int64)
    return torch.stack([torch.full((), n, dtype=torch.int64, device=device) for n in given])


def _padded(targets: Tensor, lengths: Sequence[int]) -> Tensor:
    """Returns concatenated targets as [batch, longest]. Places behind a target have some label."""
    longest, device = max(lengths), targets.device
    place = (
        torch.arange(longest, device=device)[None, :]
        + (_lengths(lengths, device).cumsum(0) - _lengths(lengths, device))[:, None]
    )
    return targets[place.clamp(max=targets.shape[0] - 1)] if longest else targets.new_zeros((len(lengths), 0))


def _is_right(log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, blank: int) -> bool:
    """True if PyTorch takes the arguments, and they are on one device. What is on the device is not checked.

    PyTorch divides the loss by the lengths. It cannot trace that if the lengths are on the CPU; the graph is cut then.
    """
    tensors = [t for t in (targets, input_lengths, target_lengths) if isinstance(t, Tensor)]
    if any(t.device != log_probs.device for t in tensors):
        return False
    kinds = log_probs.dtype in (torch.float32, torch.float64) and targets.dtype in (torch.int32, torch.int64)
    if not kinds or log_probs.dim() != 3 or targets.dim() not in (1, 2) or log_probs.numel() == 0:
        return False
    steps, batch, classes = log_probs.shape
    if len(input_lengths) != batch or len(target_lengths) != batch or not 0 <= blank < classes:
        return False
    if targets.dim() == 2 and targets.shape[0] != batch:
        return False
    if isinstance(input_lengths, Tensor) or isinstance(target_lengths, Tensor):
        return targets.dim() == 2
    longest = targets.shape[1] if targets.dim() == 2 else targets.shape[0]
    total = sum(target_lengths) == targets.shape[0] if targets.dim() == 1 else True
    return all(0 <= n <= steps for n in input_lengths) and all(0 <= n <= longest for n in target_lengths) and total


def _arguments(log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths) -> list[Tensor]:
    """Returns the tensors that ocl.ctc_paths takes."""
    targets = targets.to(torch.int64)
    if targets.dim() == 1:
        assert not isinstance(target_lengths, Tensor)
        targets = _padded(targets, target_lengths)
    lengths = (_lengths(n, log_probs.device).contiguous() for n in (input_lengths, target_lengths))
    return [log_probs.contiguous(), targets.contiguous(), *lengths]


@decompose(aten._ctc_loss.default, aten._ctc_loss.Tensor)
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, blank: int = 0, zero_infinity: bool = False
) -> Any:  # fmt: skip
    """Returns (loss [batch], alpha [batch, time, states]). log_probs is [time, batch, classes]."""
    if not _is_right(log_probs, targets, input_lengths, target_lengths, blank):
        return NotImplemented
    given = _arguments(log_probs, targets, input_lengths, target_lengths)
    alpha = torch.ops.ocl.ctc_paths(*given, blank, 0)
    times, last = given[2].clamp(0, alpha.shape[1]), 2 * given[3].clamp(0, given[1].shape[1])
    at_end = alpha.gather(1, (times - 1).clamp(min=0)[:, None, None].expand(-1, 1, alpha.shape[2]))[:, 0]
    ends = at_end.gather(1, torch.stack([last, (last - 1).clamp(min=0)], 1))
    ends = torch.where(torch.stack([last >= 0, last > 0], 1), ends, -math.inf)
    loss = -torch.logsumexp(ends, 1)
    loss = torch.where(times == 0, torch.where(last == 0, 0.0, math.inf), loss)
    return torch.where(loss == math.inf, 0.0, loss) if zero_infinity else loss, alpha


@decompose(aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor)
def ctc_loss_backward(
    grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, loss: Tensor,
    alpha: Tensor, blank: int, zero_infinity: bool = False,
) -> Any:  # fmt: skip
    if not _is_right(log_probs, targets, input_lengths, target_lengths, blank):
        return NotImplemented
    given = _arguments(log_probs, targets, input_lengths, target_lengths)
    paths = alpha + torch.ops.ocl.ctc_paths(*given, blank, 1)
    steps, _, classes = log_probs.shape
    # The sum over the states of each label is a product of matrices: [batch, time, states] by [batch, states, classes].
    largest = paths.amax(-1, keepdim=True)
    largest = torch.where(largest == -math.inf, 0.0, largest)
    labels = torch.stack([given[1], torch.full_like(given[1], blank)], -1).flatten(1)
    labels = torch.cat([labels.new_full((labels.shape[0], 1), blank), labels], 1)
    is_label = (labels[..., None] == torch.arange(classes, device=labels.device)).to(paths.dtype)
    summed = torch.bmm((paths - largest).exp(), is_label).log() + largest
    own = log_probs.transpose(0, 1)
    made = (own.exp() - (summed + loss[:, None, None] - own).exp()) * grad[:, None, None]
    within = torch.arange(steps, device=own.device)[None, :] < given[2][:, None]
    if zero_infinity:
        within = within & (loss != math.inf)[:, None]
    return torch.where(within[..., None], made, 0.0).transpose(0, 1).contiguous()
