// csrc/schedule/families/attention/operands.cpp: adds the arguments of attention kernels: the operands as strided
// memory, and common parameters.
#include "csrc/schedule/families/attention/operands.h"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace ocl::schedule {

using ir::AttentionKind;
using ir::IndexExpr;

AttentionParts attention_parts(const Draft& draft) {
  const ir::Node& node = draft.graph.nodes[draft.id];
  const ir::AttentionAttrs& attrs = node.attention;
  const std::vector<ir::View>& operands = node.operands;
  const ir::View &q = operands[0], &k = operands[1], &v = operands[2];
  const ir::Ranges ranges = draft.graph.ranges();
  AttentionParts parts;
  parts.batch = q.sizes[0];
  parts.heads = q.sizes[1];
  parts.heads_per_kv = q.sizes[1] == k.sizes[1] ? IndexExpr(1) : ir::simplify(ir::floordiv(q.sizes[1], k.sizes[1]), ranges);
  parts.queries = q.sizes[2];
  parts.keys = k.sizes[2];
  parts.depth = q.sizes[3].constant();
  parts.depth2 = v.sizes[3].constant();
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
  if (attrs.dropout > 0) parts.state = &operands[next++];
  if (attrs.blocks > 0) parts.blocks = &operands[next];
  return parts;
}

Operand attention_rows(Draft& draft, const ir::View& view, int readable_multiple) {
  const IndexExpr depth = view.sizes[3];
  const int64_t padded = (depth.constant() + readable_multiple - 1) / readable_multiple * readable_multiple;
  const auto in_place = strided_operand(draft, view, {0, 1, 2, 3});
  if (padded == depth.constant() && in_place && (in_place->strides[3].is_const(1) || depth.is_const(1))) return *in_place;
  const IndexExpr column = IndexExpr::loop(3);
  return copied_operand(draft, view, {view.sizes[0], view.sizes[1], view.sizes[2], padded},
                        {IndexExpr::loop(0), IndexExpr::loop(1), IndexExpr::loop(2), column}, {{column, depth}});
}

namespace {

std::string literal(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%af", static_cast<double>(static_cast<float>(value)));
  return std::string("(") + text + ")";
}

}  // namespace

void define_attention(Draft& draft, const AttentionParts& parts) {
  TemplateLaunch& launch = draft.launch();
  constexpr const char* kKinds[] = {"attention", "attention_query_gradient", "attention_key_gradient",
                                    "attention_joint_gradient"};
  const ir::AttentionAttrs& attrs = draft.node().attention;
  launch.kind = kKinds[parts.pass];
  define(launch, {{"PASS", parts.pass}, {"DEPTH", parts.depth}, {"DEPTH2", parts.depth2}});
  define(launch, "WIDTH", parts.pass == 0 ? parts.depth2 : parts.depth);
  launch.defines.emplace_back("SCALE", literal(attrs.scale));
  if (attrs.cap > 0) launch.defines.emplace_back("CAP", literal(attrs.cap));
  define(launch, {{"CAUSAL", attrs.causal}, {"NAN_ROWS", attrs.nan_rows}});
  if (attrs.dropout > 0) {
    define(launch, "DROPOUT", 1);
    launch.defines.emplace_back("DROP", literal(attrs.dropout));
    launch.defines.emplace_back("KEPT", literal(attrs.dropout < 1 ? 1 / (1 - attrs.dropout) : 0.0));
  }
  store_along(launch, 3, launch.stores.width);
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

void add_rows_arguments(Draft& draft, const std::string& name, const Operand& rows) {
  draft.launch().buffer(name, rows.input);
  pass_strides(draft.launch(), name, rows, {"batch", "head", "row"});
}

void add_statistics_arguments(Draft& draft, const AttentionParts& parts) {
  TemplateLaunch& launch = draft.launch();
  for (const ir::View* view : {parts.sums, parts.delta}) {
    const std::vector<int> order = view == parts.sums ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0, 1, 2};
    auto operand = strided_operand(draft, *view, order);
    if (!operand || !(operand->strides.back().is_const(1) || view->sizes.back().is_const(1)))
      operand = dense_copy(draft, *view, order);
    const std::string name = view == parts.sums ? "sums" : "delta";
    launch.buffer(name, operand->input);
    if (view == parts.sums)
      pass_strides(launch, name, *operand, {"which", "batch", "head"});
    else
      pass_strides(launch, name, *operand, {"batch", "head"});
  }
}

namespace {

bool is_constant(const ir::Op& op, double number) {
  return op.code == ir::OpCode::kConstant && op.constant.is_float && op.constant.f == number;
}

/// Tells the kernel if the value of a computed mask is 0 or -inf, or if the mask hides no score by -inf itself.
void define_computed(TemplateLaunch& launch, const ir::Body& body) {
  const double hidden = -std::numeric_limits<double>::infinity();
  const ir::Op& value = body.ops.back();
  if (value.code == ir::OpCode::k_where && is_constant(body.ops[value.args[1]], 0) &&
      is_constant(body.ops[value.args[2]], hidden))
    define(launch, "MASK_HIDES", 1);
  else if (std::ranges::none_of(body.ops, [&](const ir::Op& op) { return is_constant(op, hidden); }))
    define(launch, "MASK_ADDS", 1);
}

}  // namespace

void add_mask_arguments(Draft& draft, const AttentionParts& parts) {
  TemplateLaunch& launch = draft.launch();
  ir::Node& node = draft.node();
  if (!node.body.ops.empty()) {
    node.attention.masked = false;
    node.operands.erase(node.operands.begin() + (parts.pass == 0 ? 3 : 6));
    define(launch, "MASK", 4);
    define_computed(launch, node.body);
  } else if (parts.mask) {
    const ir::DType type = draft.buffer(parts.mask->buffer).dtype;
    const bool same = type == draft.buffer(parts.a->buffer).dtype;
    define(launch, "MASK", type == ir::DType::kBool ? 1 : same ? 2 : 3);
    auto operand = strided_operand(draft, *parts.mask, {0, 1, 2, 3});
    if (!operand) operand = dense_copy(draft, *parts.mask, {0, 1, 2, 3});
    launch.buffer("mask", operand->input);
    pass_strides(launch, "mask", *operand, {"batch", "head", "query", "key"});
  }
  if (parts.state) {
    auto operand = strided_operand(draft, *parts.state, {0});
    if (!operand || !operand->strides[0].is_const(1)) operand = dense_copy(draft, *parts.state, {0});
    launch.buffer("state", operand->input);
  }
}

void add_blocks_arguments(Draft& draft, const AttentionParts& parts) {
  if (!parts.blocks) return;
  TemplateLaunch& launch = draft.launch();
  define(launch, "BLOCKS", draft.node().attention.blocks);
  auto operand = strided_operand(draft, *parts.blocks, {0, 1, 2, 3});
  if (!operand) operand = dense_copy(draft, *parts.blocks, {0, 1, 2, 3});
  launch.buffer("blocks", operand->input);
  pass_strides(launch, "blocks", *operand, {"batch", "head", "query", "key"});
}

}  // namespace ocl::schedule
