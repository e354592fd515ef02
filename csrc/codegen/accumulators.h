// csrc/codegen/accumulators.h: prints the accumulators of a reduction: declaration, step per element, merge, results.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "csrc/codegen/body_printer.h"
#include "csrc/ir/facts.h"

namespace ocl::codegen {

/// Prints a Reduce or Scan node. `Carried` holds the variable names of one set of accumulators, all of the same width.
class Accumulators {
 public:
  using Carried = std::vector<std::string>;

  Accumulators(BodyPrinter& body, ir::NodeId node);
  /// Makes the accumulators of one pass over the elements of the reduction `of`. The pass is a reduction of kind `row`
  /// over the values that `map` prints for the elements.
  using Map = std::function<std::string(const std::string& value, int width)>;
  Accumulators(const Accumulators& of, const ir::ReductionFacts& row, Map map);
  ir::NodeId node() const { return node_; }
  size_t count() const { return types_.size(); }
  ir::DType dtype(size_t accumulator) const { return types_[accumulator]; }
  /// True if long sums should run in blocks: consecutive elements are summed into a block, and blocks into the total.
  /// Rounding errors then grow with the square root of a block's length, not of the whole length.
  bool wants_blocks() const;
  /// True if a merge costs no more than a step. Blocks may then be short.
  bool merges_cheaply() const { return facts_.kind == ir::ReductionKind::k_sum && count() == 1; }
  /// True if even loops that are shorter than a block should run in blocks.
  bool wants_short_blocks() const { return shifted(); }
  /// True if the first block should be short. Later blocks are shifted by its mean, which keeps sums of squares small.
  bool wants_short_first_block() const { return shifted(); }

  Carried names() const;  // Returns new variable names.
  void declare(Writer& writer, const Carried& carried, int width) const;
  /// Prints a step with the current element, at the body's current lane width.
  void step(const Carried& carried);
  /// Prints a step of a Scan. The step first resets the accumulators where the node says so. flush_stores then stores
  /// the results so far.
  void step_scan(const Carried& carried);
  /// Resets the accumulators of a Scan if the current element begins a segment. Returns whether it does; empty: none does.
  std::string reset(const Carried& carried);
  /// True if a Scan has segments.
  bool resets() const { return n_.reset != ir::kNone; }

  // Accumulators of one block. They are the same as those of the whole loop, except for Welford, where a block has no
  // division per element. A block of Welford has a shift c (the mean of earlier blocks, or the first element), s = sum
  // of x - c, q = sum of (x - c)^2, and a count k, which all lanes share.
  Carried block_names() const;
  /// Declares the accumulators of a block whose results will be merged into `into`.
  void declare_block(Writer& writer, const Carried& into, const Carried& block, int width) const;
  void step_block(const Carried& block);
  void merge_block(Writer& writer, const Carried& into, const Carried& block, int width) const;

  // Softmax of a row in cache takes two passes: the maximum, then the sum of exp(x - maximum). That is half of the
  // arithmetic of a running softmax.
  bool is_softmax() const;
  /// Returns the first pass, the maximum. `map`, if given, prints code for each element.
  Accumulators row_max_pass(Map map) const;
  /// Returns the second pass, the sum. `load`, if given, prints the element instead of the body. `save`, if given,
  /// prints code that stores exp(element - row_max).
  Accumulators exp_sum_pass(const std::string& row_max, const Map& load, const Map& save) const;
  /// Returns the accumulators after both passes. They are NaN if the row has a NaN.
  Carried after_softmax_passes(Writer& writer, const std::string& row_max, const std::string& sum) const;

  // A reduction of elements in registers takes two passes with one accumulator each: first a mean or a maximum (the
  // centre), then a sum around it. So no element needs a division or a rescaling.
  bool takes_two_passes() const;
  /// True if one pass with one accumulator is enough, as for sums and maxima.
  bool is_single() const { return count() == 1; }
  /// Declares the accumulator of pass 0 or 1, and returns its name.
  std::string declare_pass(Writer& writer, int pass, int width) const;
  /// Prints a step with one element into `into`; the second pass uses `centre`.
  void step_pass(int pass, const std::string& into, const std::string& centre);
  std::string merge_pass_text(int pass, const std::string& a, const std::string& b, int width) const;
  /// Returns the centre, computed from the result `first` of the first pass over `elements` elements.
  std::string centre_text(const std::string& first, const std::string& elements) const;
  Carried after_passes(const std::string& centre, const std::string& second, const std::string& elements) const;

  /// Prints `to` = `from`.
  static void copy(Writer& writer, const Carried& to, const Carried& from);
  /// Prints `into` = merge(into, from). `into` holds the smaller positions. The texts in `from` may be printed several
  /// times.
  void merge(Writer& writer, const Carried& into, const Carried& from, int width) const;
  /// Merges the lanes of a vector pairwise, upper half into lower half. Returns the scalar results in new variables.
  Carried across_lanes(Writer& writer, const Carried& vector, int width) const;
  /// Makes the node's results available as values of the innermost open level.
  void finish(const Carried& carried, int width, int level);

 private:
  bool shifted() const;
  void declare_from(size_t first, Writer& writer, const Carried& carried, int width) const;
  std::vector<std::string> inputs();
  Carried across_equal_lanes(Writer& writer, const Carried& vector, int width) const;
  std::vector<std::string> merged(const Carried& a, const Carried& b, int width) const;
  /// Returns the mask of the elements whose position comes before the other one, for values of accumulator 0.
  std::string before_text(const std::string& position, const std::string& other, int width) const;
  /// Returns the mask of no element, for values of accumulator 0.
  std::string none_text(int width) const;
  std::string row_text(const std::string& row, size_t accumulator, int width, std::map<std::string, std::string> with) const;
  void assign(Writer& writer, const Carried& to, const std::vector<std::string>& texts, int width) const;

  BodyPrinter& body_;
  ir::NodeId node_;
  const ir::Node& n_;
  const ir::ReductionFacts& facts_;
  std::vector<ir::DType> types_;
  Map map_;
  // True if the elements of each accumulator come in the order of their positions 0, 1, ..., so that of equal values the first
  // stays.
  bool in_order_ = false;
  bool loads_ = true;  // True if the body loads the elements; false if map_ prints them.
};

}  // namespace ocl::codegen
