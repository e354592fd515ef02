// csrc/schedule/families/case.cpp: makes check cases of offers, and random operands.
#include "csrc/schedule/families/case.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "csrc/ir/facts.h"
#include "csrc/ir/simplify_body.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

TensorCoreMath CheckSubject::math() const {
  TensorCoreMath math{};
  math.type = type;
  math.level = row.level;
  math.terms = type == KernelType::kFp32 && row.level != KernelLevel::k_subgroup_matrix ? 3 : 1;
  math.chunk = halves() ? 8 : 4;
  math.matrix = matrix;
  math.forms = {KernelForm::k_wide, row.form};
  if (row.form == KernelForm::k_statistics && halves() && kernel_of_form(row.base, KernelForm::k_boxes))
    math.forms.insert(KernelForm::k_boxes);
  return math;
}

std::vector<float> CheckSubject::values(size_t count, uint32_t seed) const {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = type == KernelType::kInt8 ? static_cast<float>(static_cast<int>(seed >> 24) - 128)
            : edges()                 ? static_cast<float>(static_cast<int>(seed >> 24) % 9 - 4) * 0.5f
            : halves()                ? static_cast<float>(seed >> 23) / 256.0f - 1.0f
                                      : static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
  }
  return values;
}

std::vector<unsigned char> CheckSubject::stored(const std::vector<float>& values) const {
  return schedule::stored(values, storage_of(type));
}

double rounded(double x, ir::DType type) {
  if (type == ir::DType::kF32 || x == 0) return x;
  const bool half = type == ir::DType::kF16;
  const double step = std::ldexp(1.0, std::max(std::ilogb(x), half ? -14 : -126) - (half ? 10 : 7));
  return std::nearbyint(x / step) * step;
}

uint16_t half_bits(double x) {
  const int exponent = x == 0 ? -14 : std::max(std::ilogb(x), -14);
  const auto units = static_cast<int>(std::fabs(std::ldexp(x, 10 - exponent)));  // With the leading one of a normal number.
  return static_cast<uint16_t>((std::signbit(x) ? 0x8000 : 0) | (((exponent + 14) << 10) + units));
}

std::vector<unsigned char> stored(const std::vector<float>& values, ir::DType type) {
  const size_t element = static_cast<size_t>(ir::size_bytes(type));
  std::vector<unsigned char> bytes(values.size() * element);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    const uint16_t half = type == ir::DType::kF16 ? half_bits(values[i]) : static_cast<uint16_t>(bits >> 16);
    if (element == 4)
      std::memcpy(&bytes[i * 4], &bits, 4);
    else if (element == 1)
      bytes[i] = static_cast<unsigned char>(static_cast<int8_t>(values[i]));
    else
      std::memcpy(&bytes[i * 2], &half, 2);
  }
  return bytes;
}

Offer CheckSubject::offer(const ir::Graph& given, const std::string& choice) const {
  ir::Graph graph = given;
  Caps caps = this->caps;
  caps.is_cpu = row.level == KernelLevel::k_item;
  caps.units = row.form == KernelForm::k_turns ? 1 : 3;  // Each consumer has several tiles.
  caps.matrix = matrix;
  caps.kernels = {};
  for (const KernelRow& other : kernel_rows())
    for (const KernelRow::Checked& checked : other.types)
      // A portable form would take problems from its base.
      if (other.base == row.base && checked.type == type &&
          (row.on_tensor_cores() || other.id == row.id || other.id == row.base))
        caps.kernels.add(std::string(other.name) + ":" + name(type));
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

std::vector<CheckSubject> on_devices(const CheckSubject& subject) {
  std::vector<CheckSubject> all;
  for (const int each : subject.row.is_checked()                   ? std::vector{16}  // An instruction has one width.
                        : subject.row.level == KernelLevel::k_item ? std::vector{16, 8, 4}
                                                                   : std::vector{255, 100}) {
    all.push_back(subject);
    (subject.row.level == KernelLevel::k_item ? all.back().caps.vector_floats : all.back().caps.item_registers) = each;
  }
  return all;
}

std::vector<std::string> tiles_of(const Offer& offer) {
  const auto found = std::ranges::find(offer.choices.knobs(), "tile", &Choices::Knob::name);
  if (found != offer.choices.knobs().end()) return found->options;
  const std::string& variant = offer.launch.variant;  // With one option there is no knob.
  return {variant.substr(0, variant.find(' '))};
}

namespace {

using Bytes = std::vector<unsigned char>;

/// The buffers of a graph and of an offer for it, in memory.
class Memory {
 public:
  Memory(const ir::Graph& graph, const Offer& offer, const std::vector<Bytes>& inputs) : graph_(graph), offer_(offer) {
    for (size_t i = 0; i < inputs.size(); ++i) bytes_[graph.inputs[i]] = inputs[i];
  }

  /// Returns the bytes of a buffer. If the offer prepares it, they are computed first.
  const Bytes& of(ir::BufferId id) {
    if (const auto found = bytes_.find(id); found != bytes_.end()) return found->second;
    const ir::Buffer& buffer = described(id);
    int64_t elements = 1;
    for (size_t d = 0; d < buffer.sizes.size(); ++d)
      elements = std::max(elements, buffer.sizes[d].constant() * (*buffer.strides)[d].constant());
    Bytes zeros(static_cast<size_t>(ir::size_bytes(buffer.dtype)) * static_cast<size_t>(elements));
    const auto prepared = std::ranges::find(offer_.before, id, &Preparation::buffer);
    OCL_ASSERT(prepared != offer_.before.end(), "nothing prepares an input of a check case");
    if (const auto* copy = std::get_if<Copy>(&prepared->how)) copy_into(zeros, *copy, buffer);
    if (const auto* pack = std::get_if<Pack>(&prepared->how)) copy_into(zeros, panels(*pack, buffer), buffer);
    if (const auto* map = std::get_if<ir::Node>(&prepared->how)) run(*map, id, zeros);
    return bytes_[id] = std::move(zeros);
  }

 private:
  const ir::Buffer& described(ir::BufferId id) const {
    if (id >= offer_.first_buffer) return offer_.buffers[id - offer_.first_buffer];
    const auto layout = offer_.layouts.find(id);
    return layout == offer_.layouts.end() ? graph_.buffers[id] : layout->second;
  }

  /// Returns what kernels/pack/item.cl makes of a view [b, k, n]: panels [b, panel, k, column].
  static Copy panels(const Pack& pack, const ir::Buffer& buffer) {
    const std::vector<ir::IndexExpr> i = ir::loops(4);
    const ir::IndexExpr column = i[1] * buffer.sizes[3] + i[3];
    return {pack.view, {i[0], i[2], column}, {{column, pack.view.sizes[2]}}};
  }

  static size_t place_of(const ir::Buffer& buffer, const std::vector<int64_t>& coords) {
    int64_t place = 0;
    for (size_t d = 0; d < coords.size(); ++d) place += (*buffer.strides)[d].constant() * coords[d];
    return static_cast<size_t>(place);
  }

  static std::vector<int64_t> evaluated(const std::vector<ir::IndexExpr>& expressions, const std::vector<int64_t>& loops) {
    std::vector<int64_t> values;
    for (const ir::IndexExpr& e : expressions)
      values.push_back(ir::evaluate(e, [&](ir::Symbol s) { return loops[static_cast<size_t>(s.index)]; }));
    return values;
  }

  /// Calls `visit` with the loops of each element of a buffer or iteration of a Map.
  template <class Visit>
  static void for_each(const ir::Shape& sizes, const Visit& visit) {
    std::vector<int64_t> at(sizes.size(), 0);
    for (bool more = true; more;) {
      visit(at);
      more = false;
      for (size_t d = at.size(); d-- > 0 && !more;) {
        more = ++at[d] < sizes[d].constant();
        if (!more) at[d] = 0;
      }
    }
  }

  void copy_into(Bytes& to, const Copy& copy, const ir::Buffer& buffer) {
    const Bytes& from = of(copy.view.buffer);
    const ir::Buffer& source = described(copy.view.buffer);
    const auto element = static_cast<size_t>(ir::size_bytes(buffer.dtype));
    for_each(buffer.sizes, [&](const std::vector<int64_t>& at) {
      const bool inside = std::ranges::all_of(copy.inside, [&](const auto& pair) {
        const std::vector<int64_t> ends = evaluated({pair.first, pair.second}, at);
        return ends[0] < ends[1];
      });
      if (inside)
        std::memcpy(&to[place_of(buffer, at) * element],
                    &from[place_of(source, evaluated(copy.view.coords, evaluated(copy.coords, at))) * element], element);
    });
  }

  /// Runs a Map over floats that stores into one buffer, such as one that transforms filters.
  void run(const ir::Node& map, ir::BufferId id, Bytes& to) {
    for_each(map.sizes, [&](const std::vector<int64_t>& at) {
      std::vector<ir::Scalar> values;
      for (const ir::Op& op : map.body.ops) values.push_back(value(op, map.body, values, at));
      for (const ir::Store& store : map.stores) {
        const auto stored = static_cast<float>(values[static_cast<size_t>(store.value)].f);
        OCL_ASSERT(store.buffer == id, "a Map that prepares an input of a check case stores into another buffer");
        std::memcpy(&to[place_of(described(id), evaluated(store.index, at)) * sizeof stored], &stored, sizeof stored);
      }
    });
  }

  ir::Scalar value(const ir::Op& op, const ir::Body& body, const std::vector<ir::Scalar>& values,
                   const std::vector<int64_t>& at) {
    if (op.code == ir::OpCode::kConstant) return op.constant;
    if (op.code == ir::OpCode::kIndex) return {false, 0, evaluated(op.index, at)[0]};
    std::vector<ir::Scalar> arguments;
    for (const int argument : op.args) arguments.push_back(values[static_cast<size_t>(argument)]);
    if (op.code != ir::OpCode::kLoad)
      return *ir::fold(op.code, arguments, body.ops[static_cast<size_t>(op.args[0])].dtype, op.dtype);
    float loaded = 0;
    if (arguments.empty() || arguments[0].i != 0)
      std::memcpy(&loaded, &of(op.buffer)[place_of(described(op.buffer), evaluated(op.index, at)) * sizeof loaded],
                  sizeof loaded);
    return {true, loaded, 0};
  }

  const ir::Graph& graph_;
  const Offer& offer_;
  std::map<ir::BufferId, Bytes> bytes_;
};

CheckCase launch_case(const TemplateLaunch& launch, const Offer& offer, int offset) {
  CheckCase check;
  check.kernel = launch.kernel;
  check.variant = launch.variant;
  check.knobs = offer.choices.knobs();
  check.given = launch.given();
  for (const auto& [name, value] : launch.defines) check.defines.push_back(name + " " + value);
  for (const TemplateLaunch::Int& value : launch.ints)
    check.arguments.push_back(value.wide ? CheckCase::Integer(value.value.constant())
                                         : CheckCase::Integer(static_cast<int32_t>(value.value.constant())));
  for (size_t d = 0; d < 3; ++d) check.groups[d] = static_cast<size_t>(launch.groups[d].constant());
  check.local = static_cast<size_t>(launch.local[0]);
  check.offset = offset;
  for (const TemplateLaunch::Input& given : launch.inputs) {
    CheckCase::Input input;
    input.buffer = given.buffer;
    input.front = given.buffer < offer.first_buffer ? static_cast<size_t>(offset) : 0;
    input.offset = input.front + static_cast<uint64_t>(given.offset.constant());
    const auto prepared = std::ranges::find(offer.before, given.buffer, &Preparation::buffer);
    const auto* pack = prepared == offer.before.end() ? nullptr : std::get_if<Pack>(&prepared->how);
    // Where it is built alone, pack_item stores floats.
    if (pack != nullptr && (pack->launch.kernel != KernelId::k_pack_item ||
                            offer.buffers[given.buffer - offer.first_buffer].dtype == ir::DType::kF32)) {
      input.pack.push_back(launch_case(pack->launch, offer, offset));
      const ir::Shape& sizes = offer.buffers[given.buffer - offer.first_buffer].sizes;
      input.pack[0].outputs = {static_cast<size_t>(ir::product(sizes).constant())};
      input.pack[0].strides = dense(sizes);
    }
    check.inputs.push_back(std::move(input));
  }
  if (launch.scratch_elements > 0) check.inputs.emplace_back();
  return check;
}

void fill_inputs(CheckCase& check, Memory& memory, const ir::Graph& graph) {
  for (CheckCase::Input& input : check.inputs) {
    if (input.buffer == ir::kNone) continue;
    if (!input.pack.empty()) {
      fill_inputs(input.pack[0], memory, graph);
      continue;
    }
    if (input.front > 0)  // In floating point types, these bytes are nan.
      input.bytes.assign(input.front * static_cast<size_t>(ir::size_bytes(graph.buffers[input.buffer].dtype)), 0xff);
    const Bytes& data = memory.of(input.buffer);
    input.bytes.insert(input.bytes.end(), data.begin(), data.end());
  }
}

}  // namespace

CheckCase case_of(const TemplateLaunch& launch, const Offer& offer, const ir::Graph& graph, int offset,
                  std::function<CaseData()> data) {
  CheckCase check = launch_case(launch, offer, offset);
  check.fill = [offer, graph, workspace = launch.scratch_elements, data = std::move(data)](CheckCase& c) {
    CaseData made = data();
    Memory memory(graph, offer, made.inputs);
    fill_inputs(c, memory, graph);
    if (workspace > 0) c.inputs.back().bytes.assign(static_cast<size_t>(workspace) * sizeof(float), 0xff);
    c.results = std::move(made.results);
  };
  return check;
}

std::vector<int64_t> dense(const ir::Shape& sizes) {
  std::vector<int64_t> strides;
  for (const ir::IndexExpr& stride : ir::contiguous_strides(sizes)) strides.push_back(stride.constant());
  return strides;
}

KernelType type_of(const TemplateLaunch& launch) {
  const auto value = [&](const char* macro) {
    const auto found = std::ranges::find(launch.defines, macro, [](const auto& define) { return define.first; });
    return found == launch.defines.end() ? std::string() : found->second;
  };
  if (!value("IN_BF16").empty()) return KernelType::kBf16;
  if (!value("IN_HALF").empty()) return KernelType::kFp16;
  if (!value("IN_INT8").empty()) return KernelType::kInt8;
  // fp32 is computed by three products of smaller types, except by instructions that multiply floats.
  const KernelRow& row = kernel_row(launch.kernel);
  const bool rounds = std::ranges::any_of(row.types, [](const auto& checked) { return checked.type == KernelType::kTf32; });
  return rounds && value("TERMS") == "1" ? KernelType::kTf32 : KernelType::kFp32;
}

bool is_like(const CheckCase& check, const TemplateLaunch& launch) {
  if (check.kernel != launch.kernel) return false;
  // The macros that choose a tile, or another way through the kernel.
  std::vector<std::string> compared = {"TILE_M", "TILE_N", "WARP_M", "WARP_N", "TILE_C", "PASS", "A_K_MAJOR", "B_K_MAJOR"};
  for (const KernelRow& row : kernel_rows()) compared.push_back(row.macro);
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
