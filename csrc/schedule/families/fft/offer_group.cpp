// csrc/schedule/families/fft/offer_group.cpp: offers kernels/fft/group.cl, Fourier transforms on GPUs.
#include <algorithm>

#include "csrc/schedule/families/fft/lines.h"

namespace ocl::schedule {

namespace {

// A work-group has this many numbers, if there are as many.
constexpr int64_t kNumbers = 1024;
constexpr int kMostItems = 512;
// Neighbouring lines that are stored together: 8 pairs of floats are 64 bytes.
constexpr int64_t kColumns = 8;
// Work-groups of a compute unit that share the lines of a transform by chirps. Each first transforms the chirp. More would not
// run at once: a work-item holds the roots and the transformed chirp in registers, about 170 with radices of up to 8.
constexpr int64_t kGroupsOfUnit = 2;

}  // namespace

void offer_fft_group(Draft& draft) {
  const FftLines lines = fft_lines(draft);
  const Caps& caps = draft.caps;
  const int64_t bytes = 2 * lines.real_bytes(), inner = typical(lines.p * lines.q, 64);
  const bool columns = inner > 1;
  const int64_t n = fft_points(draft.node());
  const bool chirp = n != lines.n;
  int64_t count = 1;
  const int64_t wanted = columns ? std::max(kColumns, kNumbers / n) : kNumbers / n;
  while (count * 2 <= wanted && count * 2 * n * bytes <= caps.local_bytes && (!columns || count < inner)) count *= 2;
  const int64_t all = count * n;
  const std::vector<int> radices = fft_radices(n, chirp || few_registers(caps) ? 3 : 4);
  // A work-item has one butterfly of each step, so that few registers are enough. By chirps, none is without one.
  const int64_t most = std::min(caps.max_group_size, kMostItems);
  const int64_t items = std::min<int64_t>(most, (all / (chirp ? radices.front() : radices.back()) + 31) / 32 * 32);
  int64_t points = 1;
  int64_t before = 1;
  std::string steps;
  for (const int radix : radices) {
    const int64_t butterflies = all / radix;
    points = std::max(points, (butterflies + items - 1) / items * radix);
    steps += "S(" + std::to_string(radix) + ", " + std::to_string(before) + ") ";
    before *= radix;
  }
  const bool padded = !columns && count * (n + n / 16) * bytes <= caps.local_bytes;
  // Loads go along the dimension with the smaller stride.
  const IndexExpr& across = lines.q.is_const(1) ? lines.strides[2] : lines.strides[3];
  const bool columns_in = columns && typical(across, 0) <= typical(lines.strides[1], 0);

  TemplateLaunch& launch = draft.launch();
  launch.variant = std::to_string(lines.n) + " x " + std::to_string(count);
  if (chirp) define(launch, "CHIRP", lines.n);
  if (draft.node().fft.form != ir::FftForm::kComplex) define(launch, "FORM", static_cast<int>(draft.node().fft.form));
  define(launch, "VW", 2);
  if (caps.thread_items > 0) define(launch, "THREAD_ITEMS", caps.thread_items);
  launch.defines.emplace_back("STEPS(S)", steps);
  define(launch, {{"LINES", count}, {"ITEMS", items}, {"POINTS", points}});
  define(launch, {{"PADDED", padded}, {"COLUMNS_IN", columns_in}, {"COLUMNS_OUT", columns}});
  std::vector<IndexExpr> used = {lines.strides[0], lines.strides[1]};
  if (columns) used = lines.strides;
  define(launch, {{"ROWS", lines.is_row()}, {"EVEN", multiples(draft, 2, used)}});
  define_fft(draft, lines, n);
  store_along(launch, 1, 2, 2);
  launch.stores.align(true);
  launch.local = {static_cast<int>(items), 1, 1};
  const IndexExpr blocks = ir::ceildiv(lines.outer * lines.p * lines.q, count);
  launch.groups = {chirp ? ir::min(blocks, kGroupsOfUnit * caps.units) : blocks, 1, 1};
}

}  // namespace ocl::schedule
