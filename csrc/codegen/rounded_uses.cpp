// csrc/codegen/rounded_uses.cpp: follows a value to its uses.
#include "csrc/codegen/rounded_uses.h"

#include <algorithm>
#include <cmath>

namespace ocl::codegen {

namespace {

/// True if the op returns its only operand that is no constant, or a constant that 16 bits hold. So it may as well come before
/// a rounding to 16 bits.
bool picks(const ir::Node& node, const ir::Op& op) {
  if (op.code != OpCode::k_relu && op.code != OpCode::k_maximum && op.code != OpCode::k_minimum) return false;
  int others = 0;
  for (const int arg : op.args) {
    const ir::Op& from = node.body.ops[static_cast<size_t>(arg)];
    if (from.code != OpCode::kConstant)
      ++others;
    else if (!fits_halves(from.constant))
      return false;
  }
  return others == 1;
}

class Uses {
 public:
  /// picked: if given, uses may pick the value before they round to this type. Otherwise they may multiply it.
  explicit Uses(const schedule::Schedule& schedule, std::optional<DType> picked = std::nullopt)
      : type(picked), schedule_(schedule), picked_(picked) {}

  /// False if a use does not round the value of the op.
  bool follow(const ir::Node& node, int op) {
    const bool loops =
        node.kind == ir::NodeKind::kMap || node.kind == ir::NodeKind::kReduce || node.kind == ir::NodeKind::kScan;
    if (!loops || std::ranges::find(node.reduced, op) != node.reduced.end()) return false;
    for (size_t i = 0; i < node.body.ops.size(); ++i) {
      const ir::Op& user = node.body.ops[i];
      if (std::ranges::find(user.args, op) == user.args.end()) continue;
      // The relative errors of factors are those of the product.
      const bool passes = picked_ ? picks(node, user) : user.code == OpCode::k_mul,
                 follows = user.code == OpCode::kCast ? rounds(user.dtype) : passes && follow(node, static_cast<int>(i));
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
  const std::optional<DType> picked_;
};

}  // namespace

bool fits_halves(const ir::Scalar& constant) {
  const double x = constant.is_float ? constant.f : static_cast<double>(constant.i), few = std::abs(x) <= 32 ? 8 * x : x;
  return std::isinf(x) || (std::abs(x) <= 256 && few == std::floor(few));
}

std::optional<DType> rounded_to(const schedule::Schedule& schedule, ir::NodeId node, int op) {
  Uses uses(schedule);
  return uses.follow(schedule.graph.nodes[node], op) ? uses.type : std::nullopt;
}

bool may_round_later(const schedule::Schedule& schedule, ir::NodeId node, int op, DType type) {
  const ir::Node& of = schedule.graph.nodes[node];
  return picks(of, of.body.ops[static_cast<size_t>(op)]) && Uses(schedule, type).follow(of, op);
}

}  // namespace ocl::codegen
