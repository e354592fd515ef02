// csrc/codegen/lane_phases.h: phases with vector lanes along the last reduction loop (strategy kRow on CPUs).
#pragma once

#include <optional>
#include <set>

#include "csrc/codegen/sequential_phases.h"

namespace ocl::codegen {

/// Computes a row in vectors of `width` elements. A row shorter than a vector runs element by element.
class LanePhases : public SequentialPhases {
 public:
  LanePhases(BodyPrinter& body, const schedule::Group& group, int width) : SequentialPhases(body, group), width_(width) {}

 protected:
  void print_inner(const schedule::Phase& phase) override;

 private:
  /// Accumulators of the loops over a row.
  struct RowSets {
    Sets whole;              // For vectors of the full width.
    Sets block;              // For one block of vectors. The same as `whole` if there are no blocks.
    std::vector<Sets> tail;  // One set per width in tail_widths().
  };
  /// An op in a later phase that is equal to exp(element - row maximum).
  struct RecomputedExp {
    const schedule::Phase* phase;
    ir::NodeId node;
    int op;
  };

  std::vector<int> tail_widths() const;
  Sets print_row(PhaseReductions& reductions);
  void print_row_loop(PhaseReductions& reductions, const RowSets& sets, size_t depth);
  void print_last_loop(PhaseReductions& reductions, const RowSets& sets);
  void print_vector_loop(PhaseReductions& reductions, const RowSets& sets, bool declared, const Writer& vector);
  std::vector<RecomputedExp> recomputed_exps(const schedule::Phase& phase) const;
  bool takes_softmax_passes(const schedule::Phase& phase, const PhaseReductions& reductions) const;
  bool fits_array() const;
  std::optional<BodyPrinter::RowStorage> storage_for(const std::vector<RecomputedExp>& exps, ir::DType dtype);
  void print_softmax(const schedule::Phase& phase, const Accumulators& softmax);

  const int width_;
  std::set<ir::BufferId> used_as_storage_;
};

}  // namespace ocl::codegen
