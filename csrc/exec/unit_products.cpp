// csrc/exec/unit_products.cpp: matrix products and convolutions for the check of matrix units, with their results in double.
#include <cmath>
#include <cstring>

#include "csrc/codegen/kernel_files.h"
#include "csrc/exec/unit_check.h"
#include "csrc/schedule/templates/wgmma_tiles.h"

namespace ocl::exec {
namespace {

constexpr int kBatch = 2;

enum class Kind { kForward, kData, kWeight };

}  // namespace

/// Multiples of 1/256 in [-1, 1) for 16 bits, which both types hold exactly; more digits for floats.
std::vector<float> random_values(size_t count, bool digits, uint32_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = digits ? static_cast<float>(seed >> 8) / 8388608.0f - 1.0f : static_cast<float>(seed >> 23) / 256.0f - 1.0f;
  }
  return values;
}

std::vector<unsigned char> stored(const std::vector<float>& values, ir::DType type) {
  const size_t element = static_cast<size_t>(ir::size_bytes(type));
  std::vector<unsigned char> bytes(values.size() * element);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], 4);
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    if (type == ir::DType::kF16)  // no value is too small for a normal number
      half = values[i] == 0
                 ? 0
                 : static_cast<uint16_t>((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
    if (element == 4)
      std::memcpy(&bytes[i * 4], &bits, 4);
    else
      std::memcpy(&bytes[i * 2], &half, 2);
  }
  return bytes;
}

namespace {

size_t tiles_of(int n, int size) { return static_cast<size_t>((n + size - 1) / size); }

void use_tile(UnitProduct& product, const UnitType& type, const schedule::UnitTile& tile, int store_width) {
  product.libraries = {"unit", "wgmma", "wgmma_store"};
  product.store_width = store_width;
  product.defines = {"TILE_M " + std::to_string(tile.rows), "TILE_N " + std::to_string(tile.columns), type.macro};
  product.local = static_cast<size_t>(tile.rows / 64 * 128 + 128);
  if (tile.warp_rows == 0) return;
  product.libraries = {"unit", "mma", "wgmma_store", "mma_store"};
  product.defines.push_back("WARP_M " + std::to_string(tile.warp_rows));
  product.defines.push_back("WARP_N " + std::to_string(tile.warp_columns));
  product.local = static_cast<size_t>(tile.rows / tile.warp_rows * (tile.columns / tile.warp_columns) * 32);
}

/// Elements of 16 bytes.
int widest(const UnitType& type) { return type.storage == ir::DType::kF32 ? 4 : 8; }

struct Order {
  int rows, columns;      // of a tile
  bool a_depth, b_depth;  // whether the depth is contiguous in A, in B
  int warp_rows = 0, warp_columns = 0;
};

bool is_split(const UnitType& type) { return std::string(type.macro) == "TERMS 3"; }

/// offset: elements in front of both operands; from one element on they are not aligned, and are copied element by element.
UnitProduct matrix_product(const UnitType& type, const Order& order, int offset) {
  const int M = 132, N = order.columns == 256 ? 268 : 140, K = 172;
  const auto padded = [](int n) { return (n + 7) / 8 * 8; };
  const int64_t a_row = order.a_depth ? padded(K) : 1, a_col = order.a_depth ? 1 : padded(M);
  const int64_t b_row = order.b_depth ? 1 : padded(N), b_col = order.b_depth ? padded(K) : 1;
  const int64_t a_size = order.a_depth ? M * a_row : K * a_col, b_size = order.b_depth ? N * b_col : K * b_row;
  const bool digits = type.storage == ir::DType::kF32;
  const auto a = random_values(static_cast<size_t>(offset + kBatch * a_size), digits, 1);
  const auto b = random_values(static_cast<size_t>(offset + kBatch * b_size), digits, 2);
  UnitProduct product;
  product.file = "gemm_wgmma";
  use_tile(product, type, {order.rows, order.columns, 1.0, order.warp_rows, order.warp_columns},
           offset == 0 ? widest(type) : 2);
  for (const auto& [name, value] : {std::pair{"A_K_MAJOR ", order.a_depth}, {"B_K_MAJOR ", order.b_depth}})
    product.defines.push_back(name + std::to_string(value));
  product.defines.insert(product.defines.end(), {"A_VEC4 1", "B_VEC4 1"});
  product.inputs = {stored(a, type.storage), stored(b, type.storage)};
  product.arguments = {M, N, K, 1, a_size, int64_t{0}, a_row, a_col, b_size, int64_t{0}, b_row, b_col};
  product.groups = {3, 1, kBatch};
  if (order.warp_rows != 0) {
    product.file = "gemm_mma";
    product.groups[0] = tiles_of(M, order.rows) * tiles_of(N, order.columns);
  }
  product.offset = offset;
  for (int i = 0; i < kBatch; ++i)
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n) {
        double sum = 0, size = 0;
        for (int k = 0; k < K; ++k) {
          const double term = static_cast<double>(a[static_cast<size_t>(offset + i * a_size + m * a_row + k * a_col)]) *
                              b[static_cast<size_t>(offset + i * b_size + k * b_row + n * b_col)];
          sum += term;
          size += std::fabs(term);
        }
        product.exact.push_back(sum);
        product.sizes.push_back(size);
      }
  return product;
}

/// One operand's launch of pack_wgmma: `width` of the output by `depth` at two strides of a batch of `size` elements each.
UnitProduct pack(const UnitType& type, bool first, int width, int depth, int64_t size, int64_t along_width, int64_t along_depth,
                 std::vector<unsigned char> elements, int offset) {
  const bool halves = type.storage != ir::DType::kF32, split = is_split(type);
  const int step = halves ? 64 : 32, steps = (depth + step - 1) / step, panels = (width + 63) / 64, major = along_depth == 1;
  UnitProduct launch;
  launch.file = "pack_wgmma";
  launch.libraries = {};
  launch.defines = {std::string("FORM ") + (split && first         ? "FRAGMENTS"
                                            : halves && major == 0 ? "COLUMNS"
                                                                   : "ROWS"),
                    "MAJOR " + std::to_string(major), "CHUNKED 1", type.macro};
  launch.inputs = {std::move(elements)};
  launch.arguments = {width, depth, 1, size, int64_t{0}, along_width, along_depth};
  const auto pairs = static_cast<size_t>((steps + 1) / 2), wide = static_cast<size_t>(panels);
  launch.groups = {major ? pairs : wide, major ? wide : pairs, kBatch};
  launch.local = 256;
  launch.offset = offset;
  launch.packed_floats = static_cast<size_t>(kBatch) * panels * steps * 2048 * (split && !first ? 2 : 1);
  return launch;
}

/// A product of operands that are packed first.
UnitProduct packed_product(const UnitType& type, const Order& order, int offset) {
  UnitProduct product = matrix_product(type, order, offset);
  const auto size = [&](size_t i) { return std::get<int32_t>(product.arguments[i]); };
  const auto stride = [&](size_t i) { return std::get<int64_t>(product.arguments[i]); };
  const int M = size(0), N = size(1), K = size(2);
  product.packs = {pack(type, true, M, K, stride(4), stride(6), stride(7), std::move(product.inputs[0]), offset),
                   pack(type, false, N, K, stride(8), stride(11), stride(10), std::move(product.inputs[1]), offset)};
  const bool halves = type.storage != ir::DType::kF32;
  product.file = "gemm_packed_wgmma";
  product.defines = {"TILE_M " + std::to_string(order.rows),
                     "TILE_N " + std::to_string(order.columns),
                     type.macro,
                     "PACKED 1",
                     "A_ROWS " + std::to_string(!halves || order.a_depth),
                     "B_ROWS " + std::to_string(!halves || order.b_depth)};
  product.local = static_cast<size_t>(order.rows / 64 * 128 + 32);
  product.inputs.clear();
  product.arguments = {M, N, K, static_cast<int64_t>(product.packs[0].packed_floats) / kBatch,
                       static_cast<int64_t>(product.packs[1].packed_floats) / kBatch};
  return product;
}

/// A strided convolution in two groups, all tensors channels-last; splits of the weight gradient follow one another.
UnitProduct convolution(const UnitType& type, Kind kind, const schedule::UnitTile& tile) {
  constexpr int C = 24, K = 72, H = 11, W = 12, R = 3, S = 3, kStride = 2, kPad = 1, kGroups = 2, kSplits = 2;
  constexpr int P = (H + 2 * kPad - R) / kStride + 1, Q = (W + 2 * kPad - S) / kStride + 1, GC = kGroups * C, GK = kGroups * K;
  constexpr int kSplitPixels = 64;
  static_assert(kBatch * P * Q <= kSplits * kSplitPixels && kBatch * P * Q > kSplitPixels);
  const bool digits = type.storage == ir::DType::kF32;
  const auto x = random_values(static_cast<size_t>(kBatch) * H * W * GC, digits, 3);
  const auto dy = random_values(static_cast<size_t>(kBatch) * P * Q * GK, digits, 4);
  const auto w = random_values(static_cast<size_t>(GK) * R * S * C, digits, 5);  // [GK][R][S][C]
  const bool warps = tile.warp_rows != 0;
  UnitProduct product;
  product.file = kind == Kind::kWeight ? warps ? "conv_weight_mma" : "conv_weight_wgmma" : warps ? "conv_mma" : "conv_wgmma";
  use_tile(product, type, tile, widest(type));
  if (kind != Kind::kWeight) product.libraries.push_back("conv_taps");
  const size_t results = kind == Kind::kForward ? dy.size() : kind == Kind::kData ? x.size() : w.size() * kSplits;
  product.exact.assign(results, 0.0);
  product.sizes.assign(results, 0.0);
  std::vector<float> turned(w.size());  // [GC][R][S][K]
  for (int n = 0; n < kBatch; ++n)
    for (int p = 0; p < P; ++p)
      for (int q = 0; q < Q; ++q)
        for (int tap = 0; tap < R * S; ++tap) {
          const int h = p * kStride - kPad + tap / S, v = q * kStride - kPad + tap % S, pixel = (n * P + p) * Q + q;
          if (h < 0 || h >= H || v < 0 || v >= W) continue;
          for (int k = 0; k < GK; ++k)
            for (int c = 0; c < C; ++c) {
              const size_t in_x = static_cast<size_t>(((n * H + h) * W + v) * GC + k / K * C + c);
              const size_t in_w = static_cast<size_t>((k * R * S + tap) * C + c), in_dy = static_cast<size_t>(pixel * GK + k);
              turned[static_cast<size_t>(((k / K * C + c) * R * S + tap) * K + k % K)] = w[in_w];
              const float left = kind == Kind::kData ? w[in_w] : x[in_x], right = kind == Kind::kForward ? w[in_w] : dy[in_dy];
              const size_t at = kind == Kind::kForward ? in_dy
                                : kind == Kind::kData  ? in_x
                                                       : static_cast<size_t>(pixel / kSplitPixels) * w.size() + in_w;
              product.exact[at] += static_cast<double>(left) * right;
              product.sizes[at] += std::fabs(static_cast<double>(left) * right);
            }
        }
  const auto image = [&](int height, int width, int channels) {
    for (const std::variant<int32_t, int64_t>& stride : std::initializer_list<std::variant<int32_t, int64_t>>{
             int64_t{height} * width * channels, width * channels, channels, 1})
      product.arguments.push_back(stride);
  };
  if (kind == Kind::kWeight) {
    product.defines.emplace_back("DY_DENSE 1");
    if (const int producers = schedule::weight_producers(widest(type), tile); producers != 128) {
      product.defines.push_back("PRODUCERS " + std::to_string(producers));
      product.local += static_cast<size_t>(producers - 128);
    }
    product.inputs = {stored(dy, type.storage), stored(x, type.storage)};
    product.arguments = {kBatch, C, K, H, W, P, Q, R, S, kStride, kStride, kPad, kPad, 1, 1, kSplitPixels};
    image(P, Q, GK);
    image(H, W, GC);
    product.groups = {tiles_of(R * S * C, tile.columns) * tiles_of(K, tile.rows), kGroups, kSplits};
  } else if (kind == Kind::kData) {
    product.defines.emplace_back("DATA_GRADIENT 1");
    product.inputs = {stored(dy, type.storage), stored(turned, type.storage)};
    product.arguments = {kBatch, K, C, P, Q, H, W, R, S, kStride, kStride, kPad, kPad, 1, 1};
    image(P, Q, GK);
    constexpr int kPixels = kBatch * ((H + kStride - 1) / kStride) * ((W + kStride - 1) / kStride);
    product.groups = {warps ? tiles_of(kPixels, tile.rows) * tiles_of(C, tile.columns) : 2, kGroups, kStride * kStride};
  } else {
    product.inputs = {stored(x, type.storage), stored(w, type.storage)};
    product.arguments = {kBatch, C, K, H, W, P, Q, R, S, kStride, kStride, kPad, kPad, 1, 1};
    image(H, W, GC);
    product.groups = {warps ? tiles_of(kBatch * P * Q, tile.rows) * tiles_of(K, tile.columns) : 2, kGroups, 1};
  }
  return product;
}

/// A convolution whose filters are packed first.
UnitProduct packed_convolution(const UnitType& type, const schedule::UnitTile& tile) {
  UnitProduct product = convolution(type, Kind::kForward, tile);
  const auto size = [&](size_t i) { return std::get<int32_t>(product.arguments[i]); };
  const int K = size(2), depth = size(1) * size(7) * size(8);
  product.packs = {pack(type, false, K, depth, int64_t{K} * depth, depth, 1, std::move(product.inputs[1]), 0)};
  product.packs_at = 1;
  product.inputs.pop_back();
  product.defines.emplace_back("B_PACKED 1");
  return product;
}

std::vector<UnitProduct> packed_products(const UnitType& type) {
  std::vector<Order> orders = {{128, 256, true, false}, {128, 128, false, true}, {128, 256, false, false}};
  if (is_split(type)) orders = {{128, 128, true, false}, {128, 64, false, true}, {64, 128, true, true}, {64, 64, false, false}};
  std::vector<UnitProduct> products;
  for (const Order& order : orders) products.push_back(packed_product(type, order, products.size() % 2 == 0 ? 0 : 1));
  // Tiles of operands in place, which images are.
  for (const int columns : {widest(type) == 8 ? 256 : 64, 128})
    products.push_back(packed_convolution(type, {128, columns, 1.0}));
  return products;
}

/// As results are stored: the types of 16 bits round, to even.
double rounded(double x, ir::DType type) {
  if (type == ir::DType::kF32 || x == 0) return x;
  const int digits = type == ir::DType::kBF16 ? 8 : 11;
  int exponent = 0;
  const double scaled = std::ldexp(std::frexp(x, &exponent), digits);
  return std::ldexp(std::nearbyint(scaled), exponent - digits);
}

/// A convolution, with a bias or without, that leaves the statistics of its channels behind its results, in `parts` of tiles.
UnitProduct statistics(const UnitType& type, const schedule::UnitTile& tile, int parts, bool biased) {
  UnitProduct product = convolution(type, Kind::kForward, tile);
  product.libraries.push_back("conv_statistics");
  product.defines.emplace_back("STATISTICS 1");
  product.arguments.emplace_back(parts);
  const auto channels = static_cast<size_t>(2 * std::get<int32_t>(product.arguments[2]));  // of both groups
  const size_t pixels = product.exact.size() / channels, count = static_cast<size_t>(parts) * channels;
  if (biased) {
    const std::vector<float> bias = random_values(channels, type.storage == ir::DType::kF32, 6);
    product.defines.emplace_back("BIAS 1");
    product.inputs.push_back(stored(bias, type.storage));
    for (size_t at = 0; at < product.exact.size(); ++at) {
      product.exact[at] += bias[at % channels];
      product.sizes[at] += std::fabs(bias[at % channels]);
    }
  }
  std::vector<double> exact(3 * count, 0.0), sizes(3 * count, 0.0);
  const auto each = [&](auto visit) {
    for (size_t pixel = 0; pixel < pixels; ++pixel)
      for (size_t k = 0; k < channels; ++k) {
        const size_t at = pixel * channels + k;
        visit(pixel / static_cast<size_t>(tile.rows) % static_cast<size_t>(parts) * channels + k,
              rounded(product.exact[at], type.storage), product.sizes[at]);
      }
  };
  each([&](size_t at, double, double) { sizes[2 * count + at] = exact[2 * count + at] += 1; });
  each([&](size_t at, double x, double size) {
    exact[at] += x / exact[2 * count + at];
    sizes[at] += size / exact[2 * count + at];
  });
  each([&](size_t at, double x, double size) {
    const double d = x - exact[at];
    exact[count + at] += d * d;
    sizes[count + at] += d * d + 2 * std::fabs(d) * size;  // what an error of x moves
  });
  product.exact.insert(product.exact.end(), exact.begin(), exact.end());
  product.sizes.insert(product.sizes.end(), sizes.begin(), sizes.end());
  return product;
}

std::vector<schedule::UnitTile> warp_tiles(const UnitType& type) {
  schedule::UnitMath math{};
  math.terms = is_split(type) ? 3 : 1;
  math.units = schedule::Units::kWarp;
  return schedule::unit_tiles(math, false);
}

/// Products and convolutions by single warps: every tile, in every order of the operands.
std::vector<UnitProduct> warp_products(const UnitType& type) {
  std::vector<UnitProduct> products;
  int number = 0;
  for (const schedule::UnitTile& tile : warp_tiles(type)) {
    const Order order = {tile.rows, tile.columns, number % 2 == 0, number / 2 % 2 == 1, tile.warp_rows, tile.warp_columns};
    for (const int offset : {0, 1}) products.push_back(matrix_product(type, order, offset));
    for (const Kind kind : number++ % 2 == 0 ? std::vector{Kind::kForward, Kind::kWeight} : std::vector{Kind::kData})
      products.push_back(convolution(type, kind, tile));
  }
  return products;
}

}  // namespace

const std::vector<UnitType>& unit_types() {
  using ir::DType;
  static const std::vector<UnitType> types = {
      {"TF32", &Caps::wgmma_tf32, "TERMS 1", DType::kF32, 1.5e-3, UnitKernels::kTiles},
      {"fp32", &Caps::wgmma, "TERMS 3", DType::kF32, 4e-6, UnitKernels::kTiles},
      {"bf16", &Caps::wgmma_bf16, "IN_BF16 1", DType::kBF16, 2e-5, UnitKernels::kTiles},
      {"fp16", &Caps::wgmma_f16, "IN_HALF 1", DType::kF16, 2e-5, UnitKernels::kTiles},
      {"bf16, 256 columns", &Caps::wgmma_wide_bf16, "IN_BF16 1", DType::kBF16, 2e-5, UnitKernels::kWide, &Caps::wgmma_bf16},
      {"fp16, 256 columns", &Caps::wgmma_wide_f16, "IN_HALF 1", DType::kF16, 2e-5, UnitKernels::kWide, &Caps::wgmma_f16},
      {"TF32, packed", &Caps::wgmma_packed_tf32, "TERMS 1", DType::kF32, 1.5e-3, UnitKernels::kPacked, &Caps::wgmma_tf32},
      {"fp32, packed", &Caps::wgmma_packed, "TERMS 3", DType::kF32, 4e-6, UnitKernels::kPacked, &Caps::wgmma},
      {"bf16, packed", &Caps::wgmma_packed_bf16, "IN_BF16 1", DType::kBF16, 2e-5, UnitKernels::kPacked, &Caps::wgmma_bf16},
      {"fp16, packed", &Caps::wgmma_packed_f16, "IN_HALF 1", DType::kF16, 2e-5, UnitKernels::kPacked, &Caps::wgmma_f16},
      {"TF32, units of a warp", &Caps::mma_tf32, "TERMS 1", DType::kF32, 1.5e-3, UnitKernels::kWarps, nullptr,
       &Caps::wgmma_tf32},
      {"fp32, units of a warp", &Caps::mma, "TERMS 3", DType::kF32, 4e-6, UnitKernels::kWarps, nullptr, &Caps::wgmma},
      {"bf16, units of a warp", &Caps::mma_bf16, "IN_BF16 1", DType::kBF16, 2e-5, UnitKernels::kWarps, nullptr,
       &Caps::wgmma_bf16},
      {"fp16, units of a warp", &Caps::mma_f16, "IN_HALF 1", DType::kF16, 2e-5, UnitKernels::kWarps, nullptr, &Caps::wgmma_f16},
      // The weights are rounded to the operands' type.
      {"attention in TF32", &Caps::wgmma_attention_tf32, "TERMS 1", DType::kF32, 3e-3, UnitKernels::kAttention},
      {"attention in fp32", &Caps::wgmma_attention, "TERMS 3", DType::kF32, 4e-6, UnitKernels::kAttention},
      {"attention in bf16", &Caps::wgmma_attention_bf16, "IN_BF16 1", DType::kBF16, 6e-3, UnitKernels::kAttention},
      {"attention in fp16", &Caps::wgmma_attention_f16, "IN_HALF 1", DType::kF16, 8e-4, UnitKernels::kAttention},
      {"gradients of attention in TF32", &Caps::wgmma_attention_gradient_tf32, "TERMS 1", DType::kF32, 3e-3,
       UnitKernels::kAttentionGradient},
      {"gradients of attention in fp32", &Caps::wgmma_attention_gradient, "TERMS 3", DType::kF32, 6e-6,
       UnitKernels::kAttentionGradient},
      {"gradients of attention in bf16", &Caps::wgmma_attention_gradient_bf16, "IN_BF16 1", DType::kBF16, 6e-3,
       UnitKernels::kAttentionGradient},
      {"gradients of attention in fp16", &Caps::wgmma_attention_gradient_f16, "IN_HALF 1", DType::kF16, 8e-4,
       UnitKernels::kAttentionGradient},
      {"statistics of TF32", &Caps::wgmma_statistics_tf32, "TERMS 1", DType::kF32, 1.5e-3, UnitKernels::kStatistics,
       &Caps::wgmma_tf32},
      {"statistics of fp32", &Caps::wgmma_statistics, "TERMS 3", DType::kF32, 4e-6, UnitKernels::kStatistics, &Caps::wgmma},
      {"statistics of bf16", &Caps::wgmma_statistics_bf16, "IN_BF16 1", DType::kBF16, 2e-5, UnitKernels::kStatistics,
       &Caps::wgmma_bf16},
      {"statistics of fp16", &Caps::wgmma_statistics_f16, "IN_HALF 1", DType::kF16, 2e-5, UnitKernels::kStatistics,
       &Caps::wgmma_f16},
      {"attention in TF32, units of a warp", &Caps::mma_attention_tf32, "TERMS 1", DType::kF32, 3e-3,
       UnitKernels::kWarpAttention, nullptr, &Caps::wgmma_attention_tf32},
      {"attention in fp32, units of a warp", &Caps::mma_attention, "TERMS 3", DType::kF32, 4e-6, UnitKernels::kWarpAttention,
       nullptr, &Caps::wgmma_attention},
      {"attention in bf16, units of a warp", &Caps::mma_attention_bf16, "IN_BF16 1", DType::kBF16, 6e-3,
       UnitKernels::kWarpAttention, nullptr, &Caps::wgmma_attention_bf16},
      {"attention in fp16, units of a warp", &Caps::mma_attention_f16, "IN_HALF 1", DType::kF16, 8e-4,
       UnitKernels::kWarpAttention, nullptr, &Caps::wgmma_attention_f16},
      {"gradients of attention in TF32, units of a warp", &Caps::mma_attention_gradient_tf32, "TERMS 1", DType::kF32, 3e-3,
       UnitKernels::kWarpAttentionGradient, nullptr, &Caps::wgmma_attention_gradient_tf32},
      {"gradients of attention in fp32, units of a warp", &Caps::mma_attention_gradient, "TERMS 3", DType::kF32, 6e-6,
       UnitKernels::kWarpAttentionGradient, nullptr, &Caps::wgmma_attention_gradient},
      {"gradients of attention in bf16, units of a warp", &Caps::mma_attention_gradient_bf16, "IN_BF16 1", DType::kBF16, 6e-3,
       UnitKernels::kWarpAttentionGradient, nullptr, &Caps::wgmma_attention_gradient_bf16},
      {"gradients of attention in fp16, units of a warp", &Caps::mma_attention_gradient_f16, "IN_HALF 1", DType::kF16, 8e-4,
       UnitKernels::kWarpAttentionGradient, nullptr, &Caps::wgmma_attention_gradient_f16},
      {"statistics of TF32, units of a warp", &Caps::mma_statistics_tf32, "TERMS 1", DType::kF32, 1.5e-3,
       UnitKernels::kWarpStatistics, &Caps::mma_tf32, &Caps::wgmma_statistics_tf32},
      {"statistics of fp32, units of a warp", &Caps::mma_statistics, "TERMS 3", DType::kF32, 4e-6, UnitKernels::kWarpStatistics,
       &Caps::mma, &Caps::wgmma_statistics},
      {"statistics of bf16, units of a warp", &Caps::mma_statistics_bf16, "IN_BF16 1", DType::kBF16, 2e-5,
       UnitKernels::kWarpStatistics, &Caps::mma_bf16, &Caps::wgmma_statistics_bf16},
      {"statistics of fp16, units of a warp", &Caps::mma_statistics_f16, "IN_HALF 1", DType::kF16, 2e-5,
       UnitKernels::kWarpStatistics, &Caps::mma_f16, &Caps::wgmma_statistics_f16},
  };
  return types;
}

std::vector<UnitProduct> unit_products(const UnitType& type) {
  if (type.kernels == UnitKernels::kAttention || type.kernels == UnitKernels::kWarpAttention) return unit_attentions(type);
  if (type.kernels == UnitKernels::kAttentionGradient || type.kernels == UnitKernels::kWarpAttentionGradient)
    return unit_attention_gradients(type);
  if (type.kernels == UnitKernels::kPacked) return packed_products(type);
  if (type.kernels == UnitKernels::kWarps) return warp_products(type);
  if (type.kernels == UnitKernels::kStatistics)
    return {statistics(type, {64, 64, 1.0}, 2, false), statistics(type, {64, 64, 1.0}, 1, true),
            statistics(type, {64, 128, 1.0}, 2, true),
            statistics(type, {128, type.storage == ir::DType::kF32 ? 128 : 256, 1.0}, 1, false)};
  if (type.kernels == UnitKernels::kWarpStatistics) {
    std::vector<UnitProduct> products;
    for (const schedule::UnitTile& tile : warp_tiles(type)) {
      const bool biased = products.size() % 2 == 1;
      products.push_back(statistics(type, tile, tile.rows == 64 && biased ? 2 : 1, biased));
      products.back().groups[0] = 1;  // takes all parts
    }
    return products;
  }
  std::vector<UnitProduct> products;
  const bool wide = type.kernels == UnitKernels::kWide;
  const std::vector<Order> orders =
      wide ? std::vector<Order>{{128, 256, true, false}, {64, 256, false, true}}
           : std::vector<Order>{{128, 128, true, false}, {64, 128, false, true}, {128, 64, false, false}, {64, 64, true, true}};
  for (const Order& order : orders)
    for (const int offset : {0, 1}) products.push_back(matrix_product(type, order, offset));
  products.push_back(convolution(type, Kind::kForward, {128, wide ? 256 : 128, 1.0}));
  products.push_back(convolution(type, Kind::kData, {64, wide ? 256 : 64, 1.0}));
  products.push_back(convolution(type, Kind::kWeight, {wide ? 128 : 64, wide ? 256 : 128, 1.0}));
  return products;
}

std::string UnitProduct::text() const {
  // STOREA is what plans store whole tiles with; here vectors may lie anywhere. A wait gives up, so that the kernel ends.
  std::string text =
      "#define KERNEL_NAME unit_check\n#define WAIT_TRIES 100000\n#define STORES_ALIGNED 1\n#define STOREA STOREV\n";
  text += "#define VW " + std::to_string(store_width) + "\n";
  for (const std::string& macro : defines) text += "#define " + macro + "\n";
  text += codegen::kernel_file("common") + std::string("\n");
  for (const char* library : libraries) text += codegen::kernel_file(library) + std::string("\n");
  return text + codegen::kernel_file(file);
}

bool is_right(const UnitProduct& product, const std::vector<float>& results, size_t from, double error) {
  for (size_t i = 0; i < product.exact.size(); ++i)
    if (!(std::fabs(results[from + i] - product.exact[i]) <= error * product.sizes[i])) return false;
  return true;
}

}  // namespace ocl::exec
