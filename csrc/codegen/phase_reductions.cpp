// csrc/codegen/phase_reductions.cpp: prints steps and merges of all reductions of a phase, and chooses the length of
// blocks.
#include "csrc/codegen/phase_reductions.h"

#include <algorithm>
#include <functional>

namespace ocl::codegen {

namespace {

constexpr int64_t kShortestBlock = 16;     // Least number of elements in a block, for reductions that merge cheaply.
constexpr int64_t kFirstBlockDivisor = 8;  // If a reduction wants a short first block, that one is so many times shorter.

}  // namespace

PhaseReductions::PhaseReductions(BodyPrinter& body, const schedule::Phase& phase) : body_(body), phase_(phase) {
  for (const ir::NodeId id : phase.nodes) {
    const ir::Node& node = body.kernel().graph().nodes[id];
    if (ir::is_reduction(node)) reductions_.emplace_back(body, id);
    scans_ = scans_ || node.kind == ir::NodeKind::kScan;
  }
}

PhaseReductions::PhaseReductions(BodyPrinter& body, const schedule::Phase& phase, Accumulators pass)
    : body_(body), phase_(phase) {
  reductions_.push_back(std::move(pass));
}

size_t PhaseReductions::op_count() const {
  size_t ops = 0;
  for (const ir::NodeId id : phase_.nodes) ops += body_.kernel().graph().nodes[id].body.ops.size();
  return ops;
}

PhaseReductions::Sets PhaseReductions::names() const {
  Sets sets;
  for (const Accumulators& r : reductions_) sets.push_back(r.names());
  return sets;
}

void PhaseReductions::declare(Writer& writer, const Sets& sets, int width) const {
  for (size_t i = 0; i < size(); ++i) reductions_[i].declare(writer, sets[i], width);
}

PhaseReductions::Sets PhaseReductions::block_names() const {
  Sets sets;
  for (const Accumulators& r : reductions_) sets.push_back(r.block_names());
  return sets;
}

void PhaseReductions::declare_block(Writer& writer, const Sets& into, const Sets& block, int width) const {
  for (size_t i = 0; i < size(); ++i) reductions_[i].declare_block(writer, into[i], block[i], width);
}

void PhaseReductions::merge_block(Writer& writer, const Sets& into, const Sets& block, int width) const {
  for (size_t i = 0; i < size(); ++i) reductions_[i].merge_block(writer, into[i], block[i], width);
}

bool PhaseReductions::wants_blocks(bool is_long) const {
  return std::any_of(reductions_.begin(), reductions_.end(),
                     [&](const Accumulators& r) { return r.wants_short_blocks() || (is_long && r.wants_blocks()); });
}

/// Two levels of sums have the smallest rounding error when a block has about the square root of the whole length.
int64_t PhaseReductions::block_length(int64_t total) const {
  if (!std::all_of(reductions_.begin(), reductions_.end(), std::mem_fn(&Accumulators::merges_cheaply))) return kLongestBlock;
  int64_t length = kShortestBlock;
  while (length < kLongestBlock && length * length < total) length *= 2;
  return length;
}

std::string PhaseReductions::block_text(const std::string& first, int64_t length) const {
  const int64_t start = std::max<int64_t>(1, length / kFirstBlockDivisor);
  const bool is_short =
      std::any_of(reductions_.begin(), reductions_.end(), std::mem_fn(&Accumulators::wants_short_first_block));
  return is_short && start < length ? format("($s == 0 ? $d : $d)", {first, start, length}) : std::to_string(length);
}

void PhaseReductions::step_nodes(const Sets& sets, bool in_block) {
  size_t next = 0;
  for (const ir::NodeId node : phase_.nodes) {
    if (next == size() || reductions_[next].node() != node) {
      body_.run_map(node);
      continue;
    }
    Accumulators& reduction = reductions_[next];
    const Carried& carried = sets[next];
    ++next;
    if (scans_)
      reduction.step_scan(carried);
    else if (in_block)
      reduction.step_block(carried);
    else
      reduction.step(carried);
  }
  body_.flush_stores();
}

void PhaseReductions::compute_values() {
  for (const ir::NodeId id : phase_.nodes) {
    const ir::Node& node = body_.kernel().graph().nodes[id];
    if (node.kind == ir::NodeKind::kMap) body_.run_map(id);
    for (const int op : node.reduced) body_.value(id, op);
  }
}

void PhaseReductions::finish(const Sets& sets, int width) {
  for (size_t i = 0; i < size(); ++i) reductions_[i].finish(sets[i], width, body_.depth() - 1);
}

}  // namespace ocl::codegen
