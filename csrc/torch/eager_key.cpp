// csrc/torch/eager_key.cpp: builds keys of eager calls. A key is a byte string; building and hashing it takes about a
// microsecond.
#include "csrc/torch/eager_key.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>

#include "csrc/torch/device_state.h"

namespace ocl::aten {

namespace {

/// True if a plan may serve all values of a Python number that is combined with a tensor.
bool may_vary(const at::Tensor& number) { return !number.is_complex() && number.scalar_type() != at::kBool; }

class KeyWriter {
 public:
  /// If `device` is set, that device is written as 0 and no other device is allowed. Otherwise devices are written by
  /// their index.
  KeyWriter(KeyLevel level, std::optional<int> device, const EagerArguments& arguments) : level_(level), device_(device) {
    constexpr size_t kLeaf = 64;  // Bytes of a tensor with two dimensions, and more.
    key_.reserve(256 + kLeaf * arguments.leaves.size());
  }

  template <class T>
  void raw(const T& value) {
    key_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void numbers(at::IntArrayRef values) {
    key_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  }
  void size(int64_t number) { number_class(number, sizes_); }
  void tag(char c) { key_.push_back(c); }
  void text(const std::string& s) {
    raw(static_cast<uint32_t>(s.size()));
    key_ += s;
  }

  void tensor(const at::Tensor& t, int same) {
    // One write for all: an optimizer's step has hundreds of tensors.
    struct {
      int same;
      uint16_t rank;
      at::ScalarType dtype;
      char bits;
    } const head{same, static_cast<uint16_t>(t.dim()), t.scalar_type(), static_cast<char>('0' + t.is_conj() + 2 * t.is_neg())};
    static_assert(sizeof head == 8);  // Without padding.
    tag('T');
    raw(head);
    device(t.device());
    if (level_ != KeyLevel::kAnySizes) {
      numbers(t.sizes());
      numbers(t.strides());
      return;
    }
    for (const int64_t size : t.sizes()) number_class(size, sizes_);
    stride_class(t);
  }

  void host_scalar(const at::Tensor& t) {
    const bool number = t.unsafeGetTensorImpl()->is_wrapped_number();
    tag(number ? 'w' : 't');
    raw(t.scalar_type());
    raw(static_cast<uint16_t>(t.dim()));
    if (number && !(level_ != KeyLevel::kExact && may_vary(t))) value_of(t);
  }

  void device(const at::Device& device) {
    raw(device.type());
    if (!device_ || !device.is_privateuseone()) return raw(device.index());
    // A device without an index is the current one.
    if (device.has_index() ? device.index() != *device_ : current_device() != *device_) elsewhere_ = true;
    raw(c10::DeviceIndex{0});
  }

  /// False if a device other than `device` occurred, so that the key does not describe the call.
  bool is_complete() const { return !elsewhere_; }
  std::string take() { return std::move(key_); }

 private:
  void value_of(const at::Tensor& t) {
    if (t.is_complex())
      raw(t.item<c10::complex<double>>());
    else if (t.is_floating_point())
      raw(t.item<double>());
    else
      raw(t.item<int64_t>());
  }

  /// Writes 0 and 1 as they are. Other sizes or strides are numbered by their first occurrence, so equal ones stay equal.
  void number_class(int64_t number, std::vector<int64_t>& seen) {
    if (number <= 1) return tag(number == 0 ? '0' : '1');
    const auto found = std::find(seen.begin(), seen.end(), number);
    tag('s');
    raw(static_cast<uint16_t>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(number);
  }

  /// Writes the order of dimensions of a dense tensor. Writes which strides of another tensor are equal.
  void stride_class(const at::Tensor& t) {
    if (t.is_contiguous()) return tag('c');
    if (!t.is_non_overlapping_and_dense()) {
      tag('y');
      for (const int64_t stride : t.strides()) number_class(stride, strides_);
      return;
    }
    std::vector<uint8_t> order(t.dim());
    std::iota(order.begin(), order.end(), uint8_t{0});
    std::stable_sort(order.begin(), order.end(), [&](uint8_t a, uint8_t b) { return t.stride(a) > t.stride(b); });
    tag('p');
    for (const uint8_t d : order) raw(d);
  }

  const KeyLevel level_;
  const std::optional<int> device_;
  bool elsewhere_ = false;
  std::string key_;
  std::vector<int64_t> sizes_, strides_;  // Those so far that number_class has numbered.
};

/// True if two arguments are the same tensor, or views of exactly the same elements.
bool is_same(const at::Tensor& a, const at::Tensor& b) {
  return a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl() ||
         (a.numel() > 0 && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
          a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg() && a.const_data_ptr() == b.const_data_ptr());
}

/// The tensors so far by their address, in a hash table.
class TensorsByAddress {
 public:
  explicit TensorsByAddress(size_t most) : slots_(std::bit_ceil(2 * most), kEmpty) {}

  /// Returns the first leaf that is the same tensor as leaf `leaf`. If there is none, adds this leaf and returns it.
  int find_or_add(const void* address, const std::vector<c10::IValue>& leaves, const at::Tensor& tensor, int leaf) {
    for (size_t i = hash_of(address); true; ++i) {
      auto& [known, first] = slots_[i & (slots_.size() - 1)];
      if (first < 0) {
        known = address, first = leaf;
        return leaf;
      }
      if (known == address && is_same(leaves[static_cast<size_t>(first)].toTensor(), tensor)) return first;
    }
  }

 private:
  static constexpr std::pair<const void*, int> kEmpty = {nullptr, -1};

  /// Blocks of memory begin at multiples of 64 bytes or more, and a multiplication moves what differs into the middle.
  static size_t hash_of(const void* address) { return (reinterpret_cast<uintptr_t>(address) * 0x9E3779B97F4A7C15) >> 32; }

  std::vector<std::pair<const void*, int>> slots_;
};

/// Says whether the user allows TF32 in products and in convolutions of float32. lowering/graphs/graph.py reads the same
/// settings.
char precision() {
  const at::Context& context = at::globalContext();
  const auto allows = [&](at::Float32Op op) {
    return context.float32Precision(at::Float32Backend::CUDA, op) == at::Float32Precision::TF32;
  };
  return static_cast<char>('0' + allows(at::Float32Op::MATMUL) + 2 * allows(at::Float32Op::CONV));
}

/// Writes process-wide settings of the user that a trace reads.
void write_settings(KeyWriter& key) {
  const at::Context& context = at::globalContext();
  key.tag(precision());
  key.raw(c10::get_default_dtype_as_scalartype());
  key.tag(static_cast<char>('0' + context.deterministicAlgorithms() + 2 * context.deterministicFillUninitializedMemory()));
}

void write_call(KeyWriter& key, const c10::OperatorHandle& op, const EagerArguments& arguments, KeyLevel level) {
  for (size_t i = 0; i < arguments.leaves.size(); ++i) {
    const c10::IValue& value = arguments.leaves[i];
    if (i > 0 && arguments.argument[i] == arguments.argument[i - 1])
      key.tag(',');
    else
      key.raw(static_cast<uint16_t>(arguments.argument[i]));
    if (value.isTensor() && value.toTensor().defined()) {
      if (is_host_scalar(value.toTensor()))
        key.host_scalar(value.toTensor());
      else
        key.tensor(value.toTensor(), arguments.same[i]);
    } else if (value.isDouble()) {
      key.tag('d');
      const bool known = arguments.free >= 0 && arguments.free != arguments.argument[i];
      if (level == KeyLevel::kExact || known)
        key.raw(value.toDouble());
      else
        key.raw(arguments.same[i]);
    } else if (value.isComplexDouble()) {
      key.tag('c');
      key.raw(value.toComplexDouble());
    } else if (value.isInt() || value.isSymInt()) {
      key.tag('i');
      const int64_t number = value.isInt() ? value.toInt() : value.toSymInt().expect_int();
      if (level == KeyLevel::kAnySizes && number > 1 && acts_as_size(op.schema().arguments()[arguments.argument[i]].name()))
        key.size(number);
      else
        key.raw(number);
    } else if (value.isBool()) {
      key.tag(value.toBool() ? '+' : '-');
    } else if (value.isString()) {
      key.tag('"');
      key.text(value.toStringRef());
    } else if (value.isDevice()) {
      key.tag('v');
      key.device(value.toDevice());
    } else if (value.isGenerator()) {
      key.tag('g');
    } else {
      key.tag('n');
    }
  }
}

/// True if another integer asks for other kernels, so that a plan is for one integer.
bool decides(const std::string& argument, int64_t number) {
  constexpr std::array<std::string_view, 4> kStructure = {"ord", "p", "correction", "lambd"};
  const int64_t few = argument == "exponent" ? 4 : 1;  // Small powers are products. A factor of 0 or 1 leaves something out.
  return (-few <= number && number <= few) || std::find(kStructure.begin(), kStructure.end(), argument) != kStructure.end() ||
         std::abs(number) > int64_t{1} << 53;  // Has no double.
}

bool computes_in_floats(const c10::OperatorHandle& op, const c10::IValue* values) {
  const auto is_float = [](const at::Tensor& t) { return t.defined() && at::isFloatingType(t.scalar_type()); };
  for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
    if (values[i].isTensor()) return is_float(values[i].toTensor());
    if (!values[i].isTensorList()) continue;
    return std::ranges::all_of(values[i].toListRef(), [&](const c10::IValue& v) { return is_float(v.toTensor()); });
  }
  return false;
}

constexpr const char* kExceedsInt64 = "kernels take no integers of 2^63 and more";

bool exceeds_int64(uint64_t number) { return number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()); }

/// Returns why kernels cannot read a tensor that is neither a number nor a strided tensor on a device.
std::string why_unsupported(const at::Tensor& t) {
  if (t.layout() != at::kStrided) return c10::str("tensors of layout ", t.layout(), " have no kernels");
  return "a tensor of size " + c10::str(t.sizes()) + " is on " + t.device().str();
}

}  // namespace

bool is_host_scalar(const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.dim() == 0; }

bool is_number(const c10::Argument& argument) {
  const c10::Type& type = *argument.type();
  const bool has_element = type.kind() == c10::TypeKind::OptionalType || type.kind() == c10::TypeKind::ListType;
  return (has_element ? type.containedType(0)->kind() : type.kind()) == c10::TypeKind::NumberType;
}

bool acts_as_size(const std::string& argument) {
  constexpr std::array<std::string_view, 7> kNames = {"shifts", "k", "diagonal", "n", "m", "from", "to"};
  return std::find(kNames.begin(), kNames.end(), argument) != kNames.end();
}

void integers_to_floats(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& declared = op.schema().arguments();
  c10::IValue* values = stack.data() + stack.size() - declared.size();
  for (size_t i = 0; i < declared.size(); ++i) {
    const auto varies = [&](const c10::IValue& v) { return v.isInt() && !decides(declared[i].name(), v.toInt()); };
    const bool is_list = values[i].isList();
    if (!(is_list || varies(values[i])) || !is_number(declared[i])) continue;
    if (!computes_in_floats(op, values)) return;
    if (!is_list) {
      values[i] = static_cast<double>(values[i].toInt());
      continue;
    }
    c10::List<at::Scalar> numbers;
    for (const c10::IValue& v : values[i].toListRef())
      numbers.push_back(varies(v) ? at::Scalar(double(v.toInt())) : v.toScalar());
    values[i] = std::move(numbers);
  }
}

EagerArguments flatten(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  EagerArguments result;
  const size_t count = op.schema().arguments().size();
  // In optimizers, only the learning rate varies. Values that are derived from other numbers (1 - beta^step) need all digits of
  // these numbers, so they stay part of the key.
  if (const std::optional<int> rate = op.schema().argumentIndexWithName("lr")) {
    result.free = *rate;
    result.varies = true;
  }
  size_t most = 0;
  for (size_t i = stack.size() - count; i < stack.size(); ++i) most += stack[i].isList() ? stack[i].toListRef().size() : 1;
  result.leaves.reserve(most), result.argument.reserve(most), result.same.reserve(most);
  TensorsByAddress tensors(most);
  std::vector<int> floats;  // Leaves with different floats in the current argument.
  const auto add = [&](const c10::IValue& value, int argument) {
    const int leaf = static_cast<int>(result.leaves.size());
    int same = leaf;
    if (value.isTensor() && value.toTensor().defined()) {
      const at::Tensor& t = value.toTensor();
      if (is_host_scalar(t)) {
        result.has_numbers |= t.unsafeGetTensorImpl()->is_wrapped_number() && may_vary(t);
        if (t.scalar_type() == at::kUInt64 && exceeds_int64(t.item().toUInt64())) result.unsupported = kExceedsInt64;
      } else if (t.device().is_privateuseone() && t.layout() == at::kStrided) {
        const void* address = t.numel() > 0 ? t.const_data_ptr() : static_cast<const void*>(t.unsafeGetTensorImpl());
        same = tensors.find_or_add(address, result.leaves, t, leaf);
      } else {
        result.unsupported = why_unsupported(t);
      }
    }
    if (value.isUnsigned() && exceeds_int64(value.toUInt())) result.unsupported = kExceedsInt64;
    if (value.isDouble()) {
      if (result.free < 0 || result.free == argument) result.has_numbers = true;
      // Equal numbers of a list, such as step counts of many parameters, count as one.
      for (const int first : floats)
        if (result.leaves[first].toDouble() == value.toDouble() && same == leaf) same = first;
      if (same == leaf) floats.push_back(leaf);
    }
    result.leaves.push_back(value);
    result.argument.push_back(argument);
    result.same.push_back(same);
  };
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    const int argument = static_cast<int>(i);
    floats.clear();
    if (!value.isList()) {
      add(value, argument);
      continue;
    }
    result.varies |= value.isDoubleList() || op.schema().arguments()[i].name() == "scalars";
    for (const c10::IValue& element : value.toListRef()) add(element, argument);
  }
  return result;
}

std::string key_of(const c10::OperatorHandle& op, const EagerArguments& arguments, KeyLevel level) {
  KeyWriter key(level, std::nullopt, arguments);
  write_settings(key);
  key.raw(&op.schema());  // The address of a registered schema does not change.
  key.raw(level);
  write_call(key, op, arguments, level);
  return key.take();
}

std::string portable_key_of(const c10::OperatorHandle& op, const EagerArguments& arguments, KeyLevel level, int device) {
  KeyWriter key(level, device, arguments);
  write_settings(key);
  key.text(op.schema().name());
  key.text(op.schema().overload_name());
  key.raw(level);
  write_call(key, op, arguments, level);
  return key.is_complete() ? key.take() : "";
}

int device_of(const EagerArguments& arguments) {
  int named = -1;
  for (const c10::IValue& value : arguments.leaves) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().device().is_privateuseone())
      return value.toTensor().device().index();
    if (value.isDevice() && value.toDevice().is_privateuseone() && value.toDevice().has_index())
      named = value.toDevice().index();
  }
  return named < 0 ? current_device() : named;
}

}  // namespace ocl::aten
