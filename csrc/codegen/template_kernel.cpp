// csrc/codegen/template_kernel.cpp: fills a hand-written kernel: parameters, then common.cl, then the STORE hooks, then the
// file.
//
//   #define KERNEL_NAME gemm_3f9c1e, MR 6, VW 16, ...                       the launch's parameters
//   kernels/common.cl, the functions of kernels/ops.cl that the hooks call
//   #define EPILOGUE_PARAMS , __global float* e_out0, ...                   what the epilogue reads and writes
//   static inline void epilogue(const float acc, i0, i1, i2 ...)            the main node's result and the epilogue nodes, one
//   element static inline void epilogue_v(const float16 acc, i0, i1, i2 ...)        the same for VW elements along the store
//   dimension #define STORE(acc, i0, i1, i2) epilogue(acc, i0, i1, i2 EPILOGUE_PASS) kernels/gemm_item.cl
#include "csrc/codegen/template_kernel.h"

#include "csrc/codegen/body.h"
#include "csrc/codegen/kernel_files.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using ir::IndexExpr;
using ir::SymbolKind;

namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += ", " + part;
  return text;
}

/// One hook: `name`(acc, coordinates, epilogue arguments), without its parameter list, which is known when all hooks are
/// printed.
Writer hook_body(Kernel& kernel, const ir::Ranges& ranges, const schedule::Group& group, int width, bool aligned = false) {
  const schedule::TemplateLaunch& launch = group.launch;
  const ir::Node& main = kernel.graph().nodes[static_cast<size_t>(group.main)];
  BodyPrinter body(kernel, ranges);
  std::map<ir::Symbol, std::string> names;
  std::vector<IndexExpr> coords;
  for (size_t k = 0; k < main.sizes.size(); ++k) {
    coords.push_back(IndexExpr::loop(static_cast<int>(k)));
    names[{SymbolKind::kLoop, static_cast<int>(k)}] = "i" + std::to_string(k);
  }
  body.push(names);
  body.assume_aligned(aligned);
  body.set_lane({SymbolKind::kLoop, launch.store_dim}, width);
  body.set_result(group.main, {main.outputs.at(0), coords}, {"acc", ir::DType::kF32, width, body.depth() - 1, false});
  for (const ir::NodeId node : group.epilogue) body.run_map(node);
  body.flush_stores();
  const Writer inside = body.pop();
  Writer text = body.writer();
  text.append(inside);
  return text;
}

constexpr int kFirstStride = 1 << 20;  // size symbols from here on stand for constant strides of the epilogue's buffers

/// Makes the constant strides of the buffers that the nodes touch arguments: layers that differ in their sizes alone then share
/// a kernel. Equal strides are one argument, numbered in the order of the nodes. Returns the arguments' values.
std::map<ir::Symbol, IndexExpr> strides_as_arguments(ir::Graph& graph, const std::vector<ir::NodeId>& nodes) {
  std::map<int64_t, IndexExpr> symbols;
  std::map<ir::Symbol, IndexExpr> values;
  std::set<ir::BufferId> done;
  auto visit = [&](ir::BufferId id) {
    if (!done.insert(id).second) return;
    ir::Buffer& buffer = graph.buffers[static_cast<size_t>(id)];
    if (!buffer.strides) return;
    for (IndexExpr& stride : *buffer.strides) {
      if (!stride.is_const() || stride.constant() <= 1) continue;
      const int64_t value = stride.constant();
      auto found = symbols.find(value);
      if (found == symbols.end())
        found = symbols.emplace(value, IndexExpr::size(kFirstStride + static_cast<int>(symbols.size()))).first;
      stride = found->second;
      values.emplace(stride.symbol(), IndexExpr(value));
    }
  };
  for (const ir::NodeId id : nodes) {
    const ir::Node& node = graph.nodes[static_cast<size_t>(id)];
    for (const ir::BufferId output : node.outputs) visit(output);
    for (const ir::Op& op : node.body.ops)
      if (op.code == ir::OpCode::kLoad) visit(op.buffer);
    for (const ir::Store& store : node.stores) visit(store.buffer);
  }
  return values;
}

}  // namespace

KernelSource generate_template(const schedule::Schedule& planned, const schedule::Group& group, const Caps& caps) {
  const schedule::TemplateLaunch& launch = group.launch;
  schedule::Schedule schedule = planned;
  std::vector<ir::NodeId> nodes = {group.main};
  nodes.insert(nodes.end(), group.epilogue.begin(), group.epilogue.end());
  std::map<ir::Symbol, IndexExpr> strides;
  if (caps.is_cpu) strides = strides_as_arguments(schedule.graph, nodes);  // GPUs read alignment from them
  const ir::Node& main = schedule.graph.nodes[static_cast<size_t>(group.main)];
  ir::Ranges ranges = schedule.graph.ranges();
  for (size_t k = 0; k < main.sizes.size(); ++k) ranges.set_extent({SymbolKind::kLoop, static_cast<int>(k)}, main.sizes[k]);
  Kernel kernel(schedule, caps, stored_buffers(schedule, nodes), group.index32, "e_");

  struct Hook {
    const char *macro, *function;
    int width;
    Writer body;
  };
  std::vector<Hook> hooks;
  hooks.push_back({"STORE", "epilogue", 1, hook_body(kernel, ranges, group, 1)});
  if (launch.store_aligned)
    hooks.push_back({"STOREA", "epilogue_a", launch.store_width, hook_body(kernel, ranges, group, launch.store_width, true)});
  if (launch.store_width > 1)
    hooks.push_back({"STOREV", "epilogue_v", launch.store_width, hook_body(kernel, ranges, group, launch.store_width)});

  std::vector<std::string> coordinates, parameters;
  for (const int loop : launch.store_coords) {
    coordinates.push_back("i" + std::to_string(loop));
    parameters.push_back(std::string("const ") + kernel.index_type() + " i" + std::to_string(loop));
  }
  Writer functions;
  // No two buffers of a template share memory (placement reuses it in pointwise groups alone), so loads may pass earlier
  // stores: otherwise a GPU waits for memory at each of an item's elements.
  functions.line("#define EPILOGUE_PARAMS $s", joined(kernel.parameters(!caps.is_cpu)));
  functions.line("#define EPILOGUE_PASS $s", joined(kernel.argument_names()));
  // Where the caller's tensors begin is seen at run time, the same for the whole launch.
  std::string offsets;
  for (const std::string& name : kernel.buffer_names()) offsets += (offsets.empty() ? "" : " | ") + name + "_offset";
  if (launch.store_aligned) functions.line("#define STORES_ALIGNED ((($s) & $d) == 0)", offsets, launch.store_width - 1);
  for (const Hook& hook : hooks) {
    functions.open("OCL_INLINE void $s(const $t acc$s EPILOGUE_PARAMS)", hook.function, Type{ir::DType::kF32, hook.width},
                   joined(parameters));
    if (launch.store_aligned && hook.macro == std::string("STOREV")) {
      functions.open("if (STORES_ALIGNED)");
      functions.line("STOREA(acc$s);", joined(coordinates));
      functions.line("return;");
      functions.close();
    }
    kernel.write_offsets(functions);
    functions.append(hook.body);
    functions.close();
    functions.line("#define $s(acc$s) $s(acc$s EPILOGUE_PASS)", hook.macro, joined(coordinates), hook.function,
                   joined(coordinates));
  }

  Writer defines;
  defines.line("#define KERNEL_NAME $s", kPlaceholder);
  for (const auto& [macro, value] : launch.defines) defines.line("#define $s $s", macro, value);

  KernelSource source;
  source.kind = launch.kind;
  int slot = 0;
  for (const auto& input : launch.inputs) {
    source.buffers.push_back({input.buffer, input.offset, false, slot});
    slot += 2;
  }
  if (launch.scratch_elements > 0) {
    source.scratch_elements = launch.scratch_elements;
    source.scratch_slot = slot;
    slot += 2;
  }
  for (const auto& value : launch.ints) source.ints.push_back({value.value, value.wide, slot++});
  for (BufferArg arg : kernel.buffers()) {
    arg.slot = slot;
    slot += 2;
    source.buffers.push_back(arg);
  }
  for (IntArg arg : kernel.ints()) {
    arg.slot = slot++;
    arg.value = ir::substitute(arg.value, strides);
    source.ints.push_back(arg);
  }
  source.groups = launch.groups;
  for (size_t d = 0; d < 3; ++d) source.local[d] = static_cast<size_t>(launch.local[d]);
  name_template(source, defines.str(), functions.str(),
                launch.library.empty() ? kernel_file(launch.file)
                                       : kernel_file(launch.library) + ("\n" + std::string(kernel_file(launch.file))));
  return source;
}

}  // namespace ocl::codegen
