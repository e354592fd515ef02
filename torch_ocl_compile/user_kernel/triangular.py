# torch_ocl_compile/user_kernel/triangular.py: the ops ocl.substitution, ocl.cholesky_panel: diagonal blocks of blocked algorithms.
"""decompositions/blocked.py combines them with matrix products. Matrices may have any strides, and complex numbers are pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile.user_kernel.kernel import kernel

LANES = 64  # Work-items of a group.

ARITHMETIC = """
#if PARTS == 2
inline Z times(Z a, Z b) { return (Z)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
inline Z conj(Z a) { return (Z)(a.x, -a.y); }
inline T real(Z a) { return a.x; }
inline Z number(T a) { return (Z)(a, 0); }
inline T size1(Z a) { return fabs(a.x) + fabs(a.y); }   // LAPACK chooses pivots by this size.
inline T square(Z a) { return a.x * a.x + a.y * a.y; }
inline Z over(Z a, Z b) {
  const T scale = 1 / fmax(fabs(b.x), fabs(b.y)), u = b.x * scale, w = b.y * scale;
  return times(a, (Z)(u, -w)) * (scale / (u * u + w * w));
}
#else
inline Z times(Z a, Z b) { return a * b; }
inline Z conj(Z a) { return a; }
inline T real(Z a) { return a; }
inline Z number(T a) { return a; }
inline T size1(Z a) { return fabs(a); }
inline T square(Z a) { return a * a; }
inline Z over(Z a, Z b) { return a / b; }
#endif
"""


def macros(a: torch.Tensor, *_: Any) -> dict[str, Any]:
    """Returns T, the type of a part, and Z, that of an element, for a tensor [batch, rows, columns, PARTS]."""
    name = {torch.float32: "float", torch.float64: "double"}[a.dtype]
    return {"T": a.dtype, "Z": name + ("2" if a.shape[3] == 2 else ""), "PARTS": a.shape[3]}


def strides(tensor: str, position: int = 0) -> dict[str, Any]:
    """Returns the values tensor_batch, tensor_row and tensor_col: strides of argument number `position`, in elements."""

    def stride(dim: int) -> Any:
        return lambda *args: args[position].stride(dim) // args[position].shape[3]

    return {f"{tensor}_{name}": stride(dim) for dim, name in enumerate(("batch", "row", "col"))}


SUBSTITUTION_SOURCE = """
#define ROWS 8   // Rows that a work-item solves at once: it reads each known element of x once for all of them.

// X of A X = B. A work-item has a column of X. `upper` systems are solved from the last row to the first.
__kernel void substitution(__global const Z* a, __global const Z* b,     // [batch, n, n], [batch, n, columns]
                           const long upper, const long unit,            // `unit`: the diagonal counts as ones.
                           __global Z* x,                                // [batch, n, columns]
                           const long n, const long columns, long a_batch, long a_row, long a_col,
                           long b_batch, long b_row, const long b_col) {
  const long column = get_global_id(0), matrix = get_global_id(1);
  if (column >= columns) return;
  long x_row = columns;
  a += matrix * a_batch, b += matrix * b_batch + column * b_col, x += matrix * n * columns + column;
  if (upper) {
    a += (n - 1) * (a_row + a_col), b += (n - 1) * b_row, x += (n - 1) * x_row;
    a_row = -a_row, a_col = -a_col, b_row = -b_row, x_row = -x_row;
  }
  for (long first = 0; first < n; first += ROWS) {
    Z sum[ROWS];
    __global const Z* row[ROWS];
    for (int i = 0; i < ROWS; ++i) {
      const long at = min(first + i, n - 1);                             // The last rows may be fewer.
      row[i] = a + at * a_row, sum[i] = b[at * b_row];
    }
    for (long k = 0; k < first; ++k) {
      const Z known = x[k * x_row];
      for (int i = 0; i < ROWS; ++i) sum[i] -= times(row[i][k * a_col], known);
    }
    for (int i = 0; i < ROWS; ++i) {
      for (int k = 0; k < i; ++k) sum[i] -= times(row[i][min(first + k, n - 1) * a_col], sum[k]);
      if (!unit) sum[i] = over(sum[i], row[i][min(first + i, n - 1) * a_col]);
      if (first + i < n) x[(first + i) * x_row] = sum[i];
    }
  }
}
"""


def _solution(a: torch.Tensor, b: torch.Tensor, *_: Any) -> torch.Tensor:
    return b.new_empty(b.shape)


def _columns(a: torch.Tensor, b: torch.Tensor, *_: Any) -> Sequence[Any]:
    return (b.shape[2], b.shape[0])


SUBSTITUTION = kernel(
    "ocl::substitution",
    ARITHMETIC + SUBSTITUTION_SOURCE,
    outputs={"x": _solution},
    values={
        "n": lambda a, *_: a.shape[1],
        "columns": lambda a, b, *_: b.shape[2],
        **strides("a"),
        **strides("b", 1),
    },
    global_size=_columns,
    local_size=lambda a, b, *_: (min(LANES, 16 * -(-b.shape[2] // 16)), 1),
    defines=macros,
    strided=("a", "b"),
)

CHOLESKY_SOURCE = """
#define ROWS 8   // Rows of L^T that are computed at once.

// L^T of A = L L^H, of which the lower triangle is read. A work-group has a matrix, and its work-items share the columns of L^T.
__kernel void cholesky_panel(__global const Z* a,                        // [batch, n, n]
                             __global Z* factor, __global int* info,     // [batch, n, n]; the first column that fails, from 1, or 0
                             const long n, const long a_batch, const long a_row, const long a_col, __local Z* corner) {
  const long lane = get_local_id(0), lanes = get_local_size(0);
  a += get_group_id(0) * a_batch, factor += get_group_id(0) * n * n;
  int failed = 0;
  for (long first = 0; first < n; first += ROWS) {
    for (long j = lane; j < n; j += lanes) {                             // Subtracts the products of the rows above.
      Z sum[ROWS];
      for (int i = 0; i < ROWS; ++i) {
        const long at = min(first + i, n - 1);                           // The last rows may be fewer.
        sum[i] = j >= at ? a[j * a_row + at * a_col] : number(0);
      }
      for (long k = 0; k < first; ++k) {
        const Z known = j >= first ? factor[k * n + j] : number(0);
        for (int i = 0; i < ROWS; ++i) sum[i] -= times(conj(factor[k * n + min(first + i, n - 1)]), known);
      }
      for (int i = 0; i < ROWS; ++i)
        if (first + i < n) factor[(first + i) * n + j] = j >= first + i ? sum[i] : number(0);
    }
    barrier(CLK_GLOBAL_MEM_FENCE);                                       // The sums are there.
    if (lane == 0) {                                                     // Factors the block on the diagonal.
      for (int i = 0; i < ROWS && first + i < n; ++i)
        for (int j = i; j < ROWS && first + j < n; ++j) {
          Z sum = factor[(first + i) * n + first + j];
          for (int k = 0; k < i; ++k) sum -= times(conj(corner[k * ROWS + i]), corner[k * ROWS + j]);
          if (j == i && failed == 0 && !(real(sum) > 0)) failed = first + i + 1;
          corner[i * ROWS + j] = j == i ? number(sqrt(real(sum))) : sum / real(corner[i * ROWS + i]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);                                        // The corner has its final values.
    for (long j = lane; j < n; j += lanes) {
      Z sum[ROWS];
      for (int i = 0; i < ROWS && first + i < n; ++i) {
        sum[i] = j >= first + i ? factor[(first + i) * n + j] : number(0);
        for (int k = 0; k < i; ++k) sum[i] -= times(conj(corner[k * ROWS + i]), sum[k]);
        sum[i] = j == first + i ? corner[i * ROWS + i] : sum[i] / real(corner[i * ROWS + i]);
        if (j >= first + i) factor[(first + i) * n + j] = sum[i];
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);                 // The rows are final, and the corner is read.
  }
  if (lane == 0) info[get_group_id(0)] = failed;
}
"""


def _factor(a: torch.Tensor) -> torch.Tensor:
    return a.new_empty(a.shape)


def info(a: torch.Tensor, *_: Any) -> torch.Tensor:
    return a.new_empty((a.shape[0],), dtype=torch.int32)


CHOLESKY_PANEL = kernel(
    "ocl::cholesky_panel",
    ARITHMETIC + CHOLESKY_SOURCE,
    outputs={"factor": _factor, "info": info},
    values={"n": lambda a: a.shape[1], **strides("a"), "corner": 64},
    global_size=lambda a: LANES * a.shape[0],
    local_size=LANES,
    defines=macros,
    strided=("a",),
)
