// csrc/schedule/templates/matrix_operands.h: operands of matrix products as batches of strided matrices.
#pragma once

#include <optional>

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// A batch of matrices. Element (b, i, j) is at offset + (b / n)*outer + (b % n)*inner + i*row + j*col, where n is the
/// number of matrices in the inner of two batch dimensions (see inner_batch).
struct Matrices {
  TemplateLaunch::Input input;
  ir::IndexExpr outer, inner, row, col;
};

/// The n of a `b / n` or `b % n` in the view's coordinates; nullopt if there is none. It means that the batch is two
/// flattened dimensions, such as batch and heads, or slices and batch.
std::optional<ir::IndexExpr> batch_factor(const ir::IndexExpr& e);
/// Element offset of a view [b, i, j] over i0, i1, i2. A buffer without strides becomes row-major.
ir::IndexExpr offset_of(TemplateContext& context, const ir::View& view);
/// Returns the view as strided matrices. The batch index b is split into b / inner and b % inner. nullopt if the offset is
/// not affine in these two, in the row and in the column.
std::optional<Matrices> matrices_in_place(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);
/// A row-major copy of the view.
Matrices dense_matrices(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);

/// Passes the strides as arguments <name>_outer, <name>_inner, <name>_row, <name>_col.
void pass_matrix(TemplateLaunch& launch, const std::string& name, const Matrices& matrix);

/// The view in place if possible, otherwise a row-major copy.
Matrices matrices(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);

/// Number of slices of K that fills the device if the output has few tiles. A slice has at least 256 elements of K, and
/// a multiple of `chunk`. Knob "splits".
int64_t choose_splits(TemplateContext& context, int64_t tiles, const ir::IndexExpr& K, int chunk = 4);
/// Turns the contraction into one with splits*batch matrices. Matrix s*batch + b is slice s of matrix b.
void split_depth(TemplateContext& context, int64_t splits);

/// Passes both operands of the contraction to a group or tensor core kernel: inputs, arguments, and macros about their
/// layout. Sets how results are stored: [batch, m, n], vectors along n. `chunk` is 8 for 16-bit operands on tensor
/// cores, otherwise 4. With 8, rows must begin at multiples of 16 bytes, so other operands are copied.
void pass_matrices(TemplateContext& context, TemplateLaunch& launch, int chunk = 4);

/// Packs a matrix [b, k, n] into panels of `width` columns, [b, panels, k, width], with zeros beyond n.
/// kernels/pack/item.cl does this in a launch before the node. `matrix` says where the operand is in memory. If it has
/// no batch stride, one packed matrix serves all b.
Matrices packed_panels(TemplateContext& context, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner,
                       int width);

/// The n of batch_factor for the operands; 1 if the batch is a single dimension.
ir::IndexExpr inner_batch(TemplateContext& context);

/// The order of elements in a block of a packed operand: the forms of kernels/pack/group.cl.
enum class BlockForm { kRows, kColumns, kFragments };
/// An operand packed in blocks, [b, panels of 64 rows or columns, steps, floats], by the kernel pack_group.
struct Blocks {
  TemplateLaunch::Input input;
  // Floats from one matrix to the next. 0: one matrix serves the whole batch.
  ir::IndexExpr batch;
  BlockForm form;
};
/// Packs one operand of a product in a launch before the node: the first one, [b, m, k], if `first`, otherwise the second,
/// [b, k, n]. `matrix` says where this operand is in memory. `terms` is 3 for split TF32.
Blocks packed_blocks(TemplateContext& context, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner,
                     bool first, int terms);

}  // namespace ocl::schedule
