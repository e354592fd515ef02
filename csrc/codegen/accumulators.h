// csrc/codegen/accumulators.h: the accumulators of a reduction: declared, stepped per element, merged, read at the end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "csrc/codegen/body.h"
#include "csrc/ir/facts.h"

namespace ocl::codegen {

/// Prints a Reduce node. `Carried` holds the names of one set of accumulators, all of the same width.
class Accumulators {
 public:
  using Carried = std::vector<std::string>;

  Accumulators(BodyPrinter& body, ir::NodeId node);
  /// One pass over the elements of `of`: a reduction of the kind `row` over the values that `map` prints for them.
  using Map = std::function<std::string(const std::string& value, int width)>;
  Accumulators(const Accumulators& of, const ir::ReductionFacts& row, Map map);
  ir::NodeId node() const { return node_; }
  size_t count() const { return types_.size(); }
  ir::DType dtype(size_t accumulator) const { return types_[accumulator]; }
  /// Whether long sums run in blocks. Rounding errors then grow with the square root of a block's length, not of the whole.
  bool wants_blocks() const;
  /// Whether a merge costs no more than a step, so that blocks may be short.
  bool merges_cheaply() const { return facts_.name == "sum"; }
  /// Whether blocks pay at any length.
  bool wants_short_blocks() const { return shifted(); }
  /// Whether the first block is short. The blocks after it are shifted by its mean, which keeps sums of squares small.
  bool wants_short_first_block() const { return shifted(); }

  Carried names() const;  // fresh ones
  void declare(Writer& writer, const Carried& carried, int width) const;
  /// One element into `carried`, at the body's current lane width.
  void step(const Carried& carried);
  /// The same for a Scan: starts afresh where the node says so; the results so far are stored by flush_stores.
  void step_scan(const Carried& carried);

  // Accumulators of one block. They are those of the whole loop, except for Welford's mean: a block avoids its division per
  // element. It has a shift c (the mean of the blocks before, or the first element), s = sum of x - c, q = sum of (x - c)^2,
  // and the count k of elements so far, which all lanes share.
  Carried block_names() const;
  /// Before a block whose sums will be merged into `into`.
  void declare_block(Writer& writer, const Carried& into, const Carried& block, int width) const;
  void step_block(const Carried& block);
  void merge_block(Writer& writer, const Carried& into, const Carried& block, int width) const;

  // Softmax of a row in cache, in two passes: the maximum, then the sum of exp(x - maximum). That is half of the arithmetic of
  // a running sum.
  bool is_softmax() const;
  /// `map`, if given, sees each element.
  Accumulators row_max_pass(Map map) const;
  /// `load`, if given, replaces the elements; `save`, if given, takes e^(element - row_max).
  Accumulators exp_sum_pass(const std::string& row_max, const Map& load, const Map& save) const;
  /// The results of both passes: NaN for a row with one.
  Carried after_softmax_passes(Writer& writer, const std::string& row_max, const std::string& sum) const;

  // Reductions of elements that stay in registers take two passes, each with one accumulator: first a mean or a maximum (the
  // centre), then a sum around it. So there is no division or rescaling per element.
  bool takes_two_passes() const;
  /// Whether one pass with one accumulator is enough, as for sums and maxima.
  bool is_single() const { return count() == 1; }
  std::string declare_pass(Writer& writer, int pass, int width) const;
  /// Adds one element to `into`, around `centre` in the second pass.
  void step_pass(int pass, const std::string& into, const std::string& centre);
  std::string merge_pass_text(int pass, const std::string& a, const std::string& b, int width) const;
  /// The centre of the second pass, from the result of the first pass over `elements` elements.
  std::string centre_text(const std::string& first, const std::string& elements) const;
  Carried after_passes(const std::string& centre, const std::string& second, const std::string& elements) const;

  /// Prints `into` = merge(into, from); `into` has the smaller positions. Texts of `from` may be repeated.
  void merge(Writer& writer, const Carried& into, const Carried& from, int width) const;
  /// A vector's lanes merged pairwise, halves first: the scalar result, in fresh names.
  Carried across_lanes(Writer& writer, const Carried& vector, int width) const;
  /// The node's results, as values of the innermost open level.
  void finish(const Carried& carried, int width, int level);

 private:
  bool shifted() const;
  void declare_from(size_t first, Writer& writer, const Carried& carried, int width) const;
  std::vector<std::string> inputs();
  Carried across_equal_lanes(Writer& writer, const Carried& vector, int width) const;
  std::vector<std::string> merged(const Carried& a, const Carried& b, int width) const;
  std::string row_text(const std::string& row, size_t accumulator, int width, std::map<std::string, std::string> with) const;
  void assign(Writer& writer, const Carried& to, const std::vector<std::string>& texts, int width) const;

  BodyPrinter& body_;
  ir::NodeId node_;
  const ir::Node& n_;
  const ir::ReductionFacts& facts_;
  std::vector<ir::DType> types_;
  Map map_;
  bool loads_ = true;  // whether the body gives the elements; otherwise map_ does
};

}  // namespace ocl::codegen
