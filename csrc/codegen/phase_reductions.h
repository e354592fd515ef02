// csrc/codegen/phase_reductions.h: the reductions of one inner phase. They run in the same loop, so they are declared,
// stepped and merged together.
#pragma once

#include <string>
#include <vector>

#include "csrc/codegen/accumulators.h"

namespace ocl::codegen {

/// Largest number of elements in a block. The sum of a block is then added to the total.
inline constexpr int64_t kLongestBlock = 64;

/// The Reduce nodes of a phase, or its only Scan node.
class PhaseReductions {
 public:
  using Carried = Accumulators::Carried;
  /// The names of the accumulators of each reduction, by position.
  using Sets = std::vector<Carried>;

  PhaseReductions(BodyPrinter& body, const schedule::Phase& phase);
  /// Constructor for a reduction in several passes: `pass` takes the place of the phase's only reduction.
  PhaseReductions(BodyPrinter& body, const schedule::Phase& phase, Accumulators pass);

  size_t size() const { return reductions_.size(); }
  bool empty() const { return reductions_.empty(); }
  Accumulators& operator[](size_t i) { return reductions_[i]; }
  const Accumulators& operator[](size_t i) const { return reductions_[i]; }
  /// True if the phase is a Scan.
  bool scans() const { return scans_; }
  /// Returns the number of ops in the phase's bodies. Repeating them costs that much compile time.
  size_t op_count() const;

  /// Returns new variable names for the accumulators of all reductions. declare() prints their declarations.
  Sets names() const;
  void declare(Writer& writer, const Sets& sets, int width) const;
  /// Returns new names for the accumulators of one block of elements. merge_block adds the block's results to `into`.
  Sets block_names() const;
  void declare_block(Writer& writer, const Sets& into, const Sets& block, int width) const;
  void merge_block(Writer& writer, const Sets& into, const Sets& block, int width) const;
  /// True if some reduction gains by blocks. `is_long`: the loop has more elements than one block.
  bool wants_blocks(bool is_long) const;
  /// Returns the number of elements in a block, for a loop over `total` elements.
  int64_t block_length(int64_t total) const;
  /// Returns the length, as text, of the block that begins at `first`. Blocks have `length` elements, but the first may
  /// be shorter.
  std::string block_text(const std::string& first, int64_t length) const;

  /// Prints the phase's nodes for one element or vector, at the innermost level. Maps store their values, reductions
  /// take a step.
  void step_nodes(const Sets& sets, bool in_block);
  /// Prints only the computation of the values. The reductions and stores come later.
  void compute_values();
  /// Makes the results of the reductions available as values of the innermost open level.
  void finish(const Sets& sets, int width);

 private:
  BodyPrinter& body_;
  const schedule::Phase& phase_;
  std::vector<Accumulators> reductions_;
  bool scans_ = false;
};

}  // namespace ocl::codegen
