// csrc/schedule/families/fft/lines.cpp: the lines of a Fourier transform in memory, and the steps of a transform.
#include "csrc/schedule/families/fft/lines.h"

#include <algorithm>
#include <charconv>
#include <functional>

namespace ocl::schedule {

FftLines fft_lines(Draft& draft) {
  const std::vector<ir::View> operands = draft.node().operands;
  const ir::Shape& sizes = operands[0].sizes;
  FftLines lines;
  lines.n = fft_length(draft.node());
  lines.outer = sizes[0], lines.p = sizes[2], lines.q = sizes[3];
  lines.is_double = draft.buffer(operands[0].buffer).dtype == ir::DType::kF64;
  const std::vector<int> order = {0, 1, 2, 3};
  std::optional<Operand> re = strided_operand(draft, operands[0], order);
  if (!re) re = dense_copy(draft, operands[0], order);
  if (operands.size() == 1) {
    lines.input = FftInput::kReal;
  } else {
    std::optional<Operand> im = strided_operand(draft, operands[1], order);
    if (!im || im->strides != re->strides) {
      re = dense_copy(draft, operands[0], order);
      im = dense_copy(draft, operands[1], order);
    }
    const bool pairs = re->input.buffer == im->input.buffer && (im->input.offset - re->input.offset).is_const(1);
    lines.input = pairs ? FftInput::kPairs : FftInput::kSeparate;
    lines.im = im->input;
  }
  lines.re = re->input;
  lines.strides = re->strides;
  return lines;
}

int64_t fft_length(const ir::Node& node) {
  return node.operands[0].sizes[1].constant() - (node.fft.form == ir::FftForm::kToReal ? 1 : 0);
}

int64_t fft_points(const ir::Node& node) {
  const int64_t n = fft_length(node);
  return fft_radices(n, 4).empty() ? chirp_length(n) : n;
}

std::vector<int> fft_radices(int64_t n, int bits) {
  std::vector<int> radices;
  for (int prime = 3; prime <= kLargestFftPrime; prime += 2)
    for (; n % prime == 0; n /= prime) radices.push_back(prime);
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  if (n != 1) return {};
  for (int steps = (twos + bits - 1) / bits; steps > 0; --steps) {
    const int taken = (twos + steps - 1) / steps;
    radices.push_back(1 << taken);
    twos -= taken;
  }
  if (radices.empty()) radices.push_back(1);
  std::stable_sort(radices.begin(), radices.end(), std::greater<>());
  return radices;
}

std::string real_literal(double value, bool is_double) {
  char buffer[40];
  const auto end = is_double ? std::to_chars(buffer, buffer + sizeof buffer, value).ptr
                             : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return is_double ? text : text + "f";
}

void define_fft(Draft& draft, const FftLines& lines, int64_t points) {
  TemplateLaunch& launch = draft.launch();
  const ir::FftAttrs& attrs = draft.node().fft;
  launch.kind = "fft";
  define(launch, "N", points);
  if (const int largest = fft_radices(points, 4).front(); largest > 16) define(launch, "LARGEST_RADIX", largest);
  define(launch, "INPUT", static_cast<int>(lines.input));
  if (lines.is_double) define(launch, "FFT_DOUBLE", 1);
  if (attrs.inverse) define(launch, "INVERSE", 1);
  if (attrs.root != 0 && !lines.p.is_const(1)) define(launch, "ROOT", attrs.root);
  if (attrs.scale != 1) launch.defines.emplace_back("SCALE", real_literal(attrs.scale, lines.is_double));
  launch.buffer("re", lines.re);
  if (lines.input == FftInput::kSeparate) launch.buffer("im", lines.im);
  launch.args({{"O", lines.outer}, {"P", lines.p}, {"Q", lines.q}});
  launch.args({{"x_o", lines.strides[0]}, {"x_n", lines.strides[1]}, {"x_p", lines.strides[2]}, {"x_q", lines.strides[3]}});
}

}  // namespace ocl::schedule
