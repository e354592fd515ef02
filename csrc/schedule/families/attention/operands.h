// csrc/schedule/families/attention/operands.h: shared by the offers of attention: the roles of the operands, and the
// arguments that all attention kernels take.
#pragma once

#include <bit>

#include "csrc/schedule/families/tensor_cores.h"

namespace ocl::schedule {

/// The operands of an Attention node by their role in a kernel. Rows are queries; in the gradient of keys and values,
/// rows are keys. An operand that the pass does not have is null.
struct AttentionParts {
  const ir::View *a = nullptr, *b = nullptr,
                 *w = nullptr;  // a, b: rows and columns of the scores. w: the rows that p (or ds) multiplies.
  // The operands of the second product of a gradient.
  const ir::View *a2 = nullptr, *b2 = nullptr, *w2 = nullptr;
  const ir::View *sums = nullptr, *delta = nullptr, *mask = nullptr, *state = nullptr, *blocks = nullptr;
  // The macro PASS. 0: forward. 1: gradient of the queries. 2: of keys and values, 3: of all; the rows are then keys.
  int pass = 0;
  ir::IndexExpr batch, heads, heads_per_kv, queries, keys;
  int64_t depth = 0, depth2 = 0;  // depth: head size of q and k. depth2: head size of v.
  ir::IndexExpr rows() const { return pass >= 2 ? keys : queries; }
  ir::IndexExpr columns() const { return pass >= 2 ? queries : keys; }
  ir::IndexExpr row_heads() const { return pass >= 2 ? ir::floordiv(heads, heads_per_kv) : heads; }
};

/// The most queries for which a work-group of the portable kernels has one query, and not a tile of them.
constexpr int64_t kFewQueries = 8;
/// Returns the work-items of such a work-group.
int few_rows_items(const Caps& caps);
/// Returns the elements of a row that a work-item of it reads at once.
int few_rows_part(const Draft& draft);

/// The condition that the head sizes are known.
extern const Fit kKnownHeads;
/// Returns the operands of the node, whose head sizes must be known. They point into the graph.
AttentionParts attention_parts(const Draft& draft);

/// A tile: rows of a work-group (64 per consumer warpgroup), columns of a step, and the size to which head sizes are
/// padded. Kernels for warps and subgroups pad head sizes to a multiple of 32 (64 with eight parts) up to `depth`.
struct AttentionTile {
  KernelLevel level;
  int pass;          // The kernel's macro PASS (see AttentionParts).
  int chunk, terms;  // See TensorCoreMath.
  int lanes = 0;     // Of a subgroup with matrix instructions; 0: any.
  int rows, columns, depth, stages;
  int producer_registers = 0, consumer_registers = 0;  // See TensorCoreTile.
  // The last product of a step runs during the softmax of the next step. That needs more registers.
  bool overlap = false;
  int resident;  // Work-groups that are resident on a compute unit.
  int warp_rows = 0;
  int parts = 1;  // Subgroups that have the same rows, and each a part of the results' depth.
  // Rows per second on a full device, relative to the first tile with the same level, pass, chunk and terms.
  double rate;
  const char* source;  // Where the rate comes from: the GPU that it was measured on, or "estimate".
  TensorCoreTile tile() const {
    return {.level = level,
            .rows = rows,
            .columns = columns * parts,
            .warp_rows = warp_rows,
            .warp_columns = warp_rows == 0 ? 0 : columns,
            .stages = level == KernelLevel::k_subgroup_matrix ? 0 : stages,
            .producer_registers = producer_registers,
            .consumer_registers = consumer_registers,
            .rate = rate,
            .source = source};
  }
  /// True if the tile's kernel computes such scores well: hides_steps: those of whole steps are hidden, by a causal mask or in
  /// blocks; masked: there is another mask, or dropout. Then many columns leave too few registers.
  bool computes(bool hides_steps, bool masked) const {
    return !(hides_steps && !std::has_single_bit<unsigned>(columns)) && !(masked && columns > 128);
  }
  /// True if tensor maps may describe the operands of a forward pass: a box has 64 columns, and no two work-groups with maps
  /// may share a compute unit, so that they need more than half of its 227 KiB.
  bool fits_boxes() const { return chunk == 8 && depth == 64 && (stages * columns + 2 * rows) * 2 * depth > 114 << 10; }
  std::string name() const { return tile().name(); }
};
/// Returns the tiles of tensor core kernels for a pass.
std::vector<AttentionTile> attention_tiles(const TensorCoreMath& math, int pass);

/// Returns an operand with contiguous rows, in place or as a copy. The kernel may read each row up to the next multiple
/// of `readable_multiple` elements; a copy has zeros there.
Operand attention_rows(Draft& draft, const ir::View& view, int readable_multiple);

/// Defines PASS, sizes, SCALE, CAUSAL, DROPOUT and NAN_ROWS. Sets the coordinates of the stores. Adds the arguments
/// heads, heads_per_kv, queries and keys.
void define_attention(Draft& draft, const AttentionParts& parts);

/// Adds the arguments of an operand [batch, head, row]: the buffer `name` and its strides <name>_batch, <name>_head,
/// <name>_row.
void add_rows_arguments(Draft& draft, const std::string& name, const Operand& rows);

/// Adds the arguments sums and delta with their strides. The stride between queries is 1 and is no argument.
void add_statistics_arguments(Draft& draft, const AttentionParts& parts);

/// Adds the arguments of a mask with its strides, and of dropout's random state, if the attention has them. Defines
/// MASK. A node with a body, which computes the mask, loses the mask itself.
void add_mask_arguments(Draft& draft, const AttentionParts& parts);

/// Adds the arguments of the mask's blocks with their strides, if the attention has them. Defines BLOCKS.
void add_blocks_arguments(Draft& draft, const AttentionParts& parts);

}  // namespace ocl::schedule
