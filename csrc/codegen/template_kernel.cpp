// csrc/codegen/template_kernel.cpp: assembles the text of a hand-written kernel: parameters, base/types.cl, epilogue
// macros, kernel file.
//
//   #define KERNEL_NAME gemm_3f9c1e, MR 6, VW 16, ...                       the launch's parameters
//   #define KERNEL_PARAMETERS __global const float* restrict a, ...         the arguments of the kernel's row that are given
//   kernels/base/types.cl, the functions of kernels/base/ops.cl that the epilogue macros call
//   #define EPILOGUE_PARAMS , __global float* restrict e_out0, ...          what the epilogue reads and writes
//   #define EPILOGUE_FUNCTION_PARAMS , __global float* e_out0, ...          the same for functions of the kernel file
//   static inline void epilogue(const float acc, i0, i1, i2 ...)            the main node's result and the epilogue nodes
//   #define STORE(acc, i0, i1, i2) epilogue(acc, i0, i1, i2 EPILOGUE_PASS)
//   static inline void epilogue_v(const float16 acc, i0, i1, i2 ...)        the same for VW elements along stores.dim: STOREV
//   static inline void epilogue_p(i0, i1, i2 ...)                           prefetches what epilogue_v touches: PREFETCHV
//   static inline void epilogue_l(i0, i1, i2 ...)                           prefetches what it loads: PREFETCHV_LOADED
//   static inline void epilogue1(const float acc, ...)                      the main node's second output: STORE1, STORE1V
//   kernels/gemm/item.cl
#include "csrc/codegen/template_kernel.h"

#include <algorithm>
#include <numeric>

#include "csrc/codegen/attention_mask.h"
#include "csrc/codegen/body_printer.h"
#include "csrc/codegen/kernel_files.h"
#include "csrc/schedule/body.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

namespace {

// From this op_cost of an epilogue on (one special function), the kernel should have only one copy of its instructions.
constexpr double kLongStores = 12;

std::string joined(const std::vector<std::string>& texts) {
  std::string text;
  for (const std::string& one : texts) text += ", " + one;
  return text;
}

/// An epilogue macro and its function. The function stores elements of one output of the main node. loops: for each
/// coordinate of the macro, the dimension of the output that it belongs to.
struct EpilogueMacro {
  // lane: the dimension that vectors run along.
  int output = 0, width = 1, lane = 0;
  std::vector<int> loops;
  bool aligned = false;              // Vectors are at aligned addresses.
  ir::DType type = ir::DType::kF32;  // What the kernel passes: the output's type if it is f64, i32 or i64.
  Writer body;
  // The addresses of the vectors that the body loads (false) and stores (true).
  std::vector<std::pair<std::string, bool>> streams;

  std::string function() const { return std::string("epilogue") + (output ? std::to_string(output) : "") + form("_v", "_a"); }
  const char* form(const char* vectors, const char* at_aligned) const {
    return width == 1 ? "" : aligned ? at_aligned : vectors;
  }
  std::string name() const { return std::string("STORE") + (output ? std::to_string(output) : "") + form("V", "A"); }
};

ir::Ranges ranges_of(const ir::Graph& graph, const ir::Shape& sizes) {
  ir::Ranges ranges = graph.ranges();
  for (size_t k = 0; k < sizes.size(); ++k) ranges.set_extent({SymbolKind::kLoop, static_cast<int>(k)}, sizes[k]);
  return ranges;
}

/// Prints the body of an epilogue macro's function. Its parameter list is not included, because it is known only when
/// all macros are printed. In the function of the first output, the epilogue nodes come after the main node's result.
void print_body(Kernel& kernel, const schedule::Group& group, EpilogueMacro& macro) {
  const ir::Node& main = kernel.graph().nodes[group.main];
  const ir::BufferId output = main.outputs.at(static_cast<size_t>(macro.output));
  const ir::Shape& sizes = macro.output == 0 ? main.sizes : kernel.graph().buffers[output].sizes;
  const ir::Ranges ranges = ranges_of(kernel.graph(), sizes);
  BodyPrinter body(kernel, ranges);
  std::map<ir::Symbol, std::string> names;
  std::vector<IndexExpr> coords;
  for (size_t k = 0; k < sizes.size(); ++k) {
    coords.push_back(IndexExpr::loop(static_cast<int>(k)));
    names[{SymbolKind::kLoop, static_cast<int>(k)}] = "i" + std::to_string(k);
  }
  body.push(names);
  body.assume_aligned(macro.aligned);
  body.assume_steps(group.launch.stores.vectors != schedule::Stores::Vectors::kAnywhere);
  if (static_cast<size_t>(macro.lane) < sizes.size()) body.set_lane({SymbolKind::kLoop, macro.lane}, macro.width);
  body.set_result(group.main, {output, coords}, {"acc", macro.type, macro.width, body.depth() - 1, false});
  if (macro.output == 0)
    for (const ir::NodeId node : group.epilogue) body.run_map(node);
  body.flush_stores();
  const Writer inside = body.pop();
  macro.body = body.writer();
  macro.body.append(inside);
  macro.streams = body.streams();
}

// Size symbols with this number and above stand for constant strides of the epilogue's buffers.
constexpr int kFirstStride = 1 << 20;

/// Replaces constant strides of the nodes' buffers by kernel arguments, so that layers that differ only in size share a
/// kernel. Equal strides share an argument. Arguments are numbered in the order of the nodes. Returns the values of the
/// arguments.
std::map<ir::Symbol, IndexExpr> strides_as_arguments(Kernel& kernel, const std::vector<ir::NodeId>& nodes) {
  const ir::Graph& graph = kernel.graph();
  std::map<ir::BufferId, ir::Buffer> restrided;
  std::map<int64_t, IndexExpr> symbols;
  std::map<ir::Symbol, IndexExpr> values;
  auto visit = [&](ir::BufferId id) {
    const auto [buffer, added] = restrided.emplace(id, graph.buffers[id]);
    if (!added || !buffer->second.strides) return;
    for (IndexExpr& stride : *buffer->second.strides) {
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
    const ir::Node& node = graph.nodes[id];
    for (const ir::BufferId output : node.outputs) visit(output);
    for (const ir::Op& op : node.body.ops)
      if (op.code == ir::OpCode::kLoad) visit(op.buffer);
    for (const ir::Store& store : node.stores) visit(store.buffer);
  }
  kernel.use_strides(std::move(restrided));
  return values;
}

/// Lets arguments begin at the windows of buffers that the epilogue accesses, so that kernels which differ only in these, such
/// as those whose results are concatenated, share a text. Vectors have the same alignment in a window that begins at a multiple
/// of 16 elements.
void begin_at_windows(Kernel& kernel, const std::vector<ir::NodeId>& epilogue) {
  std::map<ir::BufferId, std::vector<IndexExpr>> first;  // The places that the nodes access when all loops are 0.
  for (const ir::NodeId id : epilogue) {
    const ir::Node& node = kernel.graph().nodes[id];
    std::map<ir::Symbol, IndexExpr> zeros;
    for (size_t k = 0; k < node.sizes.size(); ++k) zeros.emplace(IndexExpr::loop(static_cast<int>(k)).symbol(), 0);
    for (const schedule::Access& access : schedule::accesses(node))
      first[access.buffer].push_back(ir::substitute(
          ir::linear_offset(kernel.buffer_of(access.buffer), access.coords, kernel.graph().ranges(&node)), zeros));
  }
  for (const auto& [buffer, places] : first)
    if (const IndexExpr& place = places[0];
        place.is_const() && place.constant() % 16 == 0 && std::ranges::count(places, place) == std::ssize(places))
      kernel.begin_at(buffer, place.constant());
}

/// Returns the epilogue macros for the main node's outputs. STORE stores a single element, STOREV a vector, STOREA (STORE1A)
/// a vector at an aligned address.
std::vector<EpilogueMacro> choose_epilogue_macros(const ir::Graph& graph, const schedule::Group& group) {
  const schedule::TemplateLaunch& launch = group.launch;
  const ir::Node& main = graph.nodes[group.main];
  std::vector<EpilogueMacro> macros;
  for (size_t output = 0; output < main.outputs.size(); ++output) {
    const int lane = output > 0 && launch.stores.dim1 != ir::kNone ? launch.stores.dim1 : launch.stores.dim;
    EpilogueMacro macro{static_cast<int>(output), 1, lane, launch.stores.coords, false, ir::DType::kF32, {}, {}};
    const ir::DType type = graph.buffers[main.outputs[output]].dtype;
    if (type == ir::DType::kF64 || type == ir::DType::kI32 || type == ir::DType::kI64) macro.type = type;
    const size_t rank = output == 0 ? main.sizes.size() : graph.buffers[main.outputs[output]].sizes.size();
    if (output > 0) {
      macro.loops.resize(rank);
      std::iota(macro.loops.begin(), macro.loops.end(), 0);
    }
    macros.push_back(macro);
    if (launch.stores.width == 1 || static_cast<size_t>(lane) >= rank) continue;
    macro.width = launch.stores.width;
    if (launch.stores.aligned()) {
      macro.aligned = true;
      macros.push_back(macro);
      macro.aligned = false;
    }
    macros.push_back(macro);
  }
  return macros;
}

/// Prints the function of an epilogue macro and the macro that calls it.
void print_epilogue(Writer& functions, const Kernel& kernel, const EpilogueMacro& macro, bool store_aligned) {
  std::vector<std::string> coordinates, parameters;
  for (const int loop : macro.loops) {
    coordinates.push_back("i" + std::to_string(loop));
    parameters.push_back(std::string("const ") + kernel.index_type() + " i" + std::to_string(loop));
  }
  functions.open("OCL_INLINE void $s(const $t acc$s EPILOGUE_PARAMS)", macro.function(), Type{macro.type, macro.width},
                 joined(parameters));
  if (store_aligned && macro.width > 1 && !macro.aligned) {
    functions.open("if (STORES_ALIGNED)");
    functions.line("STORE$sA(acc$s);", macro.output ? std::to_string(macro.output) : "", joined(coordinates));
    functions.line("return;");
    functions.close();
  }
  kernel.write_offsets(functions);
  functions.append(macro.body);
  functions.close();
  functions.line("#define $s(acc$s) $s(acc$s EPILOGUE_PASS)", macro.name(), joined(coordinates), macro.function(),
                 joined(coordinates));
}

/// Prints PREFETCHV, which prefetches the vectors that STOREV at the same coordinates loads and stores; and, if it loads any,
/// PREFETCHV_LOADED for these alone.
void print_prefetch(Writer& functions, const Kernel& kernel, const EpilogueMacro& macro) {
  std::vector<std::string> coordinates;
  std::string parameters;
  for (const int loop : macro.loops) {
    coordinates.push_back("i" + std::to_string(loop));
    parameters += std::string("const ") + kernel.index_type() + " i" + std::to_string(loop) + ", ";
  }
  const std::string names = joined(coordinates).substr(2);
  const auto print = [&](const char* function, const char* name, bool stores) {
    functions.open("OCL_INLINE void $s($sconst int unused EPILOGUE_PARAMS)", function, parameters);
    kernel.write_offsets(functions);
    for (const auto& [address, stored] : macro.streams)
      if (!stored || stores) functions.line(stored ? "PREFETCH_TO_WRITE($s);" : "PREFETCH($s);", address);
    functions.close();
    functions.line("#define $s($s) $s($s, 0 EPILOGUE_PASS)", name, names, function, names);
  };
  print("epilogue_p", "PREFETCHV", true);
  if (std::ranges::any_of(macro.streams, [](const auto& stream) { return !stream.second; }))
    print("epilogue_l", "PREFETCHV_LOADED", false);
}

/// Adds the arguments in the kernel's order: the template's inputs, workspace and integers, then the epilogue's buffers
/// and integers. `strides` has the values of the symbols of strides_as_arguments.
void add_arguments(KernelSource& source, const schedule::TemplateLaunch& launch, const Kernel& kernel,
                   const std::map<ir::Symbol, IndexExpr>& strides) {
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
}

}  // namespace

KernelSource generate_template(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps) {
  const schedule::TemplateLaunch& launch = group.launch;
  std::vector<ir::NodeId> nodes = {group.main};
  nodes.insert(nodes.end(), group.epilogue.begin(), group.epilogue.end());
  Kernel kernel(schedule, caps, stored_buffers(schedule, nodes), group.index32, "e_");
  std::map<ir::Symbol, IndexExpr> strides;
  // On GPUs, constant strides tell the compiler about alignment.
  if (caps.is_cpu)
    strides = strides_as_arguments(kernel, nodes);
  else
    begin_at_windows(kernel, group.epilogue);
  std::vector<EpilogueMacro> macros = choose_epilogue_macros(schedule.graph, group);
  for (EpilogueMacro& macro : macros) print_body(kernel, group, macro);
  const std::vector<MaskFunction> masks = mask_functions(kernel, group);

  Writer functions;
  // Pointers are `restrict` on GPUs: no two buffers of a template share memory, because memory is reused only within
  // pointwise groups. So the compiler may move loads before earlier stores. Otherwise an item would wait for memory at
  // each of its elements.
  functions.line("#define EPILOGUE_PARAMS $s", joined(kernel.parameters(!caps.is_cpu)));
  // For functions of kernel files, without `restrict`: where Clang inlines pointers that are `restrict`, it leaves intrinsics
  // that Oclgrind does not know, and the kernel's own parameters already say it.
  functions.line("#define EPILOGUE_FUNCTION_PARAMS $s", joined(kernel.parameters()));
  functions.line("#define EPILOGUE_PASS $s", joined(kernel.argument_names()));
  // The offsets of the caller's tensors are known only at run time, but are the same for the whole launch.
  if (launch.stores.aligned())
    functions.line("#define STORES_ALIGNED ((($s) & $d) == 0)", kernel.all_offsets(), launch.stores.width - 1);
  for (const MaskFunction& mask : masks) print_mask(functions, kernel, mask);
  for (const EpilogueMacro& macro : macros) print_epilogue(functions, kernel, macro, launch.stores.aligned());
  if (launch.stores.prefetch)
    for (const EpilogueMacro& macro : macros)
      if (macro.output == 0 && macro.width > 1 && !macro.aligned && !macro.streams.empty())
        print_prefetch(functions, kernel, macro);

  Writer defines;
  defines.line("#define KERNEL_NAME $s", kPlaceholder);
  defines.line("#define KERNEL_PARAMETERS $s", kernel_row(launch.kernel).parameters(launch.given()));
  for (const auto& [name, value] : launch.defines) defines.line("#define $s $s", name, value);
  if (launch.stores.plain && group.epilogue.empty()) defines.line("#define PLAIN_STORES 1");
  double cost = 0;
  for (const ir::NodeId id : group.epilogue) cost += schedule::op_cost(schedule.graph.nodes[id]);
  if (cost >= kLongStores) defines.line("#define LONG_STORES 1");

  launch.check_arguments();
  KernelSource source;
  source.kind = launch.kind;
  add_arguments(source, launch, kernel, strides);
  source.groups = launch.groups;
  for (size_t d = 0; d < 3; ++d) source.local[d] = static_cast<size_t>(launch.local[d]);
  std::string text;
  for (const char* file : kernel_row(launch.kernel).files) text += (text.empty() ? "" : "\n") + std::string(kernel_file(file));
  name_template(kernel.dialect(), source, defines.str(), functions.str(), text);
  return source;
}

}  // namespace ocl::codegen
