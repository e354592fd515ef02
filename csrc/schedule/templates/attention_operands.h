// csrc/schedule/templates/attention_operands.h: what both attention choosers share: which operand plays which part, and the
// arguments that both kernels take.
#pragma once

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// The parts that the operands of an Attention node play in a kernel: `rows` are queries, or keys for the gradient of keys and
/// values. Null: not in this pass.
struct AttentionParts {
  const ir::View *a = nullptr, *b = nullptr, *w = nullptr;     // rows and columns of the scores, and what is added up
  const ir::View *a2 = nullptr, *b2 = nullptr, *w2 = nullptr;  // the same of the second product, in gradients
  const ir::View *sums = nullptr, *delta = nullptr, *mask = nullptr, *state = nullptr;
  int pass = 0;  // the kernels' PASS
  ir::IndexExpr batch, heads, group, queries, keys;
  int64_t depth = 0, depth2 = 0;  // head sizes of q and k, of v
  ir::IndexExpr rows() const { return pass == 2 ? keys : queries; }
  ir::IndexExpr columns() const { return pass == 2 ? queries : keys; }
  ir::IndexExpr row_heads() const { return pass == 2 ? ir::floordiv(heads, group) : heads; }
};

/// nullopt for what the kernels do not compute: other types than f32, f16 and bf16, head sizes that are unknown or above
/// `most`.
std::optional<AttentionParts> attention_parts(const TemplateContext& context, const ir::Node& node, int64_t most);

/// An operand with contiguous rows: in place, or a copy; with `whole` > 1, rows readable to a multiple of `whole` elements.
Operand attention_rows(TemplateContext& context, const ir::View& view, int whole);

/// Defines PASS, sizes, SCALE, CAUSAL, DROPOUT, NAN_ROWS; the store's coordinates; passes heads, group, queries and keys.
void define_attention(const ir::Node& node, const AttentionParts& parts, TemplateLaunch& launch);

/// Passes rows [batch, head, row] by a name: the buffer and its strides <name>_batch, <name>_head, <name>_row.
void pass_rows(TemplateLaunch& launch, const std::string& name, const Operand& rows);

/// Passes sums and delta with their strides but those of queries, which are 1.
void pass_statistics(TemplateContext& context, const AttentionParts& parts, TemplateLaunch& launch);

/// Passes mask, with its strides, and state, where the attention has them; defines MASK.
void pass_mask(TemplateContext& context, const AttentionParts& parts, TemplateLaunch& launch);

}  // namespace ocl::schedule
