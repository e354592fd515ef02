// csrc/torch/autocast.cpp: torch.autocast('ocl'). It uses torch's own lists of ops that run in low precision, in
// float32, or in the widest type of their operands.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

namespace at::autocast {

#define OCL_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define OCL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define OCL_FP32_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define OCL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

// torch's list has the default overloads of these ops. interpolate() calls the overload `vec`, which a compiled function
// decomposes without calling the default overload.
#define OCL_RESAMPLING(_)      \
  _(upsample_nearest1d)        \
  _(_upsample_nearest_exact1d) \
  _(upsample_nearest2d)        \
  _(_upsample_nearest_exact2d) \
  _(upsample_nearest3d)        \
  _(_upsample_nearest_exact3d) \
  _(upsample_linear1d)         \
  _(upsample_bilinear2d)       \
  _(_upsample_bilinear2d_aa) _(upsample_trilinear3d) _(upsample_bicubic2d) _(_upsample_bicubic2d_aa)
#define OCL_FP32_VEC(op) OCL_FP32(op, vec)

static Tensor unsafe_in_half(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "binary_cross_entropy is not safe under autocast: its input is a probability that half precision rounds to "
              "0 or 1.\n  do: use binary_cross_entropy_with_logits, or leave autocast for the loss");
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(OCL_LOWER)
  AT_FORALL_FP32(OCL_FP32)
  OCL_RESAMPLING(OCL_FP32_VEC)
  AT_FORALL_FP32_SET_OPT_DTYPE(OCL_FP32_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(OCL_PROMOTE)
  m.impl("binary_cross_entropy", unsafe_in_half);
}

}  // namespace at::autocast
