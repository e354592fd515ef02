// csrc/schedule/families/gemm/matrices.h: operands of matrix products as batches of strided matrices.
#pragma once

#include <optional>

#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

/// Returns the n of a `b / n` or `b % n` in the view's coordinates; nullopt if there is none. Such an n means that the
/// batch is two flattened dimensions, such as batch and heads, or slices and batch.
std::optional<ir::IndexExpr> batch_factor(const ir::IndexExpr& e);
/// Returns the element offset of a view [b, i, j] over i0, i1, i2. A buffer without strides becomes row-major.
ir::IndexExpr offset_of(Draft& draft, const ir::View& view);
/// Returns the view as strided matrices, with the batch index b split into b / inner and b % inner. nullopt if the
/// offset is not affine in these two, in the row and in the column.
std::optional<Matrices> matrices_in_place(Draft& draft, const ir::View& view, const ir::IndexExpr& inner);
/// Returns a row-major copy of the view. inner: as for matrices_in_place.
Matrices dense_matrices(Draft& draft, const ir::View& view, const ir::IndexExpr& inner);

/// Returns the view in place if possible, otherwise a row-major copy.
Matrices matrices(Draft& draft, const ir::View& view, const ir::IndexExpr& inner);

/// Returns the number of slices of K that fills the device if the output has few tiles. A slice has at least 256
/// elements of K, and a multiple of `chunk`. The choice is the knob "splits".
int64_t choose_splits(Draft& draft, int64_t tiles, const ir::IndexExpr& K, int chunk = 4);
/// Turns the contraction into one with splits*batch matrices. Matrix s*batch + b is slice s of matrix b.
void split_depth(Draft& draft, int64_t splits);

/// Adds both operands of the contraction to the launch of a group or tensor core kernel: inputs, arguments, and macros
/// about their layout. Sets how results are stored: [batch, m, n], vectors along n. chunk: 8 for 16-bit operands on
/// tensor cores, otherwise 4. With 8, rows must begin at multiples of 16 bytes, so other operands are copied.
void pass_matrices(Draft& draft, int chunk = 4);

/// Returns the n of batch_factor for the operands; 1 if the batch is a single dimension.
ir::IndexExpr inner_batch(Draft& draft);

}  // namespace ocl::schedule
