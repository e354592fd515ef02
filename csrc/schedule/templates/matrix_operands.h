// csrc/schedule/templates/matrix_operands.h: operands of matrix products as batches of strided matrices, for item and group
// kernels.
#pragma once

#include <optional>

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// A batch of matrices: element (b, i, j) at offset + (b / inner)*outer_stride + (b % inner)*inner_stride + i*row + j*col.
struct Matrices {
  TemplateLaunch::Input input;
  ir::IndexExpr outer, inner, row, col;
};

/// The n of a b / n or b % n in the view's coordinates. It means that the batch is two flattened dimensions (batch and heads,
/// or slices and batch).
std::optional<ir::IndexExpr> batch_factor(const ir::IndexExpr& e);
/// Element offset of a view [b, i, j] over i0, i1, i2; gives its buffer a row-major layout if it has none.
ir::IndexExpr offset_of(TemplateContext& context, const ir::View& view);
/// The view as strided matrices with b = q*inner + r, if its offset is then affine in q, r, i and j.
std::optional<Matrices> matrices_in_place(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);
/// A row-major copy of the view.
Matrices dense_matrices(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);

/// Passes the strides as arguments <name>_outer, <name>_inner, <name>_row, <name>_col.
void pass_matrix(TemplateLaunch& launch, const std::string& name, const Matrices& matrix);

/// The view in place if possible, otherwise a row-major copy.
Matrices matrices(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);

/// Number of slices of K that fills the device if the output has few tiles. A slice has 256 or more of K, and a multiple of
/// `chunk`. Knob "splits".
int64_t choose_splits(TemplateContext& context, int64_t tiles, const ir::IndexExpr& K, int chunk = 4);
/// Turns the contraction into one with splits*batch matrices; matrix s*batch + b is slice s of matrix b.
void split_depth(TemplateContext& context, int64_t splits);

/// Passes both operands of the contraction to a group or tensor core kernel: inputs, arguments, and macros about their layout.
/// Sets how results are stored: [batch, m, n], vectors along n. chunk: 4, or 8 for operands of 16 bits on tensor cores. Those
/// need rows at multiples of 16 bytes, so other operands are copied.
void pass_matrices(TemplateContext& context, TemplateLaunch& launch, int chunk = 4);

/// Packs a matrix [b, k, n] into panels of `width` columns, [b, panels, k, width], zero beyond n, by a launch of
/// kernels/pack/item.cl before the node. matrix: where the operand lies. If it has no batch stride, there is one copy for all
/// b.
Matrices packed_panels(TemplateContext& context, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner,
                       int width);

/// The n by which the operands' batches are flattened (see batch_factor); 1 if they are not.
ir::IndexExpr inner_batch(TemplateContext& context);

/// The order of a packed operand's elements; the forms of kernels/pack/group.cl.
enum class BlockForm { kRows, kColumns, kFragments };
/// An operand in blocks, [b, panels of 64 of the width, steps, floats], by the kernel pack_group.
struct Blocks {
  TemplateLaunch::Input input;
  ir::IndexExpr batch;  // floats from one matrix to the next; 0: one matrix serves the whole batch
  BlockForm form;
};
/// Packs a batch of matrices by a launch before the node: first operands [b, m, k] or second operands [b, k, n]. matrix: where
/// they lie. terms: 3 for split TF32.
Blocks packed_blocks(TemplateContext& context, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner,
                     bool first, int terms);

}  // namespace ocl::schedule
