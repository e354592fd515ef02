// csrc/schedule/families/winograd/fits.cpp: what Winograd's kernels require, with reasons.
#include "csrc/schedule/families/winograd/filters.h"

namespace ocl::schedule {
namespace {

/// The size of kernels/winograd/group.cl's LOCAL_FLOATS in bytes.
int64_t local_bytes(const Draft& d) { return winograd_group_channels(d.caps) == 32 ? 36864 : 32768; }
ir::IndexExpr groups(const Draft& d) { return winograd_groups(d.node(), winograd_group_channels(d.caps)); }

const ir::Shape& filter(const Draft& d) {
  const ir::Node& node = d.node();
  return node.convolve.kind == ir::ConvolveKind::kWeight ? node.sizes : node.operands[1].sizes;
}
std::string by(const std::array<int, 2>& values) { return std::to_string(values[0]) + " x " + std::to_string(values[1]); }
std::string channels(const Draft& d) {
  const auto [C, K] = winograd_channels(d.node());
  return "C = " + C.str() + " and K = " + K.str();
}
/// True if both numbers of channels are known and at least these.
bool enough(const Draft& d, int64_t least_c, int64_t least_k) {
  const auto [C, K] = winograd_channels(d.node());
  return constants({C, K}) && C.constant() >= least_c && K.constant() >= least_k;
}

const Fit kThreeByThree = {
    [](const Draft& d) { return filter(d)[2].is_const(3) && filter(d)[3].is_const(3); },
    [](const Draft& d) { return "it is for filters of 3 x 3, not " + filter(d)[2].str() + " x " + filter(d)[3].str(); }};
const Fit kPlainWindow = {[](const Draft& d) {
                            const ir::ConvolveAttrs& conv = d.node().convolve;
                            return conv.groups == 1 && conv.stride == std::array<int, 2>{1, 1} &&
                                   conv.dilation == std::array<int, 2>{1, 1};
                          },
                          [](const Draft& d) {
                            const ir::ConvolveAttrs& conv = d.node().convolve;
                            return "it is for one group, stride 1 and dilation 1, not groups = " + std::to_string(conv.groups) +
                                   ", stride " + by(conv.stride) + " and dilation " + by(conv.dilation);
                          }};
const Fit kFp32 = {[](const Draft& d) {
                     const auto& operands = d.node().operands;
                     return std::all_of(operands.begin(), operands.end(),
                                        [&](const ir::View& view) { return d.buffer(view.buffer).dtype == ir::DType::kF32; });
                   },
                   [](const Draft&) { return std::string("only f32 is precise enough for transformed filters"); }};

}  // namespace

Refused why_not_winograd_group(const Draft& draft) {
  static const Fit rows[] = {
      kThreeByThree,
      kPlainWindow,
      kFp32,
      {[](const Draft& d) { return !d.caps.local_is_global; },
       [](const Draft&) {
         return std::string("the device's local memory is global memory, and its transforms go through it");
       }},
      {[](const Draft& d) { return d.caps.max_group_size >= 256 && d.caps.local_bytes >= local_bytes(d); },
       [](const Draft& d) {
         return "it needs 256 work-items and " + std::to_string(local_bytes(d)) + " bytes of local memory in a work-group";
       }},
      {[](const Draft& d) { return constants(d.node().sizes) && enough(d, 32, 32); },
       [](const Draft& d) { return channels(d) + ": it needs known sizes and at least 32 channels"; }},
      // This kernel is 1.05 to 1.2 times as fast as conv_group if its work-groups fill the device and few outputs are cut
      // off. On an H200 that holds from 56x56 to 14x14, but not for 7x7.
      {[](const Draft& d) { return groups(d).constant() >= 4 * static_cast<int64_t>(d.caps.units); },
       [](const Draft& d) {
         return groups(d).str() + " work-groups do not fill " + std::to_string(d.caps.units) + " compute units";
       }},
      {[](const Draft& d) {
         const ir::Shape& y = d.node().sizes;
         return winograd_patches(d.node()).constant() * 4 * 10 <= y[0].constant() * y[2].constant() * y[3].constant() * 11;
       },
       [](const Draft& d) {
         const ir::Shape& y = d.node().sizes;
         return "its patches of 2 x 2 would be cut off too often in an output of " + y[2].str() + " x " + y[3].str();
       }}};
  return first_refusal(rows, draft);
}

Refused why_not_winograd_item(const Draft& draft) {
  static const Fit rows[] = {
      kThreeByThree,
      kPlainWindow,
      kFp32,
      {[](const Draft& d) {
         const ir::ConvolveAttrs& conv = d.node().convolve;
         return conv.kind != ir::ConvolveKind::kData || (conv.padding[0] <= 2 && conv.padding[1] <= 2);
       },
       [](const Draft& d) { return "a padding of " + by(d.node().convolve.padding) + " is above 2"; }},
      {[](const Draft& d) { return enough(d, 16, 32); },
       [](const Draft& d) { return channels(d) + ": it needs at least 16 and 32 channels"; }},
      {[](const Draft& d) { return typical(winograd_patches(d.node()), 1024) >= 32; },
       [](const Draft& d) { return "it needs at least 32 patches of 2 x 2, not " + winograd_patches(d.node()).str(); }}};
  return first_refusal(rows, draft);
}

Refused why_not_winograd_weight_item(const Draft& draft) {
  static const Fit rows[] = {
      kLoadable,
      kThreeByThree,
      kPlainWindow,
      {[](const Draft& d) {
         const auto [C, K] = winograd_channels(d.node());
         return enough(d, 16, 16) && in_whole_tiles(d.caps, K.constant(), C.constant());
       },
       [](const Draft& d) {
         return channels(d) + ": it needs at least 16 channels, in whole vectors of " + std::to_string(d.caps.vector_floats);
       }},
      {[](const Draft& d) { return winograd_weight_patches(d.node()) >= 64; },
       [](const Draft& d) {
         return "it needs at least 64 patches of 2 x 2, not " + std::to_string(winograd_weight_patches(d.node()));
       }}};
  return first_refusal(rows, draft);
}

}  // namespace ocl::schedule
