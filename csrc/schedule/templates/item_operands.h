// csrc/schedule/templates/item_operands.h: shared by the choosers of CPU kernels: operands as strided memory, and
// copies before a node.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/schedule/template.h"

namespace ocl::schedule {

/// Largest number of alternatives that a knob offers: the best ones by the chooser's cost model.
inline constexpr size_t kMostOptions = 3;

/// Returns the value of `e` if it is constant, otherwise `otherwise`. Use it for choices of speed, never of
/// correctness.
int64_t typical(const ir::IndexExpr& e, int64_t otherwise);
/// True if all expressions are constants.
bool constants(const std::vector<ir::IndexExpr>& sizes);

/// True if the operands have the same dtype, and it is one that the kernels can load (f32, f16, bf16).
bool loadable(const TemplateContext& context);
/// Defines the macros of an operand's dtype and of the vector width, such as {"VW", "16"} and {"IN_HALF", "1"}.
void define_types(const TemplateContext& context, TemplateLaunch& launch, int vector_width);
void define(TemplateLaunch& launch, const std::string& name, int64_t value);

/// True if results that depend only on this view are kept between calls, because it is a parameter.
bool is_kept(const TemplateContext& context, const ir::View& view);
/// True if a loop nest writes the buffer, so that a copy of it can be fused with the loops.
bool is_written_by_loops(const TemplateContext& context, ir::BufferId buffer);
/// Gives a buffer without strides dense ones. `order` lists the dimensions from the outermost to the innermost.
void lay_out(ir::Graph& graph, ir::BufferId buffer, const std::vector<int>& order);
inline const std::vector<int> kChannelsLast = {0, 2, 3, 1};

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
std::optional<Operand> strided_operand(TemplateContext& context, const ir::View& view, const std::vector<int>& order);

/// Adds a Map before the node that writes a new buffer of shape `sizes` (row-major, or with `strides`). Element i* is
/// the view's element at `coords`, or 0 if `first >= second` for some pair of `inside`. The dtype is that of the view's
/// buffer.
Operand copied_operand(TemplateContext& context, const ir::View& view, ir::Shape sizes,
                       const std::vector<ir::IndexExpr>& coords,
                       const std::vector<std::pair<ir::IndexExpr, ir::IndexExpr>>& inside = {},
                       std::optional<ir::Shape> strides = {});
/// Copies the view into a new dense buffer, which it returns. `order` lists the dimensions from the outermost to the
/// innermost.
Operand dense_copy(TemplateContext& context, const ir::View& view, const std::vector<int>& order);

/// Returns a buffer of `count` zeros in the dtype of the node's first operand. Kernels read it outside of an image
/// instead of testing each load.
TemplateLaunch::Input zero_row(TemplateContext& context, const ir::IndexExpr& count);

/// Splits the output: its first dimension becomes `splits` times as long, for partial results that follow one another.
/// The longer output is dense; `order` lists its dimensions from the outermost to the innermost. Adds a node that sums
/// the partial results in order.
void split_output(TemplateContext& context, int64_t splits, const std::vector<int>& order);

/// A register tile of a CPU kernel: rows, and vectors of columns. There are 32 vector registers with 16 floats and on
/// NEON, 16 on AVX2.
struct Tile {
  int rows, vectors;
};
/// Returns the tile with the lowest cost for rows x columns: the area of all tiles, which may reach beyond the output,
/// times the tile's measured cost per area. The choice is the knob "tile".
Tile choose_tile(TemplateContext& context, int64_t rows, int64_t columns);
/// Returns the number of tiles of a work-item: `max_tiles`, halved until at least 4 work-items per core are left.
/// tiles: number of all tiles; other_items: number of work-items in the other dimensions. The choice is the knob "run".
int choose_tiles_per_item(TemplateContext& context, int64_t tiles, int64_t other_items, int max_tiles);

}  // namespace ocl::schedule
