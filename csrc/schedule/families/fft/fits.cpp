// csrc/schedule/families/fft/fits.cpp: what the kernels of Fourier transforms require, with reasons.
#include "csrc/schedule/families/fft/lines.h"

namespace ocl::schedule {
namespace {

int64_t line(const Draft& d) { return fft_length(d.node()); }
int64_t line_bytes(const Draft& d) { return 2 * fft_points(d.node()) * size_bytes(d.buffer(d.node().outputs[0]).dtype); }

const Fit kPlain = {[](const Draft& d) { return d.node().fft.form == ir::FftForm::kComplex; },
                    [](const Draft&) { return std::string("it makes no real line of a complex one"); }};
const Fit kSmooth = {
    [](const Draft& d) { return !fft_radices(line(d), 4).empty(); },
    [](const Draft& d) { return std::to_string(line(d)) + " has a prime factor above " + std::to_string(kLargestFftPrime); }};
const Fit kShortLine = {
    [](const Draft& d) { return line(d) <= kLongestFft; },
    [](const Draft& d) { return "lines of " + std::to_string(line(d)) + " are longer than " + std::to_string(kLongestFft); }};
const Fit kLocalLine = {[](const Draft& d) { return line_bytes(d) <= d.caps.local_bytes; },
                        [](const Draft& d) {
                          return "a line of " + std::to_string(line_bytes(d)) + " bytes does not fit into " +
                                 std::to_string(d.caps.local_bytes) + " bytes of local memory";
                        }};

}  // namespace

bool computes_fft(const KernelRow&, const ir::Node& node) { return node.kind == ir::NodeKind::kFft; }

Refused why_not_fft_item(const Draft& draft) {
  static const Fit rows[] = {kPlain, kSmooth, kShortLine};
  return first_refusal(rows, draft);
}

Refused why_not_fft_group(const Draft& draft) {
  static const Fit rows[] = {kLocalLine};
  return first_refusal(rows, draft);
}

}  // namespace ocl::schedule
