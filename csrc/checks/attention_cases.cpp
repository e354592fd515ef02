// csrc/checks/attention_cases.cpp: check cases for attention kernels on tensor cores.
#include "csrc/checks/check_case.h"

namespace ocl::checks {
namespace {

constexpr int kBatch = 2, kHeads = 2, kQueries = 140, kKeys = 200;

struct Shape {
  int rows, columns, filled;  // Rows and columns of a tile; `filled` is the size to which head sizes are padded.
  int depth;                  // Head size, a multiple of 8.
  bool causal;
  int warp_rows = 0, stages = 4;
};

/// Makes a check case with contiguous queries [b, h, l, d], whose two heads share keys and values. `offset` is the
/// number of elements in front of each operand. An offset of 1 makes the operands unaligned, so that the kernel copies
/// them element by element.
CheckCase attention_case(const KernelRow& kernel, KernelType type, const Shape& shape, int offset) {
  const ir::DType storage = storage_of(type);
  const bool halves = storage != ir::DType::kF32, warps = shape.warp_rows != 0;
  CheckCase check;
  check.kernel = kernel.id;
  check.defines = {macro_of(type), "DEPTH_TILE " + std::to_string(shape.filled), "TILE_M " + std::to_string(shape.rows)};
  for (const auto& [name, value] : {std::pair{"TILE_N ", shape.columns},
                                    {"TILE_C ", shape.columns},
                                    {"DEPTH ", shape.depth},
                                    {"WIDTH ", shape.depth},
                                    {"STAGES ", shape.stages},
                                    {"CAUSAL ", shape.causal},
                                    {warps ? "WARP_N " : "OVERLAP ", warps ? shape.columns : halves && shape.filled == 64}})
    check.defines.push_back(name + std::to_string(value));
  check.defines.insert(check.defines.end(), {"DIRECT 1", "SCALE 0.25f"});
  if (warps) check.defines.push_back("WARP_M " + std::to_string(shape.warp_rows));
  const int64_t row = shape.depth, one = kKeys * row;
  check.arguments = {kHeads, kHeads, kQueries, kKeys, kHeads * kQueries * row, kQueries * row, row};
  for (int i = 0; i < 2; ++i) check.arguments.insert(check.arguments.end(), {one, int64_t{0}, row});
  check.groups = {static_cast<size_t>((kQueries + shape.rows - 1) / shape.rows), kHeads, kBatch};
  check.local = static_cast<size_t>(warps ? shape.rows / shape.warp_rows * 32 : shape.rows / 64 * 128 + 128);
  check.offset = offset;
  check.fill = [=](CheckCase& c) {
    const Attention a{kBatch, kHeads, kHeads, kQueries, kKeys, shape.depth, shape.depth, 0.25, shape.causal};
    const auto at = [&](size_t r) { return static_cast<size_t>(offset) + r * static_cast<size_t>(shape.depth); };
    const auto q = random_values(at(a.rows()), !halves, 6), k = random_values(at(a.columns()), !halves, 7),
               v = random_values(at(a.columns()), !halves, 8);
    c.inputs = {stored(q, storage), stored(k, storage), stored(v, storage)};
    const auto rows_of = [&](const std::vector<float>& x) { return [&x, &at](size_t r) { return &x[at(r)]; }; };
    c.results = attention(a, AttentionOperands{rows_of(q), rows_of(k), rows_of(v), nullptr, [](int, int, int) { return 0.0; },
                                               [](size_t, int) { return 1.0; }});
  };
  return check;
}

}  // namespace

std::vector<CheckCase> attention_cases(const KernelRow& row, KernelType type) {
  const bool halves = storage_of(type) != ir::DType::kF32;
  std::vector<Shape> shapes = {{128, 64, 64, 64, false}, {64, 64, 64, 40, true}};
  if (halves)
    shapes = {{128, 128, 64, 64, false}, {64, 128, 64, 40, true}, {128, 128, 128, 128, true}, {64, 128, 128, 96, false}};
  if (row.level == KernelLevel::k_warp) {
    const int deep = halves ? 4 : 2;
    shapes = {{128, 64, 64, 64, false, 32},
              {64, 64, 64, 40, true, 16},
              {128, 64, 128, 128, true, 16, deep},
              {64, 64, 96, 96, false, 16, deep},
              {128, 64, 32, 24, true, 32}};
  }
  std::vector<CheckCase> cases;
  for (const Shape& shape : shapes)
    for (const int offset : {0, 1}) cases.push_back(attention_case(row, type, shape, offset));
  return cases;
}

}  // namespace ocl::checks
