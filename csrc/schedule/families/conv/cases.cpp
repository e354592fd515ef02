// csrc/schedule/families/conv/cases.cpp: check cases of convolutions on tensor cores.
#include <cmath>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/case.h"
#include "csrc/schedule/families/operands.h"

namespace ocl::schedule {
namespace {

enum class Kind { kForward, kData, kWeight };

constexpr int kSlices = 2, kSlicePixels = 64;
/// The sizes of all cases. The stride is 2, and there are two groups.
constexpr Convolution kConvolution{2, 24, 72, 11, 12, 3, 3, 2, 1, 1, 2};

/// Makes a convolution. All tensors are channels-last. The slices of a weight gradient follow one another.
CheckCase convolution_case(const CheckSubject& subject, Kind kind, const std::string& choice) {
  const Convolution& c = kConvolution;
  const ir::DType type = storage_of(subject.type);
  const int GC = c.groups * c.C, GK = c.groups * c.K;
  const ir::Shape x_sizes = {c.batch, GC, c.H, c.W}, y_sizes = {c.batch, GK, c.P(), c.Q()}, w_sizes = {GK, c.C, c.R, c.S};
  ir::ConvolveAttrs attrs;
  attrs.kind = kind == Kind::kForward ? ir::ConvolveKind::kForward
               : kind == Kind::kData  ? ir::ConvolveKind::kData
                                      : ir::ConvolveKind::kWeight;
  attrs.stride = {c.stride, c.stride};
  attrs.padding = {c.pad, c.pad};
  attrs.dilation = {c.dilation, c.dilation};
  attrs.groups = c.groups;
  ir::Builder builder;
  const auto input = [&](const ir::Shape& sizes) {
    return builder.input(type, sizes, {sizes[1] * sizes[2] * sizes[3], 1, sizes[3] * sizes[1], sizes[1]}, false, false);
  };
  const ir::Shape& sizes = kind == Kind::kForward ? y_sizes : kind == Kind::kData ? x_sizes : w_sizes;
  const ir::Value first = input(kind == Kind::kData ? y_sizes : x_sizes),
                  second = input(kind == Kind::kWeight ? y_sizes : w_sizes);
  builder.output(builder.convolve(first, second, attrs, sizes, type), ir::contiguous_strides(sizes));
  CheckCase check = case_of(subject.offer(builder.finish(), choice));
  check.fill = [=](CheckCase& to) {
    const auto x = subject.values(c.x_size(), 3), dy = subject.values(c.y_size(), 4), w = subject.values(c.w_size(), 5);
    // The kernels read filters as [output channel][r][s][input channel].
    const std::vector<float>& filters = kind == Kind::kData ? filters_channel_first(c, w) : w;
    to.inputs = {subject.stored(kind == Kind::kForward ? x : dy)};
    if (!to.packs.empty())
      to.packs[0].inputs = {subject.stored(filters)};
    else
      to.inputs.push_back(subject.stored(kind == Kind::kWeight ? x : filters));
    to.results = kind == Kind::kForward ? convolution(c, x, w)
                 : kind == Kind::kData  ? convolution_data_gradient(c, w, dy)
                                        : convolution_weight_gradient(c, x, dy, kSlices, kSlicePixels);
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

/// Makes a convolution, with or without a bias, that also stores statistics of its channels in `slices` slices.
CheckCase statistics_case(const CheckSubject& subject, const TensorCoreTile& tile, int slices, bool biased) {
  CheckCase check = convolution_case(subject, Kind::kForward, "tile=" + tile.name());
  check.kernel = subject.row.id;
  check.defines.emplace_back("STATISTICS 1");
  if (biased) check.defines.emplace_back("BIAS 1");
  check.arguments.emplace_back(slices);      // The last argument.
  if (subject.warps()) check.groups[0] = 1;  // One work-group computes all slices.
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

}  // namespace

std::vector<CheckCase> conv_cases(const CheckSubject& subject) {
  const KernelOperation operation = subject.row.operation;
  const bool wide = operation == KernelOperation::k_conv_wide,
             // Kernels with matrix instructions have few tiles: all are checked.
      every = subject.every || subject.row.level == KernelLevel::k_subgroup_matrix;
  std::vector<TensorCoreTile> tiles;
  for (const TensorCoreTile& tile : convolution_tiles(subject.math()))
    if (operation == KernelOperation::k_conv_packed || is_wide(tile) == wide) tiles.push_back(tile);
  std::vector<CheckCase> cases;
  const auto add = [&](Kind kind, const std::string& choice) { cases.push_back(convolution_case(subject, kind, choice)); };
  switch (operation) {
    case KernelOperation::k_conv_weight:
      // Sizes choose the tile of warpgroups.
      for (size_t i = 0; i < (subject.row.level == KernelLevel::k_warpgroup ? 1 : tiles.size()); i += every ? 1 : 2)
        add(Kind::kWeight, "tile=" + tiles[i].name() + " splits=" + std::to_string(kSlices));
      break;
    case KernelOperation::k_conv_packed:
      for (size_t i = 0; i < tiles.size(); i += every ? 1 : std::max<size_t>(tiles.size() - 1, 1))
        add(Kind::kForward, "tile=" + tiles[i].name() + " filters=packed");
      break;
    case KernelOperation::k_conv_statistics:
      for (size_t i = 0; i < tiles.size(); ++i)
        cases.push_back(statistics_case(subject, tiles[i], tiles[i].rows == 64 && i % 2 == 1 ? 2 : 1, i % 2 == 1));
      break;
    default:
      for (size_t i = 0; i < std::max<size_t>(tiles.size() * (every ? 2 : 1), 2); ++i)
        add(i % 2 == 0 ? Kind::kForward : Kind::kData,
            "tile=" + tiles[(every ? i / 2 : i) % tiles.size()].name() + " filters=in_place");
  }
  return cases;
}

}  // namespace ocl::schedule
