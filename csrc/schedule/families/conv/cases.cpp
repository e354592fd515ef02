// csrc/schedule/families/conv/cases.cpp: check cases of convolutions on tensor cores.
#include <algorithm>
#include <cmath>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/case.h"
#include "csrc/schedule/families/operands.h"

namespace ocl::schedule {
namespace {

enum class Kind { kForward, kData, kWeight };

/// The sizes of the cases that are not at edges. The stride is 2, and there are two groups.
constexpr Convolution kConvolution{2, 24, 72, 11, 12, 3, 3, 2, 1, 1, 2};
constexpr int kSlices = 2;
/// Batch, channels and filters of a group, image, filter, stride, padding, dilation, groups.
constexpr Convolution kEdges[] = {
    {2, 16, 72, 9, 7, 3, 3, 1, 1, 1, 1},  {1, 8, 24, 11, 13, 5, 3, 2, 2, 1, 1}, {2, 24, 32, 8, 8, 3, 3, 3, 1, 2, 2},
    {2, 72, 64, 6, 6, 1, 1, 2, 0, 1, 1},  {2, 16, 128, 8, 8, 3, 3, 2, 1, 1, 2}, {2, 136, 64, 6, 6, 1, 1, 2, 0, 1, 1},
    {1, 72, 200, 9, 7, 1, 1, 1, 0, 1, 1}, {5, 16, 24, 3, 2, 3, 3, 1, 1, 1, 1},  {3, 36, 72, 11, 5, 3, 3, 2, 1, 1, 2},
    {7, 20, 72, 4, 1, 1, 1, 1, 0, 1, 1},  {1, 64, 64, 5, 5, 3, 3, 1, 1, 1, 2},  {2, 3, 16, 23, 21, 7, 7, 2, 3, 1, 1},
    {2, 40, 64, 6, 6, 1, 1, 1, 0, 1, 1},  {2, 24, 72, 6, 5, 1, 1, 1, 0, 1, 1}};

/// Returns the pixels of a slice of a weight gradient.
int slice_pixels_of(const TemplateLaunch& launch) {
  for (const TemplateLaunch::Int& given : launch.ints)
    if (kernel_row(launch.kernel).arguments[given.position].name == "split_pixels")
      return static_cast<int>(given.value.constant());
  return 0;
}

/// Returns dense images with `gap` elements behind each row.
std::vector<float> spaced(const std::vector<float>& images, int row, int gap) {
  std::vector<float> wide;
  for (auto from = images.begin(); from != images.end(); from += row) {
    wide.insert(wide.end(), from, from + row);
    wide.insert(wide.end(), static_cast<size_t>(gap), NAN);
  }
  return wide;
}

/// Makes a convolution. All tensors are channels-last, images with `gap` pixels behind each row. The slices of a weight
/// gradient follow one another.
CheckCase convolution_case(const CheckSubject& subject, const Convolution& c, Kind kind, const std::string& choice,
                           int gap = 0) {
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
  const auto input = [&](const ir::Shape& sizes, int space = 0) {
    const ir::IndexExpr row = (sizes[3] + space) * sizes[1];
    return builder.input(type, sizes, {row * sizes[2], 1, row, sizes[1]}, false, false);
  };
  const ir::Shape& sizes = kind == Kind::kForward ? y_sizes : kind == Kind::kData ? x_sizes : w_sizes;
  const ir::Value first = input(kind == Kind::kData ? y_sizes : x_sizes, gap),
                  second = kind == Kind::kWeight ? input(y_sizes, gap) : input(w_sizes);
  builder.output(builder.convolve(first, second, attrs, sizes, type), ir::contiguous_strides(sizes));
  const ir::Graph graph = builder.finish();
  const Offer offer = subject.offer(graph, choice);
  const int slices = static_cast<int>(offer.splits), slice_pixels = slice_pixels_of(offer.launch);
  return case_of(offer, graph, 0, [=] {
    std::vector<float> x = subject.values(c.x_size(), 3), dy = subject.values(c.y_size(), 4), w = subject.values(c.w_size(), 5);
    if (subject.edges() && subject.row.operation == KernelOperation::k_conv_statistics) {
      // The mean is large compared with the spread, for pixels whose filter window is inside the image.
      for (size_t i = 0; i < x.size(); i += static_cast<size_t>(c.C)) x[i] = 64;
      for (size_t i = 0; i < w.size(); i += static_cast<size_t>(c.C)) w[i] = 16;
    }
    CaseData data;
    const std::vector<float> images = spaced(x, c.W * GC, gap * GC), gradients = spaced(dy, c.Q() * GK, gap * GK);
    data.inputs = {subject.stored(kind == Kind::kData ? gradients : images),
                   subject.stored(kind == Kind::kWeight ? gradients : w)};
    data.results = kind == Kind::kForward ? convolution(c, x, w)
                   : kind == Kind::kData  ? convolution_data_gradient(c, w, dy)
                                          : convolution_weight_gradient(c, x, dy, slices, slice_pixels);
    if (subject.edges()) std::ranges::fill(data.results.sizes, 0.0);
    return data;
  });
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

/// Sets the sizes of exact statistics, so that they allow the errors of exact values: the kernel rounds means of a tile to an
/// ulp of the largest value of a slice's channel.
void allow_rounding(Sums& statistics, const Sums& values, size_t channels, size_t tile, size_t slices, double tolerance) {
  const size_t block = slices * channels;
  std::vector<double> largest(block);
  for (size_t at = 0; at < values.exact.size(); ++at) {
    double& of = largest[at / channels / tile % slices * channels + at % channels];
    of = std::max(of, std::fabs(values.exact[at]));
  }
  for (size_t at = 0; at < block; ++at) {
    const double spread = statistics.exact[block + at], count = statistics.exact[2 * block + at], most = largest[at];
    statistics.sizes[at] = 5e-7 * most / tolerance;
    statistics.sizes[block + at] = (3e-6 * spread + 6e-7 * most * std::sqrt(spread) + 1e-14 * count * most * most) / tolerance;
    statistics.sizes[2 * block + at] = 0;
  }
}

/// The slices of statistics, the work-groups that compute them, and whether the convolution has a bias.
struct Statistics {
  int slices;
  size_t groups;  // 0: those of the offer.
  bool biased;
};

/// Makes a convolution that also stores statistics of its channels.
CheckCase statistics_case(const CheckSubject& subject, const Convolution& of, const TensorCoreTile& tile, const Statistics& how,
                          const std::string& filters) {
  CheckCase check = convolution_case(subject, of, Kind::kForward, "tile=" + tile.name() + filters);
  check.kernel = subject.row.id;
  check.defines.emplace_back("STATISTICS 1");
  if (how.biased) check.defines.emplace_back("BIAS 1");
  if (how.biased) check.inputs.emplace_back();
  check.arguments.emplace_back(how.slices);  // The last argument.
  if (how.groups > 0) check.groups[0] = how.groups;
  const auto channels = static_cast<size_t>(of.groups * of.K), slices = static_cast<size_t>(how.slices);
  check.fill = [=, fill = check.fill](CheckCase& c) {
    const CheckCase::Input bias_input = how.biased ? c.inputs.back() : CheckCase::Input();
    if (how.biased) c.inputs.pop_back();
    fill(c);
    if (how.biased) {
      const std::vector<float> bias = subject.values(channels, 6);
      c.inputs.push_back(bias_input);
      c.inputs.back().bytes = subject.stored(bias);
      for (size_t at = 0; at < c.results.exact.size(); ++at)
        c.results.add(at, bias[at % channels], subject.edges() ? 0.0 : std::fabs(bias[at % channels]));
    }
    Sums kept = c.results;  // The results as the kernel stores them.
    for (double& x : kept.exact) x = rounded(x, subject.type);
    const auto rows = static_cast<size_t>(tile.rows);
    Sums statistics = channel_statistics(kept, channels, rows, slices);
    if (subject.edges()) allow_rounding(statistics, kept, channels, rows, slices, c.tolerance);
    c.results.append(statistics);
  };
  return check;
}

std::vector<CheckCase> statistics_cases(const CheckSubject& subject, const std::vector<TensorCoreTile>& tiles) {
  constexpr Statistics kEdgeSlices[] = {{1, 1, false}, {2, 4, true}, {3, 2, false}, {4, 4, true}, {3, 1, true}, {1, 2, false}};
  std::vector<CheckCase> cases;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const bool odd = i % 2 == 1;
    if (!subject.edges())  // One work-group of warps computes all slices.
      cases.push_back(statistics_case(subject, kConvolution, tiles[i],
                                      {tiles[i].rows == 64 && odd ? 2 : 1, subject.warps() ? size_t{1} : 0, odd}, ""));
    for (size_t j = i % 2; subject.edges() && j < std::size(kEdges); j += 2) {
      const Convolution& c = kEdges[j];
      if (c.groups > 1 && c.C % subject.math().chunk != 0) continue;
      Statistics how = kEdgeSlices[(i + j / 2) % std::size(kEdgeSlices)];
      how.slices = std::min(how.slices, (c.batch * c.P() * c.Q() + tiles[i].rows - 1) / tiles[i].rows);
      cases.push_back(statistics_case(subject, c, tiles[i], how, j % 3 == 0 ? " filters=packed" : " filters=in_place"));
    }
  }
  return cases;
}

/// Each tile with a half of the convolutions, in each direction.
std::vector<CheckCase> edge_cases(const CheckSubject& subject, const std::vector<TensorCoreTile>& tiles,
                                  const std::string& rest) {
  const bool of_weight = subject.row.operation == KernelOperation::k_conv_weight,
             packed = subject.row.operation == KernelOperation::k_conv_packed;
  // In 16 bytes. The kernels refuse groups that are no multiples of it.
  const int chunk = subject.math().chunk;
  std::vector<CheckCase> cases;
  for (size_t i = 0; i < tiles.size(); ++i)
    for (size_t j = 0; j < std::size(kEdges); ++j)
      for (const Kind kind : {Kind::kForward, Kind::kData, Kind::kWeight})
        if ((i + j) % 2 == 0 && (kind == Kind::kWeight) == of_weight && (kEdges[j].groups == 1 || kEdges[j].C % chunk == 0))
          cases.push_back(convolution_case(subject, kEdges[j], kind, "tile=" + tiles[i].name() + rest, j % 3 == 2 ? 1 : 0));
  if (packed)  // Some gradients cannot have packed filters.
    std::erase_if(cases, [](const CheckCase& c) { return std::ranges::count(c.defines, "B_PACKED 1") == 0; });
  return cases;
}

}  // namespace

std::vector<CheckCase> conv_cases(const CheckSubject& subject) {
  if (subject.portable()) return {};
  const KernelOperation operation = subject.row.operation;
  const bool wide = operation == KernelOperation::k_conv_wide,
             // Kernels with matrix instructions have few tiles: all are checked.
      every = subject.set != CaseSet::kSample || subject.row.level == KernelLevel::k_subgroup_matrix;
  std::vector<TensorCoreTile> tiles;
  for (const TensorCoreTile& tile : convolution_tiles(subject.math()))
    if (operation == KernelOperation::k_conv_packed || is_wide(tile) == wide ||
        (subject.edges() && operation == KernelOperation::k_conv_statistics))
      tiles.push_back(tile);
  std::vector<CheckCase> cases;
  const auto add = [&](Kind kind, const std::string& choice) {
    cases.push_back(convolution_case(subject, kConvolution, kind, choice));
  };
  if (operation == KernelOperation::k_conv_statistics) return statistics_cases(subject, tiles);
  if (subject.edges())
    return edge_cases(subject, tiles,
                      operation == KernelOperation::k_conv_weight   ? " splits=3"
                      : operation == KernelOperation::k_conv_packed ? " filters=packed"
                                                                    : " filters=in_place");
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
    default:
      for (size_t i = 0; i < std::max<size_t>(tiles.size() * (every ? 2 : 1), 2); ++i)
        add(i % 2 == 0 ? Kind::kForward : Kind::kData,
            "tile=" + tiles[(every ? i / 2 : i) % tiles.size()].name() + " filters=in_place");
  }
  return cases;
}

}  // namespace ocl::schedule
