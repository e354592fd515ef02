// csrc/ir/builder.h: the interface of lowerings. A Value is a view, a constant or an index expression; nodes are made
// of values. Every pointwise call makes one small Map node. The scheduler fuses them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// An operand of a lowering: a view of a buffer, a constant, or an integer expression of the element's coordinates
/// (iota). Views are not nodes. Reshape, permute, expand and slice only compose `coords`.
struct Value {
  enum class Kind : uint8_t { kView, kConstant, kIndex };
  Kind kind = Kind::kView;
  DType dtype = DType::kF32;
  Shape sizes;
  BufferId buffer = kNone;  // The buffer of a kView.
  // The coordinates of a kView: one per buffer dimension, over this value's dimensions i0, i1, ...
  std::vector<IndexExpr> coords;
  Scalar constant;  // The value of a kConstant.
  IndexExpr index;  // The value of a kIndex: an expression over i0, i1, ...
};
/// Returns a value of kind kView as an operand of a node.
inline View as_view(const Value& x) { return {x.buffer, x.sizes, x.coords}; }

class Builder;

/// Writes one loop nest (pooling, padding, gathers): loads at any coordinates, then ops, then stores or a reduction.
/// Functions that add an op return its number, which later ops take as an argument.
class BodyBuilder {
 public:
  BodyBuilder(Builder& builder, Shape sizes, Shape reduce_sizes);
  // Loads the element of `value` at `coords`, one coordinate per dimension of the value. Where the bool op `mask` is
  // false, it gives 0 and reads nothing.
  int load(const Value& value, const std::vector<IndexExpr>& coords, int mask = kNone);
  int constant(Scalar value, DType dtype);
  int index(const IndexExpr& expr, DType dtype);
  int cast(int value, DType dtype);
  // Adds an op of ops.def and casts its operands to the types of its row. Sums of bools are i32 here.
  int op(const std::string& name, const std::vector<int>& args);
  DType dtype_of(int value) const;
  /// Returns a symbol that stands for an integer value of this body, for use in coordinates.
  IndexExpr as_index(int value) const { return IndexExpr::value(value); }
  /// Ends the nest: one new buffer of shape `sizes` per value.
  std::vector<Value> store(const std::vector<int>& values, const std::vector<DType>& dtypes);
  /// Ends the nest with a store of op `value` to each element that `target` views. `target` has the sizes of the nest.
  void store_into(const Value& target, int value);
  /// Ends the nest with a scatter: it stores op `value` at the given coordinates of `target`, over i* and v*. No two
  /// elements may have the same coordinates.
  void store_at(const Value& target, const std::vector<IndexExpr>& coords, int value);
  /// Adds a store of op `value` at the given coordinates of `target`, over i* and v*. In a scan, `value` is the number
  /// of a result, and coordinates may use r*. Where the bool op `mask` is false, nothing is stored. Call end()
  /// afterwards.
  void add_store(const Value& target, const std::vector<IndexExpr>& coords, int value, int mask = kNone,
                 StoreMode mode = StoreMode::kWrite);
  void end();
  /// Makes the nest a scan over r0. `values` are the inputs of the reduction; `dtype` is the dtype of result 0. Where
  /// the bool op `reset` is true, the accumulators start again at that element. Call add_store() and end() afterwards.
  void scan(const std::string& reduction, const std::vector<int>& values, DType dtype, int reset = kNone);
  /// Ends the nest with a reduction over r*. Returns one new buffer, with the sizes of the nest, per result that the reduction
  /// has in reductions.def. argmax and argmin take only the value; the position (row-major over r*) is added here.
  std::vector<Value> reduce(const std::string& reduction, const std::vector<int>& values, const std::vector<DType>& dtypes);
  /// Like reduce(), but the new buffers have shape `sizes`, and a result is stored at `coords` of its buffer.
  std::vector<Value> reduce_into(const std::string& reduction, std::vector<int> values, const std::vector<DType>& dtypes,
                                 const Shape& sizes, const std::vector<IndexExpr>& coords);

 private:
  void set_reduction(const std::string& reduction, std::vector<int> values, DType dtype);
  Builder& builder_;
  Node node_;
};

class Builder {
 public:
  Graph graph;
  // Every node that is made from now on gets a copy of this. The lowering sets it for each FX node.
  Origin origin;
  // Nodes made from now on may round their inputs to TF32. The first flag is for contractions and attention, the second
  // for convolutions.
  bool reduced_precision = false, reduced_convolutions = false;

  // Inputs
  IndexExpr size_symbol(Range range);  // Returns s0, s1, ... in the order of the calls.
  Value input(DType dtype, Shape sizes, Shape strides, bool is_parameter, bool donated);

  // Values without memory
  Value constant(Scalar value, DType dtype, Shape sizes = {}) const;
  // Element (i0, i1, ...) is `expr`, an expression over i0, i1, ...
  Value iota(Shape sizes, const IndexExpr& expr, DType dtype) const;

  // Views
  Value reshape(const Value& x, const Shape& sizes) const;
  Value permute(const Value& x, const std::vector<int>& dims) const;
  Value expand(const Value& x, const Shape& sizes) const;
  Value slice(const Value& x, int dim, const IndexExpr& start, const IndexExpr& end,
              const IndexExpr& step) const;  // `start` and `end` are in [0, size]
  Value select(const Value& x, int dim, const IndexExpr& index) const;
  Value flip(const Value& x, const std::vector<int>& dims) const;
  Value squeeze(const Value& x, const std::vector<int>& dims) const;
  Value unsqueeze(const Value& x, int dim) const;
  Value diagonal(const Value& x, int offset, int dim1, int dim2) const;
  /// Returns a window with the given sizes, strides and offset (in elements) on the value's elements in row-major order. If x
  /// is a whole input, the window is on its memory, and `offset` counts from its first element. UnsupportedError if
  /// that input has gaps.
  Value as_strided(const Value& x, const Shape& sizes, const Shape& strides, const IndexExpr& offset);

  // Nodes
  /// Computes one op of ops.def over broadcast values. The result's dtype follows the op's row and the operands'
  /// dtypes, unless `dtype` is given: the result is then rounded to it.
  Value op(const std::string& name, const std::vector<Value>& args, std::optional<DType> dtype = {});
  Value cast(const Value& x, DType dtype);
  /// Returns a buffer without contents, for nests that store into it.
  Value buffer(DType dtype, Shape sizes) { return new_buffer(dtype, std::move(sizes)); }
  /// Returns a value that is a whole buffer: x itself if it is one, otherwise a copy.
  Value realize(const Value& x);
  Value copy(const Value& x);  // Always makes a new buffer.
  std::vector<Value> reduce(const std::string& reduction, const Value& x, const std::vector<int>& dims, bool keepdim,
                            std::optional<DType> dtype = {});
  Value concat(const std::vector<Value>& xs, int dim);  // Makes one buffer, and one node per operand.
  /// Returns [..., 2], whose last coordinate chooses between two values of one shape and dtype. If they are neighbours
  /// in one buffer, the result is a view of it.
  Value interleave(const Value& first, const Value& second);
  // Returns the batched product [b, m, n] of a [b, m, k] and b [b, k, n].
  Value contract(const Value& a, const Value& b, DType dtype);
  Value convolve(const Value& x, const Value& w, const ConvolveAttrs& attrs, const Shape& sizes, DType dtype);
  /// Operands and results: see AttentionAttrs.
  std::vector<Value> attention(const std::vector<Value>& operands, const AttentionAttrs& attrs);
  /// Transforms x [o, n, p, q] along n, a known number; see FftAttrs. Without `imaginary`, x is real. Returns [o, n, p, q, 2];
  /// n of the result is fft_results.
  Value fft(const Value& real, const std::optional<Value>& imaginary, const FftAttrs& attrs);
  /// Operands and results: see SortStep.
  std::vector<Value> sort(const std::vector<Value>& operands, const SortAttrs& attrs);
  std::vector<Value> call(int call, const std::vector<Value>& args, const std::vector<std::pair<DType, Shape>>& results,
                          const std::vector<Shape>& strides, int waits_for = kNone);
  /// Stores `value` into the elements that `target` views, such as a mutated input or a slice of one.
  void copy_into(const Value& target, const Value& value);

  // Results
  /// Makes `value` the next result. `strides` are the strides that the caller expects. Empty strides allow any dense
  /// layout, as for values saved for the backward graph.
  void output(const Value& value, const Shape& strides);
  /// Returns the value in a buffer that has these strides from now on, so that several results can be windows on it.
  /// Copies only if the value's own buffer cannot have these strides.
  Value place(const Value& value, const Shape& strides);
  /// Makes a window on the memory of `base` the next result. `base` comes from place().
  void output_window(const Value& base, const Shape& sizes, const Shape& strides, const IndexExpr& offset);
  Graph finish();  // Verifies the graph and returns it.

 private:
  Value new_buffer(DType dtype, Shape sizes);
  bool same_strides(const Shape& promised, const Shape& actual, const Shape& sizes) const;
  /// If x only permutes the dimensions of a buffer whose strides are open, returns the strides of the buffer with which x has
  /// `strides`.
  std::optional<Shape> permuted_strides(const Value& x, const Shape& strides) const;
  friend class BodyBuilder;
};

}  // namespace ocl::ir
