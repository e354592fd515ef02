// csrc/checks/attention_gradient_cases.cpp: check cases for gradient kernels of attention on tensor cores.
#include "csrc/checks/check_case.h"

namespace ocl::checks {
namespace {

constexpr int kBatch = 2, kHeads = 2, kQueries = 140, kKeys = 200, kColumns = 64;

struct Shape {
  int pass;     // 1: gradient of the queries. 2: gradients of keys and values.
  int rows;     // Rows of a tile.
  int filled;   // The size to which head sizes are padded.
  int overlap;  // The kernel's macro OVERLAP.
  int stages;
  int depth;  // Head size, a multiple of 8.
  bool causal;
  int warp_rows = 0;
};

/// Makes a check case with contiguous queries [b, h, l, d], whose two heads share keys and values. `offset` is the
/// number of elements in front of each operand. An offset of 1 makes the operands unaligned, so that the kernel copies
/// them element by element.
CheckCase gradient_case(const KernelRow& kernel, KernelType type, const Shape& shape, int offset) {
  const ir::DType storage = storage_of(type);
  const bool halves = storage != ir::DType::kF32, warps = shape.warp_rows != 0, of_keys = shape.pass == 2;
  CheckCase check;
  check.kernel = kernel.id;
  check.defines = {macro_of(type), "PASS " + std::to_string(shape.pass),     "DIRECT 1",
                   "SCALE 0.25f",  "STAGES " + std::to_string(shape.stages), "LAG 3"};
  for (const auto& [name, value] : {std::pair{"DEPTH_TILE ", shape.filled},
                                    {"TILE_M ", shape.rows},
                                    {"TILE_N ", kColumns},
                                    {"TILE_C ", kColumns},
                                    {"DEPTH ", shape.depth},
                                    {"DEPTH2 ", shape.depth},
                                    {"WIDTH ", shape.depth},
                                    {warps ? "WARP_N " : "OVERLAP ", warps ? kColumns : shape.overlap},
                                    {"CAUSAL ", static_cast<int>(shape.causal)}})
    check.defines.push_back(name + std::to_string(value));
  if (warps) check.defines.push_back("WARP_M " + std::to_string(shape.warp_rows));
  check.offset = offset;
  const int64_t row = shape.depth, heads = kHeads, queries = kQueries;
  const std::array<int64_t, 3> of_queries = {heads * queries * row, queries * row, row}, of_columns = {kKeys * row, 0, row};
  check.arguments = {kHeads, kHeads, kQueries, kKeys};
  for (int i = 0; i < 2; ++i)
    for (const auto& strides : {of_keys ? of_columns : of_queries, of_keys ? of_queries : of_columns})
      check.arguments.insert(check.arguments.end(), strides.begin(), strides.end());
  for (const int64_t stride : {kBatch * heads * queries, heads * queries, queries, heads * queries, queries})
    check.arguments.emplace_back(stride);
  const int tiles = ((of_keys ? kKeys : kQueries) + shape.rows - 1) / shape.rows;
  check.groups = {static_cast<size_t>(tiles), of_keys ? size_t{1} : size_t{kHeads}, kBatch};
  check.local = static_cast<size_t>(warps ? shape.rows / shape.warp_rows * 32 : shape.rows / 64 * 128 + 128);
  check.fill = [=](CheckCase& c) {
    const Attention a{kBatch, kHeads, kHeads, kQueries, kKeys, shape.depth, shape.depth, 0.25, shape.causal};
    const auto at = [&](size_t r) { return static_cast<size_t>(offset) + r * static_cast<size_t>(shape.depth); };
    const auto q = random_values(at(a.rows()), !halves, 6), dout = random_values(at(a.rows()), !halves, 9),
               k = random_values(at(a.columns()), !halves, 7), v = random_values(at(a.columns()), !halves, 8);
    const auto rows_of = [&](const std::vector<float>& x) { return [&x, &at](size_t r) { return &x[at(r)]; }; };
    AttentionGradients g =
        attention_gradients(a,
                            AttentionOperands{rows_of(q), rows_of(k), rows_of(v), rows_of(dout),
                                              [](int, int, int) { return 0.0; }, [](size_t, int) { return 1.0; }},
                            halves);
    c.inputs.clear();
    for (const auto* x : of_keys ? std::array{&k, &q, &v, &dout} : std::array{&q, &k, &dout, &v})
      c.inputs.push_back(stored(*x, storage));
    std::vector<float> sums(static_cast<size_t>(offset)), deltas = sums;
    for (const auto* x : {&g.largest, &g.totals}) sums.insert(sums.end(), x->begin(), x->end());
    deltas.insert(deltas.end(), g.deltas.begin(), g.deltas.end());
    c.inputs.push_back(stored(sums, ir::DType::kF32));
    c.inputs.push_back(stored(deltas, ir::DType::kF32));
    c.results = of_keys ? g.k : g.q;
    if (of_keys) c.results.append(g.v);
  };
  return check;
}

}  // namespace

std::vector<CheckCase> attention_gradient_cases(const KernelRow& row, KernelType type) {
  const bool halves = storage_of(type) != ir::DType::kF32;
  std::vector<Shape> shapes = {{1, 128, 64, 1, 6, 64, true},  {1, 64, 64, 0, 6, 40, false}, {1, 128, 128, 0, 6, 128, false},
                               {1, 64, 128, 0, 6, 96, true},  {2, 128, 64, 0, 6, 64, true}, {2, 64, 64, 0, 6, 40, false},
                               {2, 64, 128, 0, 6, 128, true}, {2, 128, 64, 0, 6, 64, false}};
  if (!halves) {
    const bool split = type == KernelType::kFp32;
    const int few = split ? 5 : 9, more = split ? 6 : 9, few_of_keys = split ? 4 : 9, more_of_keys = split ? 5 : 9;
    shapes = {{1, 128, 64, 0, few, 64, true},          {1, 64, 64, 0, more, 40, false},
              {1, 128, 64, 0, few, 32, false},         {2, 128, 64, 0, few_of_keys, 64, true},
              {2, 64, 64, 0, more_of_keys, 40, false}, {2, 128, 64, 0, few_of_keys, 32, false}};
  }
  if (row.level == KernelLevel::k_warp) {
    shapes = {{1, 64, 64, 0, 2, 64, true, 16},
              {2, 64, 64, 0, 2, 64, true, 16},
              {1, 64, 64, 0, 2, 40, false, 16},
              {2, 64, 32, 0, 2, 32, false, 16}};
    if (halves)
      shapes.insert(shapes.end(), {{1, 128, 64, 0, 3, 64, true, 16},
                                   {2, 128, 64, 0, 3, 40, false, 16},
                                   {1, 64, 128, 0, 2, 128, false, 16},
                                   {2, 64, 96, 0, 2, 96, true, 16}});
  }
  std::vector<CheckCase> cases;
  for (const Shape& shape : shapes)
    for (const int offset : {0, 1}) cases.push_back(gradient_case(row, type, shape, offset));
  return cases;
}

}  // namespace ocl::checks
