// csrc/codegen/product_phases.h: phases of a matrix times a row, of which a work-item computes several rows of the matrix.
#pragma once

#include <functional>

#include "csrc/codegen/register_phases.h"

namespace ocl::codegen {

/// A work-item has the same vectors of `rows_of_item` neighbouring outer elements along the innermost loop i*. It loads and
/// computes once what they share, such as the row that a matrix is multiplied by. For groups for which shares_row() is true.
class ProductPhases : public RegisterPhases {
 public:
  /// `first`: the variable with the first of the neighbouring outer elements.
  ProductPhases(BodyPrinter& body, const schedule::Group& group, Sharing sharing, int width, int64_t length, int rows_of_item,
                std::string first)
      : RegisterPhases(body, group, std::move(sharing), width, length), rows_(rows_of_item), first_(std::move(first)) {}
  void print() override;

 protected:
  /// print_results prints all stores under a condition of its own: an item stores the results of one row.
  std::string store_condition() const override { return ""; }

 private:
  /// A reduction of one outer element, or of all if it is the same for them.
  struct Sum {
    size_t reduction;
    int row;
    std::string name;
  };
  std::vector<Sum> declare_sums(PhaseReductions& reductions);
  void add_up(PhaseReductions& reductions, const std::vector<Sum>& sums);
  int merge_items(PhaseReductions& reductions, const std::vector<Sum>& sums, const std::string& array);
  void print_results(PhaseReductions& reductions, const std::vector<Sum>& sums, const std::string& array, int left);

  const int rows_;
  const std::string first_;
};

/// The innermost loop i* of a group.
ir::Symbol innermost_loop(const schedule::Group& group);
/// True if the node reads something else for each iteration of the innermost loop i*.
bool varies_by_row(const ir::Node& node, const schedule::Group& group);
/// True if ProductPhases can print the group, and its outer elements share loads along r*.
bool shares_row(BodyPrinter& body, const schedule::Group& group);

}  // namespace ocl::codegen
