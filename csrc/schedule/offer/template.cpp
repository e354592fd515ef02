// csrc/schedule/offer/template.cpp: sets the arguments of a launch by the names in its kernel's row.
#include "csrc/schedule/offer/template.h"

#include <algorithm>

#include "csrc/support/error.h"

namespace ocl::schedule {
namespace {

/// Returns the position of an argument in the kernel's row.
int position_of(KernelId kernel, const std::string& name, bool is_buffer) {
  const KernelRow& row = kernel_row(kernel);
  for (size_t i = 0; i < row.arguments.size(); ++i)
    if (row.arguments[i].name == name && row.arguments[i].is_buffer == is_buffer) return static_cast<int>(i);
  fail(ErrorKind::kInternal,
       std::string("kernel ") + row.name + " has no " + (is_buffer ? "buffer" : "integer") + " argument '" + name + "'");
}

/// Inserts an argument in the order of positions.
template <class Argument>
void insert(KernelId kernel, std::vector<Argument>& arguments, Argument argument) {
  const auto at = std::lower_bound(arguments.begin(), arguments.end(), argument,
                                   [](const Argument& a, const Argument& b) { return a.position < b.position; });
  const KernelRow& row = kernel_row(kernel);
  OCL_ASSERT(at == arguments.end() || at->position != argument.position,
             std::string("kernel ") + row.name + " got argument '" + row.arguments[argument.position].name + "' twice");
  arguments.insert(at, std::move(argument));
}

}  // namespace

void TemplateLaunch::buffer(const std::string& name, Input input) {
  input.position = position_of(kernel, name, true);
  insert(kernel, inputs, std::move(input));
}

void TemplateLaunch::buffers(std::initializer_list<std::pair<const char*, Input>> given) {
  for (const auto& [name, input] : given) buffer(name, input);
}

void TemplateLaunch::arg(const std::string& name, const ir::IndexExpr& value) {
  const int position = position_of(kernel, name, false);
  insert(kernel, ints, Int{value, kernel_row(kernel).arguments[position].wide, position});
}

void TemplateLaunch::args(std::initializer_list<std::pair<const char*, ir::IndexExpr>> given) {
  for (const auto& [name, value] : given) arg(name, value);
}

std::set<std::string> TemplateLaunch::given() const {
  const std::vector<KernelArgument>& arguments = kernel_row(kernel).arguments;
  std::set<std::string> names;
  for (const Input& input : inputs) names.insert(arguments[static_cast<size_t>(input.position)].name);
  for (const Int& value : ints) names.insert(arguments[static_cast<size_t>(value.position)].name);
  if (scratch_elements > 0) names.insert("scratch");
  return names;
}

void TemplateLaunch::check_arguments() const {
  const std::set<std::string> names = given();
  for (const KernelArgument& argument : kernel_row(kernel).arguments)
    OCL_ASSERT(names.contains(argument.name) || argument.optional,
               std::string("kernel ") + kernel_row(kernel).name + " was not given argument '" + argument.name + "'");
}

}  // namespace ocl::schedule
