// csrc/schedule/families/fft/offer_item.cpp: offers kernels/fft/item.cl, Fourier transforms on CPUs.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "csrc/schedule/families/fft/lines.h"

namespace ocl::schedule {

namespace {

// A work-item transforms about this many numbers, so that its start costs little.
constexpr int64_t kItemNumbers = 1 << 15;

/// How vectors cover the lines: the macros of the kernel.
struct Form {
  int lanes = 8;
  bool split = false, columns = false, lines_in = false, lines_out = false;
  int64_t step = 0;  // The stride between lanes; 0: each lane has its own.
};

int64_t constant_or(const IndexExpr& e, int64_t otherwise) { return e.is_const() ? e.constant() : otherwise; }

Form form_of(const Draft& draft, const FftLines& lines) {
  const int widest = draft.caps.vector_floats >= 16 && !lines.is_double ? 16 : 8;
  const int64_t along = constant_or(lines.strides[1], 0);
  const bool contiguous = along == (lines.input == FftInput::kPairs ? 2 : 1);
  Form form;
  form.lanes = widest;
  if (lines.is_row()) {
    for (const int lanes : {widest, 8})
      if (contiguous && lines.n % (lanes * lanes) == 0) {
        form.lanes = lanes;
        form.split = form.columns = true;
        form.step = along;
        return form;
      }
    form.lines_out = !lines.is_double;
  } else {
    const ir::Ranges ranges = draft.graph.ranges();
    if (!ranges.known_less(widest - 1, lines.p * lines.q)) form.lanes = 8;
    form.columns = ranges.known_less(form.lanes - 1, lines.p * lines.q);
    const bool along_q = lines.p.is_const(1) || ranges.known_divides(form.lanes, lines.q);
    if (form.columns && along_q) form.step = constant_or(lines.strides[3], 0);
    if (form.columns && lines.q.is_const(1)) form.step = constant_or(lines.strides[2], 0);
  }
  const bool by_lanes = form.columns && (form.step == 1 || form.step == (lines.input == FftInput::kPairs ? 2 : 1));
  form.lines_in = !by_lanes && !lines.is_double && lines.input == FftInput::kPairs && along == 2;
  return form;
}

/// Adds w(n, turns) = exp(-2 pi i turns / n) as (cos, sin of the positive angle), rounded once.
void add_root(std::string& text, int64_t turns, int64_t n, bool imaginary, bool is_double) {
  // Within an eighth of a turn around a multiple of a quarter, sin and cos are exact to half a unit.
  turns %= n;
  const int64_t quarter = (8 * turns + n) / (2 * n);
  const double angle = std::numbers::pi / 2 * static_cast<double>(4 * turns - quarter * n) / static_cast<double>(n);
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const double c[] = {cosine, -sine, -cosine, sine}, s[] = {sine, cosine, -sine, -cosine};
  text += (text.empty() ? "" : ", ") + real_literal((imaginary ? s : c)[quarter % 4], is_double);
}

/// Defines the steps of a transform of n numbers, and their roots. Returns the copy that has the result of the last step.
int define_steps(TemplateLaunch& launch, const std::vector<int>& radices, bool loaded, bool is_double) {
  std::string steps, roots;
  int64_t before = 1, at = 0;
  int from = loaded ? 0 : 1;
  for (const int radix : radices) {
    steps += "S(" + std::to_string(radix) + ", " + std::to_string(before) + ", " + std::to_string(from) + ", " +
             std::to_string(at) + ") ";
    for (int64_t t = 0; before > 1 && t < before; ++t)
      for (int q = 1; q < radix; ++q)
        for (const bool imaginary : {false, true}) {
          add_root(roots, q * t, before * radix, imaginary, is_double);
          ++at;
        }
    before *= radix;
    from = 1 - from;
  }
  launch.defines.emplace_back("STEPS(S)", steps);
  launch.defines.emplace_back("ROOTS", roots.empty() ? real_literal(1, is_double) : roots);
  return from;
}

/// Defines the roots of the step across the lanes of a split line.
void define_turns(TemplateLaunch& launch, int64_t n, int lanes, bool is_double) {
  std::string turns;
  for (int64_t k = 0; k < n / lanes; k += lanes)
    for (int l = 0; l < lanes; ++l)
      for (const bool imaginary : {false, true})
        for (int i = 0; i < lanes; ++i) add_root(turns, l * (k + i), n, imaginary, is_double);
  launch.defines.emplace_back("TURNS", turns);
}

}  // namespace

void offer_fft_item(Draft& draft) {
  const FftLines lines = fft_lines(draft);
  Form form = form_of(draft, lines);
  TemplateLaunch& launch = draft.launch();
  const int64_t numbers = form.split ? lines.n / form.lanes : lines.n;
  const std::vector<int> radices = fft_radices(numbers, draft.caps.vector_floats >= 16 ? 4 : 3);
  const int64_t kept = static_cast<int64_t>(radices.size()) - 1 + form.lines_in + (form.lines_out || form.split);
  const int64_t copies = std::clamp<int64_t>(kept, 1, 2);
  if (copies * numbers * 2 * form.lanes * lines.real_bytes() > draft.caps.local_bytes)
    launch.defines.emplace_back("SPACE", "__private");
  launch.variant = std::to_string(lines.n) +
                   (form.split     ? " split in "
                    : form.columns ? " columns x "
                                   : " lines x ") +
                   std::to_string(form.lanes);
  define(launch, {{"VW", 16}, {"LANES", form.lanes}, {"COLUMNS", form.columns}, {"STEP_IN", form.step}});
  define(launch, {{"LINES_IN", form.lines_in}, {"LINES_OUT", form.lines_out}, {"SPLIT", form.split}, {"COPIES", copies}});
  define(launch, "RESULT", define_steps(launch, radices, form.lines_in, lines.is_double));
  if (form.split) define_turns(launch, lines.n, form.lanes, lines.is_double);
  define_fft(draft, lines, lines.n);
  store_along(launch, 1, 16, 2);

  const IndexExpr inner = lines.p * lines.q;
  const IndexExpr blocks = form.split     ? lines.outer
                           : form.columns ? lines.outer * ir::ceildiv(inner, form.lanes)
                                          : ir::ceildiv(lines.outer * inner, form.lanes);
  const int64_t block = lines.n * (form.split ? 1 : form.lanes);
  const int64_t each =
      std::clamp<int64_t>(typical(blocks, 64) / (4 * draft.caps.units), 1, std::max<int64_t>(1, kItemNumbers / block));
  launch.arg("blocks_per_item", each);
  launch.groups = {ir::ceildiv(blocks, each), 1, 1};
}

}  // namespace ocl::schedule
