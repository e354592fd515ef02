// csrc/schedule/families/attention/cases.cpp: check cases of attention on tensor cores, and of its gradients.
#include <functional>
#include <set>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/attention/operands.h"
#include "csrc/schedule/families/case.h"

namespace ocl::schedule {
namespace {

// kSame: in the type of the operands. kBlocks: as kBool, with what it hides of blocks. kComputed, kAdded, kWindow: by the macro
// mask_text(); kWindow with blocks.
enum class Mask : uint8_t { kNone, kBool, kSame, kFloat, kBlocks, kComputed, kAdded, kWindow };
constexpr bool hides(Mask mask) { return mask == Mask::kBool || mask == Mask::kBlocks; }
constexpr bool is_computed(Mask mask) { return mask >= Mask::kComputed; }
constexpr int block_size(Mask mask) { return mask == Mask::kBlocks ? ir::kMaskBlock : mask == Mask::kWindow ? 128 : 0; }

/// What MASK_VALUE of a case returns, and the same in the text of a kernel: a window of keys with a bias for each head, a bias
/// by the distance, a wide window.
std::vector<std::string> mask_text(Mask mask) {
  const std::string value = "MASK_VALUE(b, h, q, k) ";
  if (mask == Mask::kAdded) return {value + "(0.03125f * ((k) - (q)))", "MASK_ADDS 1"};
  if (mask == Mask::kWindow) return {value + "((k) + 250 > (q) && (k) < (q) + 140 ? 0.0f : -INFINITY)", "MASK_HIDES 1"};
  return {value + "((k) + 40 < (q) || (k) > (q) + 3 ? -INFINITY : 0.5f * (h) - 0.25f * ((k) & 3))"};
}
/// MASK_LANES, which attention_item calls: the values of `width` queries or keys that follow one another.
std::string mask_lanes(int width, bool of_queries) {
  std::string lanes;
  for (int i = 0; i < width; ++i) {
    const std::string at = " + " + std::to_string(i) + ")";
    lanes += std::string(i > 0 ? ", " : "") + "MASK_VALUE(b, h, " + (of_queries ? "(q" + at + ", k)" : "q, (k" + at + ")");
  }
  return "MASK_LANES(b, h, q, k) (VEC)(" + lanes + ")";
}
double mask_value(Mask mask, int head, int query, int key) {
  if (mask == Mask::kAdded) return 0.03125 * (key - query);
  if (mask == Mask::kWindow) return key + 250 > query && key < query + 140 ? 0 : -HUGE_VAL;
  return key + 40 < query || key > query + 3 ? -HUGE_VAL : 0.5 * head - 0.25 * (key & 3);
}

/// The sizes of an attention and what changes its scores.
struct Problem {
  int batch, heads, heads_per_kv, queries, keys, depth, width;  // width: head size of v.
  bool causal;
  Mask mask = Mask::kNone;
  bool dropout = false;
  int pad = 0;     // Elements between two rows of an operand.
  int offset = 0;  // See CheckCase.
  double scale = 0.125;
};

constexpr int64_t kState[] = {0x123456789ABCDEF, 0x7000000012};
constexpr Problem kEdges[] = {{1, 2, 1, 70, 150, 64, 64, false},
                              {1, 2, 2, 130, 260, 64, 64, true, Mask::kNone, false, 0, 8},
                              {2, 1, 1, 150, 140, 40, 24, true},
                              {1, 2, 1, 65, 129, 64, 64, false, Mask::kBool},
                              {1, 1, 1, 66, 67, 64, 64, false, Mask::kFloat, false, 3, 3},
                              {1, 2, 2, 70, 261, 64, 64, false, Mask::kNone, true},
                              {2, 2, 1, 66, 67, 36, 20, false, Mask::kFloat},
                              {1, 2, 2, 130, 131, 64, 64, true, Mask::kNone, true, 3, 3},
                              {1, 2, 2, 70, 131, 32, 8, false, Mask::kBool},
                              {1, 2, 2, 66, 67, 64, 64, false, Mask::kBool, false, 3, 3},
                              {1, 2, 2, 66, 67, 64, 64, true, Mask::kNone, true},
                              {2, 2, 2, 66, 131, 64, 64, false, Mask::kNone, true, 3, 3},
                              {1, 2, 2, 35, 70, 64, 64, false, Mask::kFloat, true},
                              {1, 2, 1, 450, 70, 64, 64, false},
                              {1, 2, 1, 70, 450, 64, 64, true, Mask::kSame},
                              {1, 2, 1, 150, 70, 7, 9, true, Mask::kNone, false, 0, 1},
                              {1, 1, 1, 64, 140, 128, 96, false},
                              {1, 2, 2, 100, 70, 80, 128, true, Mask::kNone, true},
                              {1, 1, 1, 66, 67, 96, 128, false, Mask::kFloat, false, 3, 1},
                              {2, 2, 1, 140, 260, 64, 64, false, Mask::kComputed},
                              {1, 2, 2, 140, 200, 64, 64, true, Mask::kComputed},
                              {1, 2, 2, 450, 300, 64, 64, false, Mask::kBlocks},
                              {2, 2, 1, 300, 430, 64, 64, true, Mask::kBlocks},
                              {1, 1, 1, 200, 300, 128, 96, false, Mask::kBlocks},
                              {1, 2, 2, 450, 300, 64, 64, false, Mask::kWindow},
                              {1, 2, 1, 400, 320, 64, 64, true, Mask::kWindow},
                              {1, 2, 2, 200, 260, 64, 64, true, Mask::kAdded},
                              {1, 1, 1, 300, 200, 96, 128, false, Mask::kAdded},
                              {2, 3, 1, 450, 130, 64, 64, true},
                              {1, 7, 1, 70, 256, 64, 64, true},
                              {2, 2, 1, 256, 197, 64, 64, false},
                              {1, 2, 2, 140, 420, 64, 64, false}};
/// True if a work-group of the joint gradient has all keys of a problem.
bool fits_joint(const Problem& p) {
  return std::max(p.queries, p.keys) <= 256 && p.heads_per_kv == 1 && !p.dropout && !is_computed(p.mask) &&
         block_size(p.mask) == 0;
}

/// More sizes for portable kernels: one query, few queries, heads that are no multiples of four, large heads.
constexpr Problem kMore[] = {{1, 2, 2, 1, 66, 33, 31, false},
                             {2, 4, 2, 3, 517, 64, 64, false, Mask::kFloat},
                             {1, 2, 2, 1, 300, 8, 8, false, Mask::kBool},
                             {1, 1, 1, 17, 300, 200, 256, true},
                             {1, 1, 1, 33, 70, 256, 200, false, Mask::kBool},
                             {1, 1, 1, 65, 90, 128, 128, false, Mask::kBool},
                             {1, 2, 2, 40, 70, 129, 131, false},
                             {1, 3, 1, 33, 130, 16, 40, false, Mask::kFloat, false, 1, 1},
                             {2, 2, 2, 70, 65, 16, 16, false}};

/// An operand [batch, heads, length, size], which lies in memory as [batch, length, heads, size] with gaps.
struct Rows {
  Rows(const CheckSubject& subject, const Problem& p, int heads, int length, int size, uint32_t seed)
      : heads(heads), length(length), size(size), pitch(size + p.pad) {
    values = subject.values(static_cast<size_t>(p.batch) * length * heads * pitch, seed);
    // More digits than TF32 has, so that the low part of each split value is not 0.
    if (subject.edges() && subject.type == KernelType::kFp32)
      for (float& x : values) x *= 1.2345678f;
  }
  ir::Shape strides() const { return {length * heads * pitch, pitch, heads * pitch, 1}; }
  const float* row(size_t r) const {
    const auto l = static_cast<size_t>(length), h = static_cast<size_t>(heads);
    return &values[((r / l / h * l + r % l) * h + r / l % h) * static_cast<size_t>(pitch)];
  }
  int heads, length, size, pitch;
  std::vector<float> values;
};

struct AttentionData {
  AttentionData(const CheckSubject& subject, const Problem& p)
      : q(subject, p, p.heads, p.queries, p.depth, 6),
        k(subject, p, p.heads / p.heads_per_kv, p.keys, p.depth, 7),
        v(subject, p, p.heads / p.heads_per_kv, p.keys, p.width, 8),
        dout(subject, p, p.heads, p.queries, p.width, 9) {
    if (p.mask == Mask::kNone || is_computed(p.mask)) return;
    mask = subject.values(static_cast<size_t>(p.heads) * p.queries * p.keys, 4);
    if (!hides(p.mask)) return;
    for (float& m : mask) m = m > -0.5f ? 1.0f : 0.0f;
    // Whole steps are hidden, of 64 columns three at a time, some from all rows, some from some. With a causal mask these are
    // not the first, since few keys would be left to the first queries. Others are shown to rows from 128 on.
    for (size_t i = 0; p.mask == Mask::kBlocks && i < mask.size(); ++i) {
      const size_t part = i % p.keys / 64, query = i / p.keys % p.queries;
      if (query >= 128) mask[i] = 1;
      if (part % 4 != (p.causal ? 0 : 3) && (part < 4 || query < 256 || query >= 320)) mask[i] = 0;
    }
    // The second query of the first head sees no key.
    if (p.queries > 1) std::fill_n(mask.begin() + p.keys, p.keys, 0.0f);
  }
  Rows q, k, v, dout;
  std::vector<float> mask;  // [heads, queries, keys]
};

/// What the mask hides of the blocks of scores, [heads, queries, keys] in blocks: all (0), some (1) or nothing (2).
std::vector<unsigned char> blocks_of(const Problem& p, const std::function<double(int, int, int)>& bias) {
  const int size = block_size(p.mask), down = (p.queries + size - 1) / size, along = (p.keys + size - 1) / size;
  std::vector<unsigned char> blocks;
  for (int b = 0; b < p.heads * down * along; ++b) {
    const int r0 = b / along % down * size, c0 = b % along * size;
    int seen = 0, hidden = 0;
    for (int i = r0; i < std::min(r0 + size, p.queries); ++i)
      for (int j = c0; j < std::min(c0 + size, p.keys); ++j) ++(bias(b / along / down, i, j) == 0 ? seen : hidden);
    blocks.push_back(seen == 0 ? 0 : hidden == 0 ? 2 : 1);
  }
  return blocks;
}

/// Computes the operands and results of a case.
CaseData data_of(const CheckSubject& subject, ir::AttentionKind kind, const Problem& p) {
  const Attention a{p.batch, p.heads, p.heads_per_kv, p.queries, p.keys, p.depth, p.width, p.scale, p.causal};
  const AttentionData o(subject, p);
  const auto rows_of = [](const Rows& x) { return [&x](size_t r) { return x.row(r); }; };
  const auto bias = [&](int head, int i, int j) {
    if (p.mask == Mask::kNone) return 0.0;
    if (is_computed(p.mask)) return mask_value(p.mask, head, i, j);
    const double m = o.mask[(static_cast<size_t>(head) * p.queries + i) * p.keys + j];
    return !hides(p.mask) ? m : m != 0 ? 0.0 : -HUGE_VAL;
  };
  const auto factor = [&](size_t row, int j) {
    return p.dropout ? dropout_factor(kState, row * ((static_cast<size_t>(p.keys) + 3) / 4) + static_cast<size_t>(j / 4),
                                      static_cast<size_t>(j % 4))
                     : 1.0;
  };
  const AttentionOperands operands{rows_of(o.q), rows_of(o.k), rows_of(o.v), rows_of(o.dout), bias, factor};
  CaseData data;
  for (const Rows* x : {&o.q, &o.k, &o.v}) data.inputs.push_back(subject.stored(x->values));
  if (kind == ir::AttentionKind::kForward) {
    data.results = attention(a, operands);
  } else {
    AttentionGradients g = attention_gradients(a, operands, subject.halves() || subject.edges());
    data.inputs.push_back(subject.stored(o.dout.values));
    g.largest.insert(g.largest.end(), g.totals.begin(), g.totals.end());
    data.inputs.push_back(stored(g.largest, ir::DType::kF32));
    data.inputs.push_back(stored(g.deltas, ir::DType::kF32));
    if (kind != ir::AttentionKind::kKeyValue) data.results.append(g.q);
    if (kind != ir::AttentionKind::kQuery) {
      data.results.append(g.k);
      data.results.append(g.v);
    }
  }
  if (hides(p.mask))
    data.inputs.emplace_back(o.mask.begin(), o.mask.end());
  else if (p.mask == Mask::kSame || p.mask == Mask::kFloat)
    data.inputs.push_back(p.mask == Mask::kSame ? subject.stored(o.mask) : stored(o.mask, ir::DType::kF32));
  if (p.dropout) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(kState);
    data.inputs.emplace_back(bytes, bytes + sizeof kState);
  }
  if (block_size(p.mask) > 0) data.inputs.push_back(blocks_of(p, bias));
  return data;
}

CheckCase attention_case(const CheckSubject& subject, ir::AttentionKind kind, const std::string& choice, const Problem& p) {
  const ir::DType type = storage_of(subject.type);
  ir::Builder builder;
  const auto input = [&](ir::DType dtype, const ir::Shape& sizes, const std::optional<ir::Shape>& strides = {}) {
    return builder.input(dtype, sizes, strides ? *strides : ir::contiguous_strides(sizes), false, false);
  };
  const auto rows = [&](int heads, int length, int size) {
    const int64_t pitch = size + p.pad;
    return input(type, {p.batch, heads, length, size}, ir::Shape{length * heads * pitch, pitch, heads * pitch, 1});
  };
  const int kv_heads = p.heads / p.heads_per_kv;
  std::vector<ir::Value> operands = {rows(p.heads, p.queries, p.depth), rows(kv_heads, p.keys, p.depth),
                                     rows(kv_heads, p.keys, p.width)};
  if (kind != ir::AttentionKind::kForward) {
    operands.push_back(rows(p.heads, p.queries, p.width));
    operands.push_back(input(ir::DType::kF32, {2, p.batch, p.heads, p.queries}));
    operands.push_back(input(ir::DType::kF32, {p.batch, p.heads, p.queries}));
  }
  ir::AttentionAttrs attrs;
  attrs.kind = kind;
  attrs.scale = p.scale;
  attrs.causal = p.causal;
  if (p.mask != Mask::kNone && !is_computed(p.mask)) {
    attrs.masked = true;
    operands.push_back(input(hides(p.mask)           ? ir::DType::kBool
                             : p.mask == Mask::kSame ? type
                                                     : ir::DType::kF32,
                             {p.batch, p.heads, p.queries, p.keys}, ir::Shape{0, p.queries * p.keys, p.keys, 1}));
  }
  if (p.dropout) {
    attrs.dropout = 0.5;
    operands.push_back(input(ir::DType::kI64, {2}));
  }
  attrs.blocks = block_size(p.mask);
  if (attrs.blocks > 0) {
    const int64_t down = (p.queries + attrs.blocks - 1) / attrs.blocks, along = (p.keys + attrs.blocks - 1) / attrs.blocks;
    operands.push_back(input(ir::DType::kU8, {p.batch, p.heads, down, along}, ir::Shape{0, down * along, along, 1}));
  }
  for (const ir::Value& result : builder.attention(operands, attrs))
    builder.output(result, ir::contiguous_strides(result.sizes));
  const ir::Graph graph = builder.finish();
  CheckCase check = case_of(subject.offer(graph, choice), graph, p.offset, [=] { return data_of(subject, kind, p); });
  if (is_computed(p.mask)) {
    check.defines.emplace_back("MASK 4");
    for (const std::string& line : mask_text(p.mask)) check.defines.push_back(line);
    if (subject.row.level == KernelLevel::k_item)
      check.defines.push_back(mask_lanes(subject.caps.vector_floats, kind == ir::AttentionKind::kKeyValue));
  }
  return check;
}

/// The outputs of a portable kernel's own stores, and the rows of each head, which they take as an integer.
void add_outputs(CheckCase& check, ir::AttentionKind kind, const Problem& p) {
  const auto all = [&](int heads, int length) { return static_cast<size_t>(p.batch) * heads * length; };
  const size_t rows = all(p.heads, p.queries), columns = all(p.heads / p.heads_per_kv, p.keys);
  const auto depth = static_cast<size_t>(p.depth), width = static_cast<size_t>(p.width);
  const bool of_keys = kind == ir::AttentionKind::kKeyValue;
  check.outputs = of_keys                               ? std::vector{columns * depth, columns * width}
                  : kind == ir::AttentionKind::kForward ? std::vector{rows * width, 2 * rows}
                                                        : std::vector{rows * depth, size_t{0}};
  check.last = {of_keys ? p.keys : p.queries};
  // The error of a weight is that of its score, a sum of `depth` products.
  check.tolerance = (kind == ir::AttentionKind::kForward ? 4e-6 : 6e-6) * std::max(1, p.depth / 64);
}

/// The passes of a portable kernel, with each of its tiles, on several devices: each problem on one CPU, on all GPUs.
std::vector<CheckCase> portable_cases(const CheckSubject& subject) {
  std::vector<CheckCase> cases;
  const bool on_cpus = subject.row.level == KernelLevel::k_item;
  const bool few_rows = subject.row.id == KernelId::k_attention_few_rows_group;
  std::vector<CheckSubject> devices = on_devices(subject);
  for (size_t d = 0; d < devices.size(); ++d) {
    CheckSubject& on = devices[d];
    if (few_rows && cases.empty()) on.caps.max_group_size = 128;
    for (const int pass : few_rows ? std::vector{0} : std::vector{0, 1, 2}) {
      const auto kind = static_cast<ir::AttentionKind>(pass);
      std::vector<Problem> problems(std::begin(kEdges), std::end(kEdges));
      problems.insert(problems.end(), std::begin(kMore), std::end(kMore));
      for (size_t i = 0; i < problems.size(); ++i) {
        const Problem& p = problems[i];
        if ((few_rows && p.dropout) || (on_cpus && (i + pass) % devices.size() != d)) continue;
        std::set<std::string> variants;
        // The rows of a kernel's larger tile; others stand for its smaller one.
        for (const char* tile : {"tile=0", "tile=64", "tile=32", "tile=16"}) {
          CheckCase check = attention_case(on, kind, tile, p);
          if (!variants.insert(check.variant).second) continue;
          add_outputs(check, kind, p);
          cases.push_back(std::move(check));
        }
      }
    }
  }
  return cases;
}

}  // namespace

/// The results of the forward pass are followed by the largest scores, then by the sums of weights. The allowed error of a
/// result is relative to the sum of the absolute values of its terms, and for the largest scores relative to at least 1.
std::vector<CheckCase> attention_cases(const CheckSubject& subject) {
  if (subject.portable()) return portable_cases(subject);
  const bool gradient = subject.row.operation == KernelOperation::k_attention_gradient,
             joint = subject.row.operation == KernelOperation::k_attention_joint_gradient;
  const bool boxes = subject.row.form == KernelForm::k_boxes;
  std::vector<CheckCase> cases;
  const auto add_case = [&](const AttentionTile& tile, const Problem& p) {
    const bool may_box = tile.pass == 0 && tile.fits_boxes() && block_size(p.mask) == 0;
    if (boxes && !may_box) return;
    const std::string copies = !may_box ? "" : boxes ? " copies=boxes" : " copies=chunks";
    cases.push_back(attention_case(subject, static_cast<ir::AttentionKind>(tile.pass), "tile=" + tile.name() + copies, p));
  };
  const auto add = [&](const AttentionTile& tile, int depth, bool causal) {
    for (const int offset : {0, 1})
      add_case(tile, {2, 2, joint ? 1 : 2, 140, 200, depth, depth, causal, Mask::kNone, false, 0, offset, 0.25});
  };
  for (const int pass : joint ? std::vector{3} : gradient ? std::vector{1, 2} : std::vector{0}) {
    const std::vector<AttentionTile> tiles = attention_tiles(subject.math(), pass);
    // The first tile with all problems for its heads, the others with a half.
    for (size_t i = 0; i < tiles.size(); ++i)
      for (size_t j = 0; subject.edges() && j < std::size(kEdges); ++j) {
        const int depth = std::max(kEdges[j].depth, kEdges[j].width), most = tiles[i].depth;
        if (joint && !fits_joint(kEdges[j])) continue;
        if (!tiles[i].computes(kEdges[j].causal || block_size(kEdges[j].mask) > 0,
                               kEdges[j].mask != Mask::kNone || kEdges[j].dropout))
          continue;
        if (depth <= most && (depth > 64) == (most > 64) && (i == 0 || most > 64 || (i + j) % 2 == 0))
          add_case(tiles[i], kEdges[j]);
      }
    if (subject.edges()) continue;
    // Every tile, with heads that fill it or that are padded.
    for (size_t i = 0; i < tiles.size(); ++i)
      add(tiles[i],
          i % 2 == 0             ? tiles[i].depth
          : tiles[i].depth == 64 ? 40
                                 : 96,
          tiles[i].computes(true, false) && i % 2 == (gradient ? 0 : 1));
    if (subject.row.level != KernelLevel::k_warpgroup && !tiles.empty()) add(tiles[0], 24, !gradient);
  }
  return cases;
}

}  // namespace ocl::schedule
