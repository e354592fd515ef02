// csrc/checks/graph_cases.cpp: the graphs, in the form that Graph::str() prints, and what they compute.
#include "csrc/checks/graph_cases.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "csrc/schedule/families/reference.h"

namespace ocl::checks {
namespace {

constexpr char kPointwise[] = R"(buffer b0 x f32 [37, 70] strides [70, 1] input 0
buffer b1 scale f32 [37] strides [1] input 1
buffer b2 y f32 [70, 37] strides [37, 1]
inputs b0 b1
node map [70, 37]
  v0 = load f32 b0[i1, i0]
  v1 = load f32 b1[i1]
  v2 = mul f32 v0 v1
  v3 = constant f32 1.0
  v4 = sub f32 v0 v3
  v5 = constant f32 0.0
  v6 = lt bool v5 v0
  v7 = where f32 v6 v2 v4
  v8 = cast i32 v0
  v9 = cast i32 v1
  v10 = neg i32 v9
  v11 = maximum i32 v8 v10
  v12 = cast i32 v2
  v13 = maximum i32 v11 v12
  v14 = cast f32 v13
  v15 = add f32 v7 v14
  store b2[i0, i1] = v15
result b2 [70, 37] strides [37, 1] offset 0
)";

Numbers pointwise(const std::vector<Numbers>& in) {
  Numbers y;
  for (size_t i = 0; i < 70; ++i)
    for (size_t j = 0; j < 37; ++j) {
      const double x = in[0][j * 70 + i], scale = in[1][j];
      const double greatest = std::max({std::trunc(x), -std::trunc(scale), std::trunc(x * scale)});  // Of integers.
      y.push_back((x > 0 ? x * scale : x - 1) + greatest);
    }
  return y;
}

constexpr char kGather[] = R"(buffer b0 x f32 [50, 24] strides [24, 1] input 0
buffer b1 index i64 [40] strides [1] input 1
buffer b2 y f32 [40, 24] strides [24, 1]
inputs b0 b1
node map [40, 24]
  v0 = load i64 b1[i0]
  v1 = load f32 b0[v0, i1]
  store b2[i0, i1] = v1
result b2 [40, 24] strides [24, 1] offset 0
)";

Numbers gather(const std::vector<Numbers>& in) {
  Numbers y;
  for (size_t i = 0; i < 40 * 24; ++i) y.push_back(in[0][static_cast<size_t>(in[1][i / 24]) * 24 + i % 24]);
  return y;
}

constexpr char kBatch[] = R"(buffer b0 x f32 [100] strides [1] input 0
buffer b1 y f32 [7, 5] strides [5, 1] input 1
buffer b2 a f32 [100] strides [1]
buffer b3 b f32 [5, 7] strides [7, 1]
inputs b0 b1
node map [100]
  v0 = load f32 b0[i0]
  v1 = constant f32 2.0
  v2 = mul f32 v0 v1
  store b2[i0] = v2
node map [5, 7]
  v0 = load f32 b1[i1, i0]
  v1 = constant f32 1.0
  v2 = add f32 v0 v1
  store b3[i0, i1] = v2
result b2 [100] strides [1] offset 0
result b3 [5, 7] strides [7, 1] offset 0
)";

Numbers batch(const std::vector<Numbers>& in) {
  Numbers y;
  for (const double x : in[0]) y.push_back(2 * x);
  for (size_t i = 0; i < 35; ++i) y.push_back(in[1][i % 7 * 5 + i / 7] + 1);
  return y;
}

constexpr char kRows[] = R"(buffer b0 x f32 [6, 3000] strides [3000, 1] input 0
buffer b1 y f32 [6] strides [1]
inputs b0
node reduce sum whole [6] over [3000]
  v0 = load f32 b0[i0, r0]
  reduce v0
  store b1[i0] = result 0
result b1 [6] strides [1] offset 0
)";
constexpr char kColumns[] = R"(buffer b0 x f32 [300, 70] strides [70, 1] input 0
buffer b1 y f32 [70] strides [1]
inputs b0
node reduce sum whole [70] over [300]
  v0 = load f32 b0[r0, i0]
  reduce v0
  store b1[i0] = result 0
result b1 [70] strides [1] offset 0
)";

/// Sums of `count` elements that are `step` apart; result i begins at i * next.
Numbers sums(const Numbers& x, size_t results, size_t count, size_t step, size_t next) {
  Numbers y(results);
  for (size_t i = 0; i < results; ++i)
    for (size_t r = 0; r < count; ++r) y[i] += x[i * next + r * step];
  return y;
}

constexpr char kSoftmax[] = R"(buffer b0 x f32 [5, 700] strides [700, 1] input 0
buffer b1 largest f32 [5, 1]
buffer b2 sum f32 [5, 1]
buffer b3 y f32 [5, 700] strides [700, 1]
inputs b0
node reduce softmax whole [5] over [700]
  v0 = load f32 b0[i0, r0]
  reduce v0
  store b1[i0, 0] = result 0
  store b2[i0, 0] = result 1
node map [5, 700]
  v0 = load f32 b0[i0, i1]
  v1 = load f32 b1[i0, 0]
  v2 = load f32 b2[i0, 0]
  v3 = sub f32 v0 v1
  v4 = exp f32 v3
  v5 = div f32 v4 v2
  store b3[i0, i1] = v5
result b3 [5, 700] strides [700, 1] offset 0
)";

Numbers softmax(const std::vector<Numbers>& in) {
  Numbers y(5 * 700), sum(5);
  for (size_t i = 0; i < y.size(); ++i) sum[i / 700] += y[i] = std::exp(in[0][i]);
  for (size_t i = 0; i < y.size(); ++i) y[i] /= sum[i / 700];
  return y;
}

constexpr char kWindows[] = R"(buffer b0 x f32 [3, 21, 21] strides [441, 21, 1] input 0
buffer b1 y f32 [3, 10, 10] strides [100, 10, 1]
inputs b0
node reduce max whole [3, 10, 10] over [3, 3]
  v0 = load f32 b0[i0, i1*2 + r0, i2*2 + r1]
  reduce v0
  store b1[i0, i1, i2] = result 0
result b1 [3, 10, 10] strides [100, 10, 1] offset 0
)";

Numbers windows(const std::vector<Numbers>& in) {
  Numbers y;
  for (size_t i = 0; i < 300; ++i) {
    double most = -1e30;
    for (size_t r = 0; r < 9; ++r)
      most = std::max(most, in[0][i / 100 * 441 + (i / 10 % 10 * 2 + r / 3) * 21 + i % 10 * 2 + r % 3]);
    y.push_back(most);
  }
  return y;
}

// The last node of scatter_add of few elements: result i is the sum of the elements with index i.
constexpr char kScatter[] = R"(buffer b0 index i64 [200] strides [1] input 0
buffer b1 x f32 [200] strides [1] input 1
buffer b2 y f32 [64] strides [1]
inputs b0 b1
node reduce sum whole [64] over [200]
  v0 = load i64 b0[r0]
  v1 = index i64 i0
  v2 = eq bool v0 v1
  v3 = load f32 b1[r0]
  v4 = constant f32 0.0
  v5 = where f32 v2 v3 v4
  reduce v5
  store b2[i0] = result 0
result b2 [64] strides [1] offset 0
)";

Numbers scatter(const std::vector<Numbers>& in) {
  Numbers y(64);
  for (size_t r = 0; r < 200; ++r) y[static_cast<size_t>(in[0][r])] += in[1][r];
  return y;
}

constexpr char kScan[] = R"(buffer b0 x f32 [3, 1500] strides [1500, 1] input 0
buffer b1 y f32 [3, 1500] strides [1500, 1]
inputs b0
node scan twosum whole [3] over [1500]
  v0 = load f32 b0[i0, r0]
  reduce v0
  store b1[i0, r0] = result 0
result b1 [3, 1500] strides [1500, 1] offset 0
)";

Numbers scan(const std::vector<Numbers>& in) {
  Numbers y;
  for (size_t i = 0; i < in[0].size(); ++i) y.push_back(in[0][i] + (i % 1500 == 0 ? 0 : y.back()));
  return y;
}

constexpr char kSort[] = R"(buffer b0 x f32 [4, 300] strides [300, 1] input 0
buffer b1 key i32 [4, 300]
buffer b2 sorted i32 [4, 300]
buffer b3 place i32 [4, 300]
buffer b4 y f32 [4, 300] strides [300, 1]
inputs b0
node map [4, 300]
  v0 = load f32 b0[i0, i1]
  v1 = order_key i32 v0
  store b1[i0, i1] = v1
node sort blocks block 300 keep 300 shift 0 digits 4 signed [4, 300] over []
  operand b1 [4, 300] at [i0, i1]
  output b2
  output b3
node map [4, 300]
  v0 = load i32 b3[i0, i1]
  v1 = load f32 b0[i0, v0]
  store b4[i0, i1] = v1
result b4 [4, 300] strides [300, 1] offset 0
)";

Numbers sorted(const std::vector<Numbers>& in) {
  Numbers y = in[0];
  for (auto row = y.begin(); row != y.end(); row += 300) std::sort(row, row + 300);
  return y;
}

constexpr char kFft[] = R"(buffer b0 x f32 [4, 96] strides [96, 1] input 0
buffer b1 y f32 [4, 96] strides [96, 1]
inputs b0
node fft complex scale 0.5 root 0 [4, 96] over []
  operand b0 [4, 48, 1, 1] at [i0, i1*2]
  operand b0 [4, 48, 1, 1] at [i0, i1*2 + 1]
  output b1
result b1 [4, 96] strides [96, 1] offset 0
)";

Numbers fft(const std::vector<Numbers>& in) {
  Numbers y(4 * 96);
  for (size_t row = 0; row < 4; ++row)
    for (size_t k = 0; k < 48; ++k)
      for (size_t j = 0; j < 48; ++j) {
        const double angle = -2 * std::numbers::pi * static_cast<double>(j * k % 48) / 48;
        const double re = in[0][row * 96 + 2 * j], im = in[0][row * 96 + 2 * j + 1];
        y[row * 96 + 2 * k] += 0.5 * (re * std::cos(angle) - im * std::sin(angle));
        y[row * 96 + 2 * k + 1] += 0.5 * (re * std::sin(angle) + im * std::cos(angle));
      }
  return y;
}

constexpr char kProduct[] = R"(buffer b0 a f32 [40, 50] strides [50, 1] input 0
buffer b1 b f32 [50, 36] strides [36, 1] input 1
buffer b2 y f32 [1, 40, 36] strides [1, 36, 1]
inputs b0 b1
node contract [1, 40, 36] over [50]
  operand b0 [1, 40, 50] at [i1, i2]
  operand b1 [1, 50, 36] at [i1, i2]
  output b2
result b2 [40, 36] strides [36, 1] offset 0
)";

Numbers product(const std::vector<Numbers>& in) {
  const auto a = [&](int, int m, int k) { return in[0][static_cast<size_t>(m * 50 + k)]; };
  const auto b = [&](int, int k, int n) { return in[1][static_cast<size_t>(k * 36 + n)]; };
  return schedule::matrix_products(1, 40, 36, 50, a, b).exact;
}

constexpr char kConvolution[] = R"(buffer b0 x f32 [2, 8, 9, 9] strides [648, 1, 72, 8] input 0
buffer b1 w f32 [16, 8, 3, 3] strides [72, 1, 24, 8] input 1
buffer b2 dy f32 [2, 16, 9, 9] strides [1296, 1, 144, 16] input 2
buffer b3 y f32 [2, 16, 9, 9] strides [1296, 1, 144, 16]
buffer b4 dx f32 [2, 8, 9, 9] strides [648, 1, 72, 8]
buffer b5 dw f32 [16, 8, 3, 3] strides [72, 1, 24, 8]
inputs b0 b1 b2
node convolve forward stride 1 1 padding 1 1 dilation 1 1 groups 1 [2, 16, 9, 9] over []
  operand b0 [2, 8, 9, 9] at [i0, i1, i2, i3]
  operand b1 [16, 8, 3, 3] at [i0, i1, i2, i3]
  output b3
node convolve data stride 1 1 padding 1 1 dilation 1 1 groups 1 [2, 8, 9, 9] over []
  operand b2 [2, 16, 9, 9] at [i0, i1, i2, i3]
  operand b1 [16, 8, 3, 3] at [i0, i1, i2, i3]
  output b4
node convolve weight stride 1 1 padding 1 1 dilation 1 1 groups 1 [16, 8, 3, 3] over []
  operand b0 [2, 8, 9, 9] at [i0, i1, i2, i3]
  operand b2 [2, 16, 9, 9] at [i0, i1, i2, i3]
  output b5
result b3 [2, 16, 9, 9] strides [1296, 1, 144, 16] offset 0
result b4 [2, 8, 9, 9] strides [648, 1, 72, 8] offset 0
result b5 [16, 8, 3, 3] strides [72, 1, 24, 8] offset 0
)";
constexpr char kDepthwise[] = R"(buffer b0 x f32 [2, 8, 9, 9] strides [648, 1, 72, 8] input 0
buffer b1 w f32 [8, 1, 3, 3] strides [9, 1, 3, 1] input 1
buffer b2 y f32 [2, 8, 9, 9] strides [648, 1, 72, 8]
inputs b0 b1
node convolve forward stride 1 1 padding 1 1 dilation 1 1 groups 8 [2, 8, 9, 9] over []
  operand b0 [2, 8, 9, 9] at [i0, i1, i2, i3]
  operand b1 [8, 1, 3, 3] at [i0, i1, i2, i3]
  output b2
result b2 [2, 8, 9, 9] strides [648, 1, 72, 8] offset 0
)";

/// y, dx and dw of a 3x3 convolution of [2, 8, 9, 9], with padding 1. in: x, w, dy; without dy, only y.
Numbers convolution(const std::vector<Numbers>& in, int groups) {
  const schedule::Convolution c{2, 8 / groups, groups == 1 ? 16 : 1, 9, 9, 3, 3, 1, 1, 1, groups};
  schedule::Sums sums = schedule::convolution(c, in[0], in[1]);
  if (in.size() > 2) {
    sums.append(schedule::convolution_data_gradient(c, in[1], in[2]));
    sums.append(schedule::convolution_weight_gradient(c, in[0], in[2], 1, 2 * 81));
  }
  return sums.exact;
}

constexpr char kAttention[] = R"(buffer b0 q f32 [1, 2, 40, 32] strides [2560, 1280, 32, 1] input 0
buffer b1 k f32 [1, 2, 40, 32] strides [2560, 1280, 32, 1] input 1
buffer b2 v f32 [1, 2, 40, 32] strides [2560, 1280, 32, 1] input 2
buffer b3 y f32 [1, 2, 40, 32] strides [2560, 1280, 32, 1]
buffer b4 sums f32 [2, 1, 2, 40]
inputs b0 b1 b2
node attention forward scale 0.125 dropout 0.0 [1, 2, 40, 32] over []
  operand b0 [1, 2, 40, 32] at [i0, i1, i2, i3]
  operand b1 [1, 2, 40, 32] at [i0, i1, i2, i3]
  operand b2 [1, 2, 40, 32] at [i0, i1, i2, i3]
  output b3
  output b4
result b3 [1, 2, 40, 32] strides [2560, 1280, 32, 1] offset 0
)";

Numbers attention(const std::vector<Numbers>& in) {
  const auto rows = [](const Numbers& x) { return [&x](size_t row) { return &x[row * 32]; }; };
  const auto bias = [](int, int, int) { return 0.0; };
  const auto factor = [](size_t, int) { return 1.0; };
  const schedule::Attention a{1, 2, 1, 40, 40, 32, 32, 0.125, false};
  Numbers y = schedule::attention(a, schedule::AttentionOperands{rows(in[0]), rows(in[1]), rows(in[2]), 0, bias, factor}).exact;
  y.resize(2 * 40 * 32);  // Statistics of the rows follow.
  return y;
}

}  // namespace

const std::vector<GraphCase>& graph_cases() {
  using Inputs = const std::vector<Numbers>&;
  static const auto* cases = new std::vector<GraphCase>{
      {"pointwise kernels", {"pointwise"}, false, kPointwise, pointwise},
      {"gathers", {"pointwise"}, false, kGather, gather},
      {"batches", {"batch"}, false, kBatch, batch},
      {"sums of rows", {"reduction"}, false, kRows, [](Inputs in) { return sums(in[0], 6, 3000, 1, 3000); }},
      {"sums of columns", {"reduction"}, false, kColumns, [](Inputs in) { return sums(in[0], 70, 300, 70, 1); }},
      {"softmax", {"reduction"}, false, kSoftmax, softmax},
      {"windows", {"reduction"}, false, kWindows, windows},
      {"scatters", {"reduction"}, false, kScatter, scatter},
      {"scans", {"scan"}, false, kScan, scan},
      {"sorts", {"sort"}, true, kSort, sorted},
      {"Fourier transforms", {"fft"}, true, kFft, fft},
      {"matrix products", {"gemm"}, true, kProduct, product},
      {"convolutions",
       {"conv_forward", "conv_data", "conv_weight"},
       true,
       kConvolution,
       [](Inputs in) { return convolution(in, 1); }},
      {"depthwise convolutions", {"depthwise"}, true, kDepthwise, [](Inputs in) { return convolution(in, 8); }},
      {"attention", {"attention"}, true, kAttention, attention},
  };
  return *cases;
}

}  // namespace ocl::checks
