# torch_ocl_compile/user_kernel/lu.py: the ops ocl.lu_panel, which factors a few columns, and others for exchanges of rows.
"""decompositions/blocked.py combines them with matrix products. One program serves all sizes."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile.user_kernel.kernel import kernel
from torch_ocl_compile.user_kernel.triangular import ARITHMETIC, LANES, info, macros, strides

LU_SOURCE = """
#define COLUMNS 8   // Columns that are factored before the others are updated, which are then read once for all of them.
#define AT(i, j) columns[(j) * m + (i)]

// P A = L U of a matrix with m >= n. A work-group has a matrix, and its work-items share the rows.
// `before`: columns on the left of the panel. Pivots and failures count from there.
__kernel void lu_panel(__global const Z* a, const long pivot,            // [batch, m, n]; 0: rows keep their order.
                       const long before, __global Z* columns,           // [batch, n, m]: L and U, column after column
                       __global int* pivots, __global long* order,       // [batch, n], from 1; row i of L U is row order[i] of A.
                       __global int* info,                               // The first pivot that is 0, from 1, or 0.
                       const long m, const long n, const long a_batch, const long a_row, const long a_col,
                       __local T* sizes, __local long* places) {
  const long lane = get_local_id(0), lanes = get_local_size(0), matrix = get_group_id(0);
  a += matrix * a_batch, columns += matrix * n * m, pivots += matrix * n, order += matrix * m;
  for (long j = 0; j < n; ++j)
    for (long i = lane; i < m; i += lanes) AT(i, j) = a[i * a_row + j * a_col];
  for (long i = lane; i < m; i += lanes) order[i] = i;
  barrier(CLK_GLOBAL_MEM_FENCE);                                         // The start values are there.
  int failed = 0;
  for (long first = 0; first < n; first += COLUMNS) {
    const long end = min(first + COLUMNS, n);
    for (long k = first; k < end; ++k) {
      T most = -1;
      long place = k;
      for (long i = k + lane; i < m; i += lanes) {
        const T size = size1(AT(i, k));
        place = size > most ? i : place, most = size > most ? size : most;
      }
      sizes[lane] = most, places[lane] = place;
      for (long stride = lanes / 2; stride > 0; stride /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);                                    // The sizes of the previous round are there.
        if (lane < stride) {                                             // LAPACK takes the first of the largest.
          const T other = sizes[lane + stride];
          const long there = places[lane + stride];
          if (other > sizes[lane] || (other == sizes[lane] && there < places[lane])) sizes[lane] = other, places[lane] = there;
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);                                      // The pivot is found.
      const long chosen = pivot ? places[0] : k;
      for (long j = lane; j < n && chosen != k; j += lanes) {
        const Z kept = AT(k, j);
        AT(k, j) = AT(chosen, j), AT(chosen, j) = kept;
      }
      if (lane == 0) {
        const long kept = order[k];
        order[k] = order[chosen], order[chosen] = kept, pivots[k] = before + chosen + 1;
      }
      barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);               // The rows are exchanged, and `places` is read.
      const Z head = AT(k, k);
      const bool is_zero = size1(head) == 0;
      failed = is_zero && failed == 0 ? before + k + 1 : failed;
      for (long i = k + 1 + lane; i < m; i += lanes) {
        const Z factor = is_zero ? AT(i, k) : over(AT(i, k), head);
        AT(i, k) = factor;
        for (long j = k + 1; j < end; ++j) AT(i, j) -= times(factor, AT(k, j));
      }
      barrier(CLK_GLOBAL_MEM_FENCE);                                     // Column k is final.
    }
    for (long j = end + lane; j < n; j += lanes)                         // Rows first .. end - 1 of U.
      for (long i = first + 1; i < end; ++i)
        for (long k = first; k < i; ++k) AT(i, j) -= times(AT(i, k), AT(k, j));
    barrier(CLK_GLOBAL_MEM_FENCE);                                       // These rows are final.
    for (long i = end + lane; i < m && end < n; i += lanes) {
      Z factors[COLUMNS];
      for (int k = 0; k < COLUMNS; ++k) factors[k] = AT(i, first + k);
      for (long j = end; j < n; ++j) {
        Z sum = AT(i, j);
        for (int k = 0; k < COLUMNS; ++k) sum -= times(factors[k], AT(first + k, j));
        AT(i, j) = sum;
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE);                                       // The other columns are up to date.
  }
  if (lane == 0) info[matrix] = failed;
}
"""


def _columns(a: torch.Tensor, *_: Any) -> torch.Tensor:
    return a.new_empty((a.shape[0], a.shape[2], a.shape[1], a.shape[3]))


def _pivots(a: torch.Tensor, *_: Any) -> torch.Tensor:
    return a.new_empty((a.shape[0], a.shape[2]), dtype=torch.int32)


def _order(a: torch.Tensor, *_: Any) -> torch.Tensor:
    return a.new_empty((a.shape[0], a.shape[1]), dtype=torch.int64)


LU_PANEL = kernel(
    "ocl::lu_panel",
    ARITHMETIC + LU_SOURCE,
    outputs={"columns": _columns, "pivots": _pivots, "order": _order, "info": info},
    values={
        "m": lambda a, *_: a.shape[1],
        "n": lambda a, *_: a.shape[2],
        **strides("a"),
        "sizes": LANES,
        "places": LANES,
    },
    global_size=lambda a, *_: LANES * a.shape[0],
    local_size=LANES,
    defines=macros,
    strided=("a",),
)

ORDER_SOURCE = """
// Exchanges rows k and pivots[k] - 1 for each k, in this order, of the numbers of `rows` rows. A work-group has the pivots of a matrix.
__kernel void row_order(__global const int* pivots, const long rows, const long inverse,   // [batch, count]; 1: the inverse.
                        __global long* order,                                              // [batch, rows]
                        const long count, __local int* place) {
  const long lane = get_local_id(0), lanes = get_local_size(0);
  pivots += get_group_id(0) * count, order += get_group_id(0) * rows;
  for (long i = lane; i < rows; i += lanes) place[i] = i;
  barrier(CLK_LOCAL_MEM_FENCE);                                                            // The numbers are there.
  for (long k = 0; k < count && lane == 0; ++k) {
    const long other = clamp(pivots[k] - 1L, 0L, rows - 1);
    const int kept = place[k];
    place[k] = place[other], place[other] = kept;
  }
  barrier(CLK_LOCAL_MEM_FENCE);                                                            // The exchanges are done.
  for (long i = lane; i < rows; i += lanes) order[inverse ? place[i] : i] = inverse ? i : place[i];
}
"""


def _rows(pivots: torch.Tensor, rows: Any, inverse: Any) -> torch.Tensor:
    return pivots.new_empty((pivots.shape[0], rows), dtype=torch.int64)


ROW_ORDER = kernel(
    "ocl::row_order",
    ORDER_SOURCE,
    outputs={"order": _rows},
    values={"count": lambda pivots, *_: pivots.shape[1], "place": lambda pivots, rows, inverse: rows},
    global_size=lambda pivots, *_: LANES * pivots.shape[0],
    local_size=LANES,
)

TAKE_SOURCE = """
// Rows order[0], order[1], .. of a matrix.
__kernel void take_rows(__global const Z* a, __global const long* order,          // [batch, any, columns], [batch, rows]
                        __global Z* taken,                                        // [batch, rows, columns]
                        const long rows, const long columns, const long a_batch, const long a_row, const long a_col) {
  const long i = get_global_id(1), matrix = get_global_id(2);
  for (long j = get_global_id(0); j < columns; j += get_global_size(0))
    taken[(matrix * rows + i) * columns + j] = a[matrix * a_batch + order[matrix * rows + i] * a_row + j * a_col];
}
"""


def _taken(a: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    return a.new_empty((a.shape[0], order.shape[1], *a.shape[2:]))


TAKE_ROWS = kernel(
    "ocl::take_rows",
    TAKE_SOURCE,
    outputs={"taken": _taken},
    values={"rows": lambda a, order: order.shape[1], "columns": lambda a, order: a.shape[2], **strides("a")},
    global_size=lambda a, order: (LANES, order.shape[1], a.shape[0]),
    local_size=(LANES, 1, 1),
    defines=macros,
    strided=("a",),
)

COMPOSED_SOURCE = """
// The order of rows after two exchanges, of which the later is only about the last `later_rows` rows.
__kernel void later_order(__global const long* order, __global const long* later,   // [batch, rows], [batch, later_rows]
                          __global long* both,                                      // [batch, rows]
                          const long rows, const long later_rows) {
  const long i = get_global_id(0), matrix = get_global_id(1), kept = rows - later_rows;
  order += matrix * rows, later += matrix * later_rows;
  both[matrix * rows + i] = i < kept ? order[i] : order[kept + later[i - kept]];
}
"""

LATER_ORDER = kernel(
    "ocl::later_order",
    COMPOSED_SOURCE,
    outputs={"both": lambda order, later: order.new_empty(order.shape)},
    values={"rows": lambda order, later: order.shape[1], "later_rows": lambda order, later: later.shape[1]},
    global_size=lambda order, later: (order.shape[1], order.shape[0]),
)
