// csrc/exec/unit_attentions.cpp: attentions for the check of matrix units, with their results in double.
#include <algorithm>
#include <cmath>

#include "csrc/exec/unit_check.h"

namespace ocl::exec {
namespace {

constexpr int kBatch = 2, kHeads = 2, kQueries = 140, kKeys = 200;

struct Shape {
  int rows, columns, filled;  // of a tile; what head sizes are filled up to
  int depth;                  // head size, a multiple of 8
  bool causal;
  int warp_rows = 0, stages = 4;
};

/// Queries [b, h, l, d] behind each other in memory; both heads share keys and values. offset: elements in front of all
/// operands; from one element on they are not aligned, and are copied element by element.
UnitProduct attention(const UnitType& type, const Shape& shape, int offset) {
  const bool halves = type.storage != ir::DType::kF32;
  const auto count = [&](int n) {
    return static_cast<size_t>(offset) + static_cast<size_t>(n) * static_cast<size_t>(shape.depth);
  };
  const auto q = random_values(count(kBatch * kHeads * kQueries), !halves, 6);
  const auto k = random_values(count(kBatch * kKeys), !halves, 7), v = random_values(count(kBatch * kKeys), !halves, 8);
  UnitProduct product;
  const bool warps = shape.warp_rows != 0;
  product.file = warps ? "attention_mma" : "attention_wgmma";
  product.libraries = attention_libraries(warps);
  product.defines = {type.macro, "DEPTH_TILE " + std::to_string(shape.filled), "TILE_M " + std::to_string(shape.rows)};
  for (const auto& [name, value] : {std::pair{"TILE_N ", shape.columns},
                                    {"TILE_C ", shape.columns},
                                    {"DEPTH ", shape.depth},
                                    {"WIDTH ", shape.depth},
                                    {"STAGES ", shape.stages},
                                    {"CAUSAL ", shape.causal},
                                    {warps ? "WARP_N " : "OVERLAP ", warps ? shape.columns : halves && shape.filled == 64}})
    product.defines.push_back(name + std::to_string(value));
  product.defines.insert(product.defines.end(), {"DIRECT 1", "SCALE 0.25f"});
  if (warps) product.defines.push_back("WARP_M " + std::to_string(shape.warp_rows));
  product.inputs = {stored(q, type.storage), stored(k, type.storage), stored(v, type.storage)};
  const int64_t row = shape.depth, one = kKeys * row;
  product.arguments = {kHeads, kHeads, kQueries, kKeys, kHeads * kQueries * row, kQueries * row, row};
  for (int i = 0; i < 2; ++i) product.arguments.insert(product.arguments.end(), {one, int64_t{0}, row});
  product.groups = {static_cast<size_t>((kQueries + shape.rows - 1) / shape.rows), kHeads, kBatch};
  product.local = static_cast<size_t>(warps ? shape.rows / shape.warp_rows * 32 : shape.rows / 64 * 128 + 128);
  product.offset = offset;

  std::vector<double> most, totals, scores(kKeys);
  for (int i = 0; i < kBatch * kHeads * kQueries; ++i) {
    const int batch = i / (kHeads * kQueries), seen = shape.causal ? std::min(i % kQueries + 1, kKeys) : kKeys;
    const auto at = [&](const std::vector<float>& x, int r, int d) {
      return static_cast<double>(x[count(r) + static_cast<size_t>(d)]);
    };
    double top = -HUGE_VAL, total = 0;
    for (int j = 0; j < seen; ++j) {
      scores[j] = 0;
      for (int d = 0; d < shape.depth; ++d) scores[j] += 0.25 * at(q, i, d) * at(k, batch * kKeys + j, d);
      top = std::max(top, scores[j]);
    }
    for (int j = 0; j < seen; ++j) total += scores[j] = std::exp(scores[j] - top);
    for (int d = 0; d < shape.depth; ++d) {
      double sum = 0, size = 0;
      for (int j = 0; j < seen; ++j) {
        const double term = scores[j] / total * at(v, batch * kKeys + j, d);
        sum += term;
        size += std::fabs(term);
      }
      product.exact.push_back(sum);
      product.sizes.push_back(size);
    }
    most.push_back(top);
    totals.push_back(total);
  }
  for (const double x : most) product.sizes.push_back(std::max(1.0, std::fabs(x)));
  product.sizes.insert(product.sizes.end(), totals.begin(), totals.end());
  product.exact.insert(product.exact.end(), most.begin(), most.end());
  product.exact.insert(product.exact.end(), totals.begin(), totals.end());
  return product;
}

}  // namespace

std::vector<const char*> attention_libraries(bool warps) {
  if (warps) return {"attention", "unit", "mma", "attention_scores", "mma_attention"};
  return {"attention", "unit", "wgmma", "attention_scores", "wgmma_attention"};
}

std::vector<UnitProduct> unit_attentions(const UnitType& type) {
  std::vector<Shape> shapes = {{128, 64, 64, 64, false}, {64, 64, 64, 40, true}};
  if (type.storage != ir::DType::kF32)
    shapes = {{128, 128, 64, 64, false}, {64, 128, 64, 40, true}, {128, 128, 128, 128, true}, {64, 128, 128, 96, false}};
  if (type.kernels == UnitKernels::kWarpAttention) {
    const int deep = type.storage == ir::DType::kF32 ? 2 : 4;
    shapes = {{128, 64, 64, 64, false, 32},
              {64, 64, 64, 40, true, 16},
              {128, 64, 128, 128, true, 16, deep},
              {64, 64, 96, 96, false, 16, deep},
              {128, 64, 32, 24, true, 32}};
  }
  std::vector<UnitProduct> products;
  for (const Shape& shape : shapes)
    for (const int offset : {0, 1}) products.push_back(attention(type, shape, offset));
  return products;
}

}  // namespace ocl::exec
