// csrc/schedule/templates/item_operands.h: what the choosers of the CPU family share: operands as strided memory, copies in
// front of a node.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/schedule/template.h"

namespace ocl::schedule {

/// How many alternatives a knob offers: the best ones by the chooser's cost model.
inline constexpr size_t kMostOptions = 3;

/// The value if it is known now, otherwise a typical one. Use it for choices of speed, never of correctness.
int64_t typical(const ir::IndexExpr& e, int64_t otherwise);
/// Whether all expressions are constants.
bool constants(const std::vector<ir::IndexExpr>& sizes);

/// Whether both operands have the same storage type, and the kernels can load it (f32, f16, bf16).
bool loadable(const TemplateContext& context);
/// The macros of an operand's storage type and of the vector width: {"VW", "16"}, {"IN_HALF", "1"}.
void define_types(const TemplateContext& context, TemplateLaunch& launch, int vector_width);
void define(TemplateLaunch& launch, const std::string& name, int64_t value);

/// Whether results that depend on this view alone are kept between calls (kept weights).
bool is_kept(const TemplateContext& context, const ir::View& view);
/// Whether loop nests write the buffer, so that a copy of it can be fused with them.
bool is_written_by_loops(const TemplateContext& context, ir::BufferId buffer);
/// Gives a buffer without strides dense ones, with the dimensions of `order` from the outermost to the innermost.
void lay_out(ir::Graph& graph, ir::BufferId buffer, const std::vector<int>& order);
inline const std::vector<int> kChannelsLast = {0, 2, 3, 1};

/// An operand as memory: element (i0, i1, ...) lies at offset + sum of i * stride.
struct Operand {
  TemplateLaunch::Input input;
  std::vector<ir::IndexExpr> strides;
};
/// Arguments <name>_n, <name>_h, <name>_w and, unless they are contiguous, <name>_c: the strides of an image [n, c, h, w].
void pass_image(TemplateLaunch& launch, const std::string& name, const Operand& image, bool channels = true);
/// The arguments stride, padding and dilation of a convolution, "dilation" by that name.
void pass_window(TemplateLaunch& launch, const ir::ConvolveAttrs& conv, const std::string& dilation);
/// nullopt if the view is not a strided window. A buffer without strides gets them here: in `order` if the view covers all of
/// it, otherwise row-major.
std::optional<Operand> strided_operand(TemplateContext& context, const ir::View& view, const std::vector<int>& order);

/// Adds a Map before the node that writes a new buffer of shape `sizes` (row-major, or with `strides`). Its element i* is the
/// view's element at `coords`, or zero if `first >= second` for a pair of `inside`. It has the storage type of the view's
/// buffer.
Operand copied_operand(TemplateContext& context, const ir::View& view, ir::Shape sizes,
                       const std::vector<ir::IndexExpr>& coords,
                       const std::vector<std::pair<ir::IndexExpr, ir::IndexExpr>>& inside = {},
                       std::optional<ir::Shape> strides = {});
/// The view's elements in a new dense buffer with the dimensions of `order` from the outermost to the innermost.
Operand dense_copy(TemplateContext& context, const ir::View& view, const std::vector<int>& order);

/// A buffer of `count` zeros in the storage type of the node's first operand. A kernel reads it outside an image, instead of
/// testing each load.
TemplateLaunch::Input zero_row(TemplateContext& context, const ir::IndexExpr& count);

/// Makes the output's first dimension `splits` times as long, for one partial result behind another, dense in `order` from the
/// outermost to the innermost dimension. Adds a node that sums the partial results in order.
void split_output(TemplateContext& context, int64_t splits, const std::vector<int>& order);

/// Register tiles for the number of vector registers that a vector width implies (32 for 16 floats and for NEON, 16 for AVX2).
struct Tile {
  int rows, vectors;
};
/// The tile that computes least outside of rows x columns; of equal ones the fastest by measurement. Knob "tile".
Tile choose_tile(TemplateContext& context, int64_t rows, int64_t columns);
/// Tiles of a work-item, a power of two up to `most`: as many as leave 4 work-items for each core. Knob "run".
int choose_run(TemplateContext& context, int64_t tiles, int64_t other_items, int most);

}  // namespace ocl::schedule
