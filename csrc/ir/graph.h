// csrc/ir/graph.h: the IR: buffers, nodes (loop nests, contractions, calls) and the graph that holds them.
// A graph is a list of nodes in program order. A node sees what earlier nodes have stored, also in inputs that they mutate.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/ir/dtype.h"
#include "csrc/ir/index_simplify.h"

namespace ocl::ir {

using BufferId = int;
using NodeId = int;
constexpr int kNone = -1;

using Shape = std::vector<IndexExpr>;

enum class BufferRole : uint8_t { kInput, kIntermediate };

/// Memory with a logical shape. Strides are in elements. They are given for inputs and for outputs that the user sees.
/// The layout pass chooses all others; afterwards every buffer has strides.
struct Buffer {
  DType dtype = DType::kF32;
  Shape sizes;
  std::optional<Shape> strides;
  BufferRole role = BufferRole::kIntermediate;
  int input = kNone;          // The position among the graph's tensor inputs; kNone for other buffers.
  bool is_parameter = false;  // True for a weight: this input is the same tensor in every call.
  bool donated = false;       // True if the graph may overwrite this input.
  std::string name;           // "buf3", "in0". Only printed; no decision depends on it.
};

/// The number of a row of ops.def. The first four have no row there.
enum class OpCode : uint16_t {
  // Loads from `buffer` at `index`. arg 0, if given, is a bool mask. Where it is false, the value is 0 and nothing is
  // read.
  kLoad,
  kConstant,  // The value is `constant`.
  kIndex,     // The value is the expression `index`, as an integer of the op's dtype.
  kCast,      // Converts arg 0 to the op's dtype.
#define OCL_OP(name, ...) k_##name,
#include "csrc/ir/ops.def"
#undef OCL_OP
  kCount
};

/// A number. Integers and bools are in `i`, floating point numbers in `f`.
struct Scalar {
  bool is_float = true;
  double f = 0;
  int64_t i = 0;
  bool operator==(const Scalar&) const = default;
};

/// One operation of a body. Its number is its position in the body; `args` are the numbers of earlier operations.
struct Op {
  OpCode code = OpCode::kConstant;
  // Dtype of the value. A load gives the buffer's compute_type. Only a cast can have a float of 8 or 16 bits: it rounds to that
  // dtype, but its value is held as f32.
  DType dtype = DType::kF32;
  std::vector<int> args;
  Scalar constant;          // The value of a kConstant.
  BufferId buffer = kNone;  // The buffer that a kLoad reads.
  // For a kLoad, one coordinate per dimension of the buffer; for a kIndex, one expression. Both use i*, r*, s* and v*,
  // where v3 is the value of op 3 of this body.
  std::vector<IndexExpr> index;
};

/// The scalar program of a loop nest. Each operation comes after its operands.
struct Body {
  std::vector<Op> ops;
};

/// What a store does with the element that is already there. kMaximum keeps the larger value. It is atomic and exists
/// for i32 only. Its result does not depend on the order of the stores. kAdd adds the value, in the order of a Scan's loop
/// r0. It is not atomic: each loop i* is a coordinate of the store, so that no two iterations of i* meet.
enum class StoreMode : uint8_t { kWrite, kMaximum, kAdd };

/// Writes op `value` of the body (Map) or result `value` of the reduction (Reduce, Scan) to a buffer. A Map's value has
/// the buffer's compute_type. A result is converted to the buffer's dtype as by kCast. A scattered store has
/// coordinates over v*. It must not write an element twice, unless the order does not matter or is kept: the mode is not
/// kWrite, or the values are equal.
struct Store {
  BufferId buffer = kNone;
  // Coordinates over i* and v*. In a Scan also over r*. In a Reduce only over i*.
  std::vector<IndexExpr> index;
  int value = 0;
  // Map, Scan: the number of a bool op. Where it is false, nothing is written.
  int mask = kNone;
  StoreMode mode = StoreMode::kWrite;
};

enum class ReductionCode : uint16_t {
#define OCL_REDUCTION(name, ...) k_##name,
#include "csrc/ir/reductions.def"
  kCount
};

/// A long reduction may be split into two nodes: kPartial stores its accumulators, and kFinal merges them. kWhole is
/// not split.
enum class ReductionStage : uint8_t { kWhole, kPartial, kFinal };

/// A window on a buffer. Element (i0, i1, ...) of the view is the buffer's element at `coords`.
struct View {
  BufferId buffer = kNone;
  Shape sizes;
  std::vector<IndexExpr> coords;
  bool operator==(const View&) const = default;
};

enum class NodeKind : uint8_t {
  kMap,     // A loop nest: for each i*, evaluates the body and writes the stores.
  kReduce,  // A reduction: for each i*, reduces the `reduced` values over r* and writes the results.
  // A scan: for each i*, and for each r0 in order, updates the accumulators with the `reduced` values and writes the
  // results so far.
  kScan,
  kContract,   // Matrix products: out[b, m, n] = sum over k of a[b, m, k] * b[b, k, n].
  kConvolve,   // A convolution or one of its gradients: see ConvolveKind.
  kAttention,  // An attention or a part of its gradient: see AttentionKind.
  kFft,        // Discrete Fourier transforms along one dimension: see FftAttrs.
  kSort,       // A step of sorting rows of integer keys: see SortStep.
  // out[b, j, k, c]: matrix a[b] cut into panels j in the order in which a kernel reads them, with zeros beyond its
  // edges. Only offers of kernels make such a node, together with its launch.
  kPack,
  kCall,  // An aten op that runs eagerly.
};

enum class ConvolveKind : uint8_t {
  kForward,  // Operands x [n, c, h, w] and w [k, c/g, r, s] -> [n, k, oh, ow].
  kData,     // Operands dy [n, k, oh, ow] and w [k, c/g, r, s] -> [n, c, h, w]. A transposed convolution is this too.
  kWeight,   // Operands x [n, c, h, w] and dy [n, k, oh, ow] -> [k, c/g, r, s].
};

struct ConvolveAttrs {
  ConvolveKind kind = ConvolveKind::kForward;
  std::array<int, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int groups = 1;
};

enum class AttentionKind : uint8_t {
  // Operands q [b, h, lq, d], k [b, g, lk, d], v [b, g, lk, dv]. Results out [b, h, lq, dv] and sums [2, b, h, lq] in
  // f32.
  kForward,
  // Operands q, k, v, dout (shape of out), sums, delta [b, h, lq] = sum over dv of dout * out. Result dq.
  kQuery,
  // The operands of kQuery. Results dk and dv.
  kKeyValue,
  // The operands of kQuery. Results dq, dk and dv. Only the pass join_gradients makes such a node.
  kGradients,
};

/// s = cap(scale * q k^T) + mask, p = softmax(s) along lk, out = dropout(p) v. Head i of q uses head i / (h / g) of k and v.
///
/// sums[0] is the largest s of the row; sums[1] is the sum of exp(s - sums[0]). They are stored separately: if all of s
/// is hugely negative, the logarithm of the sum would be lost when added to the maximum. A row whose keys are all
/// masked has zeros.
///
/// Three optional operands follow the operands of the kind. The mask [b, h, lq, lk] is bool (false: masked) or floating point
/// (added to s). The random state is i64 [2] = (seed, offset) of Philox. The blocks, bool or u8 [b, h, ceil(lq / n), ceil(lk /
/// n)] with n = AttentionAttrs::blocks, say of n x n scores each: 0, the mask hides all, so that kernels may skip them; 1, it
/// may hide some; 2 or 3, it is bool and hides none.
///
/// Element (b, h, i, j) of p is dropped if its random number is below `dropout`; the other elements are divided by 1 - dropout.
/// The number is word j % 4 of philox(seed, offset, ((b * heads + h) * lq + i) * ceil(lk / 4) + j / 4), scaled to [0,
/// 1).
constexpr int kMaskBlock = 16;  // n is a multiple of it.
struct AttentionAttrs {
  AttentionKind kind = AttentionKind::kForward;
  double scale = 1;
  double dropout = 0;
  double cap = 0;         // Soft cap: s becomes cap * tanh(s / cap) before the mask is added. 0: none.
  bool causal = false;    // Row i uses only columns j <= i.
  bool masked = false;    // The operands include a mask.
  int64_t blocks = 0;     // Above 0, the operands include the blocks of the mask, of so many queries and keys.
  bool nan_rows = false;  // A row whose keys are all masked gives nan instead of 0.
  bool operator==(const AttentionAttrs&) const = default;
};

/// Discrete Fourier transforms of x [o, n, p, q] along n, whose size is a known number:
///
///   out[o, k, p, q] = scale * w(root, k * p) * sum over j of w(n, j * k) * x[o, j, p, q],  w(n, j) = exp(-2 pi i j / n)
///
/// `inverse` negates the sign in both w. root 0: there is no factor w(root, k * p). A long line is transformed by two nodes, of
/// which the first multiplies by these factors.
///
/// The first operand has the real parts, the second the imaginary parts; without it, they are 0. The result is [o, n * p * q *
/// 2]: pairs of real and imaginary part.
///
/// The other forms have p = q = 1, root 0 and two operands.
enum class FftForm : uint8_t {
  kComplex,
  // The operands are the even and the odd numbers of real lines of 2 n numbers. The result has the first n + 1 numbers of their
  // transforms; the others are conjugates of these.
  kFromReal,
  // The operands are the first n of 2 (n - 1) numbers whose transform is real, and the result is that: [o, 2 (n - 1)]. The
  // imaginary parts of the first and the last number are not used.
  kToReal,
};
struct FftAttrs {
  bool inverse = false;
  double scale = 1;
  int64_t root = 0;
  FftForm form = FftForm::kComplex;
};
/// Returns the numbers of a line of the result, for n numbers of the operands.
constexpr int64_t fft_results(FftForm form, int64_t n) {
  return form == FftForm::kFromReal ? n + 1 : form == FftForm::kToReal ? n - 1 : n;
}

/// Keys are i32 or i64 [rows, n]; n < 2^31. A digit of a key is (key >> shift) & 255; in the digit with the key's sign, its top
/// bit is flipped, so that digits have the order of keys. All steps leave equal elements in their order.
enum class SortStep : uint8_t {
  // Operands keys, and perhaps chosen [rows]: then only keys that have the digits of `chosen` above this digit count. Result
  // i32
  // [rows, 256, ceil(n / block)]: how many keys of each block have each digit.
  kCount,
  // Operands keys, their positions i32 [rows, n], and the counts, or ends i32 [rows, 256 * ceil(n / block)], their running sum.
  // Results keys and positions in the order of the digit. Without positions, they are 0, 1, ...
  kMove,
  // Operands keys and perhaps their positions. Results [rows, ceil(n / block) * keep]: the first `keep` keys of each block in
  // sorted order, and their positions. Past the end of the row, keys are the greatest ones, with any position.
  kBlocks,
};
constexpr int kDigits = 256;

struct SortAttrs {
  SortStep step = SortStep::kBlocks;
  int64_t block = 0, keep = 0;  // keep: for kBlocks.
  int shift = 0;                // For kBlocks, the lowest bit in which keys differ.
  int digits = 1;               // For kBlocks, the number of digits above it in which they differ.
  bool is_signed = false;       // The (highest) digit has the sign.
  int64_t end = 0;              // For kBlocks: all keys are from 0 to end - 1. 0: not known.
};

/// The aten op and the source line from which a node was made, for errors, explain and the profiler.
struct Origin {
  std::string op;      // "aten.relu.default"
  std::string source;  // "model.py:61"
};

struct Node {
  NodeKind kind = NodeKind::kMap;
  Origin origin;
  // Origins of the Map nodes that were inlined into this node. For explain; not printed.
  std::vector<Origin> inlined;
  // The hand-written kernels that were asked for this node before it got its own, and why they refused:
  // "gemm_warpgroup: refused, K = 7 is below 16", "gemm_warpgroup, gemm_warp: refused, ...". For explain; not printed.
  std::vector<std::string> refused;
  // For kMap, kReduce and kScan, the extents of the loops i0, i1, ...; for kContract {b, m, n}; for kConvolve,
  // kAttention, kFft and kSort the sizes of the first output.
  Shape sizes;
  // The extents of the loops r0, r1, ... of a kReduce, of the loop r0 of a kScan, {k} for kContract, and the sizes of the
  // scores for a kAttention with a body.
  Shape reduce_sizes;
  // The scalar program of a kMap, kReduce or kScan. A kAttention may have one, too: its last op, in f32, is added to the
  // scores. r0 to r3 are batch, head of q, query and key.
  Body body;
  std::vector<Store> stores;
  ReductionCode reduction = ReductionCode::kCount;
  ReductionStage stage = ReductionStage::kWhole;
  // For kReduce and kScan, the ops of the body that are the inputs of the reduction.
  std::vector<int> reduced;
  // For kScan, a bool op of the body. Where it is true, the accumulators start again.
  int reset = kNone;
  // Operands of kContract, kConvolve, kAttention, kFft, kSort and kCall. A template may add the bias [k] to a forward kConvolve
  // as a third operand.
  std::vector<View> operands;
  // Outputs: one for kContract, kConvolve and kFft, several for kAttention, kSort and kCall; Map and Reduce have stores
  // instead. A template may add statistics to a forward kConvolve: f32 [3, slices, k] with the mean, m2 and count of each
  // channel over a slice of the first output.
  std::vector<BufferId> outputs;
  ConvolveAttrs convolve;
  AttentionAttrs attention;
  FftAttrs fft;
  SortAttrs sort;
  bool reduced_precision = false;  // The inputs of a kContract, kConvolve or kAttention may be rounded to TF32.
  int call = kNone;                // The index of a kCall in the list of calls that Python keeps.
  // For a kCall that waits for what an earlier kCall has started: that call's index. The scheduler may put other work between
  // the two.
  int waits_for = kNone;
};

/// A result of the graph: a strided window on a buffer, which may be an input. Empty strides stand for the whole buffer
/// in the dense layout that the layout pass chooses.
struct Output {
  BufferId buffer = kNone;
  Shape sizes;
  // Strides in elements. If empty although there are dimensions, the output has the strides of its buffer. It may lack
  // dimensions of one element then.
  Shape strides;
  IndexExpr offset;  // Offset in elements.
};

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<BufferId> inputs;  // The tensor inputs, in the order of the call.
  int symbols = 0;               // Number of size symbols s0, s1, ..., which are the integer arguments in order.
  std::vector<Range> symbol_ranges;
  std::vector<Output> outputs;

  BufferId add_buffer(Buffer buffer);
  NodeId add_node(Node node);
  /// Ranges of the size symbols, and of the loops of `node` if it is given.
  Ranges ranges(const Node* node = nullptr) const;
  /// Returns a text with everything that the graph holds. parse_graph (parse.h) reads it back exactly. Without origins, equal
  /// graphs from different source lines have equal text, so it serves as a cache key.
  std::string str(bool origins = true) const;
};

/// True for kReduce and kScan, which have loops r*, `reduced` values and results.
inline bool is_reduction(const Node& node) { return node.kind == NodeKind::kReduce || node.kind == NodeKind::kScan; }
/// True if the store may keep or combine with the element that is already there.
inline bool is_partial(const Store& store) { return store.mask != kNone || store.mode != StoreMode::kWrite; }

/// Return the buffers that a node reads, and the buffers that it writes. A buffer may be in both lists.
std::vector<BufferId> reads(const Node& node);
std::vector<BufferId> writes(const Node& node);

/// Returns row-major strides in elements.
Shape contiguous_strides(const Shape& sizes);
/// Returns `of` (sizes or strides) without the dimensions in which `sizes` is 1.
Shape squeezed(const Shape& of, const Shape& sizes);
/// Returns the element offset of `coords`: the sum of coordinate * stride, simplified. The buffer must have strides.
IndexExpr linear_offset(const Buffer& buffer, const std::vector<IndexExpr>& coords, const Ranges& ranges);
/// Strides and offset of a view in elements. strided() returns nullopt if the view is no strided window. The buffer, by
/// default the graph's, must have strides.
struct Strided {
  Shape strides;
  IndexExpr offset;
};
std::optional<Strided> strided(const Graph& graph, const Buffer& buffer, const View& view);
std::optional<Strided> strided(const Graph& graph, const View& view);

}  // namespace ocl::ir
