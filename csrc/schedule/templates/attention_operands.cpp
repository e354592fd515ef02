// csrc/schedule/templates/attention_operands.cpp: adds the arguments of attention kernels: the operands as strided
// memory, and common parameters.
#include "csrc/schedule/templates/attention_operands.h"

#include <cstdio>

namespace ocl::schedule {

using ir::AttentionKind;
using ir::IndexExpr;

std::optional<AttentionParts> attention_parts(const TemplateContext& context, const ir::Node& node, int64_t max_head_size) {
  if (node.kind != ir::NodeKind::kAttention || !loadable(context)) return std::nullopt;
  const ir::AttentionAttrs& attrs = node.attention;
  const std::vector<ir::View>& operands = node.operands;
  const ir::View &q = operands[0], &k = operands[1], &v = operands[2];
  const ir::Ranges ranges = context.graph.ranges();
  AttentionParts parts;
  parts.batch = q.sizes[0];
  parts.heads = q.sizes[1];
  parts.heads_per_kv = q.sizes[1] == k.sizes[1] ? IndexExpr(1) : ir::simplify(ir::floordiv(q.sizes[1], k.sizes[1]), ranges);
  parts.queries = q.sizes[2];
  parts.keys = k.sizes[2];
  const IndexExpr depth = q.sizes[3], depth2 = v.sizes[3];
  if (!depth.is_const() || !depth2.is_const() || depth.constant() > max_head_size || depth2.constant() > max_head_size)
    return std::nullopt;
  parts.depth = depth.constant();
  parts.depth2 = depth2.constant();
  parts.pass = static_cast<int>(attrs.kind);
  size_t next = 3;
  if (attrs.kind == AttentionKind::kForward) {
    parts.a = &q;
    parts.b = &k;
    parts.w = &v;
  } else {
    const ir::View& dout = operands[3];
    parts.sums = &operands[4];
    parts.delta = &operands[5];
    next = 6;
    const bool query = attrs.kind == AttentionKind::kQuery;
    parts.a = query ? &q : &k;
    parts.b = query ? &k : &q;
    parts.w = query ? &k : &q;
    parts.a2 = query ? &dout : &v;
    parts.b2 = query ? &v : &dout;
    if (!query) parts.w2 = &dout;
  }
  if (attrs.masked) parts.mask = &operands[next++];
  if (attrs.dropout > 0) parts.state = &operands[next];
  return parts;
}

Operand attention_rows(TemplateContext& context, const ir::View& view, int readable_multiple) {
  const IndexExpr depth = view.sizes[3];
  const int64_t padded = (depth.constant() + readable_multiple - 1) / readable_multiple * readable_multiple;
  const auto in_place = strided_operand(context, view, {0, 1, 2, 3});
  if (padded == depth.constant() && in_place && (in_place->strides[3].is_const(1) || depth.is_const(1))) return *in_place;
  const IndexExpr column = IndexExpr::loop(3);
  return copied_operand(context, view, {view.sizes[0], view.sizes[1], view.sizes[2], padded},
                        {IndexExpr::loop(0), IndexExpr::loop(1), IndexExpr::loop(2), column}, {{column, depth}});
}

namespace {

std::string literal(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%af", static_cast<double>(static_cast<float>(value)));
  return std::string("(") + text + ")";
}

}  // namespace

void define_attention(const ir::Node& node, const AttentionParts& parts, TemplateLaunch& launch) {
  constexpr const char* kKinds[] = {"attention", "attention_query_gradient", "attention_key_gradient"};
  const ir::AttentionAttrs& attrs = node.attention;
  launch.kind = kKinds[parts.pass];
  define(launch, "PASS", parts.pass);
  define(launch, "DEPTH", parts.depth);
  define(launch, "DEPTH2", parts.depth2);
  define(launch, "WIDTH", parts.pass == 0 ? parts.depth2 : parts.depth);
  launch.defines.emplace_back("SCALE", literal(attrs.scale));
  define(launch, "CAUSAL", attrs.causal);
  define(launch, "NAN_ROWS", attrs.nan_rows);
  if (attrs.dropout > 0) {
    define(launch, "DROPOUT", 1);
    launch.defines.emplace_back("DROP", literal(attrs.dropout));
    launch.defines.emplace_back("KEPT", literal(attrs.dropout < 1 ? 1 / (1 - attrs.dropout) : 0.0));
  }
  launch.store_coords = {0, 1, 2, 3};
  launch.store_dim = 3;
  launch.args({{"heads", parts.heads}, {"heads_per_kv", parts.heads_per_kv}, {"queries", parts.queries}, {"keys", parts.keys}});
}

namespace {

/// Sets arguments <name>_<dimension> to the first strides of an operand.
void pass_strides(TemplateLaunch& launch, const std::string& name, const Operand& operand,
                  std::initializer_list<const char*> dimensions) {
  auto stride = operand.strides.begin();
  for (const char* dimension : dimensions) launch.arg(name + "_" + dimension, *stride++);
}

}  // namespace

void add_rows_arguments(TemplateLaunch& launch, const std::string& name, const Operand& rows) {
  launch.buffer(name, rows.input);
  pass_strides(launch, name, rows, {"batch", "head", "row"});
}

void add_statistics_arguments(TemplateContext& context, const AttentionParts& parts, TemplateLaunch& launch) {
  for (const ir::View* view : {parts.sums, parts.delta}) {
    const std::vector<int> order = view == parts.sums ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0, 1, 2};
    auto operand = strided_operand(context, *view, order);
    if (!operand || !(operand->strides.back().is_const(1) || view->sizes.back().is_const(1)))
      operand = dense_copy(context, *view, order);
    const std::string name = view == parts.sums ? "sums" : "delta";
    launch.buffer(name, operand->input);
    if (view == parts.sums)
      pass_strides(launch, name, *operand, {"which", "batch", "head"});
    else
      pass_strides(launch, name, *operand, {"batch", "head"});
  }
}

void add_mask_arguments(TemplateContext& context, const AttentionParts& parts, TemplateLaunch& launch) {
  if (parts.mask) {
    const ir::DType type = context.graph.buffers[parts.mask->buffer].dtype;
    const bool same = type == context.graph.buffers[parts.a->buffer].dtype;
    define(launch, "MASK", type == ir::DType::kBool ? 1 : same ? 2 : 3);
    auto operand = strided_operand(context, *parts.mask, {0, 1, 2, 3});
    if (!operand) operand = dense_copy(context, *parts.mask, {0, 1, 2, 3});
    launch.buffer("mask", operand->input);
    pass_strides(launch, "mask", *operand, {"batch", "head", "query", "key"});
  }
  if (parts.state) {
    auto operand = strided_operand(context, *parts.state, {0});
    if (!operand || !operand->strides[0].is_const(1)) operand = dense_copy(context, *parts.state, {0});
    launch.buffer("state", operand->input);
  }
}

}  // namespace ocl::schedule
