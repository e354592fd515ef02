# torch_ocl_compile/user_kernel/qr.py: the ops ocl.qr_panel, Householder reflections of a few columns, and ocl.reflector, their product.
"""decompositions/blocked.py combines them with matrix products. One program serves all sizes."""

from __future__ import annotations

import torch

from torch_ocl_compile.user_kernel.kernel import kernel
from torch_ocl_compile.user_kernel.triangular import ARITHMETIC, LANES, macros, strides

QR_SOURCE = """
#define COLUMNS 8   // Columns that a reflection is applied to at once.
#define AT(i, j) columns[(j) * m + (i)]

#define STEP 8      // A work-group has STEP * COLUMNS work-items.

// Adds up `count` rows of `sums`, which have an element for each work-item: STEP elements into each element of `partial`.
inline void add_up(__local const Z* sums, __local Z* partial, int count) {
  const int lane = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);                                          // The elements are there.
  if (lane < count * STEP) {
    Z sum = sums[lane * STEP];
    for (int i = 1; i < STEP; ++i) sum += sums[lane * STEP + i];
    partial[lane] = sum;
  }
  barrier(CLK_LOCAL_MEM_FENCE);                                          // The partial sums are there.
}

inline Z total(__local const Z* partial, int row) {
  Z sum = partial[row * STEP];
  for (int i = 1; i < STEP; ++i) sum += partial[row * STEP + i];
  return sum;
}

// Reflections I - tau v v^H that make a matrix upper triangular. A work-group has a matrix, and its work-items share the rows.
__kernel void qr_panel(__global const Z* a,                              // [batch, m, n]
                       __global Z* columns, __global Z* tau,             // [batch, n, m], column after column; [batch, min(m, n)]
                       const long m, const long n, const long a_batch, const long a_row, const long a_col,
                       __local Z* sums, __local Z* partial) {
  const long lane = get_local_id(0), lanes = get_local_size(0), matrix = get_group_id(0);
  a += matrix * a_batch, columns += matrix * n * m, tau += matrix * min(m, n);
  for (long j = 0; j < n; ++j)
    for (long i = lane; i < m; i += lanes) AT(i, j) = a[i * a_row + j * a_col];
  for (long k = 0; k < min(m, n); ++k) {
    Z sum = number(0);
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);                 // Column k is up to date, and `sums` is read.
    for (long i = k + 1 + lane; i < m; i += lanes) sum += number(square(AT(i, k)));
    sums[lane] = sum;
    add_up(sums, partial, 1);
    const Z head = AT(k, k);
    const T below = real(total(partial, 0));
    const bool is_trivial = below == 0 && size1(head - number(real(head))) == 0;
    const T length = -copysign(sqrt(square(head) + below), real(head));
    const Z factor = is_trivial ? number(0) : (number(length) - head) / length;
    const Z divisor = is_trivial ? number(1) : head - number(length);
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);                 // All have read the head and the sum.
    for (long i = k + 1 + lane; i < m; i += lanes) AT(i, k) = over(AT(i, k), divisor);
    if (lane == 0) AT(k, k) = is_trivial ? head : number(length), tau[k] = factor;
    for (long first = k + 1; first < n; first += COLUMNS) {              // Applies I - conj(tau) v v^H.
      Z dots[COLUMNS];
      for (int j = 0; j < COLUMNS; ++j) dots[j] = number(0);
      for (long i = k + 1 + lane; i < m; i += lanes) {                   // A work-item reads only what it has written.
        const Z v = conj(AT(i, k));
        for (int j = 0; j < COLUMNS; ++j) dots[j] += times(v, AT(i, min(first + j, n - 1)));
      }
      for (int j = 0; j < COLUMNS; ++j) sums[j * lanes + lane] = dots[j];
      add_up(sums, partial, COLUMNS);
      for (int j = 0; j < COLUMNS; ++j) dots[j] = times(conj(factor), total(partial, j) + AT(k, min(first + j, n - 1)));
      barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);               // All have read the sums and row k.
      for (long i = k + 1 + lane; i < m; i += lanes) {
        const Z v = AT(i, k);
        for (int j = 0; j < COLUMNS && first + j < n; ++j) AT(i, first + j) -= times(v, dots[j]);
      }
      for (int j = 0; j < COLUMNS && first + j < n && lane == 0; ++j) AT(k, first + j) -= dots[j];
    }
  }
}
"""


def _columns(a: torch.Tensor) -> torch.Tensor:
    return a.new_empty((a.shape[0], a.shape[2], a.shape[1], a.shape[3]))


def _tau(a: torch.Tensor) -> torch.Tensor:
    return a.new_empty((a.shape[0], min(a.shape[1], a.shape[2]), a.shape[3]))


QR_PANEL = kernel(
    "ocl::qr_panel",
    ARITHMETIC + QR_SOURCE,
    outputs={"columns": _columns, "tau": _tau},
    values={"m": lambda a: a.shape[1], "n": lambda a: a.shape[2], **strides("a"), "sums": 8 * LANES, "partial": LANES},
    global_size=lambda a: LANES * a.shape[0],
    local_size=LANES,
    defines=macros,
    strided=("a",),
)

REFLECTOR_SOURCE = """
// The upper triangular T of H_0 H_1 .. = I - V T V^H, from V^H V. A work-item has a row.
__kernel void reflector(__global const Z* products, __global const Z* tau,   // [batch, n, n], [batch, n]
                        __global Z* triangle,                                // [batch, n, n]
                        const long n) {
  const long i = get_global_id(0), matrix = get_global_id(1);
  products += matrix * n * n, tau += matrix * n, triangle += (matrix * n + i) * n;
  for (long k = 0; k < n; ++k) {
    Z sum = number(0);
    for (long j = i; j < k; ++j) sum += times(triangle[j], products[j * n + k]);
    triangle[k] = k < i ? number(0) : k == i ? tau[k] : -times(tau[k], sum);
  }
}
"""

REFLECTOR = kernel(
    "ocl::reflector",
    ARITHMETIC + REFLECTOR_SOURCE,
    outputs={"triangle": lambda products, tau: products.new_empty(products.shape)},
    values={"n": lambda products, tau: products.shape[1]},
    global_size=lambda products, tau: (products.shape[1], products.shape[0]),
    defines=macros,
)
