// csrc/ir/graph.h: the IR: buffers, nodes (loop nests, contractions, calls) and the graph that holds them.
// A graph is a list of nodes in program order: a later node sees what an earlier one stored, mutated inputs included.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/ir/dtype.h"
#include "csrc/ir/index_expr.h"

namespace ocl::ir {

using BufferId = int;
using NodeId = int;
constexpr int kNone = -1;

using Shape = std::vector<IndexExpr>;

enum class BufferRole : uint8_t { kInput, kIntermediate };

/// Memory with a logical shape. `strides` (elements) are given for inputs and for outputs the user sees; the layout
/// pass chooses the others (flexible), after which every buffer has strides.
struct Buffer {
  DType dtype = DType::kF32;
  Shape sizes;
  std::optional<Shape> strides;
  BufferRole role = BufferRole::kIntermediate;
  int input = kNone;          // position among the graph's tensor inputs
  bool is_parameter = false;  // an input that stays the same tensor from call to call (weights)
  bool donated = false;       // an input that this graph may overwrite
  std::string name;           // "buf3", "in0": printed, never decides anything
};

/// One row of ops.def.
enum class OpCode : uint16_t {
  kLoad,      // buffer at coordinates; arg 0, if given, is a bool mask: where false the value is 0 and nothing is read
  kConstant,  // `constant`
  kIndex,     // `index` as an integer value of the op's dtype
  kCast,      // arg 0 converted to dtype
#define OCL_OP(name, ...) k_##name,
#include "csrc/ir/ops.def"
#undef OCL_OP
  kCount
};

/// A number: integers (and bool) in `i`, floating point in `f`, by the op's dtype.
struct Scalar {
  bool is_float = true;
  double f = 0;
  int64_t i = 0;
  bool operator==(const Scalar&) const = default;
};

/// One operation of a body; its value is named by its position. Args are positions of earlier operations.
struct Op {
  OpCode code = OpCode::kConstant;
  DType dtype =
      DType::kF32;  // of the value. A load gives the buffer's compute_type. f16 and bf16 appear only at casts: a cast to f16
                    // rounds, and its value is held as f32; operands with such a dtype are read as their compute_type
  std::vector<int> args;
  Scalar constant;               // kConstant
  BufferId buffer = kNone;       // kLoad
  std::vector<IndexExpr> index;  // kLoad: one coordinate per dimension of the buffer; kIndex: one expression.
                                 // Over i*, r*, s* and v* (the value of an earlier op of this body)
};

/// Scalar program of a loop nest: a DAG in topological order.
struct Body {
  std::vector<Op> ops;
};

/// What a store does with the element that is there. kMaximum is for i32 and atomic: in whatever order, the largest value
/// stays.
enum class StoreMode : uint8_t { kWrite, kMaximum };

/// Writes op `value` of the body (Map) or result `value` of the reduction (Reduce, Scan) to a buffer. A Map's value has the
/// buffer's compute_type; a result is converted to the buffer's dtype as kCast does. A scattered store (coordinates over v*)
/// must not write an element twice, unless the mode or equal values make the order irrelevant.
struct Store {
  BufferId buffer = kNone;
  std::vector<IndexExpr> index;  // coordinates over i* (and v*; of a Scan r* as well)
  int value = 0;
  int mask = kNone;  // Map, Scan: a bool op of the body; where it is false nothing is written
  StoreMode mode = StoreMode::kWrite;
};

enum class ReductionCode : uint16_t {
#define OCL_REDUCTION(name, ...) k_##name,
#include "csrc/ir/reductions.def"
#undef OCL_REDUCTION
  kCount
};

/// Which part of a split reduction a node is: accumulators are stored raw by kPartial and merged by kFinal.
enum class ReductionStage : uint8_t { kWhole, kPartial, kFinal };

/// A window on a buffer: element (i0, i1, ...) of the view is the buffer's element at `coords`.
struct View {
  BufferId buffer = kNone;
  Shape sizes;
  std::vector<IndexExpr> coords;
};

enum class NodeKind : uint8_t {
  kMap,        // for i*: evaluate the body, write the stores
  kReduce,     // for i*: reduce the body's `reduced` values over r*, write the results
  kScan,       // for i*: for r0 in order: step the accumulators with the `reduced` values, write the results so far
  kContract,   // out[b, m, n] = sum over k of a[b, m, k] * b[b, k, n]
  kConvolve,   // see ConvolveKind
  kAttention,  // see AttentionKind
  kPack,  // out[b, j, k, c]: matrix a[b] in panels j as a kernel reads them, 0 beyond its edges; made by template choosers,
          // with a launch
  kCall,  // an aten op run eagerly
};

enum class ConvolveKind : uint8_t {
  kForward,  // operands x [n, c, h, w], w [k, c/g, r, s] -> [n, k, oh, ow]
  kData,     // operands dy [n, k, oh, ow], w [k, c/g, r, s] -> [n, c, h, w] (also transposed convolution)
  kWeight,   // operands x [n, c, h, w], dy [n, k, oh, ow] -> [k, c/g, r, s]
};

struct ConvolveAttrs {
  ConvolveKind kind = ConvolveKind::kForward;
  std::array<int, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int groups = 1;
};

enum class AttentionKind : uint8_t {
  kForward,   // operands q [b, h, lq, d], k [b, g, lk, d], v [b, g, lk, dv] -> out [b, h, lq, dv], sums [2, b, h, lq] in f32
  kQuery,     // operands q, k, v, dout like out, sums, delta [b, h, lq] = sum over dv of dout * out -> dq
  kKeyValue,  // the same operands -> dk, dv
};

/// s = scale * q k^T + mask, p = softmax(s) along lk, out = dropout(p) v; head i of q belongs to head i / (h / g) of k and v.
/// sums[0] is the row's largest s, sums[1] the sum of exp(s - sums[0]): apart, for where all of s is hugely negative, the log
/// of the sum would be lost beside it; a row that sees nothing has zeros. Behind the operands of the kind, if given: mask [b,
/// h, lq, lk], bool (false: not seen) or floating (added), then state, i64 [2] = (seed, offset) of Philox. Element (b, h, i, j)
/// of p is dropped if word j % 4 of philox(seed, offset, ((b * heads + h) * lq + i) * ceil(lk / 4) + j / 4) is, as a number in
/// [0, 1), below `dropout`; the others are divided by 1 - dropout.
struct AttentionAttrs {
  AttentionKind kind = AttentionKind::kForward;
  double scale = 1;
  double dropout = 0;
  bool causal = false;    // i sees j <= i
  bool masked = false;    // there is a mask
  bool nan_rows = false;  // a row of q that sees nothing gives nan; otherwise 0
};

/// Where a node comes from: for errors, explain and the profiler.
struct Origin {
  std::string op;      // "aten.relu.default"
  std::string source;  // "model.py:61"
};

struct Node {
  NodeKind kind = NodeKind::kMap;
  Origin origin;
  std::vector<Origin> inlined;  // of kMap nodes whose bodies have moved into this one; for explain, not printed
  Shape sizes;  // loops i0 ..: kMap, kReduce, kScan; kContract: {b, m, n}; kConvolve, kAttention: the first output's sizes
  Shape reduce_sizes;  // loops r0 ..: kReduce; kScan: one; kContract: {k}
  Body body;           // kMap, kReduce, kScan
  std::vector<Store> stores;
  ReductionCode reduction = ReductionCode::kCount;
  ReductionStage stage = ReductionStage::kWhole;
  std::vector<int> reduced;       // kReduce, kScan: body ops that enter the reduction (one per input of its row)
  int reset = kNone;              // kScan: a bool op of the body; where it is true the accumulators start afresh
  std::vector<View> operands;     // kContract, kConvolve, kAttention, kCall. A template may give a forward kConvolve a third,
                                  // the bias [k] of its channels
  std::vector<BufferId> outputs;  // kContract, kConvolve: one; kAttention, kCall: several. Map and Reduce write by stores.
                                  // A template may add to a forward kConvolve statistics of its channels over all else, of the
                                  // first output's elements in parts: f32 [3, parts, k], mean, m2 and count
  ConvolveAttrs convolve;
  AttentionAttrs attention;
  bool reduced_precision = false;  // kContract, kConvolve, kAttention: TF32-like rounding of inputs is allowed
  int call = kNone;                // kCall: index in the list that Python keeps
};

/// What the caller gets: a strided window on a buffer (possibly an input). Empty strides: the whole buffer in whatever dense
/// layout the layout pass gives it.
struct Output {
  BufferId buffer = kNone;
  Shape sizes;
  Shape strides;     // elements; empty (for a buffer of one dimension or more): the buffer's own
  IndexExpr offset;  // elements
};

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<BufferId> inputs;  // tensor inputs in order
  int symbols = 0;               // s0 .. s(n-1): integer arguments in order
  std::vector<Range> symbol_ranges;
  std::vector<Output> outputs;

  BufferId add_buffer(Buffer buffer);
  NodeId add_node(Node node);
  /// Ranges of the size symbols, plus the loops of `node` if given.
  Ranges ranges(const Node* node = nullptr) const;
  /// Readable text with everything that the graph holds; parse_graph (parse.h) reads it back exactly. Without origins it is a
  /// cache key that equal graphs from different source lines share.
  std::string str(bool origins = true) const;
};

/// Whether the node reduces: it has loops r*, `reduced` values and results (kReduce, kScan).
inline bool is_reduction(const Node& node) { return node.kind == NodeKind::kReduce || node.kind == NodeKind::kScan; }
/// Whether the store may leave elements that its coordinates name as they were, or combine with them.
inline bool is_partial(const Store& store) { return store.mask != kNone || store.mode != StoreMode::kWrite; }

/// Buffers that a node reads and writes (a buffer may be in both).
std::vector<BufferId> reads(const Node& node);
std::vector<BufferId> writes(const Node& node);

/// Row-major strides in elements.
Shape contiguous_strides(const Shape& sizes);
/// Element offset of coordinates: sum of coordinate * stride, simplified. The buffer must have strides.
IndexExpr linear_offset(const Buffer& buffer, const std::vector<IndexExpr>& coords, const Ranges& ranges);
/// Strides and offset of a view if it is a strided window (the buffer must have strides); nullopt otherwise.
struct Strided {
  Shape strides;
  IndexExpr offset;
};
std::optional<Strided> strided(const Graph& graph, const View& view);

}  // namespace ocl::ir
