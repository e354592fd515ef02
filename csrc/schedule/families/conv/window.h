// csrc/schedule/families/conv/window.h: sizes of a convolution, and what its offers share.
#pragma once

#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

/// The sizes of a convolution, with the names of the kernels' arguments. C and K are the channels of one group: of the
/// operand with pixels that the kernel reads, and of the output; for a weight gradient, of x and of dy.
struct Window {
  bool data, weight;  // The gradient of the input, of the weight.
  ir::IndexExpr groups, batch, C, K, R, S, in_h, in_w;
  ir::ConvolveAttrs attrs;
  explicit Window(const ir::Node& node);
  /// Pixels of the output for each phase of a strided data gradient; for a weight gradient, pixels of dy.
  ir::IndexExpr pixels;
  int64_t phases = 1;
  const char* kind() const { return weight ? "conv_weight" : data ? "conv_data" : "conv_forward"; }
};
/// Passes the sizes, stride, padding and dilation, and for a weight gradient also the pixels of a slice.
void pass_sizes(Draft& draft, const Window& window, const ir::IndexExpr& C);

/// The slices of the sum over pixels of a weight gradient. If sizes are known only at run time, a slice may be empty. The
/// kernel then stores zeros.
struct PixelSlices {
  ir::IndexExpr pixels;  // Pixels of a slice, a multiple of a step.
  int64_t count;
};
PixelSlices pixel_slices(const ir::IndexExpr& pixels, int64_t wanted, int step);
/// Stores a weight gradient channels-last, in slices that are added afterwards.
void store_slices(Draft& draft, int64_t slices);

}  // namespace ocl::schedule
