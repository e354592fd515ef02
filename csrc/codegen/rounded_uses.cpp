// csrc/codegen/rounded_uses.cpp: follows a value to its uses.
#include "csrc/codegen/rounded_uses.h"

#include <algorithm>

namespace ocl::codegen {

using ir::DType;
using ir::OpCode;

namespace {

class Uses {
 public:
  explicit Uses(const schedule::Schedule& schedule) : schedule_(schedule) {}

  /// False if a use does not round the value of the op.
  bool follow(const ir::Node& node, int op) {
    const bool loops =
        node.kind == ir::NodeKind::kMap || node.kind == ir::NodeKind::kReduce || node.kind == ir::NodeKind::kScan;
    if (!loops || std::ranges::find(node.reduced, op) != node.reduced.end()) return false;
    for (size_t i = 0; i < node.body.ops.size(); ++i) {
      const ir::Op& user = node.body.ops[i];
      if (std::ranges::find(user.args, op) == user.args.end()) continue;
      // The relative errors of factors are those of the product.
      const bool follows =
          user.code == OpCode::kCast ? rounds(user.dtype) : user.code == OpCode::k_mul && follow(node, static_cast<int>(i));
      if (!follows) return false;
    }
    if (node.kind != ir::NodeKind::kMap) return true;  // The others store results of the reduction.
    return std::ranges::all_of(node.stores, [&](const ir::Store& store) { return store.value != op || stored(store.buffer); });
  }

  std::optional<DType> type;  // To which the uses so far round.

 private:
  bool rounds(DType to) {
    if ((to != DType::kF16 && to != DType::kBF16) || (type && *type != to)) return false;
    type = to;
    return true;
  }

  bool stored(ir::BufferId buffer) {
    const DType to = schedule_.graph.buffers[buffer].dtype;
    if (to != DType::kF32) return rounds(to);
    if (schedule_.placements[buffer].kind != schedule::Placement::Kind::kNowhere) return false;
    for (const ir::Node& node : schedule_.graph.nodes)
      for (size_t i = 0; i < node.body.ops.size(); ++i)
        if (node.body.ops[i].code == OpCode::kLoad && node.body.ops[i].buffer == buffer && !follow(node, static_cast<int>(i)))
          return false;
    return true;
  }

  const schedule::Schedule& schedule_;
};

}  // namespace

std::optional<DType> rounded_to(const schedule::Schedule& schedule, ir::NodeId node, int op) {
  Uses uses(schedule);
  return uses.follow(schedule.graph.nodes[node], op) ? uses.type : std::nullopt;
}

}  // namespace ocl::codegen
