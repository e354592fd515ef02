// csrc/schedule/offer/offer.cpp: asks a row for an offer, and compares offers.
#include "csrc/schedule/offer/offer.h"

#include <algorithm>

#include "csrc/schedule/offer/strides.h"

namespace ocl::schedule {

namespace {

bool is_empty(const ir::Node& node) {
  const auto zero = [](const ir::Shape& sizes) {
    return std::any_of(sizes.begin(), sizes.end(),
                       [](const ir::IndexExpr& size) { return size.is_const() && size.constant() == 0; });
  };
  return zero(node.sizes) || zero(node.reduce_sizes) ||
         std::any_of(node.operands.begin(), node.operands.end(), [&](const ir::View& operand) { return zero(operand.sizes); });
}

}  // namespace

std::variant<Offer, Refusal> answer(const TemplateRow& row, const Request& request, const std::string& wanted) {
  if (!request.caps.kernels.has(row.kernel)) return Refusal{row.kernel, request.caps.kernels.why_not(row.kernel)};
  if (std::string why = why_removed(request, row.kernel); !kernel_row(row.kernel).on_tensor_cores() && !why.empty())
    return Refusal{row.kernel, std::move(why)};
  // The cost models divide by the sizes.
  if (is_empty(request.graph.nodes[request.id])) return Refusal{row.kernel, "a size is 0, so there is nothing to compute"};
  Draft draft({request.graph, request.id, row.kernel, request.caps, request.keeps_parameters},
              row_of(wanted) == row.name() ? Choices(wanted) : Choices());
  if (Refused reason = row.why_not(draft)) return Refusal{row.kernel, std::move(*reason)};
  row.make(draft);
  const int items = draft.launch().local[0] * draft.launch().local[1] * draft.launch().local[2];
  if (items > request.caps.max_group_size)
    return Refusal{row.kernel, "its work-groups have " + std::to_string(items) + " work-items, more than the " +
                                   std::to_string(request.caps.max_group_size) + " that the device or the driver grants"};
  return std::move(draft.offer);
}

ir::DType storage_of(KernelType type) {
  switch (type) {
    case KernelType::kBf16:
      return ir::DType::kBF16;
    case KernelType::kFp16:
      return ir::DType::kF16;
    case KernelType::kInt8:
      return ir::DType::kI8;
    default:
      return ir::DType::kF32;
  }
}

std::string why_removed(const Request& request, KernelId kernel) {
  const ir::DType type = request.graph.buffers[request.graph.nodes[request.id].operands[0].buffer].dtype;
  for (const KernelRow::Checked& checked : kernel_row(kernel).types)
    if (std::string why = request.caps.kernels.why_removed(kernel, checked.type);
        storage_of(checked.type) == type && !why.empty())
      return std::string("it does not multiply ") + ir::name(type) + " on this device: " + why;
  return "";
}

const ir::Buffer& Draft::buffer(ir::BufferId id) const {
  if (id >= offer.first_buffer) return offer.buffers[id - offer.first_buffer];
  const auto laid_out = offer.layouts.find(id);
  return laid_out == offer.layouts.end() ? graph.buffers[id] : laid_out->second;
}

ir::BufferId Draft::add(ir::Buffer buffer) {
  offer.buffers.push_back(std::move(buffer));
  return offer.first_buffer + static_cast<ir::BufferId>(offer.buffers.size()) - 1;
}

void Draft::prepare(ir::BufferId buffer, Preparation::How how) { offer.before.push_back({buffer, std::move(how)}); }

void Draft::lay_out(ir::BufferId id, const std::vector<int>& order) {
  if (buffer(id).strides) return;  // New buffers have strides.
  ir::Buffer laid_out = buffer(id);
  laid_out.strides = dense_strides(laid_out.sizes, order);
  offer.layouts.emplace(id, std::move(laid_out));
}

bool takes_template(const ir::Node& node) {
  return node.kind == ir::NodeKind::kContract || node.kind == ir::NodeKind::kConvolve ||
         node.kind == ir::NodeKind::kAttention || node.kind == ir::NodeKind::kFft || node.kind == ir::NodeKind::kSort;
}

std::string signature(const Offer& offer) {
  const TemplateLaunch& launch = offer.launch;
  std::string text = kernel_row(launch.kernel).name;
  const auto add = [&](const std::string& part) { text.append(" ").append(part); };
  add(std::to_string(offer.before.size()));
  add(std::to_string(offer.splits));
  add(std::to_string(launch.scratch_elements));
  for (const auto& [name, value] : launch.defines) add(name + "=" + value);
  for (const TemplateLaunch::Int& value : launch.ints) add(value.value.str());
  for (const ir::IndexExpr& groups : launch.groups) add(groups.str());
  for (const int local : launch.local) add(std::to_string(local));
  return text;
}

std::vector<std::pair<std::string, std::string>> turned(const Offer& offer) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const Choices::Knob& knob : offer.choices.knobs())
    for (size_t option = 0; option < knob.options.size(); ++option) {
      if (option == knob.taken) continue;
      const std::string setting = knob.name + "=" + knob.options[option];
      std::string text = offer.row;
      for (const Choices::Knob& other : offer.choices.knobs())
        text += " " + (&other == &knob ? setting : other.name + "=" + other.options[other.taken]);
      texts.emplace_back(text, setting);
    }
  return texts;
}

}  // namespace ocl::schedule
