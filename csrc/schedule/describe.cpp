// csrc/schedule/describe.cpp: prints a schedule; gives the sizes of its groups, and counts bytes and floating-point
// operations.
#include "csrc/schedule/describe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "csrc/schedule/body.h"
#include "csrc/schedule/dependence.h"

namespace ocl::schedule {

namespace {

/// Returns the sizes of the forward output and of the filter.
std::pair<ir::Shape, ir::Shape> convolution_sizes(const ir::Node& node) {
  const ir::Shape &x = node.operands[0].sizes, &w = node.operands[1].sizes;
  switch (node.convolve.kind) {
    case ir::ConvolveKind::kForward:
      return {node.sizes, w};
    case ir::ConvolveKind::kWeight:
      return {w, node.sizes};
    default:
      return {x, w};
  }
}

}  // namespace

Work work_of(const Schedule& schedule, const Group& group) {
  const ir::Graph& graph = schedule.graph;
  Work work;
  // The elements that are touched in each buffer. An access touches one element per iteration, but all accesses
  // together touch at most the elements that the buffer has in memory.
  std::map<BufferId, IndexExpr> touched;
  const auto touch = [&](BufferId buffer, const IndexExpr& elements) {
    const bool registers = static_cast<size_t>(buffer) < schedule.placements.size() &&
                           schedule.placements[buffer].kind == Placement::Kind::kNowhere;
    if (!registers) touched[buffer] = touched[buffer] + elements;
  };
  for (const ir::NodeId id : group.nodes()) {
    const ir::Node& node = graph.nodes[id];
    const IndexExpr count = product(node.sizes);
    if (is_loop_nest(node)) {
      for (const Access& access : accesses(node))
        touch(access.buffer, access.store ? count : count * product(node.reduce_sizes));
    } else {
      for (const BufferId b : buffers_read(schedule, id)) {
        IndexExpr seen;  // By the node's windows on the buffer, unless its launch reads copies of these.
        for (const ir::View& view : node.operands)
          if (view.buffer == b) seen = seen + product(view.sizes);
        touch(b, seen.is_const(0) ? product(graph.buffers[b].sizes) : seen);
      }
      for (const BufferId b : ir::writes(node)) touch(b, product(graph.buffers[b].sizes));
    }
    if (node.kind == ir::NodeKind::kContract) {
      work.flops = work.flops + count * product(node.reduce_sizes) * 2;
    } else if (node.kind == ir::NodeKind::kConvolve) {
      // Multiply-adds of the direct convolution: each forward output needs each weight of its filter once.
      const auto [image, filter] = convolution_sizes(node);
      work.flops = work.flops + product(image) * filter[1] * filter[2] * filter[3] * 2;
    } else if (node.kind == ir::NodeKind::kAttention) {
      // The forward kernel computes two products of the size of the scores. The gradients compute the scores again. A
      // causal mask halves the work.
      const ir::AttentionKind kind = node.attention.kind;
      const ir::Shape &q = node.operands[0].sizes, &k = node.operands[1].sizes, &v = node.operands[2].sizes;
      const IndexExpr once = ir::product({q[0], q[1], q[2], k[2]}) * (node.attention.causal ? 1 : 2);
      const IndexExpr depth = kind == ir::AttentionKind::kForward    ? q[3] + v[3]
                              : kind == ir::AttentionKind::kQuery    ? q[3] * 2 + v[3]
                              : kind == ir::AttentionKind::kKeyValue ? (q[3] + v[3]) * 2
                                                                     : q[3] * 3 + v[3] * 2;
      work.flops = work.flops + once * depth;
    } else if (node.kind == ir::NodeKind::kFft) {
      // The usual count, 5 n log2(n) for n complex numbers.
      const double each = 2.5 * std::log2(static_cast<double>(node.operands[0].sizes[1].constant()));
      work.flops = work.flops + count * std::llround(each);
    } else if (is_loop_nest(node)) {
      int64_t ops = static_cast<int64_t>(node.reduced.size());
      for (const ir::Op& op : node.body.ops) ops += op.code > ir::OpCode::kCast && is_floating(op.dtype);
      work.flops = work.flops + count * product(node.reduce_sizes) * ops;
    }
  }
  for (const auto& [buffer, elements] : touched)
    work.bytes =
        work.bytes + min(elements, product(stored_sizes(graph.buffers[buffer]))) * size_bytes(graph.buffers[buffer].dtype);
  work.bytes = simplify(work.bytes, graph.ranges());
  work.flops = simplify(work.flops, graph.ranges());
  return work;
}

Extent extent_of(const Schedule& schedule, const Group& group) {
  Extent extent{group.sizes, "over", group.reduce_sizes};
  if (group.kind == GroupKind::kBatch) {
    IndexExpr elements;
    for (const Group& member : group.members) elements = elements + product(member.sizes) * product(member.reduce_sizes);
    extent = {{IndexExpr(static_cast<int64_t>(group.members.size()))}, "loops of", {elements}};
  }
  if (group.main == ir::kNone) return extent;
  const ir::Node& node = schedule.graph.nodes[group.main];
  extent = {node.sizes, "over", node.reduce_sizes};
  if (node.kind == ir::NodeKind::kContract) {
    extent = {node.sizes, "", {}};
    if (node.sizes[0].is_const() && node.sizes[0].constant() == 1) extent.sizes.erase(extent.sizes.begin());
    extent.sizes.push_back(node.reduce_sizes[0]);
  } else if (node.kind == ir::NodeKind::kConvolve) {
    const auto [image, filter] = convolution_sizes(node);
    extent = {image, "by", {filter[1], filter[2], filter[3]}};
  } else if (node.kind == ir::NodeKind::kAttention) {
    extent = {node.operands[0].sizes, "to", {node.operands[1].sizes[2]}};
  } else if (node.kind == ir::NodeKind::kFft) {
    extent = {node.operands[0].sizes, "", {}};
  }
  return extent;
}

namespace {

const char* name(GroupKind kind) {
  constexpr const char* kNames[] = {"loops", "template", "batch", "call"};
  return kNames[static_cast<int>(kind)];
}
const char* name(LoopStrategy strategy) {
  constexpr const char* kNames[] = {"pointwise", "sequential", "row", "column"};
  return kNames[static_cast<int>(strategy)];
}
const char* name(Placement::Kind kind) {
  constexpr const char* kNames[] = {"registers", "input", "output", "arena", "alias of buffer"};
  return kNames[static_cast<int>(kind)];
}

std::string list(const ir::Shape& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + sizes[i].str();
  return text + "]";
}

std::string list(const std::vector<ir::NodeId>& nodes) {
  std::string text;
  for (const ir::NodeId node : nodes) text.append(" ").append(std::to_string(node));
  return text;
}

std::string header_of(const Group& group) {
  std::string text = name(group.kind);
  if (group.kind == GroupKind::kLoops) {
    text += std::string(" ") + name(group.strategy) + " " + list(group.sizes);
    if (!group.reduce_sizes.empty()) text += " over " + list(group.reduce_sizes);
    if (group.strategy == LoopStrategy::kColumn) text += " columns " + std::to_string(group.columns);
    text += " vector " + std::to_string(group.vector_width);
    if (group.ragged_width > 1) text += " ragged " + std::to_string(group.ragged_width);
    if (group.crossed_loop != ir::kNone) text += " along i" + std::to_string(group.crossed_loop);
    if (group.index32) text += " index32";
    for (const Phase& phase : group.phases) text += (phase.inner ? " inner" : " outer") + list(phase.nodes);
  } else if (group.kind == GroupKind::kTemplate) {
    text += std::string(" ") + kernel_row(group.launch.kernel).name + " " + group.launch.variant + " node " +
            std::to_string(group.main) + " epilogue" + list(group.epilogue);
  } else if (group.kind == GroupKind::kCall) {
    text += " node " + std::to_string(group.call);
  }
  return text;
}

void print(std::string& out, const Schedule& schedule, const Group& group, const std::string& title,
           const std::string& indent) {
  const auto line = [&](const std::string& text) { out.append(indent).append(text).append("\n"); };
  line(title + ": " + header_of(group));
  std::set<std::string> ops;
  for (const ir::NodeId node : group.nodes())
    if (!schedule.graph.nodes[node].origin.op.empty()) ops.insert(schedule.graph.nodes[node].origin.op);
  for (const std::string& op : ops) line("  from " + op);
  for (const std::string& reason : group.reasons) line("  " + reason);
  for (const Neighbour& other : group.apart)
    line("  apart from " + schedule.graph.nodes[other.node].origin.op + ": " + other.reason);
  for (size_t i = 0; i < group.members.size(); ++i)
    print(out, schedule, group.members[i], "member " + std::to_string(i), indent + "  ");
}

std::string str(const Schedule& schedule, BufferId buffer, const Placement& placement) {
  std::string text = "buffer " + std::to_string(buffer) + " (" + schedule.graph.buffers[buffer].name +
                     "): " + name(placement.kind) + " " + std::to_string(placement.index);
  if (placement.kind != Placement::Kind::kArena) return text;
  const Lifetime& life = schedule.lifetimes[placement.index];
  return text + ", groups " + std::to_string(life.first) + " to " + std::to_string(life.last) + ", " + life.size_bytes.str() +
         " bytes";
}

}  // namespace

std::string str(const Schedule& schedule) {
  std::string out;
  for (const std::string& line : schedule.log) out += "# " + line + "\n";
  for (size_t i = 0; i < schedule.groups.size(); ++i)
    print(out, schedule, schedule.groups[i], "group " + std::to_string(i), "");
  for (size_t b = 0; b < schedule.placements.size(); ++b)
    if (schedule.placements[b].kind != Placement::Kind::kNowhere)
      out += str(schedule, static_cast<BufferId>(b), schedule.placements[b]) + "\n";
  return out + schedule.graph.str();
}

}  // namespace ocl::schedule
