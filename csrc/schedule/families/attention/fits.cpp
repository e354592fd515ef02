// csrc/schedule/families/attention/fits.cpp: what the portable kernels of attention require, with reasons.
#include "csrc/schedule/families/attention/operands.h"

namespace ocl::schedule {
namespace {

int64_t head_size(const Draft& d) {
  return std::max(typical(d.node().operands[0].sizes[3], 0), typical(d.node().operands[2].sizes[3], 0));
}

}  // namespace

/// The portable kernels also compute the gradients.
bool computes_attention(const KernelRow& row, const ir::Node& node) {
  return node.kind == ir::NodeKind::kAttention && node.attention.kind != ir::AttentionKind::kGradients &&
         (!row.on_tensor_cores() || node.attention.kind == ir::AttentionKind::kForward);
}

bool computes_attention_gradient(const KernelRow&, const ir::Node& node) {
  return node.kind == ir::NodeKind::kAttention &&
         (node.attention.kind == ir::AttentionKind::kQuery || node.attention.kind == ir::AttentionKind::kKeyValue);
}

bool computes_attention_joint_gradient(const KernelRow&, const ir::Node& node) {
  return node.kind == ir::NodeKind::kAttention && node.attention.kind == ir::AttentionKind::kGradients;
}

const Fit kKnownHeads = {
    [](const Draft& d) { return constants({d.node().operands[0].sizes[3], d.node().operands[2].sizes[3]}); },
    [](const Draft&) { return std::string("its head size is known only at run time"); }};

Refused why_not_attention_item(const Draft& draft) {
  static const Fit rows[] = {kLoadable,
                             kKnownHeads,
                             {[](const Draft& d) { return head_size(d) <= kLargestHeadSize; },
                              [](const Draft& d) {
                                return "heads of " + std::to_string(head_size(d)) + " are larger than " +
                                       std::to_string(kLargestHeadSize);
                              }}};
  return first_refusal(rows, draft);
}

Refused why_not_attention_few_rows(const Draft& draft) {
  static const Fit rows[] = {
      {[](const Draft& d) { return d.node().attention.kind == ir::AttentionKind::kForward; },
       [](const Draft&) { return std::string("a gradient has 2 products of scores, and this kernel computes 1"); }},
      {[](const Draft& d) { return typical(d.node().operands[0].sizes[2], 512) <= kFewQueries; },
       [](const Draft& d) {
         return "it has " + std::to_string(typical(d.node().operands[0].sizes[2], 512)) + " queries, more than " +
                std::to_string(kFewQueries);
       }},
      {[](const Draft& d) { return d.node().attention.dropout == 0; },
       [](const Draft& d) { return "it drops weights with probability " + std::to_string(d.node().attention.dropout); }},
      {[](const Draft& d) { return head_size(d) <= few_rows_items(d.caps) * few_rows_part(d); },
       [](const Draft& d) { return "a work-group is too small for heads of " + std::to_string(head_size(d)); }}};
  const Refused refused = why_not_attention_item(draft);
  return refused ? refused : first_refusal(rows, draft);
}

Refused why_not_attention_group(const Draft& draft) { return why_not_attention_item(draft); }

}  // namespace ocl::schedule
