// csrc/schedule/families/winograd/offer_group.cpp: offers kernels/winograd/group.cl, 3x3 convolution with stride 1 and its
// data gradient on GPUs.
#include "csrc/ir/append.h"
#include "csrc/schedule/families/winograd/filters.h"

namespace ocl::schedule {
namespace {

/// Adds ops for G * (g0, g1, g2), the filter transform of F(2, 3). Returns the numbers of the four results.
std::array<int, 4> points(ir::Node& node, int g0, int g1, int g2) {
  const auto f32 = [&](ir::OpCode code, int left, int right) { return push(node.body, code, ir::DType::kF32, {left, right}); };
  const int half = push_constant(node.body, 0.5), outer = f32(ir::OpCode::k_add, g0, g2);
  const int first = f32(ir::OpCode::k_mul, half, f32(ir::OpCode::k_add, outer, g1));
  return {g0, first, f32(ir::OpCode::k_mul, half, f32(ir::OpCode::k_sub, outer, g1)), g2};
}

/// Adds a Map that writes the transformed filters G g G^T, and returns them as u [16][C][K]. turned: true for the data
/// gradient, with filters rotated by 180 degrees and channels exchanged.
TemplateLaunch::Input transformed(Draft& draft, const ir::View& w, const IndexExpr& C, const IndexExpr& K, bool turned) {
  ir::Buffer buffer;
  buffer.sizes = {16, C, K};
  buffer.strides = ir::contiguous_strides(buffer.sizes);
  const ir::BufferId u = draft.add(buffer);
  ir::Node node;
  node.kind = ir::NodeKind::kMap;
  node.sizes = {C, K};
  const IndexExpr c = IndexExpr::loop(0), k = IndexExpr::loop(1);
  std::array<std::array<int, 4>, 3> columns;
  for (int s = 0; s < 3; ++s) {
    std::array<int, 3> g;
    for (int r = 0; r < 3; ++r) {
      std::vector<IndexExpr> at;
      const IndexExpr row = turned ? 2 - r : r, column = turned ? 2 - s : s;
      for (const IndexExpr& e : w.coords)
        at.push_back(ir::substitute(e, {{IndexExpr::loop(0).symbol(), turned ? c : k},
                                        {IndexExpr::loop(1).symbol(), turned ? k : c},
                                        {IndexExpr::loop(2).symbol(), row},
                                        {IndexExpr::loop(3).symbol(), column}}));
      g[r] = push_load(node.body, ir::DType::kF32, w.buffer, at);
    }
    columns[s] = points(node, g[0], g[1], g[2]);
  }
  for (int r = 0; r < 4; ++r) {
    const std::array<int, 4> row = points(node, columns[0][r], columns[1][r], columns[2][r]);
    for (int s = 0; s < 4; ++s) node.stores.push_back({u, {r * 4 + s, c, k}, row[s]});
  }
  draft.prepare(u, std::move(node));
  return {u, 0};
}

}  // namespace

std::pair<IndexExpr, IndexExpr> winograd_channels(const ir::Node& node) {
  if (node.convolve.kind == ir::ConvolveKind::kWeight) return {node.sizes[1], node.sizes[0]};
  return {node.operands[0].sizes[1], node.sizes[1]};
}

IndexExpr winograd_patches(const ir::Node& node, int columns) {
  return node.sizes[0] * ir::ceildiv(node.sizes[2], 2) * ir::ceildiv(node.sizes[3], columns);
}

int64_t winograd_weight_patches(const ir::Node& node) {
  const ir::Shape& dy = node.operands[1].sizes;
  return typical(dy[0], 8) * ((typical(dy[2], 28) + 1) / 2) * ((typical(dy[3], 28) + 1) / 2);
}

IndexExpr winograd_groups(const ir::Node& node, int channels) {
  return ir::ceildiv(winograd_patches(node), 32) * ir::ceildiv(node.sizes[1], channels);
}

int winograd_group_channels(const Caps& caps) { return few_registers(caps) ? 16 : 32; }

void offer_winograd_group(Draft& draft) {
  const ir::Node& node = draft.node();
  const bool data = node.convolve.kind == ir::ConvolveKind::kData;
  const ir::ConvolveAttrs& attrs = node.convolve;
  const ir::View &x = node.operands[0], &w = node.operands[1];
  const IndexExpr &K = node.sizes[1], &C = x.sizes[1];
  const Operand image = channels_last_image(draft, x);
  TemplateLaunch& launch = draft.launch();
  launch.kind = "winograd";
  launch.variant = "F(2,3)";
  define_types(draft, launch, 4);
  define(launch, "U_VEC4", multiples(draft, 4, {K}));
  const int channels = winograd_group_channels(draft.caps);
  define(launch, "CHANNELS", channels);
  if (few_registers(draft.caps)) define(launch, "MULTIPLY_DEPTH", 2);
  if (draft.caps.thread_items > 0) define(launch, "FETCH_AHEAD", 0);
  launch.buffers({{"x", image.input}, {"u", transformed(draft, w, C, K, data)}});
  define_alignment(draft);
  const int pad_h = data ? 2 - attrs.padding[0] : attrs.padding[0], pad_w = data ? 2 - attrs.padding[1] : attrs.padding[1];
  launch.args({{"batch", node.sizes[0]}, {"C", C}, {"K", K}, {"pad_h", pad_h}, {"pad_w", pad_w}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", node.sizes[2]}, {"out_w", node.sizes[3]}});
  pass_image(launch, "x", image, false);
  launch.groups = {winograd_groups(node, channels), 1, 1};
  launch.local = {256, 1, 1};
  store_along(launch, 1, 4);
  draft.lay_out(node.outputs[0], kChannelsLast);
}

}  // namespace ocl::schedule
