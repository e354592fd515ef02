// csrc/codegen/attention_mask.cpp: prints mask functions.
#include "csrc/codegen/attention_mask.h"

#include "csrc/codegen/body_printer.h"

namespace ocl::codegen {

std::vector<MaskFunction> mask_functions(Kernel& kernel, const schedule::Group& group) {
  const ir::Node& main = kernel.graph().nodes[group.main];
  std::vector<MaskFunction> found;
  if (main.kind != ir::NodeKind::kAttention || main.body.ops.empty()) return found;
  const ir::Ranges ranges = kernel.graph().ranges(&main);
  const bool columns_are_queries = main.attention.kind == ir::AttentionKind::kKeyValue;
  std::vector<int> widths = {1};
  if (kernel.dialect().is_cpu) widths.push_back(group.launch.stores.width);
  for (const int width : widths) {
    BodyPrinter body(kernel, ranges);
    std::map<ir::Symbol, std::string> names;
    for (int i = 0; i < 4; ++i) names[{SymbolKind::kReduce, i}] = "r" + std::to_string(i);
    body.push(names);
    if (width > 1) body.set_lane({SymbolKind::kReduce, columns_are_queries ? 2 : 3}, width);
    const Value value = body.value(group.main, static_cast<int>(main.body.ops.size()) - 1);
    body.writer().line("return $s;", body.broadcast_to_width(value, width));
    const Writer inside = body.pop();
    found.push_back({width, body.writer()});
    found.back().body.append(inside);
  }
  return found;
}

void print_mask(Writer& functions, const Kernel& kernel, const MaskFunction& mask) {
  const char* name = mask.width == 1 ? "mask_value" : "mask_lanes";
  const char* index = kernel.index_type();
  functions.open("OCL_INLINE $t $s(const $s r0, const $s r1, const $s r2, const $s r3 EPILOGUE_FUNCTION_PARAMS)",
                 Type{ir::DType::kF32, mask.width}, name, index, index, index, index);
  kernel.write_offsets(functions);
  functions.append(mask.body);
  functions.close();
  functions.line("#define $s(r0, r1, r2, r3) $s(r0, r1, r2, r3 EPILOGUE_PASS)", mask.width == 1 ? "MASK_VALUE" : "MASK_LANES",
                 name);
}

}  // namespace ocl::codegen
