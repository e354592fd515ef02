// csrc/schedule/families/conv/fits.cpp: what the kernels of convolutions require, with reasons.
#include "csrc/schedule/families/conv/window.h"
#include "csrc/schedule/families/tensor_cores.h"

namespace ocl::schedule {
namespace {

constexpr int64_t kLargestImage = 8000;  // Kernels on tensor cores keep coordinates in 16 bits.

int chunk(const Draft& d) { return tensor_core_math(d)->chunk; }
/// The fewest filters that fill enough of a tile: there are tiles with 32 columns for warpgroups and operands of 16 bits.
int64_t least_filters(const Draft& d) {
  const bool narrow = kernel_row(d.kernel).level == KernelLevel::k_warpgroup && chunk(d) == 8;
  return narrow && d.node().convolve.kind != ir::ConvolveKind::kWeight ? 16 : 24;
}
int64_t filters(const Draft& d) { return typical(Window(d.node()).K, 64); }
/// Elements of a filter: the inner dimension of a convolution, the columns of a weight gradient.
int64_t filter_elements(const Draft& d) {
  const Window window(d.node());
  return typical(window.R * window.S * window.C, 576);
}

const Fit kConstantWindow = {
    [](const Draft& d) {
      const Window w(d.node());
      return constants({w.C, w.K, w.R, w.S});
    },
    [](const Draft&) { return std::string("its channels or filter sizes are known only at run time"); }};
const Fit kOneGroup = {[](const Draft& d) { return d.node().convolve.groups == 1; },
                       [](const Draft& d) { return "it is for one group, not " + std::to_string(d.node().convolve.groups); }};
const Fit kEnoughFilters = {[](const Draft& d) { return filters(d) >= least_filters(d); },
                            [](const Draft& d) {
                              return "K = " + std::to_string(filters(d)) + " is below " + std::to_string(least_filters(d)) +
                                     ": most of a tile would be empty";
                            }};
const Fit kGroupsInChunks = {
    [](const Draft& d) { return d.node().convolve.groups == 1 || multiples(d, chunk(d), {Window(d.node()).C}); },
    [](const Draft& d) {
      return "C = " + Window(d.node()).C.str() + " of a group is no multiple of " + std::to_string(chunk(d));
    }};
const Fit kSmallImage = {[](const Draft& d) {
                           const ir::Shape& x = d.node().operands[0].sizes;
                           return typical(x[2], 1) <= kLargestImage && typical(x[3], 1) <= kLargestImage;
                         },
                         [](const Draft& d) {
                           const ir::Shape& x = d.node().operands[0].sizes;
                           return "an image of " + x[2].str() + " x " + x[3].str() + " is larger than " +
                                  std::to_string(kLargestImage);
                         }};

std::string too_short(const Draft& d, int least) {
  return "C * R * S = " + std::to_string(filter_elements(d)) + " is below " + std::to_string(least) +
         ": most of a tile would be empty";
}

}  // namespace

bool computes_conv(const KernelRow&, const ir::Node& node) {
  return node.kind == ir::NodeKind::kConvolve && node.convolve.kind != ir::ConvolveKind::kWeight;
}

bool computes_conv_weight(const KernelRow&, const ir::Node& node) {
  return node.kind == ir::NodeKind::kConvolve && node.convolve.kind == ir::ConvolveKind::kWeight;
}

Refused why_not_conv_group(const Draft& draft) {
  static const Fit rows[] = {kLoadable};
  return first_refusal(rows, draft);
}

Refused why_not_conv_weight_group(const Draft& draft) { return why_not_conv_group(draft); }

Refused why_not_conv_item(const Draft& draft) {
  static const Fit rows[] = {kLoadable, kConstantWindow};
  return first_refusal(rows, draft);
}

Refused why_not_conv_image_item(const Draft& draft) {
  constexpr int64_t kFewChannels = 4;
  static const Fit rows[] = {
      kLoadable,
      {[](const Draft& d) { return d.node().convolve.kind == ir::ConvolveKind::kForward; },
       [](const Draft& d) {
         return "it computes no gradient of an image, here with " + Window(d.node()).K.str() + " channels";
       }},
      kOneGroup,
      kConstantWindow,
      {[](const Draft& d) { return Window(d.node()).C.constant() <= kFewChannels && Window(d.node()).S.constant() > 1; },
       [](const Draft& d) {
         const Window w(d.node());
         return "C = " + w.C.str() + " is above " + std::to_string(kFewChannels) + ", or S = " + w.S.str() + " is 1";
       }},
      {[](const Draft& d) { return d.node().convolve.dilation[1] == 1; },
       [](const Draft&) { return std::string("the columns of its filters are dilated"); }}};
  return first_refusal(rows, draft);
}

Refused why_not_conv_weight_item(const Draft& draft) { return why_not_conv_item(draft); }

Refused why_not_conv_weight_packed_item(const Draft& draft) {
  static const Fit rows[] = {kLoadable,
                             kOneGroup,
                             kConstantWindow,
                             {[](const Draft& d) {
                                const Window w(d.node());
                                return in_whole_tiles(d.caps, w.K.constant(), w.C.constant());
                              },
                              [](const Draft& d) {
                                const Window w(d.node());
                                return "C = " + w.C.str() + " and K = " + w.K.str() + " are no whole vectors of " +
                                       std::to_string(d.caps.vector_floats);
                              }}};
  return first_refusal(rows, draft);
}

Refused why_not_conv_tensor_core(const Draft& draft) {
  static const Fit rows[] = {
      kMultiplied,
      kEnoughFilters,
      {[](const Draft& d) { return filter_elements(d) >= 16; }, [](const Draft& d) { return too_short(d, 16); }},
      kGroupsInChunks,
      kSmallImage};
  return first_refusal(rows, draft);
}

Refused why_not_conv_weight_tensor_core(const Draft& draft) {
  static const Fit rows[] = {
      kMultiplied,
      {[](const Draft& d) { return multiples(d, chunk(d), {Window(d.node()).K}); },
       [](const Draft& d) { return "K = " + Window(d.node()).K.str() + " is no multiple of " + std::to_string(chunk(d)); }},
      kConstantWindow,
      kEnoughFilters,
      {[](const Draft& d) { return filter_elements(d) >= 24; }, [](const Draft& d) { return too_short(d, 24); }},
      kGroupsInChunks,
      kSmallImage};
  return first_refusal(rows, draft);
}

}  // namespace ocl::schedule
