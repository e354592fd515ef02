// csrc/schedule/families/gemm/cases.cpp: check cases of matrix products on tensor cores and of words on CPUs.
#include <algorithm>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/case.h"

namespace ocl::schedule {
namespace {

constexpr int kBatch = 2;

/// How an operand lies in memory: its inner dimension is contiguous, the other one is, or neither.
enum class Along : uint8_t { kDepth, kOther, kNeither };
/// The sizes and operands of a batch of products.
struct ProductForm {
  int M, N, K;
  Along a, b;
  int pad = 8;                           // Rows, or columns, begin at multiples of so many elements.
  int offset = 0;                        // See CheckCase.
  bool shared = false;                   // All products have the same B.
  std::vector<std::string> stores = {};  // Macros of the stores, as those of plans whose epilogue is long or not aligned.
};

/// The strides of a batch of matrices.
ir::Shape strides(int rows, int columns, bool by_rows, const ProductForm& p, Along along) {
  const int64_t step = along == Along::kNeither ? 2 : 1,
                pitch = step * ((by_rows ? columns : rows) + p.pad - 1) / p.pad * p.pad;
  return {pitch * (by_rows ? rows : columns), by_rows ? pitch : step, by_rows ? step : pitch};
}

CheckCase product_case(const CheckSubject& subject, const std::string& choice, const ProductForm& p) {
  const ir::Shape a_strides = strides(p.M, p.K, p.a != Along::kOther, p, p.a);
  ir::Shape b_strides = strides(p.K, p.N, p.b == Along::kOther, p, p.b);
  const auto a_size = static_cast<size_t>(kBatch * a_strides[0].constant()),
             b_size = static_cast<size_t>((p.shared ? 1 : kBatch) * b_strides[0].constant());
  if (p.shared) b_strides[0] = 0;
  ir::Builder builder;
  const ir::DType type = storage_of(subject.type);
  const ir::Value a = builder.input(type, {kBatch, p.M, p.K}, a_strides, false, false),
                  b = builder.input(type, {kBatch, p.K, p.N}, b_strides, false, false);
  builder.output(builder.contract(a, b, type == ir::DType::kI8 ? ir::DType::kI32 : ir::DType::kF32),
                 ir::contiguous_strides({kBatch, p.M, p.N}));
  const ir::Graph graph = builder.finish();
  CheckCase check = case_of(subject.offer(graph, choice), graph, p.offset, [=] {
    const std::vector<float> x = subject.values(a_size, 1), y = subject.values(b_size, 2);
    const auto element = [](const std::vector<float>& of, const ir::Shape& steps, int i, int row, int column) {
      return of[static_cast<size_t>(i * steps[0].constant() + row * steps[1].constant() + column * steps[2].constant())];
    };
    CaseData data{{subject.stored(x), subject.stored(y)},
                  matrix_products(
                      kBatch, p.M, p.N, p.K, [&](int i, int m, int k) { return element(x, a_strides, i, m, k); },
                      [&](int i, int k, int n) { return element(y, b_strides, i, k, n); })};
    if (subject.edges()) std::ranges::fill(data.results.sizes, 0.0);
    return data;
  });
  check.strides = dense({kBatch, p.M, p.N});
  return check;
}

/// boxes: whether tensor maps describe the operands.
std::string choice_of(const TensorCoreTile& tile, bool boxes) {
  return "tile=" + tile.name() + " splits=1" + (tile.in_boxes() ? "" : boxes ? " copies=boxes" : " copies=chunks");
}

CheckCase product_case(const CheckSubject& subject, const TensorCoreTile& tile, bool boxes, bool a_depth, bool b_depth,
                       int offset) {
  // With an offset, rows of the output do not begin at multiples of 16 bytes either.
  const auto along = [](bool depth) { return depth ? Along::kDepth : Along::kOther; };
  return product_case(subject, choice_of(tile, boxes),
                      {std::max(128, tile.rows) + 4, std::max(128, tile.columns) + (offset == 0 ? 16 : 10), 172, along(a_depth),
                       along(b_depth), 8, offset});
}

/// Products whose sizes lie around those of a tile.
std::vector<ProductForm> edges_of(int rows, int columns) {
  const std::vector<std::string> longer = {"LONG_STORES 1"}, unaligned = {"STORES_ALIGNED 0"};
  return {{rows + 2, columns + 1, 200, Along::kDepth, Along::kDepth},
          {rows + 9, columns + 8, 65, Along::kOther, Along::kOther, 8, 8, false, unaligned},
          {rows - 1, columns - 8, 500, Along::kDepth, Along::kOther, 8, 0, false, longer},
          {rows, columns, 64, Along::kOther, Along::kDepth},
          {24, 36, 9, Along::kOther, Along::kDepth, 8, 0, true},
          {rows + 1, columns + 1, 77, Along::kDepth, Along::kDepth, 1, 3, false, unaligned},
          {rows - 2, 65, 33, Along::kOther, Along::kOther, 1, 1, false, longer},
          {rows + 2, columns + 2, 36, Along::kNeither, Along::kNeither, 1, 1, true}};
}

std::vector<CheckCase> edge_cases(const CheckSubject& subject, const std::vector<TensorCoreTile>& tiles, bool boxes) {
  std::vector<CheckCase> cases;
  for (const TensorCoreTile& tile : tiles)
    for (const ProductForm& product : edges_of(tile.rows, tile.columns)) {
      cases.push_back(product_case(subject, choice_of(tile, boxes), product));
      for (const std::string& macro : product.stores) cases.back().defines.push_back(macro);
    }
  return cases;
}

/// Products on CPUs around a tile of a work-item. With few rows, a row of A and several of B are multiplied; with many, B is
/// packed first.
std::vector<ProductForm> item_edges_of(int rows, int columns) {
  const std::vector<std::string> plain = {"PLAIN_STORES 1"};
  std::vector<ProductForm> edges = {{1, 1, 1, Along::kDepth, Along::kOther, 1},
                                    {rows - 1, columns - 1, 3, Along::kDepth, Along::kOther, 1},
                                    {rows, columns, 64, Along::kDepth, Along::kOther},
                                    {4 * rows + 1, columns + 1, 64, Along::kOther, Along::kOther, 1, 1},
                                    {30, 70, 513, Along::kDepth, Along::kOther, 1, 3, true},
                                    {30, 130, 1030, Along::kDepth, Along::kDepth, 1, 0, false, plain},
                                    {rows + 1, 2 * columns, 600, Along::kOther, Along::kDepth},
                                    {64 * rows, 70, 33, Along::kDepth, Along::kOther, 1, 1},
                                    {50 * rows, columns, 5, Along::kNeither, Along::kOther, 1, 1, true},
                                    {1, 75, 530, Along::kDepth, Along::kDepth, 1, 1},
                                    {3, 6, 16, Along::kDepth, Along::kDepth, 8},
                                    {9, 5, 15, Along::kDepth, Along::kDepth, 1},
                                    {2, 100, 700, Along::kDepth, Along::kOther, 1},
                                    {4, 2 * columns, 8, Along::kDepth, Along::kOther, 8, 0, true},
                                    {8, columns, 7, Along::kOther, Along::kOther, 1}};
  for (const Along a : {Along::kDepth, Along::kOther, Along::kNeither})
    for (const Along b : {Along::kDepth, Along::kOther, Along::kNeither}) edges.push_back({31, 75, 300, a, b, 1});
  return edges;
}

/// Each tile of a portable kernel; on CPUs with a half of the products.
std::vector<CheckCase> portable_cases(const CheckSubject& subject) {
  const bool item = subject.row.level == KernelLevel::k_item;
  std::vector<CheckCase> cases;
  for (const CheckSubject& on : on_devices(subject)) {
    ir::Builder builder;
    const ir::Shape sizes = {2, 64, 64};
    const auto input = [&] { return builder.input(storage_of(on.type), sizes, ir::contiguous_strides(sizes), false, false); };
    builder.output(builder.contract(input(), input(), ir::DType::kF32), ir::contiguous_strides(sizes));
    const std::vector<std::string> tiles = tiles_of(on.offer(builder.finish(), ""));
    for (size_t i = 0; i < tiles.size(); ++i) {
      const int rows = std::stoi(tiles[i]), second = std::stoi(tiles[i].substr(tiles[i].find('x') + 1));
      std::vector<ProductForm> edges = item ? item_edges_of(rows, second * on.caps.vector_floats) : edges_of(rows, second);
      if (!item)
        for (const Along a : {Along::kDepth, Along::kOther})
          edges.insert(edges.end(), {{1, 1, 1, a, Along::kOther, 1},
                                     {rows + 3, second - 1, 35, a, Along::kDepth, 1},
                                     {rows + 3, second + 5, 35, a, Along::kOther, 1}});
      for (size_t j = item ? i % 2 : 0; j < edges.size(); j += item ? 2 : 1) {
        CheckSubject device = on;
        device.caps.prefetch = j % 3 > 0;
        CheckCase check = product_case(device, "tile=" + tiles[i] + " splits=1", edges[j]);
        for (const std::string& macro : edges[j].stores)
          if (item) check.defines.push_back(macro);
        if (check.kernel == subject.row.id) cases.push_back(std::move(check));
      }
    }
  }
  return cases;
}

}  // namespace

std::vector<CheckCase> gemm_cases(const CheckSubject& subject) {
  if (subject.portable() && (subject.edges() || !subject.row.is_checked())) return portable_cases(subject);
  if (subject.row.level == KernelLevel::k_item)
    return subject.row.form == KernelForm::k_dot
               ? std::vector{product_case(subject, "run=2", {13, 130, 172, Along::kDepth, Along::kDepth})}
               : std::vector{product_case(subject, "tile=6x4 run=8", {53, 130, 172, Along::kDepth, Along::kDepth}),
                             product_case(subject, "tile=6x4 run=8", {53, 130, 172, Along::kOther, Along::kOther, 8, 1})};
  const KernelForm form = subject.row.form;
  const bool packed = form == KernelForm::k_packed, boxes = form == KernelForm::k_boxes, turns = form == KernelForm::k_turns,
             wide = form == KernelForm::k_wide || boxes || turns;
  std::vector<TensorCoreTile> tiles;
  for (const TensorCoreTile& tile : tensor_core_tiles(subject.math(), packed))
    if (packed || turns || is_wide(tile) == wide || tile.shares_unit() || (subject.set != CaseSet::kSample && boxes))
      tiles.push_back(tile);
  std::vector<CheckCase> cases;
  if (subject.edges()) return edge_cases(subject, tiles, boxes);
  if (subject.set == CaseSet::kTiles) {
    for (const TensorCoreTile& tile : tiles)
      for (const int offset : {0, 1})
        for (const bool a_depth : {false, true})
          for (const bool b_depth : {false, true})
            // Packs bring operands of all orders into one.
            if (!packed || (a_depth == (offset == 0) && b_depth != a_depth))
              cases.push_back(product_case(subject, tile, boxes, a_depth, b_depth, offset));
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
