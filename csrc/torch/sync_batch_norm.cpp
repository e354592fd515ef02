// csrc/torch/sync_batch_norm.cpp: the ops of torch.nn.SyncBatchNorm. torch has them for CUDA only. Each is made of ordinary
// ops, which are compiled one by one. Statistics are fp32, or fp64 for fp64 inputs.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace ocl::aten {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

/// Returns all dimensions but the channels, which are dimension 1.
std::vector<int64_t> sample_dims(const Tensor& x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}

/// Returns a value per channel with the rank of `like`.
Tensor per_channel(const Tensor& value, const Tensor& like) {
  std::vector<int64_t> sizes(static_cast<size_t>(like.dim()), 1);
  sizes[1] = like.size(1);
  return value.reshape(sizes);
}

Tensor computed(const Tensor& x) { return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat); }
bool is_given(const Optional& x) { return x.has_value() && x->defined(); }

std::tuple<Tensor, Tensor> batch_norm_stats(const Tensor& input, double eps) {
  const auto [var, mean] = at::var_mean(computed(input), sample_dims(input), /*correction=*/0, /*keepdim=*/false);
  return {mean, var.add(eps).rsqrt()};
}

/// Combines the statistics of all ranks. `mean` and `invstd` are [ranks, channels], `counts` has the elements per channel of
/// each rank.
std::tuple<Tensor, Tensor> batch_norm_gather_stats_with_counts(const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                                               const Optional& running_mean, const Optional& running_var,
                                                               double momentum, double eps, const Tensor& counts) {
  const Tensor weights = counts.to(mean.scalar_type()).view({-1, 1}), count = weights.sum();
  const Tensor var = invstd.pow(-2).sub(eps);
  const Tensor mean_of_all = weights.mul(mean).sum(0).div(count);
  const Tensor squares = weights.mul(var.add(mean.sub(mean_of_all).square())).sum(0);
  if (is_given(running_mean)) running_mean->mul_(1 - momentum).add_(mean_of_all.to(running_mean->scalar_type()), momentum);
  if (is_given(running_var))
    running_var->mul_(1 - momentum).add_(squares.div(count.sub(1)).to(running_var->scalar_type()), momentum);
  return {mean_of_all, squares.div(count).add(eps).rsqrt()};
}

Tensor batch_norm_elemt(const Tensor& input, const Optional& weight, const Optional& bias, const Tensor& mean,
                        const Tensor& invstd, double eps) {
  Tensor result = computed(input).sub(per_channel(mean, input)).mul(per_channel(invstd, input));
  if (is_given(weight)) result = result.mul(per_channel(*weight, input));
  if (is_given(bias)) result = result.add(per_channel(*bias, input));
  return result.to(input.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_backward_reduce(const Tensor& grad_out, const Tensor& input,
                                                                      const Tensor& mean, const Tensor& invstd,
                                                                      const Optional& weight, bool input_g, bool weight_g,
                                                                      bool bias_g) {
  const std::vector<int64_t> dims = sample_dims(input);
  const Tensor grad = computed(grad_out);
  const Tensor sum_dy = grad.sum(dims), sum_dy_xmu = grad.mul(computed(input).sub(per_channel(mean, input))).sum(dims);
  const at::ScalarType type = is_given(weight) ? weight->scalar_type() : sum_dy.scalar_type();
  return {input_g ? sum_dy : Tensor(), input_g ? sum_dy_xmu : Tensor(), weight_g ? sum_dy_xmu.mul(invstd).to(type) : Tensor(),
          bias_g ? sum_dy.to(type, false, /*copy=*/true) : Tensor()};
}

Tensor batch_norm_backward_elemt(const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                 const Optional& weight, const Tensor& sum_dy, const Tensor& sum_dy_xmu, const Tensor& count) {
  const Tensor elements = count.sum().to(mean.scalar_type());
  const Tensor slope = sum_dy_xmu.div(elements).mul(invstd.square());
  const Tensor centred = computed(input).sub(per_channel(mean, input)).mul(per_channel(slope, input));
  const Tensor scale = is_given(weight) ? invstd.mul(*weight) : invstd;
  const Tensor grad = computed(grad_out).sub(per_channel(sum_dy.div(elements), input)).sub(centred);
  return grad.mul(per_channel(scale, input)).to(input.scalar_type());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", &batch_norm_stats);
  m.impl("batch_norm_gather_stats_with_counts", &batch_norm_gather_stats_with_counts);
  m.impl("batch_norm_elemt", &batch_norm_elemt);
  m.impl("batch_norm_backward_reduce", &batch_norm_backward_reduce);
  m.impl("batch_norm_backward_elemt", &batch_norm_backward_elemt);
}

}  // namespace ocl::aten
