// csrc/torch/nn_ops.cpp: eager ops that cannot use run_on_cpu. torch calls convolution, attention, and LSTM and GRU
// cells of a private device by names for which the CPU has no kernel. The schema of batch norm does not say that it writes its
// running statistics. If such an op cannot be compiled, it runs on the CPU by its plain formula.
#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "csrc/torch/device_state.h"
#include "csrc/torch/eager_op.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/refused_layouts.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr int64_t kMath = 0, kOverrideable = 4;  // Values of at::sdp::SDPBackend.
// The default choice. While torch traces, attention is one op for the compiler; in eager mode it is several ops.
constexpr int64_t kWhenTraced = -1;
std::atomic<int64_t> g_sdp_choice{kWhenTraced};

bool is_traced(const at::Tensor& t) {
  return t.key_set().has(c10::DispatchKey::Python) || t.key_set().has(c10::DispatchKey::Functionalize);
}

at::Tensor host(const at::Tensor& t) { return t.defined() ? t.cpu() : t; }
OptionalTensor host(const OptionalTensor& t) { return t.has_value() && t->defined() ? OptionalTensor(t->cpu()) : std::nullopt; }
at::Tensor back(const at::Tensor& t, at::Device device) { return t.defined() ? t.to(device) : t; }

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                       int64_t groups) {
  return back(
      at::convolution(host(input), host(weight), host(bias), stride, padding, dilation, transposed, output_padding, groups),
      input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad, const at::Tensor& input,
                                                                    const at::Tensor& weight, at::IntArrayRef stride,
                                                                    at::IntArrayRef padding, at::IntArrayRef dilation,
                                                                    bool transposed, at::IntArrayRef output_padding,
                                                                    int64_t groups, std::array<bool, 3> mask) {
  const int64_t outputs = weight.size(transposed ? 1 : 0) * (transposed ? groups : 1);
  auto [gi, gw, gb] = at::convolution_backward(host(grad), host(input), host(weight), at::IntArrayRef{outputs}, stride, padding,
                                               dilation, transposed, output_padding, groups, mask);
  return {back(gi, input.device()), back(gw, input.device()), back(gb, input.device())};
}

/// Runs batch norm on the CPU. run_on_cpu would not copy running_mean and running_var back, because the schema does
/// not say that they are written.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor& input, const OptionalTensor& weight,
                                                          const OptionalTensor& bias, const OptionalTensor& running_mean,
                                                          const OptionalTensor& running_var, bool training, double momentum,
                                                          double eps) {
  const OptionalTensor mean = host(running_mean), var = host(running_var);
  auto [out, save_mean, save_invstd] =
      at::native_batch_norm(host(input), host(weight), host(bias), mean, var, training, momentum, eps);
  if (training && mean.has_value()) running_mean->copy_(*mean);
  if (training && var.has_value()) running_var->copy_(*var);
  return {back(out, input.device()), back(save_mean, input.device()), back(save_invstd, input.device())};
}

// Attention: S = scale Q K^T + bias, P = softmax(S), O = dropout(P) V. K and V may have fewer heads than Q (GQA).
struct Attention {
  at::Tensor q, k, v, bias;  // Float tensors on the CPU. K and V are expanded to Q's number of heads.
  int64_t group = 1;
  double scale = 1;

  at::Tensor scores(bool causal) const {
    at::Tensor s = at::matmul(q, k.transpose(-2, -1)) * scale;
    if (bias.defined()) s = s + bias;
    if (causal) {
      const at::Tensor keep = at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool)).tril();
      s = s.masked_fill(keep.logical_not(), -std::numeric_limits<float>::infinity());
    }
    return s;
  }
};

at::ScalarType accumulate_type(const at::Tensor& t) { return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

Attention attention_inputs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptionalTensor& bias,
                           std::optional<double> scale) {
  const at::ScalarType type = accumulate_type(q);
  Attention a{host(q).to(type), host(k).to(type), host(v).to(type), {}};
  a.group = q.size(-3) / k.size(-3);
  if (a.group > 1) {
    a.k = a.k.repeat_interleave(a.group, -3);
    a.v = a.v.repeat_interleave(a.group, -3);
  }
  a.scale = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
  if (bias.has_value() && bias->defined()) {
    const at::Tensor b = host(*bias);
    a.bias = b.scalar_type() == at::kBool
                 ? at::zeros(b.sizes(), a.q.options()).masked_fill_(b.logical_not(), -std::numeric_limits<float>::infinity())
                 : b.to(type);
  }
  return a;
}

/// Returns the dropout factor of each element of P, 0 or 1 / (1 - p), from the random state that forward returned.
at::Tensor dropout_mask(const at::Tensor& like, double p, uint64_t seed, uint64_t offset) {
  return at::empty_like(like).bernoulli_(1 - p, cpu_generator(seed, offset)).div_(1 - p);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>
attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptionalTensor& bias, double p, bool causal,
          bool, std::optional<double> scale) {
  const Attention a = attention_inputs(q, k, v, bias, scale);
  const at::Tensor scores = a.scores(causal);
  const at::Tensor lse = scores.logsumexp(-1);
  at::Tensor probabilities = (scores - lse.unsqueeze(-1)).exp();
  // Rows whose keys are all masked are NaN; make them 0.
  if (a.bias.defined()) probabilities = probabilities.nan_to_num(0.0);
  uint64_t seed = 0, offset = 0;
  if (p > 0) {
    std::tie(seed, offset) = reserve_philox(q.device().index(), probabilities.numel());
    probabilities = probabilities * dropout_mask(probabilities, p, seed, offset);
  }
  const at::Tensor product = at::matmul(probabilities, a.v).to(q.scalar_type());
  at::Tensor out = q.size(-1) == v.size(-1) ? at::empty_strided(q.sizes(), q.strides(), q.options())
                                            : at::empty(product.sizes(), q.options());
  out.copy_(product);
  const auto state = [&](uint64_t x) {
    return at::scalar_tensor(static_cast<int64_t>(x), at::dtype(at::kLong)).to(q.device());
  };
  return {out, lse.to(at::kFloat).to(q.device()), {}, {}, q.size(-2), k.size(-2), state(seed), state(offset), {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
    std::array<bool, 4> mask, const at::Tensor& out, const at::Tensor& lse, const at::Tensor&, const at::Tensor&, c10::SymInt,
    c10::SymInt, double p, bool causal, const at::Tensor& seed, const at::Tensor& offset, std::optional<double> scale) {
  const Attention a = attention_inputs(q, k, v, bias, scale);
  const at::ScalarType type = a.q.scalar_type();
  const at::Tensor g = host(grad_out).to(type);
  at::Tensor probabilities = (a.scores(causal) - host(lse).to(type).unsqueeze(-1)).exp();
  if (a.bias.defined()) probabilities = probabilities.nan_to_num(0.0);
  at::Tensor dropped = probabilities, grad_p = at::matmul(g, a.v.transpose(-2, -1));
  if (p > 0) {
    const at::Tensor keep = dropout_mask(probabilities, p, seed.item<int64_t>(), offset.item<int64_t>());
    dropped = probabilities * keep;
    grad_p = grad_p * keep;
  }
  const at::Tensor grad_s = probabilities * (grad_p - (g * host(out).to(type)).sum(-1, true));
  at::Tensor gq = at::matmul(grad_s, a.k) * a.scale, gk = at::matmul(grad_s.transpose(-2, -1), a.q) * a.scale,
             gv = at::matmul(dropped.transpose(-2, -1), g), gb;
  if (a.group > 1) {
    const auto fold = [&](const at::Tensor& t) { return t.unflatten(-3, {-1, a.group}).sum(-3); };
    gk = fold(gk);
    gv = fold(gv);
  }
  if (mask[3] && bias.defined()) gb = grad_s.sum_to_size(bias.sizes()).to(bias.scalar_type()).to(q.device());
  const auto like = [&](const at::Tensor& t, const at::Tensor& model) {
    return at::empty_like(model).copy_(t.to(model.scalar_type()));
  };
  return {like(gq, q), like(gk, k), like(gv, v), gb};
}

// LSTM and GRU cells. The workspace holds what backward needs, along the last dimension.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx, const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  at::Tensor gates = host(input_gates) + host(hidden_gates);
  if (input_bias.has_value() && input_bias->defined()) gates = gates + host(*input_bias) + host(*hidden_bias);
  const auto part = gates.chunk(4, 1);
  const at::Tensor i = part[0].sigmoid(), f = part[1].sigmoid(), g = part[2].tanh(), o = part[3].sigmoid();
  const at::Tensor cy = f * host(cx) + i * g;
  const at::Device device = cx.device();
  return {back(o * cy.tanh(), device), back(cy, device), back(at::cat({i, f, g, o}, 1), device)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                                  const at::Tensor& cx, const at::Tensor& cy,
                                                                  const at::Tensor& workspace, bool has_bias) {
  const bool has_hy = grad_hy.has_value() && grad_hy->defined(), has_cy = grad_cy.has_value() && grad_cy->defined();
  if (!has_hy && !has_cy) return {};
  const auto part = host(workspace).chunk(4, 1);
  const at::Tensor &i = part[0], &f = part[1], &g = part[2], &o = part[3];
  const at::Tensor tanh_c = host(cy).tanh();
  const at::Tensor gh = has_hy ? host(*grad_hy) : at::zeros_like(tanh_c);
  at::Tensor gc = gh * o * (1 - tanh_c * tanh_c);
  if (has_cy) gc = gc + host(*grad_cy);
  const at::Tensor grad_gates =
      at::cat({gc * g * i * (1 - i), gc * host(cx) * f * (1 - f), gc * i * (1 - g * g), gh * tanh_c * o * (1 - o)}, 1);
  const at::Device device = cx.device();
  return {back(grad_gates, device), back(gc * f, device), has_bias ? back(grad_gates.sum(0), device) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
                                            const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  at::Tensor input = host(input_gates), hidden = host(hidden_gates);
  if (input_bias.has_value() && input_bias->defined()) {
    input = input + host(*input_bias);
    hidden = hidden + host(*hidden_bias);
  }
  const auto in = input.chunk(3, 1), hid = hidden.chunk(3, 1);
  const at::Tensor h = host(hx), r = (in[0] + hid[0]).sigmoid(), z = (in[1] + hid[1]).sigmoid(),
                   n = (in[2] + r * hid[2]).tanh();
  const at::Device device = hx.device();
  return {back(n + z * (h - n), device), back(at::cat({r, z, n, h, hid[2]}, 1), device)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy,
                                                                                         const at::Tensor& workspace,
                                                                                         bool has_bias) {
  const auto part = host(workspace).chunk(5, 1);
  const at::Tensor &r = part[0], &z = part[1], &n = part[2], &h = part[3], &hn = part[4], gh = host(grad_hy);
  const at::Tensor gn = gh * (1 - z) * (1 - n * n), gz = gh * (h - n) * z * (1 - z), gr = gn * hn * r * (1 - r);
  const at::Tensor gi = at::cat({gr, gz, gn}, 1), ghid = at::cat({gr, gz, gn * r}, 1);
  const at::Device device = workspace.device();
  return {back(gi, device), back(ghid, device), back(gh * z, device), has_bias ? back(gi.sum(0), device) : at::Tensor(),
          has_bias ? back(ghid.sum(0), device) : at::Tensor()};
}

}  // namespace

int64_t choose_sdp(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptionalTensor&, double, bool,
                   std::optional<double>, bool) {
  if (q.is_nested() || k.is_nested() || v.is_nested()) refuse_nested("scaled_dot_product_attention");
  // The caller's torch.nn.attention.sdpa_kernel(...) decides first. The op also needs 4-D operands with equal batches, and as
  // many heads in k as in v.
  const bool fits = q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.sym_size(0) == k.sym_size(0) &&
                    q.sym_size(0) == v.sym_size(0) && k.sym_size(1) == v.sym_size(1);
  int64_t choice = g_sdp_choice;
  if (choice == kWhenTraced) choice = is_traced(q) ? kOverrideable : kMath;
  return fits && at::globalContext().userEnabledOverrideableSDP() ? choice : kMath;
}

void set_sdp_choice(int64_t choice) { g_sdp_choice = choice; }

namespace {

/// A boxed kernel that runs the op compiled if possible. Otherwise it calls `Function`, one of the functions above.
template <class Function>
void compiled_or(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  using Kernel = typename c10::impl::WrapFunctionIntoFunctor<Function>::type;
  static Kernel kernel;
  run_eager_op(op, stack, [&] { c10::impl::make_boxed_from_unboxed_functor<Kernel, false>::call(&kernel, op, keys, stack); });
}

}  // namespace

#define OCL_COMPILED_OR(function) torch::CppFunction::makeFromBoxedFunction<&compiled_or<TORCH_FN_TYPE(function)>>()

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", OCL_COMPILED_OR(convolution));
  m.impl("convolution_backward_overrideable", OCL_COMPILED_OR(convolution_backward));
  m.impl("native_batch_norm", OCL_COMPILED_OR(batch_norm));
  m.impl("_scaled_dot_product_fused_attention_overrideable", OCL_COMPILED_OR(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", OCL_COMPILED_OR(attention_backward));
  m.impl("_thnn_fused_lstm_cell", OCL_COMPILED_OR(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", OCL_COMPILED_OR(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", OCL_COMPILED_OR(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", OCL_COMPILED_OR(gru_cell_backward));
}

}  // namespace ocl::aten

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &ocl::aten::choose_sdp)
}
