# torch_ocl_compile/user_kernel/jacobi.py: the op ocl.jacobi_sweeps: rotations until the columns of a matrix are orthogonal, in one kernel.
"""A work-group has one matrix. In each round of a round-robin tournament its work-items rotate the pairs of columns; after all rounds of a
sweep every two columns have met. Sweeps end when no rotation was larger than the noise of the products.
lowering/complex_numbers/jacobi.py does the same for packages, by a fixed number of rounds, in kernels that work on the whole batch.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.user_kernel.kernel import kernel

LANES = 64  # Work-items of a group on a GPU. A CPU runs them one after the other, so there a single one does the work.
SWEEPS = 40  # At most. About ten are usual.

SOURCE = """
inline T total(V x) { return dot((x.lo.lo + x.lo.hi) + (x.hi.lo + x.hi.hi), (V4)(1)); }

#if PARTS == 2   // What the imaginary part w adds to a product of conj(u + i w) and x.
#define IMAGINARY(w, x) +(w) * (x).s1032547698badcfe * (V)(1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1)
#else
#define IMAGINARY(w, x)
#endif

// Rotates the columns p and q: (c p - conj(s) q, s p + c q), where s = u + i w.
inline void rotate(__global T* p, __global T* q, long size, T c, T u, T w) {
  for (long r = 0; r < size; r += 16) {
    const V x = vload16(0, p + r), y = vload16(0, q + r);
    vstore16(c * x - (u * y IMAGINARY(w, y)), 0, p + r);
    vstore16(c * y + (u * x IMAGINARY(-w, x)), 0, q + r);
  }
}

__kernel void jacobi_sweeps(__global const T* a,                // [batch, n, rows, PARTS]: column after column, rows a multiple of 16
                            __global T* orthogonal,             // the same: the columns of A V
                            __global T* v,                      // the same with n rows: the columns of V, or empty
                            const long n, const long rows, const long with_vectors, __local T* squares, __local int* moved) {
  const long lane = get_local_id(0), lanes = get_local_size(0), even = n + n % 2;
  const long size = rows * PARTS, v_size = with_vectors ? (n + 15) / 16 * 16 * PARTS : 0;
  a += get_group_id(0) * n * size, orthogonal += get_group_id(0) * n * size, v += get_group_id(0) * n * v_size;
  for (long k = lane; k < n * size; k += lanes) orthogonal[k] = a[k];
  for (long k = lane; k < n * v_size; k += lanes) v[k] = k % v_size == k / v_size * PARTS;
  const T noise = 4 * EPSILON * sqrt((T)rows);                 // Of a product of two unit vectors.
  for (int sweep = 0; sweep < MOST_SWEEPS; ++sweep) {
    if (lane == 0) *moved = 0;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);       // The start values are there, and `moved` is 0.
    for (long k = lane; k < n; k += lanes) {
      V sum = 0;
      for (long r = 0; r < size; r += 16) sum += vload16(0, orthogonal + k * size + r) * vload16(0, orthogonal + k * size + r);
      squares[k] = total(sum);
    }
    barrier(CLK_LOCAL_MEM_FENCE);                              // The squares of the columns' lengths are there.
    for (long round = 0; round < even - 1; ++round) {
      for (long k = lane; k < even / 2; k += lanes) {
        const long i = (round + k) % (even - 1), j = k == 0 ? even - 1 : (round + even - 1 - k) % (even - 1);
        if (i >= n || j >= n) continue;
        __global T *p = orthogonal + i * size, *q = orthogonal + j * size;
        V product = 0, cross = 0;                              // Parts of p^H q.
        for (long r = 0; r < size; r += 16) {
          const V x = vload16(0, p + r), y = vload16(0, q + r);
          product += x * y, cross = cross IMAGINARY(x, y);
        }
        const T re = total(product), im = total(cross), mixed = PARTS == 2 ? hypot(re, im) : fabs(re);
        const T first = squares[i], second = squares[j], largest = sqrt(first) * sqrt(second);
        if (!(mixed > EPSILON * largest)) continue;
        if (mixed > noise * largest) *moved = 1;
        const T ratio = (second - first) / (2 * mixed);
        const T tangent = (ratio < 0 ? -1 : 1) / (fabs(ratio) + sqrt(1 + ratio * ratio));
        const T c = 1 / sqrt(1 + tangent * tangent), s = c * tangent / mixed;
        squares[i] = fmax(first - tangent * mixed, (T)0), squares[j] = fmax(second + tangent * mixed, (T)0);
        rotate(p, q, size, c, s * re, s * im);
        rotate(v + i * v_size, v + j * v_size, v_size, c, s * re, s * im);
      }
      barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);     // The columns of this round are rotated.
    }
    const int again = *moved;
    barrier(CLK_LOCAL_MEM_FENCE);                              // All have read `moved`.
    if (!again) break;
  }
}
"""


def _vectors(a: torch.Tensor, with_vectors: int) -> torch.Tensor:
    n = a.shape[1] if with_vectors else 0
    return a.new_empty((a.shape[0], n, n + -n % 16, a.shape[3]))


def _macros(a: torch.Tensor, _: int) -> dict[str, Any]:
    name = {torch.float32: "float", torch.float64: "double"}[a.dtype]
    known = {"PARTS": a.shape[3], "EPSILON": torch.finfo(a.dtype).eps, "MOST_SWEEPS": SWEEPS}
    return {"T": a.dtype, "V4": f"{name}4", "V": f"{name}16", **known}


def _lanes(a: torch.Tensor, _: int) -> int:
    return 1 if _C.device_properties(a.device.index)["is_cpu"] else LANES


JACOBI_SWEEPS = kernel(
    "ocl::jacobi_sweeps",
    SOURCE,
    outputs={"orthogonal": lambda a, _: torch.empty_like(a), "v": _vectors},
    values={
        "n": lambda a, _: a.shape[1],
        "rows": lambda a, _: a.shape[2],
        "squares": lambda a, _: a.shape[1],
        "moved": 1,
    },
    global_size=lambda a, _: _lanes(a, _) * a.shape[0],
    local_size=_lanes,
    defines=_macros,
)
