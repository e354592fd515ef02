// csrc/codegen/work_group_phases.h: phases that the items of a GPU work-group share, for reductions of any length.
#pragma once

#include "csrc/codegen/phase_reductions.h"
#include "csrc/codegen/phases.h"

namespace ocl::codegen {

/// Items stride over r* and merge through local memory (kRow and kColumn on GPUs). A Scan goes through its row in tiles: each
/// item has a few neighbouring elements, whose totals the items scan in local memory.
class WorkGroupPhases : public PhasePrinter {
 public:
  /// `width`: elements of the vector of neighbouring outer elements that an item computes (kColumn), the body's lane width.
  WorkGroupPhases(BodyPrinter& body, const schedule::Group& group, Sharing sharing, int width = 1)
      : PhasePrinter(body, group), sharing_(std::move(sharing)), width_(width), ragged_(group.ragged_width) {}
  void print() override;

 protected:
  void print_inner(const schedule::Phase& phase) override;
  std::string store_condition() const override { return sharing_.store_condition; }

 private:
  using Sets = PhaseReductions::Sets;
  /// The loop over an item's elements. Chosen before anything is printed.
  struct Loop {
    ir::IndexExpr total;  // Number of elements of r* for all items.
    bool flat = false;    // There are several loops r*, computed from a flat index.
    bool blocks = false;  // Sums go through blocks.
    bool ragged = false;  // Aligned vectors, and elements before and after them.
    int at_once = 1;      // Elements or vectors that are loaded before the first is used.
    std::string name, type;
  };
  Loop choose_loop(const schedule::Phase& phase, const PhaseReductions& reductions) const;
  int elements_at_once(const schedule::Phase& phase, int64_t steps, bool vectors) const;
  std::map<ir::Symbol, std::string> element_names(const Loop& loop, Writer& writer, const std::string& position,
                                                  const std::string& suffix) const;
  void print_elements(const Loop& loop, PhaseReductions& reductions, const Sets& sets, const std::string& from,
                      const std::string& to, const Writer& single);
  Writer several_elements(const Loop& loop, PhaseReductions& reductions, const Sets& sets);
  void print_tree(PhaseReductions& reductions, const Sets& sets);
  /// Returns the local arrays with an element for each item and accumulator, in each of `halves` parts.
  Sets local_arrays(const PhaseReductions& reductions, int halves) const;
  void print_scan(PhaseReductions& reductions);
  /// What the items of a row scan: their totals, and whether a segment begins in their elements, with local arrays of both.
  struct Items {
    Accumulators::Carried total, arrays;
    std::string begins, begins_array;  // Empty if the scan has no segments.
  };
  void print_scan_of_items(const Accumulators& scan, const Items& items);
  Writer scan_tile(PhaseReductions& reductions, const Sets& running, const std::string& begin, const std::string& end,
                   int elements);

  /// Elements [first, last) of the row are aligned vectors of `ragged_`.
  void print_ragged(PhaseReductions& reductions, const Sets& sets, int ahead);
  Writer ragged_vectors(PhaseReductions& reductions, const Sets& sets, const std::string& position, int at_once);

  const Sharing sharing_;
  const int width_, ragged_;
};

}  // namespace ocl::codegen
