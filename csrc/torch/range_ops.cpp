// csrc/torch/range_ops.cpp: eager arange. The length is computed here, so that one plan serves all lengths.
#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

namespace ocl::aten {

namespace {

/// Returns the number of elements of a ramp. Throws PyTorch's errors. In int64 it is exact, because a double is not.
int64_t length_of(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::ScalarType type) {
  const auto first = start.to<double>(), last = end.to<double>(), by = step.to<double>();
  TORCH_CHECK(by > 0 || by < 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ", last);
  TORCH_CHECK(by > 0 ? last >= first : last <= first, "upper bound and lower bound inconsistent with step sign");
  if (type == at::kLong) {
    const auto whole = step.to<int64_t>();
    TORCH_CHECK_VALUE(whole != 0, "step must be nonzero");
    const auto span = static_cast<__int128>(end.to<int64_t>()) - start.to<int64_t>();
    const __int128 length = (span + whole - (whole > 0 ? 1 : -1)) / whole;
    TORCH_CHECK(length <= std::numeric_limits<int64_t>::max(), "invalid size, possible overflow?");
    return static_cast<int64_t>(length);
  }
  const double length = std::ceil((last - first) / by);
  TORCH_CHECK(length >= 0 && length < std::ldexp(1.0, 63), "invalid size, possible overflow?");
  return static_cast<int64_t>(length);
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  const at::ScalarType type = out.scalar_type();
  const bool is_integral = at::isIntegralType(type, /*includeBool=*/false) && !at::isBarebonesUnsignedType(type);
  TORCH_CHECK_NOT_IMPLEMENTED(is_integral || (at::isFloatingType(type) && !at::isFloat8Type(type)),
                              "\"arange\" not implemented for '", type, "'");
  const int64_t length = length_of(start, end, step, type);
  if (out.numel() != length) at::native::resize_output(out, {length});
  if (length == 0) return out;
  const auto number = [&](const at::Scalar& value) {
    return at::native::wrapped_scalar_tensor(is_integral ? at::Scalar(value.to<int64_t>()) : at::Scalar(value.to<double>()));
  };
  static const auto ramp = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("ocl::ramp_", "")
                               .typed<at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  const at::AutoDispatchBelowADInplaceOrView guard;
  return ramp.call(out, number(start), number(step));
}

}  // namespace

// Fills self with start + step * position. eager/forms.py computes it.
TORCH_LIBRARY_FRAGMENT(ocl, m) { m.def("ramp_(Tensor(a!) self, Tensor start, Tensor step) -> Tensor(a!)"); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("arange.start_out", arange_out); }

}  // namespace ocl::aten
