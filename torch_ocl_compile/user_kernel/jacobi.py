# torch_ocl_compile/user_kernel/jacobi.py: the op ocl.jacobi_sweeps: rotations until the columns of a matrix are orthogonal, in one kernel.
"""A work-group has one matrix. In each round of a round-robin tournament its work-items rotate the pairs of columns; after all rounds of a
sweep every two columns have met. Sweeps end when no rotation was larger than the noise of the products.
lowering/complex_numbers/jacobi.py does the same for small matrices by a fixed number of rounds, in kernels that work on the whole batch.
Packages can have only these."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile.user_kernel.kernel import kernel

LANES = 64  # Work-items of a group.
SWEEPS = 40  # At most. About ten are usual.

SOURCE = """
// Rotates the numbers p and q, of one row: (c p - conj(s) q, s p + c q), where s = u + i w.
inline void rotate(__global T* p, __global T* q, T c, T u, T w) {
#if PARTS == 2
  const T a = p[0], b = p[1], x = q[0], y = q[1];
  p[0] = c * a - (u * x + w * y), p[1] = c * b - (u * y - w * x);
  q[0] = u * a - w * b + c * x, q[1] = u * b + w * a + c * y;
#else
  const T a = p[0], x = q[0];
  p[0] = c * a - u * x, q[0] = u * a + c * x;
#endif
}

__kernel void jacobi_sweeps(__global const T* a,                // [batch, n, rows, PARTS]: column after column
                            __global T* orthogonal,             // the same: the columns of A V
                            __global T* v,                      // [batch, n, n, PARTS]: the columns of V
                            const long n, const long rows, __local int* moved) {
  const long lane = get_local_id(0), lanes = get_local_size(0), even = n + n % 2, size = rows * PARTS;
  a += get_group_id(0) * n * size, orthogonal += get_group_id(0) * n * size, v += get_group_id(0) * n * n * PARTS;
  for (long k = lane; k < n * size; k += lanes) orthogonal[k] = a[k];
  for (long k = lane; k < n * n * PARTS; k += lanes) v[k] = k % (PARTS * (n + 1)) == 0;
  const T noise = 4 * EPSILON * sqrt((T)rows);                 // Of a product of two unit vectors.
  for (int sweep = 0; sweep < MOST_SWEEPS; ++sweep) {
    if (lane == 0) *moved = 0;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);       // The start values are there, and `moved` is 0.
    for (long round = 0; round < even - 1; ++round) {
      for (long k = lane; k < even / 2; k += lanes) {
        const long i = (round + k) % (even - 1), j = k == 0 ? even - 1 : (round + even - 1 - k) % (even - 1);
        if (i >= n || j >= n) continue;
        __global T *p = orthogonal + i * size, *q = orthogonal + j * size;
        T first = 0, second = 0, re = 0, im = 0;               // |p|^2, |q|^2 and p^H q
        for (long r = 0; r < size; r += PARTS) {
          first += p[r] * p[r], second += q[r] * q[r], re += p[r] * q[r];
#if PARTS == 2
          first += p[r + 1] * p[r + 1], second += q[r + 1] * q[r + 1];
          re += p[r + 1] * q[r + 1], im += p[r] * q[r + 1] - p[r + 1] * q[r];
#endif
        }
        const T mixed = hypot(re, im);
        const T largest = sqrt(first) * sqrt(second);
        if (!(mixed > EPSILON * largest)) continue;
        if (mixed > noise * largest) *moved = 1;
        const T ratio = (second - first) / (2 * mixed);
        const T tangent = (ratio < 0 ? -1 : 1) / (fabs(ratio) + sqrt(1 + ratio * ratio));
        const T c = 1 / sqrt(1 + tangent * tangent), s = c * tangent / mixed;
        for (long r = 0; r < size; r += PARTS) rotate(p + r, q + r, c, s * re, s * im);
        for (long r = 0; r < n * PARTS; r += PARTS) rotate(v + i * n * PARTS + r, v + j * n * PARTS + r, c, s * re, s * im);
      }
      barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);     // The columns of this round are rotated.
    }
    const int again = *moved;
    barrier(CLK_LOCAL_MEM_FENCE);                              // All have read `moved`.
    if (!again) break;
  }
}
"""


def _vectors(a: torch.Tensor) -> torch.Tensor:
    return a.new_empty((a.shape[0], a.shape[1], a.shape[1], a.shape[3]))


def _macros(a: torch.Tensor) -> dict[str, Any]:
    return {"T": a.dtype, "PARTS": a.shape[3], "EPSILON": torch.finfo(a.dtype).eps, "MOST_SWEEPS": SWEEPS}


JACOBI_SWEEPS = kernel(
    "ocl::jacobi_sweeps",
    SOURCE,
    outputs={"orthogonal": torch.empty_like, "v": _vectors},
    values={"n": lambda a: a.shape[1], "rows": lambda a: a.shape[2], "moved": 1},
    global_size=lambda a: LANES * a.shape[0],
    local_size=LANES,
    defines=_macros,
)
