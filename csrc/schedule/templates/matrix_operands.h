// csrc/schedule/templates/matrix_operands.h: operands of matrix products as batches of strided matrices, for both families.
#pragma once

#include <optional>

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// A batch of matrices: element (b, i, j) at offset + (b / inner)*outer_stride + (b % inner)*inner_stride + i*row + j*col.
struct Matrices {
  TemplateLaunch::Input input;
  ir::IndexExpr outer, inner, row, col;
};

/// The n of some b / n or b % n: the batch is two dimensions flattened (batch and heads, or splits and batch).
std::optional<ir::IndexExpr> batch_factor(const ir::IndexExpr& e);
/// Element offset of a view [b, i, j] over i0, i1, i2; gives its buffer a row-major layout if it has none.
ir::IndexExpr offset_of(TemplateContext& context, const ir::View& view);
/// The view with b = q*inner + r, if its offset is then affine in q, r, i and j.
std::optional<Matrices> matrices_in_place(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);
/// A row-major copy of the view.
Matrices dense_matrices(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);

/// Its strides as arguments: <name>_outer, <name>_inner, <name>_row, <name>_col.
void pass_matrix(TemplateLaunch& launch, const std::string& name, const Matrices& matrix);

/// The view in place if it can be, else a row-major copy.
Matrices matrices(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);

/// Parts of K that fill the device when the output has few tiles: a divisor of K that leaves 256 or more to a part. Parts are
/// multiples of `chunk`. Knob "splits".
int64_t choose_splits(TemplateContext& context, int64_t tiles, const ir::IndexExpr& K, int chunk = 4);
/// The contraction as one with splits*batch smaller ones; matrix s*batch + b has part s of K of matrix b.
void split_depth(TemplateContext& context, int64_t splits);

/// Both operands of the contraction as a group kernel's inputs, arguments and macros about their layout, and how its results
/// are stored: [batch, m, n], vectors along n. chunk: 4, or 8 for operands of 16 bits on matrix units, which take nothing but
/// rows at multiples of 16 bytes: others are copied.
void pass_matrices(TemplateContext& context, TemplateLaunch& launch, int chunk = 4);

/// A matrix [b, k, n] in panels of `width` columns, [b, panels, k, width] and zero beyond n, by kernels/pack/item.cl in a
/// launch of its own in front of the node. `matrix` says where it lies; without a batch stride there is one copy for all.
Matrices packed_panels(TemplateContext& context, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner,
                       int width);

/// The n by which the operands' batches are flattened (see batch_factor), 1 if none is.
ir::IndexExpr inner_batch(TemplateContext& context);

/// What matrix units read of a packed operand.
enum class BlockForm { kRows, kColumns, kFragments };
/// An operand in blocks, [b, panels of 64 of the width, steps, floats], by the kernel pack_group.
struct Blocks {
  TemplateLaunch::Input input;
  ir::IndexExpr batch;  // floats from one matrix to the next; 0: all are one
  BlockForm form;
};
/// A batch of matrices so, by a launch in front of the node: first operands [b, m, k] or second ones [b, k, n]. `matrix` says
/// where they lie. terms: 3 for split TF32.
Blocks packed_blocks(TemplateContext& context, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner,
                     bool first, int terms);

}  // namespace ocl::schedule
