// csrc/schedule/families/depthwise/fits.cpp: what the kernels of depthwise convolutions require, with reasons.
#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

namespace {

bool is_weight(const Draft& d) { return d.node().convolve.kind == ir::ConvolveKind::kWeight; }
const ir::Shape& filter(const Draft& d) { return is_weight(d) ? d.node().sizes : d.node().operands[1].sizes; }
std::string by(const Draft& d) { return filter(d)[2].str() + " x " + filter(d)[3].str(); }

const Fit kKnownFilter = {[](const Draft& d) { return constants({filter(d)[2], filter(d)[3]}); },
                          [](const Draft&) { return std::string("its filter sizes are known only at run time"); }};
std::string many_channels(const Draft& d) {
  const IndexExpr& filters = is_weight(d) ? d.node().operands[1].sizes[1] : d.node().sizes[1];
  return "it is for groups of one channel and one filter, not C = " + d.node().operands[0].sizes[1].str() +
         " and K = " + filters.str() + " in groups = " + std::to_string(d.node().convolve.groups);
}

}  // namespace

Refused why_not_depthwise_group(const Draft& draft) {
  static const Fit rows[] = {kLoadable,
                             {[](const Draft& d) {
                                const int groups = d.node().convolve.groups;
                                const IndexExpr& filters = is_weight(d) ? d.node().operands[1].sizes[1] : d.node().sizes[1];
                                return groups > 1 && d.node().operands[0].sizes[1].is_const(groups) && filters.is_const(groups);
                              },
                              many_channels},
                             kKnownFilter,
                             {[](const Draft& d) { return filter(d)[2].constant() <= 11 && filter(d)[3].constant() <= 11; },
                              [](const Draft& d) { return "a filter of " + by(d) + " is larger than 11 x 11"; }},
                             {[](const Draft& d) {
                                const ir::ConvolveAttrs& conv = d.node().convolve;
                                return std::max({conv.stride[0], conv.stride[1], conv.dilation[0], conv.dilation[1]}) <= 4;
                              },
                              [](const Draft& d) {
                                const auto& [s, t] = d.node().convolve.stride;
                                const auto& [u, v] = d.node().convolve.dilation;
                                return "a stride of " + std::to_string(s) + " x " + std::to_string(t) + " or a dilation of " +
                                       std::to_string(u) + " x " + std::to_string(v) + " is above 4";
                              }}};
  return first_refusal(rows, draft);
}

Refused why_not_depthwise_item(const Draft& draft) {
  static const Fit rows[] = {
      kLoadable,
      {[](const Draft& d) {
         const int groups = d.node().convolve.groups;
         return d.node().operands[0].sizes[1].is_const(groups) && filter(d)[0].is_const(groups) && filter(d)[1].is_const(1);
       },
       many_channels},
      kKnownFilter,
      {[](const Draft& d) { return d.node().convolve.groups >= std::min(d.caps.vector_floats, 4); },
       [](const Draft& d) { return std::to_string(d.node().convolve.groups) + " channels are less than a vector"; }},
      {[](const Draft& d) {
         return filter(d)[2].constant() * filter(d)[3].constant() <= 49 && d.node().convolve.stride[1] <= 8;
       },
       [](const Draft& d) { return "a filter of " + by(d) + " has more than 49 elements, or its stride is above 8"; }}};
  return first_refusal(rows, draft);
}

}  // namespace ocl::schedule
