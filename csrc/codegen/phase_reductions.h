// csrc/codegen/phase_reductions.h: the reductions of one inner phase, which run in the same loop: declared, stepped and merged
// together.
#pragma once

#include <string>
#include <vector>

#include "csrc/codegen/accumulators.h"

namespace ocl::codegen {

/// Elements that go into one accumulator before it is added to the next level.
inline constexpr int64_t kLongestBlock = 64;

/// The Reduce nodes of a phase, or its only Scan node.
class PhaseReductions {
 public:
  using Carried = Accumulators::Carried;
  /// Accumulators of all reductions, by position.
  using Sets = std::vector<Carried>;

  PhaseReductions(BodyPrinter& body, const schedule::Phase& phase);
  /// For a reduction that takes several passes over the phase's elements: `pass` replaces the phase's only reduction.
  PhaseReductions(BodyPrinter& body, const schedule::Phase& phase, Accumulators pass);

  size_t size() const { return reductions_.size(); }
  bool empty() const { return reductions_.empty(); }
  Accumulators& operator[](size_t i) { return reductions_[i]; }
  const Accumulators& operator[](size_t i) const { return reductions_[i]; }
  /// Whether the phase is a Scan.
  bool scans() const { return scans_; }
  /// Operations of the phase's bodies: what a repetition costs in compile time.
  size_t op_count() const;

  /// Fresh names, and their declarations.
  Sets names() const;
  void declare(Writer& writer, const Sets& sets, int width) const;
  /// The same for the accumulators of one block of elements, whose results `merge_block` adds to `into`.
  Sets block_names() const;
  void declare_block(Writer& writer, const Sets& into, const Sets& block, int width) const;
  void merge_block(Writer& writer, const Sets& into, const Sets& block, int width) const;
  /// Whether some reduction gains by blocks. `is_long`: the loop has more elements than one block.
  bool wants_blocks(bool is_long) const;
  /// Elements of a block in a loop over `total`.
  int64_t block_length(int64_t total) const;
  /// The length, as text, of the block that begins at `first`, where blocks have `length` elements.
  std::string block_text(const std::string& first, int64_t length) const;

  /// The phase's nodes for one element (or one vector), at the innermost level: Maps are stored, reductions stepped.
  void step_nodes(const Sets& sets, bool in_block);
  /// Only computes what the phase's nodes reduce and store; nothing is reduced or stored yet.
  void compute_values();
  /// Makes the results values of the innermost open level.
  void finish(const Sets& sets, int width);

 private:
  BodyPrinter& body_;
  const schedule::Phase& phase_;
  std::vector<Accumulators> reductions_;
  bool scans_ = false;
};

}  // namespace ocl::codegen
