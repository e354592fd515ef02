// csrc/checks/product_cases.cpp: check cases for matrix products and convolutions on tensor cores.
#include <cmath>
#include <memory>

#include "csrc/checks/check_case.h"
#include "csrc/schedule/families/tensor_cores.h"
#include "csrc/support/error.h"

namespace ocl::checks {
namespace {

constexpr int kBatch = 2;

enum class Kind { kForward, kData, kWeight };

/// A kernel with one of its types.
struct Subject {
  const KernelRow& row;
  KernelType type;
  bool halves() const { return storage_of(type) != ir::DType::kF32; }
  bool is_split() const { return type == KernelType::kFp32; }
  bool warps() const { return row.level == KernelLevel::k_warp; }
  int chunk() const { return halves() ? 8 : 4; }  // Elements in 16 bytes.
  std::vector<float> values(size_t count, uint32_t seed) const { return random_values(count, !halves(), seed); }
  std::vector<unsigned char> stored(const std::vector<float>& values) const { return checks::stored(values, storage_of(type)); }
};

size_t tiles_of(int n, int size) { return static_cast<size_t>((n + size - 1) / size); }

CheckCase case_of(const Subject& subject, const schedule::TensorCoreTile& tile, int store_width) {
  CheckCase check;
  check.kernel = subject.row.id;
  check.store_width = store_width;
  check.defines = {"TILE_M " + std::to_string(tile.rows), "TILE_N " + std::to_string(tile.columns), macro_of(subject.type)};
  check.local = static_cast<size_t>(tile.rows / 64 * 128 + 128);
  if (tile.warp_rows == 0) return check;
  check.defines.push_back("WARP_M " + std::to_string(tile.warp_rows));
  check.defines.push_back("WARP_N " + std::to_string(tile.warp_columns));
  check.local = static_cast<size_t>(tile.rows / tile.warp_rows * (tile.columns / tile.warp_columns) * 32);
  return check;
}

struct Order {
  int rows, columns;      // Rows and columns of a tile.
  bool a_depth, b_depth;  // True if the inner dimension (K) is contiguous in A, in B.
  int warp_rows = 0, warp_columns = 0;
};

/// Makes a check case of a matrix product. `offset` is the number of elements in front of both operands. An offset of 1 makes
/// them unaligned, so that the kernel copies them element by element.
CheckCase matrix_product(const Subject& subject, const Order& order, int offset) {
  const int M = 132, N = order.columns == 256 ? 268 : 140, K = 172;
  const auto padded = [](int n) { return (n + 7) / 8 * 8; };
  const int64_t a_row = order.a_depth ? padded(K) : 1, a_col = order.a_depth ? 1 : padded(M);
  const int64_t b_row = order.b_depth ? 1 : padded(N), b_col = order.b_depth ? padded(K) : 1;
  const int64_t a_size = order.a_depth ? M * a_row : K * a_col, b_size = order.b_depth ? N * b_col : K * b_row;
  CheckCase check = case_of(subject, {order.rows, order.columns, 1.0, order.warp_rows, order.warp_columns},
                            offset == 0 ? subject.chunk() : 2);
  for (const auto& [name, value] : {std::pair{"A_K_MAJOR ", order.a_depth}, {"B_K_MAJOR ", order.b_depth}})
    check.defines.push_back(name + std::to_string(value));
  check.defines.insert(check.defines.end(), {"A_VEC4 1", "B_VEC4 1"});
  check.arguments = {M, N, K, 1, a_size, int64_t{0}, a_row, a_col, b_size, int64_t{0}, b_row, b_col};
  check.groups = {subject.warps() ? tiles_of(M, order.rows) * tiles_of(N, order.columns) : 3, 1, kBatch};
  check.offset = offset;
  check.fill = [=](CheckCase& c) {
    const auto a = subject.values(static_cast<size_t>(offset + kBatch * a_size), 1);
    const auto b = subject.values(static_cast<size_t>(offset + kBatch * b_size), 2);
    c.inputs = {subject.stored(a), subject.stored(b)};
    c.results = matrix_products(
        kBatch, M, N, K,
        [&](int i, int m, int k) { return a[static_cast<size_t>(offset + i * a_size + m * a_row + k * a_col)]; },
        [&](int i, int k, int n) { return b[static_cast<size_t>(offset + i * b_size + k * b_row + n * b_col)]; });
  };
  return check;
}

/// Makes the launch of pack_group that packs one operand; `first` says whether it is the product's first. The operand is a
/// batch of matrices of `size` elements: `width` (a dimension of the output) by `depth` (the inner dimension), with a stride
/// for each.
CheckCase pack(const Subject& subject, bool first, int width, int depth, int64_t size, int64_t along_width, int64_t along_depth,
               int offset) {
  const bool halves = subject.halves(), split = subject.is_split();
  const int step = halves ? 64 : 32, steps = (depth + step - 1) / step, panels = (width + 63) / 64, major = along_depth == 1;
  CheckCase launch;
  launch.kernel = KernelId::k_pack_group;
  launch.defines = {std::string("FORM ") + (split && first         ? "FRAGMENTS"
                                            : halves && major == 0 ? "COLUMNS"
                                                                   : "ROWS"),
                    "MAJOR " + std::to_string(major), "CHUNKED 1", macro_of(subject.type)};
  launch.arguments = {width, depth, 1, size, int64_t{0}, along_width, along_depth};
  const auto pairs = static_cast<size_t>((steps + 1) / 2), wide = static_cast<size_t>(panels);
  launch.groups = {major ? pairs : wide, major ? wide : pairs, kBatch};
  launch.local = 256;
  launch.offset = offset;
  launch.packed_floats = static_cast<size_t>(kBatch) * panels * steps * 2048 * (split && !first ? 2 : 1);
  return launch;
}

/// Makes a check case of a product whose operands are packed first.
CheckCase packed_product(const Subject& subject, const Order& order, int offset) {
  CheckCase check = matrix_product(subject, order, offset);
  const auto size = [&](size_t i) { return std::get<int32_t>(check.arguments[i]); };
  const auto stride = [&](size_t i) { return std::get<int64_t>(check.arguments[i]); };
  const int M = size(0), N = size(1), K = size(2);
  check.packs = {pack(subject, true, M, K, stride(4), stride(6), stride(7), offset),
                 pack(subject, false, N, K, stride(8), stride(11), stride(10), offset)};
  check.defines = {"TILE_M " + std::to_string(order.rows),
                   "TILE_N " + std::to_string(order.columns),
                   macro_of(subject.type),
                   "PACKED 1",
                   "A_ROWS " + std::to_string(!subject.halves() || order.a_depth),
                   "B_ROWS " + std::to_string(!subject.halves() || order.b_depth)};
  check.local = static_cast<size_t>(order.rows / 64 * 128 + 32);
  check.arguments = {M, N, K, static_cast<int64_t>(check.packs[0].packed_floats) / kBatch,
                     static_cast<int64_t>(check.packs[1].packed_floats) / kBatch};
  check.fill = [fill = check.fill](CheckCase& c) {
    fill(c);
    for (size_t i = 0; i < 2; ++i) c.packs[i].inputs = {std::move(c.inputs[i])};
    c.inputs.clear();
  };
  return check;
}

constexpr int kSlices = 2, kSlicePixels = 64;
/// The sizes of all cases of convolutions. The stride is 2, and there are two groups.
constexpr Convolution kConvolution{kBatch, 24, 72, 11, 12, 3, 3, 2, 1, 1, 2};

/// Makes a check case of a convolution. All tensors are channels-last. The slices of a weight gradient follow one another.
CheckCase convolution_case(const Subject& subject, Kind kind, const schedule::TensorCoreTile& tile) {
  const Convolution& c = kConvolution;
  const int P = c.P(), Q = c.Q(), GC = c.groups * c.C, GK = c.groups * c.K;
  OCL_ASSERT(kBatch * P * Q <= kSlices * kSlicePixels && kBatch * P * Q > kSlicePixels, "the pixels fill the slices");
  CheckCase check = case_of(subject, tile, subject.chunk());
  check.arguments = {kBatch};
  const auto add = [&](std::initializer_list<CheckCase::Integer> values) {
    check.arguments.insert(check.arguments.end(), values);
  };
  const auto image = [&](int height, int width, int channels) {
    add({int64_t{height} * width * channels, width * channels, channels, 1});
  };
  const std::initializer_list<CheckCase::Integer> filter = {c.R, c.S, c.stride, c.stride, c.pad, c.pad, 1, 1};
  if (kind == Kind::kWeight) {
    check.defines.emplace_back("DY_DENSE 1");
    if (const int producers = schedule::weight_producers(subject.chunk(), tile); producers != 128) {
      check.defines.push_back("PRODUCERS " + std::to_string(producers));
      check.local += static_cast<size_t>(producers - 128);
    }
    add({c.C, c.K, c.H, c.W, P, Q});
    add(filter);
    add({kSlicePixels});
    image(P, Q, GK);
    image(c.H, c.W, GC);
    check.groups = {tiles_of(c.R * c.S * c.C, tile.columns) * tiles_of(c.K, tile.rows), static_cast<size_t>(c.groups), kSlices};
  } else if (kind == Kind::kData) {
    check.defines.emplace_back("DATA_GRADIENT 1");
    add({c.K, c.C, P, Q, c.H, c.W});
    add(filter);
    image(P, Q, GK);
    const int pixels = kBatch * ((c.H + c.stride - 1) / c.stride) * ((c.W + c.stride - 1) / c.stride);
    check.groups = {subject.warps() ? tiles_of(pixels, tile.rows) * tiles_of(c.C, tile.columns) : 2,
                    static_cast<size_t>(c.groups), static_cast<size_t>(c.stride) * static_cast<size_t>(c.stride)};
  } else {
    add({c.C, c.K, c.H, c.W, P, Q});
    add(filter);
    image(c.H, c.W, GC);
    check.groups = {subject.warps() ? tiles_of(kBatch * P * Q, tile.rows) * tiles_of(c.K, tile.columns) : 2,
                    static_cast<size_t>(c.groups), 1};
  }
  check.fill = [=](CheckCase& to) {
    const auto x = subject.values(c.x_size(), 3), dy = subject.values(c.y_size(), 4), w = subject.values(c.w_size(), 5);
    if (kind == Kind::kForward) {
      to.inputs = {subject.stored(x), subject.stored(w)};
      to.results = convolution(c, x, w);
    } else if (kind == Kind::kData) {
      to.inputs = {subject.stored(dy), subject.stored(filters_channel_first(c, w))};
      to.results = convolution_data_gradient(c, w, dy);
    } else {
      to.inputs = {subject.stored(dy), subject.stored(x)};
      to.results = convolution_weight_gradient(c, x, dy, kSlices, kSlicePixels);
    }
  };
  return check;
}

/// Makes a check case of a convolution whose filters are packed first.
CheckCase packed_convolution(const Subject& subject, const schedule::TensorCoreTile& tile) {
  CheckCase check = convolution_case(subject, Kind::kForward, tile);
  const int K = kConvolution.K, depth = kConvolution.C * kConvolution.R * kConvolution.S;
  check.packs = {pack(subject, false, K, depth, int64_t{K} * depth, depth, 1, 0)};
  check.packs_at = 1;
  check.defines.emplace_back("B_PACKED 1");
  check.fill = [fill = check.fill](CheckCase& c) {
    fill(c);
    c.packs[0].inputs = {std::move(c.inputs[1])};
    c.inputs.pop_back();
  };
  return check;
}

/// Returns a result rounded to the type in which it is stored. Types of 16 bits round to nearest, ties to even.
double rounded(double x, KernelType type) {
  const ir::DType storage = storage_of(type);
  if (storage == ir::DType::kF32 || x == 0) return x;
  const int digits = storage == ir::DType::kBF16 ? 8 : 11;
  int exponent = 0;
  const double scaled = std::ldexp(std::frexp(x, &exponent), digits);
  return std::ldexp(std::nearbyint(scaled), exponent - digits);
}

/// Makes a check case of a convolution, with or without a bias, that also stores statistics of its channels in `slices` slices.
CheckCase statistics_case(const Subject& subject, const schedule::TensorCoreTile& tile, int slices, bool biased) {
  CheckCase check = convolution_case(subject, Kind::kForward, tile);
  check.defines.emplace_back("STATISTICS 1");
  if (biased) check.defines.emplace_back("BIAS 1");
  check.arguments.emplace_back(slices);
  const auto channels = static_cast<size_t>(kConvolution.groups * kConvolution.K);
  check.fill = [=, fill = check.fill](CheckCase& c) {
    fill(c);
    if (biased) {
      const std::vector<float> bias = subject.values(channels, 6);
      c.inputs.push_back(subject.stored(bias));
      for (size_t at = 0; at < c.results.exact.size(); ++at) c.results.add(at, bias[at % channels]);
    }
    Sums kept = c.results;  // The results as the kernel stores them.
    for (double& x : kept.exact) x = rounded(x, subject.type);
    c.results.append(channel_statistics(kept, channels, static_cast<size_t>(tile.rows), static_cast<size_t>(slices)));
  };
  return check;
}

/// Returns the tiles of the warp kernels.
std::vector<schedule::TensorCoreTile> warp_tiles(const Subject& subject) {
  schedule::TensorCoreMath math{};
  math.terms = subject.is_split() ? 3 : 1;
  math.level = KernelLevel::k_warp;
  return schedule::tensor_core_tiles(math, false);
}

std::vector<CheckCase> gemm_cases(const Subject& subject) {
  std::vector<Order> orders = {{128, 128, true, false}, {64, 128, false, true}, {128, 64, false, false}, {64, 64, true, true}};
  if (subject.row.operation == KernelOperation::k_gemm_wide) orders = {{128, 256, true, false}, {64, 256, false, true}};
  if (subject.warps()) {
    orders.clear();
    for (const schedule::TensorCoreTile& tile : warp_tiles(subject))
      orders.push_back(
          {tile.rows, tile.columns, orders.size() % 2 == 0, orders.size() / 2 % 2 == 1, tile.warp_rows, tile.warp_columns});
  }
  std::vector<CheckCase> cases;
  for (const Order& order : orders)
    for (const int offset : {0, 1}) cases.push_back(matrix_product(subject, order, offset));
  return cases;
}

std::vector<CheckCase> packed_gemm_cases(const Subject& subject) {
  std::vector<Order> orders = {{128, 256, true, false}, {128, 128, false, true}, {128, 256, false, false}};
  if (subject.is_split())
    orders = {{128, 128, true, false}, {128, 64, false, true}, {64, 128, true, true}, {64, 64, false, false}};
  std::vector<CheckCase> cases;
  for (const Order& order : orders) cases.push_back(packed_product(subject, order, cases.size() % 2 == 0 ? 0 : 1));
  return cases;
}

std::vector<CheckCase> conv_cases(const Subject& subject) {
  if (subject.row.operation == KernelOperation::k_conv_wide)
    return {convolution_case(subject, Kind::kForward, {128, 256, 1.0}), convolution_case(subject, Kind::kData, {64, 256, 1.0})};
  if (!subject.warps())
    return {convolution_case(subject, Kind::kForward, {128, 128, 1.0}), convolution_case(subject, Kind::kData, {64, 64, 1.0})};
  std::vector<CheckCase> cases;
  for (const schedule::TensorCoreTile& tile : warp_tiles(subject))
    cases.push_back(convolution_case(subject, cases.size() % 2 == 0 ? Kind::kForward : Kind::kData, tile));
  return cases;
}

std::vector<CheckCase> conv_weight_cases(const Subject& subject) {
  if (!subject.warps()) return {convolution_case(subject, Kind::kWeight, {64, 128, 1.0})};
  std::vector<CheckCase> cases;
  const std::vector<schedule::TensorCoreTile> tiles = warp_tiles(subject);
  for (size_t i = 0; i < tiles.size(); i += 2) cases.push_back(convolution_case(subject, Kind::kWeight, tiles[i]));
  return cases;
}

std::vector<CheckCase> statistics_cases(const Subject& subject) {
  if (!subject.warps())
    return {statistics_case(subject, {64, 64, 1.0}, 2, false), statistics_case(subject, {64, 64, 1.0}, 1, true),
            statistics_case(subject, {64, 128, 1.0}, 2, true),
            statistics_case(subject, {128, subject.halves() ? 256 : 128, 1.0}, 1, false)};
  std::vector<CheckCase> cases;
  for (const schedule::TensorCoreTile& tile : warp_tiles(subject)) {
    const bool biased = cases.size() % 2 == 1;
    cases.push_back(statistics_case(subject, tile, tile.rows == 64 && biased ? 2 : 1, biased));
    cases.back().groups[0] = 1;  // One work-group computes all slices.
  }
  return cases;
}

}  // namespace

std::vector<CheckCase> product_cases(const KernelRow& row, KernelType type) {
  const Subject subject{row, type};
  switch (row.operation) {
    case KernelOperation::k_gemm:
    case KernelOperation::k_gemm_wide:
      return gemm_cases(subject);
    case KernelOperation::k_gemm_packed:
      return packed_gemm_cases(subject);
    case KernelOperation::k_conv:
    case KernelOperation::k_conv_wide:
      return conv_cases(subject);
    case KernelOperation::k_conv_packed:
      // Image operands are not packed, so a packed convolution has the tiles of an unpacked one.
      return {packed_convolution(subject, {128, subject.halves() ? 256 : 64, 1.0}),
              packed_convolution(subject, {128, 128, 1.0})};
    case KernelOperation::k_conv_statistics:
      return statistics_cases(subject);
    case KernelOperation::k_conv_weight:
      return conv_weight_cases(subject);
    default:
      fail(ErrorKind::kInternal, std::string(row.name) + " is no product");
  }
}

}  // namespace ocl::checks
