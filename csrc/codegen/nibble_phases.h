// csrc/codegen/nibble_phases.h: phases of matrices of int4 times a few rows, on tensor cores.
#pragma once

#include <string>
#include <vector>

#include "csrc/codegen/nibble_shares.h"
#include "csrc/codegen/phase_reductions.h"
#include "csrc/codegen/phases.h"

namespace ocl::codegen {

/// The weights are copied to local memory without passing through registers, two rounds ahead. A work-group first stores the
/// rows as bf16 in local memory, in the order of the tensor cores. Then each warp multiplies its part of all tiles, and last a
/// work-item merges the sums of a row of the matrices and computes the outer phases.
class NibblePhases : public PhasePrinter {
 public:
  NibblePhases(BodyPrinter& body, const schedule::Group& group, const NibbleGroup& nibbles, const NibbleShares& shares);
  void print() override;

 private:
  void print_inner(const schedule::Phase&) override {}
  enum class Loads { kWeights, kScales };
  void print_loads(Loads what, const std::string& at);
  void print_copy(int number, int line);
  void print_scale(int number, int line);
  void print_row();
  void print_row_vectors(bool aligned);
  void print_row_vector(const std::string& first, const std::string& inside);
  void merge_totals();
  void print_round(const std::string& at);
  void print_column_sums();
  void print_products(int number, const std::string& round);
  void store_sums(const std::string& tile);
  void print_results();
  std::string step(int number, const std::string& round) const;
  /// Returns the text of a scale or zero from what was loaded of it.
  std::string loaded_value(const char* what, int number, size_t matrix, int line) const;
  std::string row_words(int number, const std::string& round, int word) const;
  /// Returns where a lane's words of a step are, within a stage.
  int64_t place(int number, size_t matrix, int line) const;
  /// Returns a value of both rows of a lane in the places of their sums.
  std::string of_lines(const std::string& upper, const std::string& lower) const;

  const NibbleGroup& nibbles_;
  const NibbleShares& shares_;
  const size_t columns_;
  PhaseReductions reductions_;
  std::string weights_, row_, sums_, totals_, merged_;  // Local arrays.
  std::vector<std::string> own_totals_;                 // A work-item's part of the reductions that are the same for all rows.
};

/// Prints the kernel of the group. Returns its work-groups.
Grid write_nibbles(Nest& nest, const NibbleGroup& nibbles, const NibbleShares& shares);

}  // namespace ocl::codegen
