// csrc/schedule/families/conv/cases.cpp: check cases of convolutions, also of depthwise ones and Winograd's.
#include <algorithm>
#include <cmath>
#include <span>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/case.h"
#include "csrc/schedule/families/operands.h"
#include "csrc/support/error.h"

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
    {2, 40, 64, 6, 6, 1, 1, 1, 0, 1, 1},  {2, 24, 72, 6, 5, 1, 1, 1, 0, 1, 1},  {2, 4, 40, 8, 10, 3, 2, 2, 0, 1, 1},
    {1, 2, 24, 9, 13, 4, 5, 2, 2, 1, 1}};

/// Products of the pixels' channels with filters.
constexpr Convolution kProducts[] = {
    {2, 72, 200, 9, 12, 1, 1, 1, 0, 1, 1}, {7, 24, 40, 4, 1, 1, 1, 1, 0, 1, 1}, {1, 136, 264, 11, 30, 1, 1, 1, 0, 1, 1}};

/// For portable kernels. Some have several blocks of taps (C * R * S > 640) or several slices of pixels.
constexpr Convolution kMore[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1},      {2, 16, 64, 7, 9, 3, 3, 1, 1, 1, 1},     {1, 33, 65, 8, 5, 3, 3, 2, 1, 1, 1},
    {2, 5, 63, 13, 11, 3, 2, 3, 2, 1, 1},   {1, 130, 31, 6, 6, 1, 1, 2, 0, 1, 1},    {1, 8, 17, 12, 12, 3, 3, 1, 2, 2, 1},
    {1, 4, 20, 15, 9, 5, 1, 2, 3, 1, 1},    {2, 4, 8, 9, 9, 3, 3, 2, 1, 1, 3},       {1, 1, 2, 5, 5, 3, 3, 1, 1, 1, 6},
    {1, 67, 66, 6, 6, 3, 3, 1, 1, 1, 2},    {1, 134, 33, 5, 6, 3, 3, 1, 1, 1, 1},    {1, 3, 64, 20, 20, 7, 7, 2, 3, 1, 1},
    {2, 2, 8, 4, 4, 2, 2, 2, 0, 1, 1},      {1, 3, 5, 3, 3, 3, 3, 3, 4, 2, 1},       {1, 8, 12, 13, 12, 3, 3, 2, 3, 3, 1},
    {1, 6, 9, 17, 14, 5, 3, 3, 2, 1, 1},    {1, 3, 7, 9, 8, 3, 3, 1, 0, 1, 1},       {4, 6, 20, 20, 21, 3, 3, 1, 1, 1, 1},
    {1, 17, 5, 10, 9, 3, 3, 1, 2, 2, 1},    {1, 20, 8, 7, 7, 1, 1, 2, 0, 1, 1},      {2, 3, 16, 23, 21, 7, 7, 2, 3, 1, 1},
    {1, 20, 37, 9, 8, 3, 3, 1, 0, 1, 1, 1}, {2, 6, 12, 10, 11, 3, 2, 2, 1, 1, 1, 1}, {2, 5, 150, 7, 9, 1, 1, 1, 1, 1, 2}};
/// For a kernel of images with few channels. The columns of a filter are not dilated. The last two have several blocks of
/// lines, or strips in a row.
constexpr Convolution kImages[] = {
    {1, 1, 1, 2, 2, 2, 2, 1, 0, 1, 1},      {2, 3, 64, 11, 9, 3, 3, 2, 1, 1, 1},     {1, 3, 65, 20, 21, 7, 7, 2, 3, 1, 1},
    {2, 2, 8, 4, 4, 2, 2, 2, 0, 1, 1},      {1, 3, 5, 3, 3, 3, 3, 3, 4, 1, 1},       {1, 3, 7, 9, 8, 3, 3, 1, 0, 1, 1},
    {2, 4, 40, 8, 10, 3, 2, 2, 0, 1, 1},    {1, 2, 24, 9, 13, 4, 5, 2, 2, 1, 1},     {1, 3, 48, 5, 70, 3, 3, 1, 1, 1, 1},
    {1, 3, 33, 35, 39, 11, 11, 4, 2, 1, 1}, {2, 3, 20, 9, 45, 2, 3, 2, 2, 2, 1, -1}, {1, 3, 20, 36, 37, 17, 17, 16, 1, 1, 1},
    {1, 4, 8, 2, 300, 11, 11, 1, 5, 1, 1}};
/// For kernels that take whole vectors of channels and one group.
constexpr Convolution kWhole[] = {
    {1, 16, 16, 1, 1, 1, 1, 1, 0, 1, 1},   {2, 80, 144, 7, 6, 1, 1, 2, 0, 1, 1},  {2, 48, 80, 9, 8, 3, 3, 2, 1, 1, 1},
    {1, 16, 32, 11, 12, 3, 3, 1, 2, 2, 1}, {1, 64, 16, 9, 9, 5, 5, 3, 2, 1, 1},   {1, 144, 272, 3, 4, 1, 1, 1, 0, 1, 1},
    {1, 272, 144, 2, 3, 1, 1, 1, 0, 1, 1}, {4, 16, 16, 20, 21, 3, 3, 1, 1, 1, 1}, {1, 16, 32, 9, 12, 3, 3, 1, 0, 1, 1, 1}};
/// Winograd's: 3 x 3 with stride 1.
constexpr Convolution kWinograd[] = {
    {1, 1, 1, 1, 1, 3, 3, 1, 1, 1, 1},    {1, 1, 1, 3, 3, 3, 3, 1, 0, 1, 1},    {2, 16, 64, 7, 6, 3, 3, 1, 1, 1, 1},
    {1, 17, 65, 8, 9, 3, 3, 1, 0, 1, 1},  {1, 40, 130, 5, 5, 3, 3, 1, 2, 1, 1}, {3, 64, 30, 4, 4, 3, 3, 1, 1, 1, 1},
    {2, 9, 34, 7, 10, 3, 3, 1, 1, 1, 1},  {3, 20, 7, 5, 13, 3, 3, 1, 2, 1, 1},  {1, 16, 16, 1, 1, 3, 3, 1, 1, 1, 1},
    {1, 48, 64, 8, 9, 3, 3, 1, 0, 1, 1},  {1, 80, 48, 5, 5, 3, 3, 1, 2, 1, 1},  {3, 64, 144, 4, 4, 3, 3, 1, 1, 1, 1},
    {1, 144, 80, 4, 5, 3, 3, 1, 1, 1, 1}, {4, 16, 16, 20, 21, 3, 3, 1, 1, 1, 1}};
/// One channel in each group.
constexpr Convolution kDepthwise[] = {
    {1, 1, 1, 1, 1, 3, 3, 1, 1, 1, 16},    {2, 1, 1, 7, 9, 3, 3, 1, 1, 1, 37},   {2, 1, 1, 11, 10, 3, 3, 2, 1, 1, 32},
    {1, 1, 1, 12, 12, 3, 3, 2, 1, 1, 24},  {1, 1, 1, 9, 14, 5, 3, 1, 2, 1, 17},  {1, 1, 1, 13, 13, 3, 3, 3, 2, 1, 20},
    {1, 1, 1, 12, 11, 3, 3, 1, 2, 2, 16},  {1, 1, 1, 13, 12, 2, 5, 2, 3, 2, 19}, {2, 1, 1, 20, 20, 7, 7, 4, 3, 1, 16},
    {2, 1, 1, 8, 7, 3, 3, 2, 1, 1, 70},    {1, 1, 1, 13, 12, 5, 5, 2, 2, 1, 8},  {1, 1, 1, 12, 14, 3, 3, 3, 0, 2, 5},
    {1, 1, 1, 10, 9, 7, 7, 1, 3, 1, 4},    {1, 1, 1, 3, 3, 3, 3, 1, 0, 1, 6},    {3, 1, 1, 20, 21, 3, 3, 1, 1, 1, 10},
    {1, 1, 1, 9, 12, 3, 3, 1, 0, 1, 20, 1}};

/// How the operands lie in memory.
struct Form {
  int gap = 0;          // Pixels behind each row of channels-last images.
  bool planes = false;  // Images are [n][c][h][w] instead of [n][h][w][c].
  int offset = 0;       // See CheckCase.
};

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

/// Returns [outer][rows][columns] as [outer][columns][rows].
template <class T>
std::vector<T> transposed(const std::vector<T>& x, size_t rows, size_t columns) {
  std::vector<T> result(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t outer = i / (rows * columns), row = i / columns % rows, column = i % columns;
    result[(outer * columns + column) * rows + row] = x[i];
  }
  return result;
}

bool is_depthwise(const KernelRow& row) { return std::string(row.family) == "depthwise"; }

ir::Graph graph_of(const CheckSubject& subject, const Convolution& c, Kind kind, const Form& form) {
  const ir::DType type = storage_of(subject.type);
  const int GC = c.groups * c.C, GK = c.groups * c.K;
  const ir::Shape x_sizes = {c.batch, GC, c.H, c.W}, y_sizes = {c.batch, GK, c.P(), c.Q()}, w_sizes = {GK, c.C, c.R, c.S};
  ir::ConvolveAttrs attrs;
  attrs.kind = kind == Kind::kForward ? ir::ConvolveKind::kForward
               : kind == Kind::kData  ? ir::ConvolveKind::kData
                                      : ir::ConvolveKind::kWeight;
  attrs.stride = {c.stride, c.stride_w()};
  attrs.padding = {c.pad, c.pad_w()};
  attrs.dilation = {c.dilation, c.dilation_w()};
  attrs.groups = c.groups;
  ir::Builder builder;
  const auto input = [&](const ir::Shape& sizes, bool image) {
    const ir::IndexExpr row = (sizes[3] + (image ? form.gap : 0)) * sizes[1];
    const ir::Shape pixels = {row * sizes[2], 1, row, sizes[1]};
    return builder.input(type, sizes, image && form.planes ? ir::contiguous_strides(sizes) : pixels, false, false);
  };
  const ir::Shape& sizes = kind == Kind::kForward ? y_sizes : kind == Kind::kData ? x_sizes : w_sizes;
  const ir::Value first = input(kind == Kind::kData ? y_sizes : x_sizes, true),
                  second = kind == Kind::kWeight ? input(y_sizes, true) : input(w_sizes, false);
  builder.output(builder.convolve(first, second, attrs, sizes, type), ir::contiguous_strides(sizes));
  return builder.finish();
}

/// Makes a convolution. Results and filters are channels-last, or filters are last, if vectors are stored along them. The
/// slices of a weight gradient follow one another; those of a portable kernel are added.
CheckCase convolution_case(const CheckSubject& subject, const Convolution& c, Kind kind, const std::string& choice,
                           const Form& form = {}) {
  const int GC = c.groups * c.C, GK = c.groups * c.K;
  const ir::Graph graph = graph_of(subject, c, kind, form);
  const Offer offer = subject.offer(graph, choice);
  const bool portable = subject.portable(), by_filters = kind == Kind::kWeight && offer.launch.stores.dim == 0,
             // Winograd's tiles of four columns round even values of few digits, and mix the pixels of a patch.
      mixed = std::ranges::count(offer.launch.defines, std::pair<std::string, std::string>("TILE_W", "4")) > 0;
  const int slices = portable ? 1 : static_cast<int>(offer.splits),
            slice_pixels = portable ? c.batch * c.P() * c.Q() : slice_pixels_of(offer.launch);
  CheckCase check = case_of(offer, graph, form.offset, [=] {
    std::vector<float> x = subject.values(c.x_size(), 3), dy = subject.values(c.y_size(), 4), w = subject.values(c.w_size(), 5);
    if (subject.edges() && subject.row.form == KernelForm::k_statistics) {
      // The mean is large compared with the spread, for pixels whose filter window is inside the image.
      for (size_t i = 0; i < x.size(); i += static_cast<size_t>(c.C)) x[i] = 64;
      for (size_t i = 0; i < w.size(); i += static_cast<size_t>(c.C)) w[i] = 16;
    }
    const auto image = [&](const std::vector<float>& pixels, int width, int channels, size_t count) {
      return form.planes ? transposed(pixels, count, static_cast<size_t>(channels))
                         : spaced(pixels, width * channels, form.gap * channels);
    };
    const std::vector<float> images = image(x, c.W, GC, static_cast<size_t>(c.H) * c.W),
                             gradients = image(dy, c.Q(), GK, static_cast<size_t>(c.P()) * c.Q());
    CaseData data;
    data.inputs = {subject.stored(kind == Kind::kData ? gradients : images),
                   subject.stored(kind == Kind::kWeight ? gradients : w)};
    data.results = kind == Kind::kForward ? convolution(c, x, w)
                   : kind == Kind::kData  ? convolution_data_gradient(c, w, dy)
                                          : convolution_weight_gradient(c, x, dy, slices, slice_pixels);
    if (by_filters)
      data.results.exact = transposed(data.results.exact, static_cast<size_t>(GK), c.w_size() / static_cast<size_t>(GK));
    if (subject.edges()) std::ranges::fill(data.results.sizes, mixed ? std::ranges::max(data.results.sizes) : 0.0);
    return data;
  });
  if (mixed) check.tolerance = 1e-6;
  const auto channels_last = [](int64_t channels, int64_t rows, int64_t columns) {
    return std::vector{rows * columns * channels, int64_t{1}, columns * channels, channels};
  };
  const int64_t filters = offer.splits * GK;
  check.strides = kind == Kind::kForward ? channels_last(GK, c.P(), c.Q())
                  : kind == Kind::kData  ? channels_last(GC, c.H, c.W)
                  : by_filters           ? std::vector{int64_t{1}, filters, c.S * c.C * filters, c.C * filters}
                                         : channels_last(c.C, c.R, c.S);
  if (!portable) return check;
  check.parts = static_cast<size_t>(offer.splits);
  if (check.parts > 1) check.block = by_filters ? static_cast<size_t>(GK) : c.w_size();
  return check;
}

/// Sets the sizes of exact statistics, so that they allow the errors of exact values: the kernel rounds means of a tile to an
/// ulp of the largest value of a slice's channel.
void allow_rounding(Sums& statistics, const Sums& values, size_t channels, size_t slices,
                    const std::function<size_t(size_t)>& slice_of, double tolerance) {
  const size_t block = slices * channels;
  std::vector<double> largest(block);
  for (size_t at = 0; at < values.exact.size(); ++at) {
    double& of = largest[slice_of(at / channels) * channels + at % channels];
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

/// Lets the kernel of a convolution also store statistics of its channels, in slices of pixels.
void add_statistics(CheckCase& check, const CheckSubject& subject, const Convolution& of, size_t slices, bool biased,
                    const std::function<size_t(size_t)>& slice_of) {
  check.kernel = subject.row.id;
  check.defines.emplace_back("STATISTICS 1");
  if (biased) check.defines.emplace_back("BIAS 1");
  if (biased) check.inputs.emplace_back();
  if (biased) check.given.insert("bias");
  const auto channels = static_cast<size_t>(of.groups * of.K);
  check.fill = [=, fill = check.fill](CheckCase& c) {
    fill(c);
    if (biased) {
      const std::vector<float> bias = subject.values(channels, 6);
      c.inputs.back().bytes = subject.stored(bias);
      for (size_t at = 0; at < c.results.exact.size(); ++at)
        c.results.add(at, bias[at % channels], subject.edges() ? 0.0 : std::fabs(bias[at % channels]));
    }
    Sums kept = c.results;  // The results as the kernel stores them.
    for (double& x : kept.exact) x = rounded(x, storage_of(subject.type));
    Sums statistics = channel_statistics(kept, channels, slices, slice_of);
    if (subject.edges()) allow_rounding(statistics, kept, channels, slices, slice_of, c.tolerance);
    c.results.append(statistics);
  };
}

/// Makes a convolution with statistics. Tiles of pixels are assigned to the slices round robin.
CheckCase statistics_case(const CheckSubject& subject, const Convolution& of, const TensorCoreTile& tile, const Statistics& how,
                          const std::string& filters) {
  CheckCase check = convolution_case(subject, of, Kind::kForward, "tile=" + tile.name() + filters);
  const auto rows = static_cast<size_t>(tile.rows), slices = static_cast<size_t>(how.slices);
  add_statistics(check, subject, of, slices, how.biased, [=](size_t pixel) { return pixel / rows % slices; });
  check.arguments.emplace_back(how.slices);  // The last argument.
  check.given.insert("slices");
  if (how.groups > 0) check.groups[0] = how.groups;
  return check;
}

/// Returns a macro of a launch that is an integer.
size_t macro_of(const CheckCase& check, const std::string& name) {
  const auto found = std::ranges::find_if(check.defines, [&](const auto& define) { return define.starts_with(name + " "); });
  OCL_ASSERT(found != check.defines.end(), "the launch defines no " + name);
  return std::stoul(found->substr(name.size() + 1));
}

/// Adds statistics to a convolution of work-items, each of which has a slice: neighbouring pixels, or strips of a row.
void add_item_statistics(CheckCase& check, const CheckSubject& subject, const Convolution& of, bool biased) {
  const size_t strip = macro_of(check, "MR") * macro_of(check, "MT"), columns = static_cast<size_t>(of.Q());
  check.tolerance = 1e-6;
  if (subject.row.base == KernelId::k_conv_item) {
    const size_t slices = check.groups[macro_of(check, "CHANNELS_FIRST")];
    return add_statistics(check, subject, of, slices, biased, [=](size_t pixel) { return pixel / strip; });
  }
  const auto strips_per_item = static_cast<size_t>(std::get<int32_t>(check.arguments.end()[-2]));
  add_statistics(check, subject, of, check.groups[1], biased, [=](size_t pixel) {
    const size_t across = (columns + strip - 1) / strip;
    return (pixel / columns * across + pixel % columns / strip) / strips_per_item;
  });
}

std::vector<CheckCase> statistics_cases(const CheckSubject& subject, const std::vector<TensorCoreTile>& tiles) {
  constexpr Statistics kEdgeSlices[] = {{1, 1, false}, {2, 4, true}, {3, 2, false}, {4, 4, true}, {3, 1, true}, {1, 2, false}};
  std::vector<CheckCase> cases;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const bool odd = i % 2 == 1, shared = tiles[i].shares_unit();
    const std::span<const Convolution> edges = shared ? std::span<const Convolution>(kProducts) : kEdges;
    if (!subject.edges())  // One work-group of warps computes all slices.
      cases.push_back(statistics_case(subject, shared ? kProducts[0] : kConvolution, tiles[i],
                                      {tiles[i].rows == 64 && odd ? 2 : 1, subject.warps() ? size_t{1} : 0, odd}, ""));
    for (size_t j = shared ? 0 : i % 2; subject.edges() && j < edges.size(); j += shared ? 1 : 2) {
      const Convolution& c = edges[j];
      if (c.groups > 1 && c.C % subject.math().chunk != 0) continue;
      Statistics how = kEdgeSlices[(i + j / 2) % std::size(kEdgeSlices)];
      how.slices = std::min(how.slices, (c.batch * c.P() * c.Q() + tiles[i].rows - 1) / tiles[i].rows);
      cases.push_back(statistics_case(subject, c, tiles[i], how, j % 3 == 0 ? " filters=packed" : " filters=in_place"));
    }
  }
  return cases;
}

/// Each tile with 1 x 1 convolutions, in both directions.
std::vector<CheckCase> box_cases(const CheckSubject& subject, const std::vector<TensorCoreTile>& tiles) {
  std::vector<CheckCase> cases;
  for (size_t i = 0; i < tiles.size(); ++i)
    for (size_t j = 0; j < (subject.set == CaseSet::kSample ? 1 : std::size(kProducts)); ++j)
      for (const int offset : {0, 1}) {
        cases.push_back(convolution_case(subject, kProducts[j], (i + j + offset) % 2 == 0 ? Kind::kForward : Kind::kData,
                                         "tile=" + tiles[i].name() + (tiles[i].shares_unit() ? "" : " copies=boxes"),
                                         {0, false, offset}));
        if (offset == 0) std::ranges::replace(cases.back().defines, "ALIGNED_BASES 0", "ALIGNED_BASES 1");
      }
  return cases;
}

/// Each tile with a half of the convolutions, in each direction.
std::vector<CheckCase> edge_cases(const CheckSubject& subject, const std::vector<TensorCoreTile>& tiles,
                                  const std::string& rest) {
  const bool of_weight = subject.row.operation == KernelOperation::k_conv_weight;
  // In 16 bytes. The kernels refuse groups that are no multiples of it.
  const int chunk = subject.math().chunk;
  std::vector<CheckCase> cases;
  for (size_t i = 0; i < tiles.size(); ++i)
    for (size_t j = 0; j < std::size(kEdges); ++j)
      for (const Kind kind : {Kind::kForward, Kind::kData, Kind::kWeight})
        if ((i + j) % 2 == 0 && (kind == Kind::kWeight) == of_weight && (kEdges[j].groups == 1 || kEdges[j].C % chunk == 0))
          cases.push_back(convolution_case(subject, kEdges[j], kind, "tile=" + tiles[i].name() + rest, {j % 3 == 2 ? 1 : 0}));
  return cases;
}

/// The convolutions of a portable kernel.
std::span<const Convolution> portable_convolutions(const KernelRow& row) {
  if (is_depthwise(row)) return kDepthwise;
  if (std::string(row.family) == "winograd") return kWinograd;
  if (row.base == KernelId::k_conv_image_item) return kImages;
  return row.id == KernelId::k_conv_weight_packed_item ? std::span<const Convolution>(kWhole) : kMore;
}

/// True if an offer of the kernel would not refuse the sizes.
bool is_for(const KernelRow& row, const Convolution& c) {
  if (row.id == KernelId::k_winograd_weight_item) return c.C % 16 == 0 && c.K % 16 == 0;
  return row.id == KernelId::k_depthwise_item || row.id == KernelId::k_depthwise_weight_item ? c.groups >= 4 : true;
}

/// Each tile of a portable kernel, on several devices.
std::vector<CheckCase> portable_cases(const CheckSubject& subject) {
  const KernelId id = subject.row.base;
  const bool statistics = subject.row.form == KernelForm::k_statistics,
             of_weight = subject.row.operation == KernelOperation::k_conv_weight,
             item = subject.row.level == KernelLevel::k_item;
  const std::span<const Convolution> all = portable_convolutions(subject.row);
  std::vector<CheckSubject> devices = on_devices(subject);
  if (id == KernelId::k_conv_weight_group) {  // Its smallest tile is for little local memory.
    devices.push_back(subject);
    devices.back().caps.local_bytes = 16 << 10;
  }
  std::vector<CheckCase> cases;
  for (CheckSubject on : devices)
    for (const Kind kind : {Kind::kForward, Kind::kData, Kind::kWeight}) {
      if ((kind == Kind::kWeight) != of_weight || (kind == Kind::kData && (statistics || id == KernelId::k_conv_image_item)))
        continue;
      const std::vector<std::string> tiles = tiles_of(on.offer(graph_of(on, all[1], kind, {}), ""));
      for (size_t i = 0; i < tiles.size(); ++i)
        for (size_t j = i % (tiles.size() > 1 ? 2 : 1); j < all.size(); j += tiles.size() > 1 ? 2 : 1) {
          const Convolution& c = all[j];
          if (!is_for(subject.row, c)) continue;
          on.caps.prefetch = j % 3 > 0;
          on.caps.thread_items = !item && j / 2 % 2 == 1 ? 16 : 0;
          const std::string choice = "tile=" + tiles[i] + " run=" + std::to_string(1 + j % 4) +
                                     " splits=" + std::to_string(1 + j % 2 * 2) +
                                     " columns=" + std::to_string(2 + j / 2 % 2 * 2);
          // These kernels read images with any strides; others get a copy.
          const bool any = id == KernelId::k_conv_weight_item || id == KernelId::k_conv_image_item ||
                           (!item && (of_weight || is_depthwise(subject.row) || c.C < 16));
          for (const bool planes : any ? std::vector{false, true} : std::vector{false}) {
            const Form form{planes ? 0 : static_cast<int>(j % 3 == 2), planes, static_cast<int>(j % 4 == 3)};
            CheckCase check = convolution_case(on, c, kind, choice, form);
            if (statistics) add_item_statistics(check, on, c, j % 2 == 0);
            if ((id == KernelId::k_conv_item || id == KernelId::k_conv_image_item) && j % 3 == 1)
              check.defines.emplace_back("LONG_STORES 1");
            // Plans for filter sizes that are known at run time only.
            if (!item && !is_depthwise(subject.row) && j % 4 == 0)
              std::erase_if(check.defines, [](const std::string& define) { return define.starts_with("FILTER_"); });
            if (form.offset == 0) std::ranges::replace(check.defines, "ALIGNED_BASES 0", "ALIGNED_BASES 1");
            cases.push_back(std::move(check));
          }
        }
    }
  return cases;
}

}  // namespace

std::vector<CheckCase> conv_cases(const CheckSubject& subject) {
  if (subject.portable()) return portable_cases(subject);
  const KernelForm form = subject.row.form;
  const bool of_weight = subject.row.operation == KernelOperation::k_conv_weight, packed = form == KernelForm::k_packed,
             // Kernels with matrix instructions have few tiles: all are checked.
      every = subject.set != CaseSet::kSample || subject.row.level == KernelLevel::k_subgroup_matrix;
  std::vector<TensorCoreTile> tiles;
  for (const TensorCoreTile& tile : convolution_tiles(subject.math()))
    if (packed || form == KernelForm::k_boxes || is_wide(tile) == (form == KernelForm::k_wide) ||
        (subject.edges() && form == KernelForm::k_statistics))
      tiles.push_back(tile);
  if (form == KernelForm::k_statistics) return statistics_cases(subject, tiles);
  if (form == KernelForm::k_boxes) return box_cases(subject, tiles);
  if (subject.edges())
    return edge_cases(subject, tiles,
                      of_weight ? " splits=3"
                      : packed  ? " copies=chunks filters=packed"
                                : " copies=chunks filters=in_place");
  std::vector<CheckCase> cases;
  const auto add = [&](Kind kind, size_t tile, const std::string& rest) {
    cases.push_back(convolution_case(subject, kConvolution, kind, "tile=" + tiles[tile].name() + rest));
  };
  if (of_weight)  // Sizes choose the tile of warpgroups.
    for (size_t i = 0; i < (subject.row.level == KernelLevel::k_warpgroup ? 1 : tiles.size()); i += every ? 1 : 2)
      add(Kind::kWeight, i, " splits=" + std::to_string(kSlices));
  else if (packed)
    for (size_t i = 0; i < tiles.size(); i += every ? 1 : std::max<size_t>(tiles.size() - 1, 1))
      add(Kind::kForward, i, " filters=packed");
  else
    for (size_t i = 0; i < std::max<size_t>(tiles.size() * (every ? 2 : 1), 2); ++i)
      add(i % 2 == 0 ? Kind::kForward : Kind::kData, (every ? i / 2 : i) % tiles.size(), " filters=in_place");
  return cases;
}

}  // namespace ocl::schedule
