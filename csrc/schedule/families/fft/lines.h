// csrc/schedule/families/fft/lines.h: the lines of a Fourier transform in memory, and the steps of a transform.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/schedule/families/operands.h"
#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

/// How the kernels find real and imaginary parts: the macro INPUT.
enum class FftInput : int { kSeparate, kPairs, kReal };

/// The operands of an fft: x[o][k][p][q] at offset + o * x_o + k * x_n + p * x_p + q * x_q in elements.
struct FftLines {
  int64_t n = 0;  // See fft_length.
  ir::IndexExpr outer, p, q;
  TemplateLaunch::Input re, im;  // im is unused unless the input is kSeparate.
  std::vector<ir::IndexExpr> strides;
  FftInput input = FftInput::kPairs;
  bool is_double = false;
  int real_bytes() const { return is_double ? 8 : 4; }
  bool is_row() const { return p.is_const(1) && q.is_const(1); }  // True if the result's lines are contiguous.
};
FftLines fft_lines(Draft& draft);

/// Returns the complex numbers of a line that an fft transforms.
int64_t fft_length(const ir::Node& node);
/// The same of a line as kernels for GPUs transform it: more numbers if a prime factor is too large.
int64_t fft_points(const ir::Node& node);

/// Returns the radices of a transform of n numbers, the largest first. Powers of two become as few radices as possible, each of
/// up to 2^bits. Empty if n has a prime factor above kLargestFftPrime.
std::vector<int> fft_radices(int64_t n, int bits);

/// Defines the macros that all kernels of this family have, with lines of `points` numbers, and passes operands, sizes and
/// strides.
void define_fft(Draft& draft, const FftLines& lines, int64_t points);

/// Returns a number as OpenCL C: "0.5f", or "0.5" for double.
std::string real_literal(double value, bool is_double);

}  // namespace ocl::schedule
