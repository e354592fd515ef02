// csrc/package/arguments.cpp: see arguments.h.
#include "csrc/package/arguments.h"

#include "csrc/support/error.h"

namespace ocl::package {
namespace {

template <class Sizes, class Text>
std::string listed(const Sizes& sizes, const Text& text) {
  std::string list = "[";
  for (size_t i = 0; i < sizes.size(); ++i) list += (i ? ", " : "") + text(sizes[i]);
  return list + "]";
}

std::string describe(const Value& value) {
  if (const auto* tensor = std::get_if<DeviceTensor>(&value))
    return std::string(ir::name(tensor->dtype)) + " " +
           listed(tensor->sizes, [](int64_t size) { return std::to_string(size); });
  if (std::holds_alternative<int64_t>(value)) return "the integer " + std::to_string(std::get<int64_t>(value));
  return std::holds_alternative<double>(value) ? "a real number" : "nothing";
}

[[noreturn]] void refuse(const Method& method, size_t position, const std::string& problem) {
  const Argument& argument = method.arguments[position];
  fail(ErrorKind::kConfig, "method " + method.name + ": argument " + std::to_string(position) + " (" + argument.name + ") " +
                               problem + "; expected " + describe(argument));
}

void check_kind(const Method& method, size_t position, const Value& value, const runtime::Device& device) {
  const Argument& argument = method.arguments[position];
  const auto* tensor = std::get_if<DeviceTensor>(&value);
  if (!argument.is_tensor) {
    if (!std::holds_alternative<int64_t>(value)) refuse(method, position, "is " + describe(value));
    return;
  }
  if (!tensor || tensor->dtype != argument.dtype || tensor->sizes.size() != argument.sizes.size())
    refuse(method, position, "is " + describe(value));
  if (&tensor->memory->device() != &device)
    refuse(method, position, "is on device " + tensor->memory->device().name() + ", but the model is on " + device.name());
  if (!tensor->is_dense()) refuse(method, position, "has elements that are not in row-major order");
}

}  // namespace

std::string describe_sizes(const ir::Shape& sizes) {
  return listed(sizes, [](const ir::IndexExpr& size) { return size.str(); });
}

std::string describe(const Argument& argument) {
  if (argument.is_tensor) return std::string(ir::name(argument.dtype)) + " " + describe_sizes(argument.sizes);
  return argument.sizes[0].is_const() ? "the integer " + argument.sizes[0].str() : "an integer";
}

std::vector<int64_t> check_arguments(const Method& method, const std::vector<Value>& arguments, const runtime::Device& device) {
  if (arguments.size() != method.arguments.size())
    fail(ErrorKind::kConfig, "method " + method.name + " takes " + std::to_string(method.arguments.size()) +
                                 " arguments, not " + std::to_string(arguments.size()));
  for (size_t i = 0; i < arguments.size(); ++i) check_kind(method, i, arguments[i], device);
  std::vector<int64_t> symbols;
  for (const SymbolSource& source : method.symbols) {
    const Value& value = arguments[static_cast<size_t>(source.argument)];
    symbols.push_back(source.dim < 0 ? std::get<int64_t>(value)
                                     : std::get<DeviceTensor>(value).sizes[static_cast<size_t>(source.dim)]);
  }
  const auto size_of = [&](ir::Symbol s) { return symbols[static_cast<size_t>(s.index)]; };
  for (const Condition& condition : method.conditions)
    if (ir::evaluate(condition.expression, size_of) < 0) {
      std::string sizes;
      for (size_t i = 0; i < arguments.size(); ++i)
        sizes += (i ? ", " : "") + method.arguments[i].name + " is " + describe(arguments[i]);
      fail(ErrorKind::kConfig, "method " + method.name + ": " + condition.message + "; but " + sizes);
    }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = method.arguments[i];
    const auto* tensor = std::get_if<DeviceTensor>(&arguments[i]);
    const std::vector<int64_t> given = tensor ? tensor->sizes : std::vector<int64_t>{std::get<int64_t>(arguments[i])};
    for (size_t d = 0; d < given.size(); ++d)
      if (ir::evaluate(argument.sizes[d], size_of) != given[d]) refuse(method, i, "is " + describe(arguments[i]));
  }
  return symbols;
}

}  // namespace ocl::package
