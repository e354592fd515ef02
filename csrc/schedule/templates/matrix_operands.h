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

/// Returns the n of a `b / n` or `b % n` in the view's coordinates; nullopt if there is none. Such an n means that the
/// batch is two flattened dimensions, such as batch and heads, or slices and batch.
std::optional<ir::IndexExpr> batch_factor(const ir::IndexExpr& e);
/// Returns the element offset of a view [b, i, j] over i0, i1, i2. A buffer without strides becomes row-major.
ir::IndexExpr offset_of(TemplateContext& context, const ir::View& view);
/// Returns the view as strided matrices, with the batch index b split into b / inner and b % inner. nullopt if the
/// offset is not affine in these two, in the row and in the column.
std::optional<Matrices> matrices_in_place(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);
/// Returns a row-major copy of the view. inner: as for matrices_in_place.
Matrices dense_matrices(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);

/// Adds the strides as arguments <name>_outer, <name>_inner, <name>_row, <name>_col.
void pass_matrix(TemplateLaunch& launch, const std::string& name, const Matrices& matrix);

/// Returns the view in place if possible, otherwise a row-major copy.
Matrices matrices(TemplateContext& context, const ir::View& view, const ir::IndexExpr& inner);

/// Returns the number of slices of K that fills the device if the output has few tiles. A slice has at least 256
/// elements of K, and a multiple of `chunk`. The choice is the knob "splits".
int64_t choose_splits(TemplateContext& context, int64_t tiles, const ir::IndexExpr& K, int chunk = 4);
/// Turns the contraction into one with splits*batch matrices. Matrix s*batch + b is slice s of matrix b.
void split_depth(TemplateContext& context, int64_t splits);

/// Adds both operands of the contraction to the launch of a group or tensor core kernel: inputs, arguments, and macros
/// about their layout. Sets how results are stored: [batch, m, n], vectors along n. chunk: 8 for 16-bit operands on
/// tensor cores, otherwise 4. With 8, rows must begin at multiples of 16 bytes, so other operands are copied.
void pass_matrices(TemplateContext& context, TemplateLaunch& launch, int chunk = 4);

/// Packs a matrix [b, k, n] into panels of `width` columns, [b, panels, k, width], with zeros beyond n.
/// kernels/pack/item.cl does this in a launch before the node. view: the operand; matrix: the same operand as strided
/// matrices in memory; inner: see Matrices. If the batch strides of `matrix` are 0, one packed matrix serves all b.
Matrices packed_panels(TemplateContext& context, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner,
                       int width);

/// Returns the n of batch_factor for the operands; 1 if the batch is a single dimension.
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
/// The operands of a product: A is [b, m, k], B is [b, k, n].
enum class ProductOperand { kA, kB };
/// Packs an operand of a product in a launch before the node. view: the operand; matrix: the same operand as strided
/// matrices in memory; inner: see Matrices; role: which operand it is; terms: 3 for split TF32, otherwise 1.
Blocks packed_blocks(TemplateContext& context, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner,
                     ProductOperand role, int terms);

}  // namespace ocl::schedule
