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

void TemplateLaunch::check_arguments() const {
  const KernelRow& row = kernel_row(kernel);
  for (size_t i = 0; i < row.arguments.size(); ++i) {
    const auto here = [&](const auto& argument) { return argument.position == static_cast<int>(i); };
    const KernelArgument& argument = row.arguments[i];
    const bool given = argument.name == "scratch" ? scratch_elements > 0
                       : argument.is_buffer       ? std::any_of(inputs.begin(), inputs.end(), here)
                                                  : std::any_of(ints.begin(), ints.end(), here);
    OCL_ASSERT(given || argument.optional,
               std::string("kernel ") + row.name + " was not given argument '" + argument.name + "'");
  }
}

}  // namespace ocl::schedule
