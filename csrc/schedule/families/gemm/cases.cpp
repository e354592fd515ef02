// csrc/schedule/families/gemm/cases.cpp: check cases of matrix products on tensor cores and of pairs on CPUs.
#include <algorithm>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/case.h"

namespace ocl::schedule {
namespace {

constexpr int kBatch = 2, K = 172;

/// The strides of a batch of matrices whose rows, or columns, are padded to multiples of 8 elements.
ir::Shape strides(int rows, int columns, bool by_rows) {
  const int64_t pitch = ((by_rows ? columns : rows) + 7) / 8 * 8;
  return {pitch * (by_rows ? rows : columns), by_rows ? pitch : 1, by_rows ? 1 : pitch};
}

/// Makes a product of M x N. choice: of the kernel's parameters; a_depth, b_depth: whether the inner dimension is contiguous in
/// A, in B.
CheckCase product_case(const CheckSubject& subject, const std::string& choice, int M, int N, bool a_depth, bool b_depth,
                       int offset) {
  const ir::Shape a_strides = strides(M, K, a_depth), b_strides = strides(K, N, !b_depth);
  ir::Builder builder;
  const ir::DType type = storage_of(subject.type);
  const ir::Value a = builder.input(type, {kBatch, M, K}, a_strides, false, false),
                  b = builder.input(type, {kBatch, K, N}, b_strides, false, false);
  builder.output(builder.contract(a, b, ir::DType::kF32), ir::contiguous_strides({kBatch, M, N}));
  CheckCase check = case_of(subject.offer(builder.finish(), choice), offset);
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

/// boxes: whether tensor maps describe the operands.
CheckCase product_case(const CheckSubject& subject, const TensorCoreTile& tile, bool boxes, bool a_depth, bool b_depth,
                       int offset) {
  // With an offset, rows of the output do not begin at multiples of 16 bytes either.
  return product_case(subject, "tile=" + tile.name() + " splits=1 copies=" + (boxes ? "boxes" : "chunks"),
                      std::max(128, tile.rows) + 4, std::max(128, tile.columns) + (offset == 0 ? 16 : 10), a_depth, b_depth,
                      offset);
}

}  // namespace

std::vector<CheckCase> gemm_cases(const CheckSubject& subject) {
  if (subject.row.level == KernelLevel::k_item)
    return {product_case(subject, "tile=6x4 run=8", 53, 130, true, true, 0),
            product_case(subject, "tile=6x4 run=8", 53, 130, false, false, 1)};
  const KernelOperation form = subject.row.operation;
  const bool packed = form == KernelOperation::k_gemm_packed, boxes = form == KernelOperation::k_gemm_boxes,
             wide = form == KernelOperation::k_gemm_wide || boxes;
  std::vector<TensorCoreTile> tiles;
  for (const TensorCoreTile& tile : tensor_core_tiles(subject.math(), packed))
    if (packed || is_wide(tile) == wide || (subject.every && boxes)) tiles.push_back(tile);
  std::vector<CheckCase> cases;
  if (subject.every) {
    for (const TensorCoreTile& tile : tiles)
      for (const int offset : {0, 1})
        for (const bool a_depth : {false, true})
          for (const bool b_depth : {false, true})
            // Packs bring operands of all orders into one.
            if (!packed || (a_depth == (offset == 0) && b_depth != a_depth))
              cases.push_back(product_case(subject, tile, boxes, a_depth, b_depth, offset));
    // Several small tiles are resident at the same time, which leaves no places for tensor maps.
    if (boxes) std::erase_if(cases, [](const CheckCase& c) { return std::ranges::count(c.defines, "BOXES 1") == 0; });
    return cases;
  }
  for (size_t i = 0; i < std::max<size_t>(tiles.size(), packed ? 3 : 2); ++i) {
    const TensorCoreTile& tile = tiles[i % tiles.size()];
    const bool a_depth = i % 2 == 0, b_depth = wide ? i % 4 == 1 || i % 4 == 2 : i / 2 % 2 == 1;
    // All wide tiles copy unaligned operands by the same code.
    const bool aligned = !packed || i % 2 == 0, unaligned = wide ? i == 0 : !packed || i % 2 == 1;
    if (aligned) cases.push_back(product_case(subject, tile, boxes, a_depth, b_depth, 0));
    if (unaligned) cases.push_back(product_case(subject, tile, boxes, a_depth, b_depth, 1));
  }
  return cases;
}

}  // namespace ocl::schedule
