// csrc/schedule/families/case.cpp: makes check cases of offers, and random operands.
#include "csrc/schedule/families/case.h"

#include <algorithm>
#include <cstring>

#include "csrc/ir/facts.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

TensorCoreMath CheckSubject::math() const {
  TensorCoreMath math{};
  math.type = type;
  math.level = row.level;
  math.terms = type == KernelType::kFp32 && row.level != KernelLevel::k_subgroup_matrix ? 3 : 1;
  math.chunk = halves() ? 8 : 4;
  math.matrix = matrix;
  math.wide = true;
  return math;
}

std::vector<float> CheckSubject::values(size_t count, uint32_t seed) const {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = halves() ? static_cast<float>(seed >> 23) / 256.0f - 1.0f : static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
  }
  return values;
}

std::vector<unsigned char> CheckSubject::stored(const std::vector<float>& values) const {
  return schedule::stored(values, storage_of(type));
}

std::vector<unsigned char> stored(const std::vector<float>& values, ir::DType type) {
  const size_t element = static_cast<size_t>(ir::size_bytes(type));
  std::vector<unsigned char> bytes(values.size() * element);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], 4);
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    // All values are multiples of 1/256, so none is subnormal in fp16.
    if (type == ir::DType::kF16)
      half = values[i] == 0
                 ? 0
                 : static_cast<uint16_t>((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
    if (element == 4)
      std::memcpy(&bytes[i * 4], &bits, 4);
    else
      std::memcpy(&bytes[i * 2], &half, 2);
  }
  return bytes;
}

Offer CheckSubject::offer(ir::Graph graph, const std::string& choice) const {
  Caps caps;
  caps.is_cpu = row.level == KernelLevel::k_item;
  caps.units = 3;
  caps.matrix = matrix;
  caps.kernels = {};
  for (const KernelRow& other : kernel_rows())
    for (const KernelRow::Checked& checked : other.types)
      if (other.base == row.base && checked.type == type) caps.kernels.add(std::string(other.name) + ":" + name(type));
  const auto& rows = template_rows();
  const auto asked = [&](KernelId kernel) {
    return std::find_if(rows.begin(), rows.end(), [&](const TemplateRow& r) { return r.kernel == kernel; });
  };
  auto found = asked(row.id);
  if (found == rows.end()) found = asked(row.base);
  OCL_ASSERT(found != rows.end(), std::string("no row makes an offer with the kernel ") + row.name);
  const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(), takes_template);
  node->reduced_precision = type == KernelType::kTf32;
  Draft draft({graph, static_cast<ir::NodeId>(node - graph.nodes.begin()), found->kernel, caps}, Choices::exactly(choice));
  found->make(draft);
  return std::move(draft.offer);
}

namespace {

CheckCase case_of(const TemplateLaunch& launch, int offset) {
  CheckCase check;
  check.kernel = launch.kernel;
  check.variant = launch.variant;
  for (const auto& [name, value] : launch.defines) check.defines.push_back(name + " " + value);
  for (const TemplateLaunch::Int& value : launch.ints)
    check.arguments.push_back(value.wide ? CheckCase::Integer(value.value.constant())
                                         : CheckCase::Integer(static_cast<int32_t>(value.value.constant())));
  for (size_t d = 0; d < 3; ++d) check.groups[d] = static_cast<size_t>(launch.groups[d].constant());
  check.local = static_cast<size_t>(launch.local[0]);
  check.offset = offset;
  return check;
}

}  // namespace

CheckCase case_of(const Offer& offer, int offset) {
  CheckCase check = case_of(offer.launch, offset);
  const auto& inputs = offer.launch.inputs;
  for (const Preparation& preparation : offer.before) {
    const auto* pack = std::get_if<Pack>(&preparation.how);
    if (pack == nullptr) continue;
    const auto input =
        std::find_if(inputs.begin(), inputs.end(), [&](const auto& i) { return i.buffer == preparation.buffer; });
    if (check.packs.empty()) check.packs_at = static_cast<size_t>(input - inputs.begin());
    check.packs.push_back(case_of(pack->launch, offset));
    check.packs.back().packed_floats = 1;
    for (const ir::IndexExpr& size : offer.buffers[preparation.buffer - offer.first_buffer].sizes)
      check.packs.back().packed_floats *= static_cast<size_t>(size.constant());
  }
  return check;
}

KernelType type_of(const TemplateLaunch& launch) {
  const auto value = [&](const char* macro) {
    const auto found = std::ranges::find(launch.defines, macro, [](const auto& define) { return define.first; });
    return found == launch.defines.end() ? std::string() : found->second;
  };
  if (!value("IN_BF16").empty()) return KernelType::kBf16;
  if (!value("IN_HALF").empty()) return KernelType::kFp16;
  // fp32 is computed by three products of smaller types, except by instructions that multiply floats.
  const KernelRow& row = kernel_row(launch.kernel);
  const bool rounds = std::ranges::any_of(row.types, [](const auto& checked) { return checked.type == KernelType::kTf32; });
  return rounds && value("TERMS") == "1" ? KernelType::kTf32 : KernelType::kFp32;
}

bool is_like(const CheckCase& check, const TemplateLaunch& launch) {
  if (check.kernel != launch.kernel) return false;
  // The macros that choose a tile, or another way through the kernel.
  std::vector<std::string> compared = {"TILE_M",    "TILE_N",    "WARP_M", "WARP_N", "TILE_C",   "PASS",
                                       "A_K_MAJOR", "B_K_MAJOR", "BOXES",  "PACKED", "B_PACKED", "STATISTICS"};
  // Packed filters are read in the same way for the gradient.
  if (std::ranges::count(check.defines, "B_PACKED 1") == 0) compared.emplace_back("DATA_GRADIENT");
  return std::ranges::all_of(compared, [&](const std::string& macro) {
    std::string mine, other;  // "" if the macro is not defined, or zero.
    for (const std::string& define : check.defines)
      if (define.starts_with(macro + " ")) mine = define.substr(macro.size() + 1);
    for (const auto& [name, value] : launch.defines)
      if (name == macro) other = value;
    return (mine == "0" ? "" : mine) == (other == "0" ? "" : other);
  });
}

}  // namespace ocl::schedule
