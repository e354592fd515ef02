// csrc/schedule/families/fft/cases.cpp: check cases of the kernels of Fourier transforms.
#include <cmath>
#include <numbers>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/case.h"
#include "csrc/schedule/families/fft/lines.h"

namespace ocl::schedule {
namespace {

using enum ir::FftForm;

/// Lines x[outer][n][p][q], and the attributes of the transform. offset: see CheckCase.
struct Problem {
  int outer, n, p, q;
  FftInput input;
  bool inverse = false;
  double scale = 1;
  int root = 0, offset = 0;
  ir::FftForm form = kComplex;
  size_t count() const { return static_cast<size_t>(outer) * n * p * q; }
};

// Lines that are split over lanes, that are transposed on their way, and that lie across vectors; radices of 2 to 31. A
// work-item of the kernel of work-groups has two butterflies of some steps of 1250 numbers. Its work-groups have several blocks
// of the 50 lines of 67 numbers.
constexpr Problem kProblems[] = {{3, 1, 1, 1, FftInput::kPairs},
                                 {5, 2, 1, 1, FftInput::kReal},
                                 {17, 8, 1, 1, FftInput::kPairs, true},
                                 {9, 30, 1, 1, FftInput::kSeparate, true, 1.0 / 30},
                                 {2, 64, 1, 1, FftInput::kPairs},
                                 {3, 256, 1, 1, FftInput::kPairs, true, 1.0 / 16, 0, 1},
                                 {33, 77, 1, 1, FftInput::kReal},
                                 {2, 16, 3, 1, FftInput::kPairs, false, 1, 48},
                                 {2, 12, 1, 20, FftInput::kPairs},
                                 {1, 128, 4, 5, FftInput::kSeparate, true, 0.5, 512},
                                 {2, 31, 17, 1, FftInput::kPairs, false, 1, 527},
                                 {3, 45, 1, 16, FftInput::kReal, false, 1, 0, 1},
                                 {1, 1024, 1, 1, FftInput::kPairs},
                                 {1, 1000, 2, 1, FftInput::kPairs, false, 1, 2000},
                                 {1, 1250, 1, 1, FftInput::kPairs},
                                 {5, 1, 1, 1, FftInput::kPairs, false, 1, 0, 0, kFromReal},
                                 {3, 500, 1, 1, FftInput::kPairs, true, 0.5, 0, 0, kFromReal},
                                 {9, 2, 1, 1, FftInput::kSeparate, false, 1, 0, 1, kToReal},
                                 {3, 513, 1, 1, FftInput::kPairs, true, 0.5, 0, 0, kToReal},
                                 {50, 67, 1, 1, FftInput::kPairs},
                                 {2, 127, 1, 9, FftInput::kSeparate, true, 0.5}};

/// The definition of FftAttrs. re(i), im(i): the parts of element i.
template <class Real, class Imaginary>
Sums transforms(const Problem& f, const Real& re, const Imaginary& im) {
  Sums sums(2 * f.count());
  const double turn = (f.inverse ? 2 : -2) * std::numbers::pi;
  for (int64_t o = 0; o < f.outer; ++o)
    for (int64_t k = 0; k < f.n; ++k)
      for (int64_t p = 0; p < f.p; ++p)
        for (int64_t q = 0; q < f.q; ++q)
          for (int64_t j = 0; j < f.n; ++j) {
            const auto place = [&](int64_t line) { return static_cast<size_t>(((o * f.n + line) * f.p + p) * f.q + q); };
            const double twisted = f.root == 0 ? 0 : static_cast<double>(k * p % f.root) / f.root;
            const double angle = turn * (static_cast<double>(j * k % f.n) / f.n + twisted);
            const double x = f.scale * re(place(j)), y = f.scale * im(place(j)), size = std::hypot(x, y);
            sums.add(2 * place(k), x * std::cos(angle) - y * std::sin(angle), size);
            sums.add(2 * place(k) + 1, x * std::sin(angle) + y * std::cos(angle), size);
          }
  return sums;
}

/// The definitions of kFromReal and kToReal: the transform of the whole line, of which every number is given or computed.
template <class Real, class Imaginary>
Sums real_transforms(const Problem& f, const Real& re, const Imaginary& im) {
  const bool to_real = f.form == kToReal;
  const int64_t n = ir::fft_results(f.form, f.n), whole = 2 * (to_real ? n : f.n);
  Sums sums(2 * static_cast<size_t>(f.outer * n));
  for (int64_t o = 0; o < f.outer; ++o)
    for (int64_t k = 0; k < (to_real ? whole : n); ++k)
      for (int64_t j = 0; j < whole; ++j) {
        const double angle =
            (f.inverse ? 2 : -2) * std::numbers::pi * static_cast<double>(j * k % whole) / static_cast<double>(whole);
        const int64_t given = to_real ? std::min(j, whole - j) : j / 2;
        const auto place = static_cast<size_t>(o * f.n + given);
        double x = re(place), y = given % n == 0 ? 0 : given == j ? im(place) : -im(place);
        if (!to_real) x = j % 2 ? im(place) : re(place), y = 0;
        const double size = f.scale * std::hypot(x, y);
        const double real = x * std::cos(angle) - y * std::sin(angle), imaginary = x * std::sin(angle) + y * std::cos(angle);
        const auto result = static_cast<size_t>(to_real ? o * whole + k : 2 * (o * n + k));
        sums.add(result, f.scale * real, size);
        if (!to_real) sums.add(result + 1, f.scale * imaginary, size);
      }
  return sums;
}

CheckCase fft_case(const CheckSubject& subject, const Problem& f) {
  ir::Builder builder;
  const bool pairs = f.input == FftInput::kPairs;
  ir::Shape sizes = {f.outer, f.n, f.p, f.q};
  if (pairs) sizes.emplace_back(2);
  const auto input = [&] { return builder.input(ir::DType::kF32, sizes, ir::contiguous_strides(sizes), false, false); };
  const ir::Value first = input(), second = f.input == FftInput::kSeparate ? input() : first;
  ir::FftAttrs attrs;
  attrs.inverse = f.inverse, attrs.scale = f.scale, attrs.root = f.root, attrs.form = f.form;
  const ir::Value y = pairs ? builder.fft(builder.select(first, 4, 0), builder.select(first, 4, 1), attrs)
                      : f.input == FftInput::kReal ? builder.fft(first, std::nullopt, attrs)
                                                   : builder.fft(first, second, attrs);
  const int64_t results = ir::fft_results(f.form, f.n);
  builder.output(y, ir::contiguous_strides({f.outer, results, f.p, f.q, 2}));
  const ir::Graph graph = builder.finish();
  CheckCase check = case_of(subject.offer(graph, ""), graph, f.offset, [=] {
    const std::vector<float> a = subject.values(f.count() * (pairs ? 2 : 1), 1), b = subject.values(f.count(), 2);
    CaseData data;
    data.inputs.push_back(subject.stored(a));
    if (f.input == FftInput::kSeparate) data.inputs.push_back(subject.stored(b));
    const auto re = [&](size_t i) -> double { return a[pairs ? 2 * i : i]; };
    const auto im = [&](size_t i) -> double { return pairs ? a[2 * i + 1] : f.input == FftInput::kReal ? 0 : b[i]; };
    data.results = f.form == kComplex ? transforms(f, re, im) : real_transforms(f, re, im);
    return data;
  });
  check.strides = {2 * results * f.p * f.q, 1};
  check.tolerance = 3e-7;
  return check;
}

}  // namespace

std::vector<CheckCase> fft_cases(const CheckSubject& subject) {
  std::vector<CheckCase> cases;
  for (const CheckSubject& on : on_devices(subject))
    for (const Problem& f : kProblems)
      if (subject.row.level == KernelLevel::k_group || (f.form == kComplex && !fft_radices(f.n, 4).empty()))
        cases.push_back(fft_case(on, f));
  return cases;
}

}  // namespace ocl::schedule
