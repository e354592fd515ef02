// csrc/exec/run_state.cpp: see run_state.h.
#include "csrc/exec/run_state.h"

#include "csrc/support/error.h"

namespace ocl::exec {
namespace {

int64_t bytes_of(const RunState& state, ir::BufferId id) {
  const ir::Buffer& buffer = state.plan.schedule.graph.buffers[id];
  int64_t last = 0;
  for (size_t d = 0; d < buffer.sizes.size(); ++d) {
    const int64_t size = value_of(state, buffer.sizes[d]);
    if (size == 0) return 0;
    last += (size - 1) * value_of(state, (*buffer.strides)[d]);
  }
  return (last + 1) * ir::size_bytes(buffer.dtype);
}

}  // namespace

void RunState::forget_arguments() {
  for (LaunchState& launch : launches) launch.bound.assign(launch.bound.size(), LaunchState::Bound{});
}

int64_t value_of(const RunState& state, const ir::IndexExpr& expr) {
  if (expr.is_const()) return expr.constant();
  const auto size = [&](ir::Symbol s) -> int64_t {
    OCL_ASSERT(s.kind == ir::SymbolKind::kSize && s.index < static_cast<int>(state.symbols.size()),
               "a launch depends on a symbol that is no size of the graph");
    return state.symbols[s.index];
  };
  return ir::evaluate(expr, size, ir::ZeroDivisor::kCountsAsOne);
}

std::vector<int64_t> values_of(const RunState& state, const ir::Shape& exprs) {
  std::vector<int64_t> values;
  for (const ir::IndexExpr& expr : exprs) values.push_back(value_of(state, expr));
  return values;
}

char* address_of(const RunState& state, const RunMemory& memory, const BufferSource& source) {
  switch (source.kind) {
    case BufferSource::Kind::kInput:
      return static_cast<char*>(memory.inputs[source.index]);
    case BufferSource::Kind::kOutput:
      return static_cast<char*>(memory.outputs[source.index]);
    default:
      return memory.arena ? memory.arena + state.memory.offsets[source.index] : nullptr;
  }
}

int64_t extent_bytes(const RunState& state, const BufferSource& source) {
  switch (source.kind) {
    case BufferSource::Kind::kInput:
      return bytes_of(state, state.plan.schedule.graph.inputs[source.index]);
    case BufferSource::Kind::kOutput:
      return bytes_of(state, state.plan.schedule.allocations[source.index]);
    default:
      return value_of(state, state.plan.interval_bytes[source.index]);
  }
}

}  // namespace ocl::exec
