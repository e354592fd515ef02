// csrc/ir/builder.h: what lowerings call: values (views, constants, index expressions) and the nodes made of them.
// Every pointwise call makes one small Map node; fusion is the scheduler's work.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// An operand of a lowering: a view of a buffer, a constant, or an integer expression of the element's coordinates (iota).
/// Views are not nodes: reshape, permute, expand and slice only compose `coords`.
struct Value {
  enum class Kind : uint8_t { kView, kConstant, kIndex };
  Kind kind = Kind::kView;
  DType dtype = DType::kF32;
  Shape sizes;
  BufferId buffer = kNone;        // kView
  std::vector<IndexExpr> coords;  // kView: one per buffer dimension, over i0.. of this value's dimensions
  Scalar constant;                // kConstant
  IndexExpr index;                // kIndex: over i0..
};

class Builder;

/// A loop nest written by hand (pooling, padding, gathers): loads at any coordinates, ops, then stores or a reduction.
class BodyBuilder {
 public:
  BodyBuilder(Builder& builder, Shape sizes, Shape reduce_sizes);
  int load(const Value& value, const std::vector<IndexExpr>& coords, int mask = kNone);  // coords in the value's dimensions
  int constant(Scalar value, DType dtype);
  int index(const IndexExpr& expr, DType dtype);
  int cast(int value, DType dtype);
  int op(const std::string& name, const std::vector<int>& args);  // promotes dtypes; sums of bools are i32 here
  DType dtype_of(int value) const;
  /// An index symbol that stands for an integer value of this body.
  IndexExpr as_index(int value) const { return IndexExpr::value(value); }
  /// Ends the nest: one new buffer of shape `sizes` per value.
  std::vector<Value> store(const std::vector<int>& values, const std::vector<DType>& dtypes);
  /// Ends the nest with a store of `value` (op number) to the elements that `target` views, whose sizes are the nest's.
  void store_into(const Value& target, int value);
  /// Ends the nest with a store to buffer `target` at the given coordinates of the value, over i* and v* (scatter: no two
  /// alike).
  void store_at(const Value& target, const std::vector<IndexExpr>& coords, int value);
  /// One more store of op `value` (of a scan: of result `value`) to buffer `target` at coordinates of the value, over i* and v*
  /// (of a scan r* as well), where the bool op `mask` is true; see Store. The nest goes on until end().
  void add_store(const Value& target, const std::vector<IndexExpr>& coords, int value, int mask = kNone,
                 StoreMode mode = StoreMode::kWrite);
  void end();
  /// Makes the nest a scan over r0 of these values, as a reduction takes them; stores and end() follow. Where the bool op
  /// `reset` is true, the accumulators start afresh with that element. `dtype`: of result 0.
  void scan(const std::string& reduction, const std::vector<int>& values, DType dtype, int reset = kNone);
  /// Ends the nest with a reduction over r*; one new buffer per result of the row (shape `sizes`). argmax and argmin take the
  /// value alone: its position, row-major over r*, is added.
  std::vector<Value> reduce(const std::string& reduction, const std::vector<int>& values, const std::vector<DType>& dtypes);
  /// The same; the new buffers have other sizes than the nest, and the results go to `coords` in them.
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
  Origin origin;  // given to the nodes made from now on; the lowering sets it per FX node
  // Given to contractions and attention, and to convolutions, made from now on: TF32-like rounding is allowed.
  bool reduced_precision = false, reduced_convolutions = false;

  // Inputs
  IndexExpr size_symbol(Range range);  // s0, s1, ... in order
  Value input(DType dtype, Shape sizes, Shape strides, bool is_parameter, bool donated);

  // Values without memory
  Value constant(Scalar value, DType dtype, Shape sizes = {}) const;
  Value iota(Shape sizes, const IndexExpr& expr, DType dtype) const;  // expr over i0..

  // Views
  Value reshape(const Value& x, const Shape& sizes) const;
  Value permute(const Value& x, const std::vector<int>& dims) const;
  Value expand(const Value& x, const Shape& sizes) const;
  Value slice(const Value& x, int dim, const IndexExpr& start, const IndexExpr& end,
              const IndexExpr& step) const;  // bounds already normalised
  Value select(const Value& x, int dim, const IndexExpr& index) const;
  Value flip(const Value& x, const std::vector<int>& dims) const;
  Value squeeze(const Value& x, const std::vector<int>& dims) const;
  Value unsqueeze(const Value& x, int dim) const;
  Value diagonal(const Value& x, int offset, int dim1, int dim2) const;
  /// Window with the given strides on the value's elements in row-major order. For a whole input: on its memory, whose strides
  /// are dense in some order of dimensions; `offset` counts from its first element. Throws UnsupportedError on an input with
  /// gaps.
  Value as_strided(const Value& x, const Shape& sizes, const Shape& strides, const IndexExpr& offset);

  // Nodes
  /// One op of ops.def over broadcast values. dtypes follow the row's rule from the operands' dtypes; the result is rounded to
  /// `dtype` if given (storage type of the result).
  Value op(const std::string& name, const std::vector<Value>& args, std::optional<DType> dtype = {});
  Value cast(const Value& x, DType dtype);
  /// A buffer without contents, for nests that store into it.
  Value buffer(DType dtype, Shape sizes) { return new_buffer(dtype, std::move(sizes)); }
  /// A buffer with the value's elements: the value itself if it already is a whole buffer.
  Value realize(const Value& x);
  Value copy(const Value& x);  // always a new buffer
  std::vector<Value> reduce(const std::string& reduction, const Value& x, const std::vector<int>& dims, bool keepdim,
                            std::optional<DType> dtype = {});
  Value concat(const std::vector<Value>& xs, int dim);          // one buffer, one node per piece
  Value contract(const Value& a, const Value& b, DType dtype);  // a [b, m, k], b [b, k, n] -> [b, m, n]
  Value convolve(const Value& x, const Value& w, const ConvolveAttrs& attrs, const Shape& sizes, DType dtype);
  /// Operands and results: see AttentionAttrs.
  std::vector<Value> attention(const std::vector<Value>& operands, const AttentionAttrs& attrs);
  std::vector<Value> call(int call, const std::vector<Value>& args, const std::vector<std::pair<DType, Shape>>& results,
                          const std::vector<Shape>& strides);
  /// Stores `value` into the buffer that `target` views (an input that is mutated, or a slice of it).
  void copy_into(const Value& target, const Value& value);

  // Results
  /// `strides`: what the caller was promised, or empty when any dense layout is fine (saved for backward).
  void output(const Value& value, const Shape& strides);
  /// The value in a buffer that has these strides from now on: what several results may be windows on. Copies it only if its
  /// own buffer cannot have them.
  Value place(const Value& value, const Shape& strides);
  /// A result that is a window on the memory of `base`, a value from place().
  void output_window(const Value& base, const Shape& sizes, const Shape& strides, const IndexExpr& offset);
  Graph finish();  // verifies

 private:
  Value new_buffer(DType dtype, Shape sizes);
  bool same_strides(const Shape& promised, const Shape& actual, const Shape& sizes) const;
  /// Strides of the flexible buffer behind x that give x these strides, if x only permutes its dimensions.
  std::optional<Shape> permuted_strides(const Value& x, const Shape& strides) const;
  friend class BodyBuilder;
};

}  // namespace ocl::ir
