// csrc/schedule/families/operands.h: operands of kernels: in place as strided memory, copied, in panels or in blocks.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/schedule/offer/offer.h"

namespace ocl::schedule {

inline const std::vector<int> kChannelsLast = {0, 2, 3, 1};

/// Defines the macros of an operand's dtype and of the vector width, such as {"VW", "16"} and {"IN_HALF", "1"}.
void define_types(const Draft& draft, TemplateLaunch& launch, int vector_width);
/// Adds macros to the kernel's text, such as {"TILE_M", 128}, in this order.
void define(TemplateLaunch& launch, const std::string& name, int64_t value);
void define(TemplateLaunch& launch, std::initializer_list<std::pair<const char*, int64_t>> macros);
/// Sets how results are stored: vectors of `width` along loop `dimension` of an output with `rank` dimensions.
void store_along(TemplateLaunch& launch, int dimension, int width = 1, int rank = 4);
/// The condition that the operands have the same dtype, and it is one that the kernels can load (f32, f16, bf16).
extern const Fit kLoadable;

/// True if all expressions are known to be multiples of `of`. With 4, kernels may load float4.
bool multiples(const Draft& draft, int of, const std::vector<ir::IndexExpr>& sizes);
/// Defines ALIGNED_BASES. It is 1 if the plan places every input (at a multiple of 16 bytes) and the offset of each
/// input is a multiple of `chunk` elements. The caller decides where a graph input begins, so kernels test its offset
/// at run time.
void define_alignment(Draft& draft, int chunk = 4);

/// True if results that depend only on this view are kept between calls, because it is a parameter, or a node made it of
/// parameters, such as a weight in another type.
bool is_kept(const Draft& draft, const ir::View& view);
/// True if a loop nest writes the buffer, so that a copy of it can be fused with the loops.
bool is_written_by_loops(const Draft& draft, ir::BufferId buffer);

/// An operand in memory. Element (i0, i1, ...) is at offset + sum of i * stride.
struct Operand {
  TemplateLaunch::Input input;
  std::vector<ir::IndexExpr> strides;
};
/// Adds the strides of an image [n, c, h, w] as arguments <name>_n, <name>_h, <name>_w and, if `channels`, <name>_c.
void pass_image(TemplateLaunch& launch, const std::string& name, const Operand& image, bool channels = true);
/// Adds stride, padding and dilation of a convolution as arguments.
void pass_window(TemplateLaunch& launch, const ir::ConvolveAttrs& conv);

/// Returns the view as strided memory; nullopt if it is no strided window. A buffer without strides gets them here: in
/// `order` if the view covers all of it, otherwise row-major.
std::optional<Operand> strided_operand(Draft& draft, const ir::View& view, const std::vector<int>& order);
/// Copies a view into a new buffer of shape `sizes` (row-major, or with `strides`). The other parameters are those of Copy.
Operand copied_operand(Draft& draft, const ir::View& view, ir::Shape sizes, const std::vector<ir::IndexExpr>& coords,
                       const std::vector<std::pair<ir::IndexExpr, ir::IndexExpr>>& inside = {},
                       std::optional<ir::Shape> strides = {});
/// Copies the view into a new dense buffer, which it returns. `order` lists the dimensions from the outermost to the
/// innermost.
Operand dense_copy(Draft& draft, const ir::View& view, const std::vector<int>& order);
/// Returns an image in place if it is a strided window, otherwise as a channels-last copy.
Operand any_image(Draft& draft, const ir::View& view);
/// Returns an image whose channel stride is 1 or does not matter, in place or as a copy.
Operand channels_last_image(Draft& draft, const ir::View& view);
/// True if the image's channel stride is known to be 1.
bool channels_contiguous(const Operand& operand);
/// Returns a buffer of `count` zeros in the dtype of the node's first operand. Kernels read it outside of an image
/// instead of testing each load.
TemplateLaunch::Input zero_row(Draft& draft, const ir::IndexExpr& count);

/// Splits the output: its first dimension becomes `splits` times as long, for partial results that follow one another.
/// The longer output is dense; `order` lists its dimensions from the outermost to the innermost. The partial results are
/// added in order.
void split_output(Draft& draft, int64_t splits, const std::vector<int>& order);

/// A batch of matrices. Element (b, i, j) is at offset + (b / n)*outer + (b % n)*inner + i*row + j*col, where n is the
/// number of matrices in the inner of two batch dimensions (see inner_batch in gemm/matrices.h).
struct Matrices {
  TemplateLaunch::Input input;
  ir::IndexExpr outer, inner, row, col;
};
/// Adds the strides as arguments <name>_outer, <name>_inner, <name>_row, <name>_col.
void pass_matrix(TemplateLaunch& launch, const std::string& name, const Matrices& matrix);

/// Packs a matrix [b, k, n] into panels of `width` columns, [b, panels, k, width], with zeros beyond n.
/// kernels/pack/item.cl does this in a launch before the node. view: the operand; matrix: the same operand as strided
/// matrices in memory; inner: see Matrices. If the batch strides of `matrix` are 0, one packed matrix serves all b.
Matrices packed_panels(Draft& draft, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner, int width);

/// How the kernel pack_group writes the blocks of an operand of fp32. Operands of 16 bits have one form.
enum class BlockForm {
  kTf32,       // Rounded to TF32.
  kSplitTf32,  // Split into two TF32.
  kPairs       // Scaled by line and split into two fp16.
};
/// An operand packed in blocks, [b, panels of 64 rows or columns, steps, floats], by the kernel pack_group.
struct Blocks {
  TemplateLaunch::Input input;
  // Floats from one matrix to the next. 0: one matrix serves the whole batch.
  ir::IndexExpr batch;
};
/// The operands of a product: A is [b, m, k], B is [b, k, n].
enum class ProductOperand { kA, kB };
/// Packs an operand of a product in a launch before the node. view: the operand; matrix: the same operand as strided
/// matrices in memory; inner: see Matrices; role: which operand it is.
Blocks packed_blocks(Draft& draft, const ir::View& view, const Matrices& matrix, const ir::IndexExpr& inner,
                     ProductOperand role, BlockForm form);

}  // namespace ocl::schedule
