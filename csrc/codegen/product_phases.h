// csrc/codegen/product_phases.h: phases of a matrix times a row, of which a work-item computes several rows of the matrix.
#pragma once

#include <functional>

#include "csrc/codegen/register_phases.h"

namespace ocl::codegen {

/// Neighbouring outer elements along the innermost loop i*, which a row of work-items computes together.
struct RowBlock {
  int rows = 1;
  std::map<ir::Symbol, std::string> names;  // The loops i*; of the innermost, the first element of the block.
  std::string loop;                         // The head of a loop over blocks, if a row of work-items computes several.
  Writer begin;                             // The first lines of that loop.
};

/// A work-item has the same vectors of all rows of a block. It loads and computes once what they share, such as the row that a
/// matrix is multiplied by, also for several blocks. For groups for which shares_row() is true.
class ProductPhases : public RegisterPhases {
 public:
  ProductPhases(BodyPrinter& body, const schedule::Group& group, Sharing sharing, int width, int64_t length, RowBlock block)
      : RegisterPhases(body, group, std::move(sharing), width, length), block_(std::move(block)) {}
  void print() override;

 protected:
  std::string store_condition() const override;

 private:
  /// A reduction of one row of the block, or of all if it is the same for them.
  struct Sum {
    size_t reduction;
    int row;
    std::string name;
  };
  std::vector<Sum> declare_sums(Writer& writer, PhaseReductions& reductions, bool varying) const;
  void add_up(PhaseReductions& reductions, const std::vector<Sum>& shared, const std::vector<Sum>& varying, Writer& inside);
  void keep_sums(Writer& writer, PhaseReductions& reductions, const std::vector<Sum>& sums, size_t first) const;
  void merge_items(Writer& writer, PhaseReductions& reductions, size_t first, size_t count);
  void print_results(PhaseReductions& reductions, const std::vector<Sum>& shared, const std::vector<Sum>& varying,
                     Writer& inside);
  std::string first_row() const { return block_.names.at(innermost_loop()); }
  ir::Symbol innermost_loop() const;

  const RowBlock block_;
  std::string array_;  // Local memory: a sum of each work-item, for each of the sums.
  int all_ = 0;        // Work-items of the work-group.
  int left_ = 0;       // Values of each sum that are left after merge_items.
};

/// The innermost loop i* of a group.
ir::Symbol innermost_loop(const schedule::Group& group);
/// True if the node reads something else for different iterations of the loops i*.
bool varies_by_row(const ir::Node& node);
/// True if ProductPhases can print the group, and its outer elements share loads along r*.
bool shares_row(BodyPrinter& body, const schedule::Group& group);

}  // namespace ocl::codegen
