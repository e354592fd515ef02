// csrc/torch/number_checks.cpp: finds the numbers that an op converts to the type of its tensors, by the names of its
// arguments.
#include "csrc/torch/number_checks.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>
#include <ATen/native/DistributionTemplates.h>

#include <algorithm>
#include <string_view>

#include "csrc/torch/eager_key.h"

namespace ocl::aten {

namespace {

struct Converted {
  std::string_view argument;
  bool scales = false;    // A factor: kernels of 16-bit floats have it in fp32.
  bool promotes = false;  // With a float, ops of integers compute in floats.
};
constexpr Converted kConverted[] = {
    {.argument = "value"},
    {.argument = "threshold"},
    {.argument = "min_val"},
    {.argument = "max_val"},
    {.argument = "start"},
    {.argument = "end"},
    {.argument = "min", .promotes = true},
    {.argument = "max", .promotes = true},
    {.argument = "alpha", .scales = true},
    {.argument = "beta", .scales = true},
};

/// Returns the first tensor, which may be in a list.
at::Tensor first_tensor(const c10::IValue* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (values[i].isTensor() && values[i].toTensor().defined()) return values[i].toTensor();
    if (values[i].isTensorList() && !values[i].toTensorList().empty()) return values[i].toTensorList().get(0);
  }
  return {};
}

/// Checks a range of random integers, [from, to) or [0, to).
void check_range(const at::Tensor& self, const c10::IValue* values, bool has_from) {
  const c10::IValue& to = values[has_from ? 2 : 1];
  if (to.isInt()) at::native::templates::check_from_to_in_range(has_from ? values[1].toInt() : 0, to.toInt() - 1, self.dtype());
}

}  // namespace

void check_number(at::ScalarType type, const at::Scalar& number) {
  if (number.isSymbolic() || number.isComplex()) return;
  if (at::isIntegralType(type, /*includeBool=*/false))
    AT_DISPATCH_V2(type, "check_number", AT_WRAP([&] { (void)number.to<scalar_t>(); }), AT_EXPAND(AT_INTEGRAL_TYPES_V2));
  else if (type == at::kHalf || type == at::kBFloat16 || type == at::kFloat)
    AT_DISPATCH_V2(type, "check_number", AT_WRAP([&] { (void)number.to<scalar_t>(); }), at::kHalf, at::kBFloat16, at::kFloat);
}

void check_numbers(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& declared = op.schema().arguments();
  const c10::IValue* values = stack.data() + stack.size() - declared.size();
  const std::string& name = op.schema().name();
  if (name == "aten::random_") {
    const std::string& overload = op.schema().overload_name();
    if (!overload.empty()) check_range(values[0].toTensor(), values, overload == "from");
    return;
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    if (!values[i].isScalar() || !is_number(declared[i])) continue;
    const auto row = std::ranges::find(kConverted, std::string_view(declared[i].name()), &Converted::argument);
    const at::Tensor tensor = first_tensor(values, declared.size());
    if (row == std::end(kConverted) || !tensor.defined()) continue;
    const at::Scalar number = values[i].toScalar();
    const at::ScalarType type = tensor.scalar_type();
    const bool is_float = at::isFloatingType(type), scales = row->scales || name.starts_with("aten::addc");
    if (row->promotes && !is_float && number.isFloatingPoint()) continue;
    check_number(scales ? at::toOpMathType(type) : type, number);
  }
}

}  // namespace ocl::aten
