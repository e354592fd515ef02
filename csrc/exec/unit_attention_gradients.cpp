// csrc/exec/unit_attention_gradients.cpp: gradients of attention for the check of matrix units, with their results in double.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "csrc/exec/unit_check.h"

namespace ocl::exec {
namespace {

constexpr int kBatch = 2, kHeads = 2, kQueries = 140, kKeys = 200, kColumns = 64;
constexpr double kScale = 0.25;

struct Shape {
  int pass;     // 1: of queries; 2: of keys and values
  int rows;     // of a tile
  int filled;   // what head sizes are filled up to
  int overlap;  // see the kernel
  int stages;
  int depth;  // head size, a multiple of 8
  bool causal;
  int warp_rows = 0;
};

/// Queries [b, h, l, d] behind each other in memory; both heads share keys and values. offset: elements in front of all
/// operands; from one element on they are not aligned, and are copied element by element.
UnitProduct gradient(const UnitType& type, const Shape& shape, int offset) {
  const auto depth = static_cast<size_t>(shape.depth);
  const auto first = [&](int row) { return static_cast<size_t>(offset) + static_cast<size_t>(row) * depth; };
  const int rows = kBatch * kHeads * kQueries, columns = kBatch * kKeys;
  const bool digits = type.storage == ir::DType::kF32;
  const auto q = random_values(first(rows), digits, 6), dout = random_values(first(rows), digits, 9);
  const auto k = random_values(first(columns), digits, 7), v = random_values(first(columns), digits, 8);
  // The sum, and the sum of its products' sizes.
  const auto dot = [&](const std::vector<float>& x, int i, const std::vector<float>& y, int j) {
    std::pair<double, double> sum{0, 0};
    for (size_t d = 0; d < depth; ++d) {
      const double term = static_cast<double>(x[first(i) + d]) * y[first(j) + d];
      sum.first += term;
      sum.second += std::fabs(term);
    }
    return sum;
  };

  // Results: that of queries, or those of keys, then of values; every product of p or ds adds one row to one.
  const bool of_keys = shape.pass == 2;
  UnitProduct product;
  product.exact.resize((of_keys ? 2 * static_cast<size_t>(columns) : static_cast<size_t>(rows)) * depth);
  product.sizes.resize(product.exact.size());
  const auto add = [&](int to, double weight, double size, const std::vector<float>& x, int from) {
    for (size_t d = 0; d < depth; ++d) {
      const double term = weight * x[first(from) + d];
      product.exact[static_cast<size_t>(to) * depth + d] += term;
      product.sizes[static_cast<size_t>(to) * depth + d] += size * std::fabs(x[first(from) + d]);
    }
  };
  std::vector<float> sums(static_cast<size_t>(offset)), totals, deltas(static_cast<size_t>(offset));
  for (int i = 0; i < rows; ++i) {
    const int key0 = i / (kHeads * kQueries) * kKeys, seen = shape.causal ? std::min(i % kQueries + 1, kKeys) : kKeys;
    std::vector<double> p(static_cast<size_t>(seen)), grad(p.size()), grad_sizes(p.size());
    for (int j = 0; j < seen; ++j) {
      p[j] = kScale * dot(q, i, k, key0 + j).first;
      std::tie(grad[j], grad_sizes[j]) = dot(dout, i, v, key0 + j);
      if (!digits) grad_sizes[j] = std::fabs(grad[j]);  // products of few digits: only the difference is rounded
    }
    const double most = *std::max_element(p.begin(), p.end());
    double total = 0, delta = 0;
    for (double& x : p) total += x = std::exp(x - most);
    for (int j = 0; j < seen; ++j) delta += (p[j] /= total) * grad[j];
    sums.push_back(static_cast<float>(most));
    totals.push_back(static_cast<float>(total));
    deltas.push_back(static_cast<float>(delta));
    for (int j = 0; j < seen; ++j) {
      // The difference is as exact as its terms.
      const double ds = kScale * p[j] * (grad[j] - delta), size = kScale * p[j] * (grad_sizes[j] + std::fabs(delta));
      if (of_keys) {
        add(key0 + j, ds, size, q, i);
        add(columns + key0 + j, p[j], p[j], dout, i);
      } else {
        add(i, ds, size, k, key0 + j);
      }
    }
  }
  sums.insert(sums.end(), totals.begin(), totals.end());

  const bool warps = shape.warp_rows != 0;
  product.file = warps ? "attention_gradient_mma" : "attention_gradient_wgmma";
  product.libraries = attention_libraries(warps);
  product.defines = {type.macro,    "PASS " + std::to_string(shape.pass),     "DIRECT 1",
                     "SCALE 0.25f", "STAGES " + std::to_string(shape.stages), "LAG 3"};
  for (const auto& [name, value] : {std::pair{"DEPTH_TILE ", shape.filled},
                                    {"TILE_M ", shape.rows},
                                    {"TILE_N ", kColumns},
                                    {"TILE_C ", kColumns},
                                    {"DEPTH ", shape.depth},
                                    {"DEPTH2 ", shape.depth},
                                    {"WIDTH ", shape.depth},
                                    {warps ? "WARP_N " : "OVERLAP ", warps ? kColumns : shape.overlap},
                                    {"CAUSAL ", static_cast<int>(shape.causal)}})
    product.defines.push_back(name + std::to_string(value));
  if (warps) product.defines.push_back("WARP_M " + std::to_string(shape.warp_rows));
  const std::vector<float>&a = of_keys ? k : q, &b = of_keys ? q : k, &a2 = of_keys ? v : dout, &b2 = of_keys ? dout : v;
  for (const std::vector<float>* x : {&a, &b, &a2, &b2}) product.inputs.push_back(stored(*x, type.storage));
  product.inputs.push_back(stored(sums, ir::DType::kF32));
  product.inputs.push_back(stored(deltas, ir::DType::kF32));
  product.offset = offset;
  const int64_t row = shape.depth, heads = kHeads, queries = kQueries;
  const std::array<int64_t, 3> of_queries = {heads * queries * row, queries * row, row}, of_columns = {kKeys * row, 0, row};
  product.arguments = {kHeads, kHeads, kQueries, kKeys};
  for (int i = 0; i < 2; ++i)
    for (const auto& strides : {of_keys ? of_columns : of_queries, of_keys ? of_queries : of_columns})
      product.arguments.insert(product.arguments.end(), strides.begin(), strides.end());
  for (const int64_t stride : {kBatch * heads * queries, heads * queries, queries, heads * queries, queries})
    product.arguments.emplace_back(stride);
  const int tiles = ((of_keys ? kKeys : kQueries) + shape.rows - 1) / shape.rows;
  product.groups = {static_cast<size_t>(tiles), of_keys ? size_t{1} : size_t{kHeads}, kBatch};
  product.local = static_cast<size_t>(warps ? shape.rows / shape.warp_rows * 32 : shape.rows / 64 * 128 + 128);
  return product;
}

}  // namespace

std::vector<UnitProduct> unit_attention_gradients(const UnitType& type) {
  std::vector<Shape> shapes = {{1, 128, 64, 1, 6, 64, true},  {1, 64, 64, 0, 6, 40, false}, {1, 128, 128, 0, 6, 128, false},
                               {1, 64, 128, 0, 6, 96, true},  {2, 128, 64, 0, 6, 64, true}, {2, 64, 64, 0, 6, 40, false},
                               {2, 64, 128, 0, 6, 128, true}, {2, 128, 64, 0, 6, 64, false}};
  if (type.storage == ir::DType::kF32) {
    const bool split = type.macro == std::string("TERMS 3");
    const int few = split ? 5 : 9, more = split ? 6 : 9, few_of_keys = split ? 4 : 9, more_of_keys = split ? 5 : 9;
    shapes = {{1, 128, 64, 0, few, 64, true},          {1, 64, 64, 0, more, 40, false},
              {1, 128, 64, 0, few, 32, false},         {2, 128, 64, 0, few_of_keys, 64, true},
              {2, 64, 64, 0, more_of_keys, 40, false}, {2, 128, 64, 0, few_of_keys, 32, false}};
  }
  if (type.kernels == UnitKernels::kWarpAttentionGradient) {
    shapes = {{1, 64, 64, 0, 2, 64, true, 16},
              {2, 64, 64, 0, 2, 64, true, 16},
              {1, 64, 64, 0, 2, 40, false, 16},
              {2, 64, 32, 0, 2, 32, false, 16}};
    if (type.storage != ir::DType::kF32)
      shapes.insert(shapes.end(), {{1, 128, 64, 0, 3, 64, true, 16},
                                   {2, 128, 64, 0, 3, 40, false, 16},
                                   {1, 64, 128, 0, 2, 128, false, 16},
                                   {2, 64, 96, 0, 2, 96, true, 16}});
  }
  std::vector<UnitProduct> products;
  for (const Shape& shape : shapes)
    for (const int offset : {0, 1}) products.push_back(gradient(type, shape, offset));
  return products;
}

}  // namespace ocl::exec
