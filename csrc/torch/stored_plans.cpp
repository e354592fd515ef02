// csrc/torch/stored_plans.cpp: writes and reads cache entries of eager ops. An entry is a sequence of values;
// `describe` lists them for both directions.
#include "csrc/torch/stored_plans.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "csrc/exec/make_plan.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/verify.h"
#include "csrc/support/compiler_crash.h"
#include "csrc/support/log.h"
#include "csrc/torch/device_state.h"

namespace ocl::aten {

namespace {

constexpr char kFormat[] = "eager op 2";

/// Writes values one after the other, or reads them in the same order. Throws Error if a value cannot be read.
class Coder {
 public:
  Coder() = default;  // Makes a Coder that writes.
  explicit Coder(const std::string& bytes) : reads_(true), bytes_(bytes) {}

  template <class T>
  void value(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (reads_)
      std::memcpy(&value, take(sizeof value), sizeof value);
    else
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void flag(bool& flag) {
    auto byte = static_cast<uint8_t>(flag);
    value(byte);
    if (byte > 1) fail(ErrorKind::kInternal, "a flag is neither 0 nor 1");
    flag = byte == 1;
  }
  void text(std::string& text) {
    const size_t size = count(text.size());
    if (reads_)
      text.assign(take(size), size);
    else
      bytes_ += text;
  }
  /// Writes or reads the number of elements, then calls `element(T&)` for each element.
  template <class T, class Element>
  void list(std::vector<T>& values, const Element& element) {
    const size_t size = count(values.size());
    if (reads_) values.resize(size);
    for (T& value : values) element(value);
  }
  template <class T>
  void list(std::vector<T>& values) {
    list(values, [this](T& element) { value(element); });
  }

  void expect_end() const {
    if (at_ != bytes_.size()) fail(ErrorKind::kInternal, "it is longer than it should be");
  }
  std::string take_bytes() { return std::move(bytes_); }

 private:
  /// Writes or reads the number of elements, and returns it. Each element takes at least one byte, so a number larger than the
  /// rest of the entry is an error.
  size_t count(size_t size) {
    auto stored = static_cast<uint64_t>(size);
    value(stored);
    if (reads_ && stored > bytes_.size() - at_) fail(ErrorKind::kInternal, "it ends too early");
    return static_cast<size_t>(stored);
  }
  const char* take(size_t size) {
    if (size > bytes_.size() - at_) fail(ErrorKind::kInternal, "it ends too early");
    at_ += size;
    return bytes_.data() + at_ - size;
  }

  const bool reads_ = false;
  std::string bytes_;
  size_t at_ = 0;
};

enum class EntryKind : uint8_t { kPlan, kNoKernels, kBadArguments, kResizes };

EntryKind entry_kind(const CompiledOp& compiled) {
  if (compiled.plan->has_no_kernels()) return EntryKind::kNoKernels;
  if (compiled.plan->bad_arguments) return EntryKind::kBadArguments;
  return compiled.plan->resizes.empty() ? EntryKind::kPlan : EntryKind::kResizes;
}

void describe(Coder& coder, std::pair<int, int>& symbol) {
  coder.value(symbol.first);
  coder.value(symbol.second);
}

void describe(Coder& coder, EagerConditions& conditions) {
  coder.list(conditions.symbols, [&](std::pair<int, int>& symbol) { describe(coder, symbol); });
  coder.list(conditions.sizes, [&](ir::IndexExpr& size) {
    std::string text = size.str();
    coder.text(text);
    size = ir::parse_index(text);
  });
  coder.list(conditions.floats, [&](std::pair<int, double>& value) {
    coder.value(value.first);
    coder.value(value.second);
  });
}

void describe(Coder& coder, EntryKind& what, EagerPlan& plan, std::string& graph) {
  std::string format = kFormat;
  coder.text(format);
  if (format != kFormat) fail(ErrorKind::kInternal, "it has another format");
  coder.value(what);
  coder.text(plan.reason);
  coder.text(graph);
  coder.list(plan.inputs, [&](EagerInput& input) {
    coder.value(input.kind);
    coder.value(input.leaf);
    coder.list(input.leaves);
    coder.value(input.dtype);
    coder.value(input.count);
  });
  coder.list(plan.symbols, [&](std::pair<int, int>& symbol) { describe(coder, symbol); });
  coder.list(plan.returns, [&](EagerReturn& value) {
    coder.flag(value.is_list);
    coder.list(value.tensors, [&](std::pair<bool, int>& tensor) {
      coder.flag(tensor.first);
      coder.value(tensor.second);
    });
    bool is_number = value.number.has_value();
    int64_t number = value.number.value_or(0);
    coder.flag(is_number);
    coder.value(number);
    if (is_number) value.number = number;
  });
  coder.list(plan.resizes, [&](std::tuple<int, std::vector<int64_t>, std::vector<int64_t>>& resize) {
    coder.value(std::get<0>(resize));
    coder.list(std::get<1>(resize));
    coder.list(std::get<2>(resize));
  });
  describe(coder, plan.conditions);
}

/// True if the parts of an entry fit together and fit the call. This check keeps a damaged entry from making a call read beyond
/// its arguments.
bool fits(const EagerPlan& plan, const ir::Graph& graph, const EagerArguments& arguments) {
  const auto is_leaf = [&](int leaf) { return leaf >= 0 && leaf < static_cast<int>(arguments.leaves.size()); };
  const auto is_tensor = [&](int leaf) {
    return is_leaf(leaf) && arguments.leaves[leaf].isTensor() && arguments.leaves[leaf].toTensor().defined();
  };
  const auto is_number = [&](int leaf) {
    if (!is_leaf(leaf)) return false;
    const c10::IValue& value = arguments.leaves[leaf];
    return value.isDouble() || value.isInt() || (is_tensor(leaf) && is_host_scalar(value.toTensor()));
  };
  if (plan.inputs.size() != graph.inputs.size() || static_cast<int>(plan.symbols.size()) != graph.symbols) return false;
  for (const EagerInput& input : plan.inputs) {
    if (input.kind == EagerInput::Kind::kTensor && !is_tensor(input.leaf)) return false;
    if (input.kind == EagerInput::Kind::kNumbers && !std::all_of(input.leaves.begin(), input.leaves.end(), is_number))
      return false;
    if (input.kind == EagerInput::Kind::kState && input.leaf >= 0 && !is_leaf(input.leaf)) return false;
    if (input.kind > EagerInput::Kind::kState) return false;
    if (!c10::isFloatingType(input.dtype) && !c10::isIntegralType(input.dtype, /*includeBool=*/true)) return false;
  }
  for (const auto& [leaf, dim] : plan.symbols)
    if (!is_tensor(leaf) || dim < 0 || dim >= arguments.leaves[leaf].toTensor().dim()) return false;
  for (const EagerReturn& value : plan.returns) {
    if (!value.is_list && !value.number && value.tensors.size() != 1) return false;
    for (const auto& [is_output, index] : value.tensors)
      if (index >= 0 && !(is_output ? index < static_cast<int>(graph.outputs.size()) : is_tensor(index))) return false;
  }
  for (const auto& [leaf, sizes, strides] : plan.resizes)
    if (!is_tensor(leaf) || sizes.size() != strides.size()) return false;
  return plan.conditions.fit(arguments);
}

}  // namespace

std::string entry_of(const CompiledOp& compiled) {
  EntryKind what = entry_kind(compiled);
  EagerPlan recipe = *compiled.plan;
  std::string graph = compiled.graph;
  Coder coder;
  describe(coder, what, recipe, graph);
  return coder.take_bytes();
}

StoredOp compiled_from(const std::string& entry, const c10::OperatorHandle& op, const EagerArguments& arguments, int device,
                       const EagerContext& context) {
  const std::string name = c10::toString(op.operator_name());
  CompiledOp compiled;
  auto plan = std::make_shared<EagerPlan>();
  ir::Graph graph;
  EntryKind what = EntryKind::kPlan;
  try {
    Coder coder(entry);
    describe(coder, what, *plan, compiled.graph);
    coder.expect_end();
    graph = ir::parse_graph(compiled.graph);
    ir::verify(graph, ir::Level::kGraph);
    if (what > EntryKind::kResizes || (what == EntryKind::kResizes) == plan->resizes.empty() || !fits(*plan, graph, arguments))
      fail(ErrorKind::kInternal, "its parts do not fit");
  } catch (const std::exception& error) {
    log_message(LogLevel::kInfo, "eager", "a stored plan of " + name + " is not used and made anew: " + error.what());
    return {StoredOp::State::kDamaged};
  }
  if (!plan->conditions.hold(arguments)) return {StoredOp::State::kOtherCalls};
  plan->bad_arguments = what == EntryKind::kBadArguments;
  if (what == EntryKind::kPlan) {
    exec::PlanOptions options = context.options;
    options.label = "stored plan of " + name;
    options.op = name.substr(0, name.find('.'));
    try {
      plan->executor =
          std::make_shared<exec::Executor>(exec::make_plan(std::move(graph), device_at(device), context.binaries, options));
    } catch (const CompilerCrash&) {
      return {StoredOp::State::kDamaged};  // The op is compiled anew, which finds out that it has no kernels.
    }
  }
  compiled.plan = std::move(plan);
  return {StoredOp::State::kServes, std::move(compiled)};
}

}  // namespace ocl::aten
