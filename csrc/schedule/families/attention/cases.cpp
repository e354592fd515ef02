// csrc/schedule/families/attention/cases.cpp: check cases of attention on tensor cores, and of its gradients.
#include "csrc/ir/builder.h"
#include "csrc/schedule/families/attention/operands.h"
#include "csrc/schedule/families/case.h"

namespace ocl::schedule {
namespace {

constexpr int kBatch = 2, kHeads = 2, kQueries = 140, kKeys = 200;
constexpr double kScale = 0.25;

/// Fills the operands and results of a case. Queries are contiguous [b, h, l, d]; two heads share keys and values.
void fill(CheckCase& c, const CheckSubject& subject, ir::AttentionKind kind, int depth, bool causal) {
  const int offset = c.offset;
  const Attention a{kBatch, kHeads, kHeads, kQueries, kKeys, depth, depth, kScale, causal};
  const auto at = [&](size_t r) { return static_cast<size_t>(offset) + r * static_cast<size_t>(depth); };
  const auto q = subject.values(at(a.rows()), 6), k = subject.values(at(a.columns()), 7),
             v = subject.values(at(a.columns()), 8), dout = subject.values(at(a.rows()), 9);
  const auto rows_of = [&](const std::vector<float>& x) { return [&x, &at](size_t r) { return &x[at(r)]; }; };
  const AttentionOperands operands{
      rows_of(q), rows_of(k), rows_of(v), rows_of(dout), [](int, int, int) { return 0.0; }, [](size_t, int) { return 1.0; }};
  const auto give = [&](std::initializer_list<const std::vector<float>*> all) {
    for (const auto* x : all) c.inputs.push_back(subject.stored(*x));
  };
  if (kind == ir::AttentionKind::kForward) {
    give({&q, &k, &v});
    c.results = attention(a, operands);
    return;
  }
  const bool of_keys = kind == ir::AttentionKind::kKeyValue;
  AttentionGradients g = attention_gradients(a, operands, subject.halves());
  if (of_keys)
    give({&k, &q, &v, &dout});
  else
    give({&q, &k, &dout, &v});
  std::vector<float> sums(static_cast<size_t>(offset)), deltas = sums;
  for (const auto* x : {&g.largest, &g.totals}) sums.insert(sums.end(), x->begin(), x->end());
  deltas.insert(deltas.end(), g.deltas.begin(), g.deltas.end());
  c.inputs.push_back(stored(sums, ir::DType::kF32));
  c.inputs.push_back(stored(deltas, ir::DType::kF32));
  c.results = of_keys ? g.k : g.q;
  if (of_keys) c.results.append(g.v);
}

/// Makes a case with heads of `depth` elements, a multiple of 8.
CheckCase attention_case(const CheckSubject& subject, ir::AttentionKind kind, const std::string& tile, int depth, bool causal,
                         int offset) {
  const ir::DType type = storage_of(subject.type);
  ir::Builder builder;
  const auto input = [&](ir::DType dtype, const ir::Shape& sizes) {
    return builder.input(dtype, sizes, ir::contiguous_strides(sizes), false, false);
  };
  const ir::Shape of_queries = {kBatch, kHeads, kQueries, depth}, of_keys = {kBatch, 1, kKeys, depth};
  std::vector<ir::Value> operands = {input(type, of_queries), input(type, of_keys), input(type, of_keys)};
  if (kind != ir::AttentionKind::kForward) {
    operands.push_back(input(type, of_queries));
    operands.push_back(input(ir::DType::kF32, {2, kBatch, kHeads, kQueries}));
    operands.push_back(input(ir::DType::kF32, {kBatch, kHeads, kQueries}));
  }
  ir::AttentionAttrs attrs;
  attrs.kind = kind;
  attrs.scale = kScale;
  attrs.causal = causal;
  for (const ir::Value& result : builder.attention(operands, attrs))
    builder.output(result, ir::contiguous_strides(result.sizes));
  CheckCase check = case_of(subject.offer(builder.finish(), "tile=" + tile), offset);
  check.fill = [=](CheckCase& c) { fill(c, subject, kind, depth, causal); };
  return check;
}

}  // namespace

/// The allowed error of a result is relative to the sum of the absolute values of its terms, and for the largest scores
/// relative to at least 1.
std::vector<CheckCase> attention_cases(const CheckSubject& subject) {
  const bool gradient = subject.row.operation == KernelOperation::k_attention_gradient;
  std::vector<CheckCase> cases;
  const auto add = [&](const AttentionTile& tile, int depth, bool causal) {
    for (const int offset : {0, 1})
      cases.push_back(attention_case(subject, static_cast<ir::AttentionKind>(tile.pass), tile.name(), depth, causal, offset));
  };
  for (const int pass : gradient ? std::vector<int>{1, 2} : std::vector<int>{0}) {
    const std::vector<AttentionTile> tiles = attention_tiles(subject.math(), pass);
    // Every tile, with heads that fill it or that are padded.
    for (size_t i = 0; i < tiles.size(); ++i)
      add(tiles[i], i % 2 == 0 ? tiles[i].depth : tiles[i].depth == 64 ? 40 : 96, i % 2 == (gradient ? 0 : 1));
    if (subject.row.level != KernelLevel::k_warpgroup && !tiles.empty()) add(tiles[0], 24, !gradient);
  }
  return cases;
}

}  // namespace ocl::schedule
