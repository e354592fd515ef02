// csrc/schedule/families/gemm/cases.cpp: check cases of matrix products on tensor cores.
#include <algorithm>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/case.h"

namespace ocl::schedule {
namespace {

constexpr int kBatch = 2, M = 132, K = 172;

/// The strides of a batch of matrices whose rows, or columns, are padded to multiples of 8 elements.
ir::Shape strides(int rows, int columns, bool by_rows) {
  const int64_t pitch = ((by_rows ? columns : rows) + 7) / 8 * 8;
  return {pitch * (by_rows ? rows : columns), by_rows ? pitch : 1, by_rows ? 1 : pitch};
}

/// Makes a product. a_depth, b_depth: whether the inner dimension is contiguous in A, in B.
CheckCase product_case(const CheckSubject& subject, const TensorCoreTile& tile, bool a_depth, bool b_depth, int offset) {
  // With an offset, rows of the output do not begin at multiples of 16 bytes either.
  const int N = (tile.columns == 256 ? 128 : 0) + (offset == 0 ? 144 : 138);
  const ir::Shape a_strides = strides(M, K, a_depth), b_strides = strides(K, N, !b_depth);
  ir::Builder builder;
  const ir::DType type = storage_of(subject.type);
  const ir::Value a = builder.input(type, {kBatch, M, K}, a_strides, false, false),
                  b = builder.input(type, {kBatch, K, N}, b_strides, false, false);
  builder.output(builder.contract(a, b, ir::DType::kF32), ir::contiguous_strides({kBatch, M, N}));
  CheckCase check = case_of(subject.offer(builder.finish(), "tile=" + tile.name() + " splits=1"), offset);
  check.fill = [=](CheckCase& c) {
    const auto at = [offset](const ir::Shape& steps, int i, int row, int column) {
      return static_cast<size_t>(offset + i * steps[0].constant() + row * steps[1].constant() + column * steps[2].constant());
    };
    const std::vector<float> x = subject.values(at(a_strides, kBatch, 0, 0), 1),
                             y = subject.values(at(b_strides, kBatch, 0, 0), 2);
    const bool packed = !c.packs.empty();
    for (const auto* operand : {&x, &y})
      (packed ? c.packs[operand == &y].inputs : c.inputs).push_back(subject.stored(*operand));
    c.results = matrix_products(
        kBatch, M, N, K, [&](int i, int m, int k) { return x[at(a_strides, i, m, k)]; },
        [&](int i, int k, int n) { return y[at(b_strides, i, k, n)]; });
  };
  return check;
}

}  // namespace

std::vector<CheckCase> gemm_cases(const CheckSubject& subject) {
  const bool packed = subject.row.operation == KernelOperation::k_gemm_packed,
             wide = subject.row.operation == KernelOperation::k_gemm_wide;
  std::vector<TensorCoreTile> tiles;
  for (const TensorCoreTile& tile : tensor_core_tiles(subject.math(), packed))
    if (packed || (tile.columns == 256) == wide) tiles.push_back(tile);
  std::vector<CheckCase> cases;
  for (size_t i = 0; i < std::max<size_t>(tiles.size(), packed ? 3 : 2); ++i) {
    const TensorCoreTile& tile = tiles[i % tiles.size()];
    const bool a_depth = i % 2 == 0, b_depth = wide ? i == 1 : i / 2 % 2 == 1;
    if (!packed || i % 2 == 0) cases.push_back(product_case(subject, tile, a_depth, b_depth, 0));
    if (!packed || i % 2 == 1) cases.push_back(product_case(subject, tile, a_depth, b_depth, 1));
  }
  return cases;
}

}  // namespace ocl::schedule
