// csrc/ir/print.cpp: prints graphs and index expressions as text. parse.cpp reads it back. The grammar by example:
//   symbol s0 1..1024 divisor 8
//   buffer b0 in0 f32 [s0, 64] strides [64, 1] input 0 parameter donated
//   node map [s0, 64]  # aten.relu.default @ model.py:61
//     v0 = load f32 b0[i0, i1] if v3
//     v1 = constant f32 0.5
//     v2 = index i64 i0*64 + i1
//     v4 = add f32 v0 v1
//     store b1[i0, i1] = v4
//     store b3[v5] maximum= v6 if v3
//   node reduce sum whole [s0] over [64]
//     ...
//     reduce v0
//     store b2[i0] = result 0
//   node scan sum whole [s0] over [64]
//     ...
//     reduce v0 reset v2
//     store b2[i0, r0] = result 0 if v1
//   node contract [1, s0, 8] over [64] reduced_precision
//     operand b0 [1, s0, 64] at [i1, i2]
//     output b3
//   node convolve forward stride 1 1 padding 0 0 dilation 1 1 groups 1 [..] over []
//   node attention forward scale 0.125 dropout 0.0 cap 20.0 causal masked blocks 16 nan_rows [..] over []
//   node fft inverse scale 0.25 root 64 [..] over []
//   node sort count block 4096 keep 0 shift 8 digits 1 signed [..] over []
//   node call 3 [] over []
//   node call 4 waits_for 3 [] over []
//   result b1 [s0, 64] strides [64, 1] offset 0
#include <charconv>
#include <cmath>

#include "csrc/ir/facts.h"
#include "csrc/ir/graph.h"
#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

std::string list(const Shape& exprs) {
  std::string text;
  for (const IndexExpr& e : exprs) text += (text.empty() ? "" : ", ") + e.str();
  return "[" + text + "]";
}

std::string value_name(int value) { return "v" + std::to_string(value); }
std::string buffer_name(BufferId id) { return "b" + std::to_string(id); }

std::string number(const Scalar& s) {
  if (!s.is_float) return std::to_string(s.i);
  if (std::isnan(s.f)) return "nan";
  if (std::isinf(s.f)) return s.f < 0 ? "-inf" : "inf";
  char buffer[64];
  // to_chars gives the shortest text that reads back exactly.
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, s.f).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

/// Returns the origin as a comment for the end of a line. It must not contain a line break.
std::string comment(const Origin& origin) {
  if (origin.op.empty() && origin.source.empty()) return "";
  std::string text = origin.op + " @ " + origin.source;
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return "  # " + text;
}

void print_op(std::string& out, const Op& op, size_t position) {
  out += "  " + value_name(static_cast<int>(position)) + " = " + facts(op.code).name + " " + name(op.dtype);
  switch (op.code) {
    case OpCode::kLoad:
      out += " " + buffer_name(op.buffer) + list(op.index);
      if (!op.args.empty()) out += " if " + value_name(op.args[0]);
      break;
    case OpCode::kConstant:
      out += " " + number(op.constant);
      break;
    case OpCode::kIndex:
      out += " " + (op.index.empty() ? std::string("?") : op.index[0].str());
      break;
    default:
      for (const int arg : op.args) out += " " + value_name(arg);
  }
  out += "\n";
}

void print_node(std::string& out, const Node& node, bool origins) {
  static constexpr const char* kKinds[] = {"map",       "reduce", "scan", "contract", "convolve",
                                           "attention", "fft",    "sort", "pack",     "call"};
  static constexpr const char* kStages[] = {"whole", "partial", "final"};
  static constexpr const char* kConvolutions[] = {"forward", "data", "weight"};
  static constexpr const char* kSorts[] = {"count", "move", "blocks"};
  static constexpr const char* kAttentions[] = {"forward", "query", "key_value"};
  out += std::string("node ") + kKinds[static_cast<int>(node.kind)];
  if (is_reduction(node)) out += " " + facts(node.reduction).name + " " + kStages[static_cast<int>(node.stage)];
  if (node.kind == NodeKind::kCall) out += " " + std::to_string(node.call);
  if (node.waits_for != kNone) out += " waits_for " + std::to_string(node.waits_for);
  if (node.kind == NodeKind::kConvolve) {
    const ConvolveAttrs& c = node.convolve;
    out += std::string(" ") + kConvolutions[static_cast<int>(c.kind)];
    for (const auto& [label, pair] :
         {std::pair("stride", c.stride), std::pair("padding", c.padding), std::pair("dilation", c.dilation)})
      out += std::string(" ") + label + " " + std::to_string(pair[0]) + " " + std::to_string(pair[1]);
    out += " groups " + std::to_string(c.groups);
  }
  if (node.kind == NodeKind::kAttention) {
    const AttentionAttrs& a = node.attention;
    out += std::string(" ") + kAttentions[static_cast<int>(a.kind)];
    out += " scale " + number({true, a.scale, 0}) + " dropout " + number({true, a.dropout, 0});
    if (a.cap > 0) out += " cap " + number({true, a.cap, 0});
    if (a.causal) out += " causal";
    if (a.masked) out += " masked";
    if (a.blocks > 0) out += " blocks " + std::to_string(a.blocks);
    if (a.nan_rows) out += " nan_rows";
  }
  if (node.kind == NodeKind::kFft) {
    if (node.fft.inverse) out += " inverse";
    out += " scale " + number({true, node.fft.scale, 0}) + " root " + std::to_string(node.fft.root);
  }
  if (node.kind == NodeKind::kSort) {
    const SortAttrs& s = node.sort;
    out += std::string(" ") + kSorts[static_cast<int>(s.step)] + " block " + std::to_string(s.block) + " keep " +
           std::to_string(s.keep) + " shift " + std::to_string(s.shift) + " digits " + std::to_string(s.digits);
    if (s.is_signed) out += " signed";
  }
  out += " " + list(node.sizes);
  if (node.kind != NodeKind::kMap || !node.reduce_sizes.empty()) out += " over " + list(node.reduce_sizes);
  if (node.reduced_precision) out += " reduced_precision";
  if (origins) out += comment(node.origin);
  out += "\n";
  for (size_t i = 0; i < node.body.ops.size(); ++i) print_op(out, node.body.ops[i], i);
  if (is_reduction(node)) {
    out += "  reduce";
    for (const int value : node.reduced) out += " " + value_name(value);
    if (node.reset != kNone) out += " reset " + value_name(node.reset);
    out += "\n";
  }
  for (const View& view : node.operands)
    out += "  operand " + buffer_name(view.buffer) + " " + list(view.sizes) + " at " + list(view.coords) + "\n";
  for (const BufferId buffer : node.outputs) out += "  output " + buffer_name(buffer) + "\n";
  for (const Store& store : node.stores) {
    out += "  store " + buffer_name(store.buffer) + list(store.index);
    out += store.mode == StoreMode::kMaximum ? " maximum= " : " = ";
    out += is_reduction(node) ? "result " + std::to_string(store.value) : value_name(store.value);
    if (store.mask != kNone) out += " if " + value_name(store.mask);
    out += "\n";
  }
}

}  // namespace

std::string Graph::str(bool origins) const {
  std::string out;
  for (int i = 0; i < symbols; ++i) {
    const Range range = static_cast<size_t>(i) < symbol_ranges.size() ? symbol_ranges[i] : Range{};
    out += "symbol s" + std::to_string(i) + " " + std::to_string(range.low) + ".." + std::to_string(range.high) + " divisor " +
           std::to_string(range.divisor) + "\n";
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& b = buffers[i];
    out += "buffer " + buffer_name(static_cast<BufferId>(i)) + " " + b.name + " " + name(b.dtype) + " " + list(b.sizes);
    if (b.strides) out += " strides " + list(*b.strides);
    if (b.role == BufferRole::kInput) out += " input " + std::to_string(b.input);
    if (b.is_parameter) out += " parameter";
    if (b.donated) out += " donated";
    out += "\n";
  }
  if (!inputs.empty()) {
    out += "inputs";
    for (const BufferId id : inputs) out += " " + buffer_name(id);
    out += "\n";
  }
  for (const Node& node : nodes) print_node(out, node, origins);
  for (const Output& output : outputs)
    out += "result " + buffer_name(output.buffer) + " " + list(output.sizes) + " strides " + list(output.strides) + " offset " +
           output.offset.str() + "\n";
  return out;
}

}  // namespace ocl::ir
