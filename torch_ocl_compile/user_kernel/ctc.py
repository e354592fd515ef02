# torch_ocl_compile/user_kernel/ctc.py: the op ocl.ctc_paths, a kernel that steps through the time of each sequence.
"""decompositions/ctc.py says what it computes. A work-group has one sequence; its work-items share the states. Backwards, time and
states are numbered from their ends, and the recursion is the same."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile.user_kernel.kernel import kernel

LANES = 64  # Work-items of a group.

SOURCE = """
__kernel void ctc_paths(__global const T* log_probs,          // [steps, batch, classes]
                        __global const long* targets,         // [batch, labels]
                        __global const long* input_lengths,   // [batch]
                        __global const long* target_lengths,  // [batch]
                        const long blank, const long backwards,
                        __global T* sums,                     // [batch, steps, 2 labels + 1]
                        const long steps, const long batch, const long classes, const long labels) {
  const long n = get_group_id(0), lane = get_local_id(0), lanes = get_local_size(0);
  const long states = 2 * labels + 1, times = clamp(input_lengths[n], 0L, steps);
  const long count = 2 * clamp(target_lengths[n], 0L, labels) + 1;
  __global T* rows = sums + n * steps * states;
  for (long k = lane; k < steps * states; k += lanes) rows[k] = -INFINITY;   // What no path reaches.
  barrier(CLK_GLOBAL_MEM_FENCE);                                             // All of `rows` has its start values.
  for (long t = 0; t < times; ++t) {
    const long now = backwards ? times - 1 - t : t, before = backwards ? now + 1 : now - 1;
    for (long s = lane; s < count; s += lanes) {
      const long at = backwards ? count - 1 - s : s, step = backwards ? 1 : -1;
      const long label = at % 2 ? targets[n * labels + at / 2] : blank;
      T total = s < 2 ? 0 : -INFINITY;
      if (t > 0) {
        __global const T* from = rows + before * states;
        const T stay = from[at], move = s > 0 ? from[at + step] : -INFINITY;
        // A path may leave out the blank between two labels that differ.
        const bool may_skip = s > 1 && at % 2 && targets[n * labels + at / 2 + step] != label;
        const T skip = may_skip ? from[at + 2 * step] : -INFINITY;
        T most = fmax(stay, fmax(move, skip));
        most = most == -INFINITY ? 0 : most;
        total = log(exp(stay - most) + exp(move - most) + exp(skip - most)) + most;
      }
      rows[now * states + at] = total + log_probs[(now * batch + n) * classes + clamp(label, 0L, classes - 1)];
    }
    barrier(CLK_GLOBAL_MEM_FENCE);                                           // The row of this time is complete.
  }
}
"""


def _sums(log_probs: torch.Tensor, targets: torch.Tensor, *_: Any) -> torch.Tensor:
    steps, batch, _classes = log_probs.shape
    return log_probs.new_empty((batch, steps, 2 * targets.shape[1] + 1))


PATHS = kernel(
    "ocl::ctc_paths",
    SOURCE,
    outputs={"sums": _sums},
    values={
        "steps": lambda log_probs, *_: log_probs.shape[0],
        "batch": lambda log_probs, *_: log_probs.shape[1],
        "classes": lambda log_probs, *_: log_probs.shape[2],
        "labels": lambda log_probs, targets, *_: targets.shape[1],
    },
    global_size=lambda log_probs, *_: LANES * log_probs.shape[1],
    local_size=LANES,
    defines=lambda log_probs, *_: {"T": log_probs.dtype},
)
