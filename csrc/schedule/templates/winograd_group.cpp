// csrc/schedule/templates/winograd_group.cpp: chooses kernels/winograd/group.cl, 3x3 convolution with stride 1 and its
// data gradient on GPUs.
#include "csrc/ir/facts.h"
#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

int add(ir::Node& node, ir::Op op) {
  node.body.ops.push_back(std::move(op));
  return static_cast<int>(node.body.ops.size()) - 1;
}

int constant(ir::Node& node, double value) {
  ir::Op op;
  op.constant.f = value;
  return add(node, op);
}

int apply(ir::Node& node, const char* name, int left, int right) {
  ir::Op op;
  op.code = ir::op_code(name);
  op.args = {left, right};
  return add(node, op);
}

/// Adds ops for G * (g0, g1, g2), the filter transform of F(2, 3). Returns the numbers of the four results.
std::array<int, 4> points(ir::Node& node, int g0, int g1, int g2) {
  const int half = constant(node, 0.5), outer = apply(node, "add", g0, g2);
  return {g0, apply(node, "mul", half, apply(node, "add", outer, g1)), apply(node, "mul", half, apply(node, "sub", outer, g1)),
          g2};
}

/// Adds a Map that writes the transformed filters G g G^T, and returns them as u [16][C][K]. turned: true for the data
/// gradient, with filters rotated by 180 degrees and channels exchanged.
TemplateLaunch::Input transformed(TemplateContext& context, const ir::View& w, const IndexExpr& C, const IndexExpr& K,
                                  bool turned) {
  ir::Buffer buffer;
  buffer.sizes = {16, C, K};
  buffer.strides = ir::contiguous_strides(buffer.sizes);
  const ir::BufferId u = context.graph.add_buffer(buffer);
  ir::Node node;
  node.kind = ir::NodeKind::kMap;
  node.origin = context.graph.nodes[context.node].origin;
  node.sizes = {C, K};
  const IndexExpr c = IndexExpr::loop(0), k = IndexExpr::loop(1);
  std::array<std::array<int, 4>, 3> columns;
  for (int s = 0; s < 3; ++s) {
    std::array<int, 3> g;
    for (int r = 0; r < 3; ++r) {
      ir::Op load;
      load.code = ir::OpCode::kLoad;
      load.buffer = w.buffer;
      const IndexExpr row = turned ? 2 - r : r, column = turned ? 2 - s : s;
      for (const IndexExpr& e : w.coords)
        load.index.push_back(ir::substitute(e, {{IndexExpr::loop(0).symbol(), turned ? c : k},
                                                {IndexExpr::loop(1).symbol(), turned ? k : c},
                                                {IndexExpr::loop(2).symbol(), row},
                                                {IndexExpr::loop(3).symbol(), column}}));
      g[r] = add(node, load);
    }
    columns[s] = points(node, g[0], g[1], g[2]);
  }
  for (int r = 0; r < 4; ++r) {
    const std::array<int, 4> row = points(node, columns[0][r], columns[1][r], columns[2][r]);
    for (int s = 0; s < 4; ++s) node.stores.push_back({u, {r * 4 + s, c, k}, row[s]});
  }
  context.before.push_back(std::move(node));
  return {u, 0};
}

}  // namespace

bool choose_winograd_group(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || node.convolve.kind == ir::ConvolveKind::kWeight || !loadable(context))
    return false;
  const bool data = node.convolve.kind == ir::ConvolveKind::kData;
  const ir::ConvolveAttrs& attrs = node.convolve;
  const ir::View &x = node.operands[0], &w = node.operands[1];
  const std::array<int, 2> one{1, 1};
  if (attrs.groups != 1 || attrs.stride != one || attrs.dilation != one || !w.sizes[2].is_const(3) || !w.sizes[3].is_const(3))
    return false;
  if (context.graph.buffers[x.buffer].dtype != ir::DType::kF32 || context.caps.max_group_size < 256) return false;
  // The size of kernels/winograd/group.cl's LOCAL_FLOATS in bytes.
  if (context.caps.local_bytes < 36864) return false;
  const IndexExpr batch = node.sizes[0], K = node.sizes[1], P = node.sizes[2], Q = node.sizes[3], C = x.sizes[1];
  if (!constants({batch, C, K, P, Q})) return false;
  // This kernel is 1.05 to 1.2 times as fast as conv_group if its work-groups fill the device and few outputs are cut
  // off. On an H200 that holds from 56x56 to 14x14, but not for 7x7.
  const IndexExpr patches = batch * ir::ceildiv(P, 2) * ir::ceildiv(Q, 2);
  const IndexExpr work_groups = ir::ceildiv(patches, 32) * ir::ceildiv(K, 32);
  if (C.constant() < 32 || K.constant() < 32 || work_groups.constant() < 4 * static_cast<int64_t>(context.caps.units))
    return false;
  if (patches.constant() * 4 * 10 > batch.constant() * P.constant() * Q.constant() * 11) return false;

  const Operand image = channels_last_operand(context, x);
  launch = TemplateLaunch{};
  launch.kernel = KernelId::k_winograd_group;
  launch.kind = "winograd";
  launch.variant = "F(2,3)";
  define_types(context, launch, 4);
  define(launch, "U_VEC4", are_multiples_of_4(context, {K}));
  launch.buffers({{"x", image.input}, {"u", transformed(context, w, C, K, data)}});
  define_alignment(context, launch);
  const int pad_h = data ? 2 - attrs.padding[0] : attrs.padding[0], pad_w = data ? 2 - attrs.padding[1] : attrs.padding[1];
  launch.args({{"batch", batch}, {"C", C}, {"K", K}, {"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", P}, {"out_w", Q}});
  launch.args({{"pad_h", pad_h}, {"pad_w", pad_w}});
  pass_image(launch, "x", image, false);
  launch.groups = {work_groups, 1, 1};
  launch.local = {256, 1, 1};
  launch.store_width = 4;
  launch.store_coords = {0, 1, 2, 3};
  launch.store_dim = 1;
  lay_out(context.graph, node.outputs[0], kChannelsLast);
  return true;
}

}  // namespace ocl::schedule
