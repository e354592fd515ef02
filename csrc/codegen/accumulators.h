// csrc/codegen/accumulators.h: the carried values of a reduction: declared, stepped per element, merged, handed on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "csrc/codegen/body.h"

namespace ocl::codegen {

/// A Reduce node being printed. A `Carried` is one set of its accumulators: variable names, all of one width.
class Accumulators {
 public:
  using Carried = std::vector<std::string>;

  Accumulators(BodyPrinter& body, ir::NodeId node);
  /// What one pass over the elements of `of` carries: of its kind is `row`, and `map` prints what becomes of a value at a
  /// width.
  using Map = std::function<std::string(const std::string& value, int width)>;
  Accumulators(const Accumulators& of, const ir::ReductionFacts& row, Map map);
  ir::NodeId node() const { return node_; }
  size_t count() const { return types_.size(); }
  ir::DType dtype(size_t accumulator) const { return types_[accumulator]; }
  /// Long sums are taken in blocks, so that rounding errors grow with the root of the block and not of the whole.
  bool wants_blocks() const;
  /// A merge costs no more than a step: blocks may be short.
  bool merges_cheaply() const { return facts_.name == "sum"; }
  /// Blocks pay at any length.
  bool wants_short_blocks() const { return shifted(); }
  /// The first block is short: after it there is a mean to shift by, and sums of squares that differ little cancel less.
  bool wants_short_first_block() const { return shifted(); }

  Carried names() const;  // fresh ones
  void declare(Writer& writer, const Carried& carried, int width) const;
  /// One element into `carried`, at the body's current lane width.
  void step(const Carried& carried);
  /// The same for a Scan: starts afresh where the node says so, then leaves the results so far to be stored.
  void step_scan(const Carried& carried);

  // A block's own accumulators: the same kind, but for Welford's mean, whose division per element they avoid: sums shifted by
  // the mean of the blocks before (of the first: by its first element), shift c, s = sum of x - c, q = sum of (x - c)^2, and a
  // count k of the elements so far that all lanes share.
  Carried block_names() const;
  /// Before a block whose sums will be merged into `into`.
  void declare_block(Writer& writer, const Carried& into, const Carried& block, int width) const;
  void step_block(const Carried& block);
  void merge_block(Writer& writer, const Carried& into, const Carried& block, int width) const;

  // Of a row in cache, the maximum first, then the sum around it: half of the arithmetic of the running sum.
  bool is_softmax() const;
  Accumulators row_max_pass(Map map) const;
  /// `load` replaces the elements, if it is given; `keep` takes e^(element - largest).
  Accumulators exp_sum_pass(const std::string& largest, const Map& load, const Map& keep) const;
  /// The results of both passes: NaN for a row with one.
  Carried after_softmax_passes(Writer& writer, const std::string& largest, const std::string& sum) const;

  // Of elements that stay in registers, a mean or a maximum first, then what is summed around it: no division or rescaling per
  // element. One variable in each pass.
  bool takes_two_passes() const;
  /// Whether the elements need one variable in all.
  bool is_single() const { return count() == 1; }
  std::string declare_pass(Writer& writer, int pass, int width) const;
  /// One element into `into`, around `centre` in the second pass.
  void step_pass(int pass, const std::string& into, const std::string& centre);
  std::string merge_pass_text(int pass, const std::string& a, const std::string& b, int width) const;
  /// What the second pass is taken around, from what the first left of `elements` elements.
  std::string centre_text(const std::string& first, const std::string& elements) const;
  Carried after_passes(const std::string& centre, const std::string& second, const std::string& elements) const;

  /// `into` = merge(into, from); `into` has the smaller positions. Texts of `from` are read once or more.
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
  bool loads_ = true;  // else `map_` knows the elements
};

}  // namespace ocl::codegen
