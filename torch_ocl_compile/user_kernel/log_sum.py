# torch_ocl_compile/user_kernel/log_sum.py: the op ocl.running_log_sum: log(e^z1 + .. + e^zk) of complex numbers, for each k.
"""A step adds log(1 + e^(smaller - larger)) to the number with the larger real part, as PyTorch does on the CPU. So the imaginary part
has PyTorch's multiple of 2 pi. Each sum is kept with its rounding error: late elements of a long row change it by less than a unit in
the last place."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile.user_kernel.kernel import kernel

SOURCE = """
// Adds x to the sum high + low.
inline void add(T* high, T* low, T x) {
  const T sum = *high + x, b = sum - *high;
  *low += (*high - (sum - b)) + (x - b);
  *high = sum;
}

__kernel void running_log_sum(__global const T* re, __global const T* im,      // [rows, length, columns]
                              __global T* sum_re, __global T* sum_im,          // the same
                              const long length, const long columns) {
  const long row = get_global_id(0) / columns, column = get_global_id(0) % columns;
  T re_high = -INFINITY, im_high = 0, re_low = 0, im_low = 0;
  for (long k = 0; k < length; ++k) {
    const long at = (row * length + k) * columns + column;
    const T x = re[at], y = im[at], away = x == re_high ? 0 : -fabs(x - re_high);
    if (isnan(x) || isnan(y) || isnan(re_high) || isnan(im_high)) {
      re_high = im_high = NAN;
    } else if (!(x == -INFINITY && re_high == -INFINITY)) {
      const T turn = re_high > x ? y - im_high - im_low : im_high + im_low - y;
      if (!(re_high > x)) {
        re_high = x, im_high = y, re_low = away == 0 ? re_low : 0, im_low = 0;
      }
      const T size = exp(away), c = size * cos(turn), s = size * sin(turn);   // 1 + c + i s
      const T more = c * (2 + c) + s * s;                                     // |1 + c + i s|^2 - 1
      if (isfinite(re_high)) add(&re_high, &re_low, (T)0.5 * (more > (T)-0.5 ? log1p(more) : log((1 + c) * (1 + c) + s * s)));
      add(&im_high, &im_low, atan2(s, 1 + c));
    }
    sum_re[at] = re_high + re_low;
    sum_im[at] = im_high + im_low;
  }
}
"""


def _like(re: torch.Tensor, im: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(re)


def _columns(re: torch.Tensor, *_: Any) -> Any:
    return re.shape[2]


RUNNING_LOG_SUM = kernel(
    "ocl::running_log_sum",
    SOURCE,
    outputs={"sum_re": _like, "sum_im": _like},
    values={"length": lambda re, im: re.shape[1], "columns": _columns},
    global_size=lambda re, im: re.shape[0] * re.shape[2],
    defines=lambda re, im: {"T": re.dtype},
)
