// csrc/schedule/families/reference.h: products, convolutions and attention in double precision. The device checks and the tests
// that run kernels in software share this reference. It needs only the standard library.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ocl::schedule {

/// Sums in double precision. `sizes` has, for each sum, the sum of the absolute values of its terms. Rounding errors are
/// proportional to it.
struct Sums {
  std::vector<double> exact, sizes;
  Sums() = default;
  explicit Sums(size_t count) : exact(count, 0.0), sizes(count, 0.0) {}
  void add(size_t at, double term) { add(at, term, std::fabs(term)); }
  void add(size_t at, double term, double size) {
    exact[at] += term;
    sizes[at] += size;
  }
  void append(const Sums& more) {
    exact.insert(exact.end(), more.exact.begin(), more.exact.end());
    sizes.insert(sizes.end(), more.sizes.begin(), more.sizes.end());
  }
};

/// Returns products [batch][M][N]. a(i, m, k) and b(i, k, n) return elements of the operands.
template <class A, class B>
Sums matrix_products(int batch, int M, int N, int K, const A& a, const B& b) {
  Sums sums(static_cast<size_t>(batch) * static_cast<size_t>(M) * static_cast<size_t>(N));
  size_t at = 0;
  for (int i = 0; i < batch; ++i)
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n, ++at)
        for (int k = 0; k < K; ++k) sums.add(at, static_cast<double>(a(i, m, k)) * b(i, k, n));
  return sums;
}

/// A convolution of channels-last images. Each group has C input and K output channels. Stride, padding and dilation
/// along the width are larger by `skew` than along the height.
struct Convolution {
  int batch, C, K, H, W, R, S, stride, pad, dilation, groups, skew = 0;
  int stride_w() const { return stride + skew; }
  int pad_w() const { return pad + skew; }
  int dilation_w() const { return dilation + skew; }
  int P() const { return (H + 2 * pad - dilation * (R - 1) - 1) / stride + 1; }
  int Q() const { return (W + 2 * pad_w() - dilation_w() * (S - 1) - 1) / stride_w() + 1; }
  size_t x_size() const { return static_cast<size_t>(batch) * H * W * groups * C; }
  size_t w_size() const { return static_cast<size_t>(groups) * K * R * S * C; }
  size_t y_size() const { return static_cast<size_t>(batch) * P() * Q() * groups * K; }
};

/// Calls `visit` for each product of two elements in the convolution. Its arguments are the indices of the elements in x
/// [n][h][w][groups * C], in w [groups * K][r][s][C], and in y [n][p][q][groups * K], to which the product is added.
template <class Visit>
void for_each_product(const Convolution& c, const Visit& visit) {
  const int P = c.P(), Q = c.Q(), filters = c.groups * c.K;
  for (int n = 0; n < c.batch; ++n)
    for (int p = 0; p < P; ++p)
      for (int q = 0; q < Q; ++q)
        for (int tap = 0; tap < c.R * c.S; ++tap) {
          const int h = p * c.stride - c.pad + tap / c.S * c.dilation,
                    w = q * c.stride_w() - c.pad_w() + tap % c.S * c.dilation_w();
          if (h < 0 || h >= c.H || w < 0 || w >= c.W) continue;
          const size_t y = ((static_cast<size_t>(n) * P + p) * Q + q) * filters;
          const size_t x = ((static_cast<size_t>(n) * c.H + h) * c.W + w) * (c.groups * c.C);
          for (int k = 0; k < filters; ++k)
            for (int i = 0; i < c.C; ++i)
              visit(x + static_cast<size_t>(k / c.K) * c.C + i, (static_cast<size_t>(k) * c.R * c.S + tap) * c.C + i, y + k);
        }
}

template <class V>
Sums convolution(const Convolution& c, const V& x, const V& w) {
  Sums sums(c.y_size());
  for_each_product(c, [&](size_t i, size_t j, size_t l) { sums.add(l, static_cast<double>(x[i]) * w[j]); });
  return sums;
}

/// Returns the gradient of the input x.
template <class V>
Sums convolution_data_gradient(const Convolution& c, const V& w, const V& dy) {
  Sums sums(c.x_size());
  for_each_product(c, [&](size_t i, size_t j, size_t l) { sums.add(i, static_cast<double>(w[j]) * dy[l]); });
  return sums;
}

/// Returns the gradient of the weight w. Each slice sums over `slice_pixels` output pixels; the slices follow one another.
template <class V>
Sums convolution_weight_gradient(const Convolution& c, const V& x, const V& dy, int slices, int slice_pixels) {
  Sums sums(c.w_size() * static_cast<size_t>(slices));
  const size_t filters = static_cast<size_t>(c.groups) * static_cast<size_t>(c.K);
  for_each_product(c, [&](size_t i, size_t j, size_t l) {
    sums.add(l / filters / static_cast<size_t>(slice_pixels) * c.w_size() + j, static_cast<double>(x[i]) * dy[l]);
  });
  return sums;
}

/// Returns statistics of each channel of values [pixel][channel], as [mean, sum of squared differences, count][slice][channel].
/// slice_of: the slice of a pixel. `sizes` of the result says how much a statistic changes if the values have errors
/// proportional to `values.sizes`.
inline Sums channel_statistics(const Sums& values, size_t channels, size_t slices,
                               const std::function<size_t(size_t)>& slice_of) {
  const size_t block = slices * channels;
  Sums sums(3 * block);
  const auto each = [&](const auto& visit) {
    for (size_t at = 0; at < values.exact.size(); ++at)
      visit(slice_of(at / channels) * channels + at % channels, values.exact[at], values.sizes[at]);
  };
  each([&](size_t at, double, double) { sums.add(2 * block + at, 1); });
  each([&](size_t at, double x, double size) {
    sums.add(at, x / sums.exact[2 * block + at], size / sums.exact[2 * block + at]);
  });
  each([&](size_t at, double x, double size) {
    const double d = x - sums.exact[at];
    sums.add(block + at, d * d, d * d + 2 * std::fabs(d) * size);
  });
  return sums;
}

/// The sizes of an attention of [batch, heads] queries with [batch, heads / group] keys and values. A masked key has the score
/// -inf.
struct Attention {
  int batch, heads, group, queries, keys, depth, width;  // depth: head size of q and k. width: head size of v.
  double scale;
  bool causal;
  size_t rows() const { return static_cast<size_t>(batch) * heads * queries; }
  size_t columns() const { return static_cast<size_t>(batch) * (heads / group) * keys; }
  size_t row(int b, int h, int i) const { return (static_cast<size_t>(b) * heads + h) * queries + i; }
  size_t column(int b, int h, int j) const { return (static_cast<size_t>(b) * (heads / group) + h / group) * keys + j; }
};

/// Functions that return the elements of an attention's operands. q(row) and dout(row) point to a query's row; k(column) and
/// v(column) point to a key's row. bias(head, query, key) is added to a score and may be -inf. factor(row, key) is what dropout
/// multiplies a weight by.
template <class Q, class K, class V, class Dout, class Bias, class Factor>
struct AttentionOperands {
  Q q;
  K k;
  V v;
  Dout dout;
  Bias bias;
  Factor factor;
};
template <class Q, class K, class V, class D, class B, class F>
AttentionOperands(Q, K, V, D, B, F) -> AttentionOperands<Q, K, V, D, B, F>;

/// Returns the factor of an attention weight under dropout with probability one half, 0 or 2: one word of Philox 4x32-10 with
/// counter (state[1], draw) and key state[0] decides.
inline double dropout_factor(const int64_t (&state)[2], uint64_t draw, size_t word) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto seed = static_cast<uint64_t>(state[0]), offset = static_cast<uint64_t>(state[1]);
  std::array<uint32_t, 4> x = {low(offset), high(offset), low(draw), high(draw)};
  uint32_t first = low(seed), second = high(seed);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{x[0]} * 0xD2511F53u, b = uint64_t{x[2]} * 0xCD9E8D57u;
    x = {high(b) ^ x[1] ^ first, low(b), high(a) ^ x[3] ^ second, low(a)};
    first += 0x9E3779B9u;
    second += 0xBB67AE85u;
  }
  return x[word] >> 31 ? 2.0 : 0.0;
}

/// The scores of one query: exp(score - largest) of each key, their sum, and the largest score. If all keys are masked,
/// `largest` is 0.
struct ScoreRow {
  std::vector<double> weights;
  double largest = -HUGE_VAL, total = 0;
};

template <class Operands>
ScoreRow score_row(const Attention& a, const Operands& o, int b, int h, int i) {
  ScoreRow row;
  row.weights.assign(static_cast<size_t>(a.keys), -HUGE_VAL);
  const auto* q = o.q(a.row(b, h, i));
  for (int j = 0; j < (a.causal ? std::min(i + 1, a.keys) : a.keys); ++j) {
    const auto* k = o.k(a.column(b, h, j));
    double score = 0;
    for (int d = 0; d < a.depth; ++d) score += static_cast<double>(q[d]) * k[d];
    row.weights[j] = a.scale * score + o.bias(h, i, j);
    row.largest = std::max(row.largest, row.weights[j]);
  }
  for (double& x : row.weights) row.total += x = x == -HUGE_VAL ? 0.0 : std::exp(x - row.largest);
  if (row.total == 0) row.largest = 0;
  return row;
}

/// Returns the results [row][width], then the largest score of each row, then the sum of weights of each row.
template <class Operands>
Sums attention(const Attention& a, const Operands& o) {
  Sums sums(a.rows() * static_cast<size_t>(a.width)), largest(a.rows()), totals(a.rows());
  for (int b = 0; b < a.batch; ++b)
    for (int h = 0; h < a.heads; ++h)
      for (int i = 0; i < a.queries; ++i) {
        const ScoreRow row = score_row(a, o, b, h, i);
        const size_t r = a.row(b, h, i);
        for (int j = 0; j < a.keys && row.total != 0; ++j) {
          const double weight = o.factor(r, j) * row.weights[j] / row.total;
          const auto* v = o.v(a.column(b, h, j));
          for (int d = 0; d < a.width && weight != 0; ++d)
            sums.add(r * static_cast<size_t>(a.width) + d, weight * static_cast<double>(v[d]));
        }
        largest.add(r, row.largest, std::max(1.0, std::fabs(row.largest)));
        totals.add(r, row.total);
      }
  sums.append(largest);
  sums.append(totals);
  return sums;
}

/// Gradients of q [row][depth], k [column][depth] and v [column][width]. The kernels take three values per row as
/// operands: the largest score, the sum of weights, and delta, the sum of the weights times their gradients.
struct AttentionGradients {
  Sums q, k, v;
  std::vector<float> largest, totals, deltas;
};

/// Returns the gradients. `few_digits` says that the products of the operands are exact in fp32. Then only the difference of
/// two sums is rounded, not the terms of a sum.
template <class Operands>
AttentionGradients attention_gradients(const Attention& a, const Operands& o, bool few_digits) {
  const auto depth = static_cast<size_t>(a.depth), width = static_cast<size_t>(a.width);
  AttentionGradients g{Sums(a.rows() * depth), Sums(a.columns() * depth), Sums(a.columns() * width), {}, {}, {}};
  const auto add = [](Sums& sums, size_t to, double weight, double size, const auto* x, size_t n) {
    for (size_t d = 0; d < n; ++d) sums.add(to * n + d, weight * x[d], size * std::fabs(static_cast<double>(x[d])));
  };
  std::vector<double> grad(static_cast<size_t>(a.keys)), sizes(grad.size()), factors(grad.size());
  for (int b = 0; b < a.batch; ++b)
    for (int h = 0; h < a.heads; ++h)
      for (int i = 0; i < a.queries; ++i) {
        const size_t r = a.row(b, h, i);
        ScoreRow row = score_row(a, o, b, h, i);
        double delta = 0;
        for (int j = 0; j < a.keys; ++j) {
          const auto *dout = o.dout(r), *v = o.v(a.column(b, h, j));
          double sum = 0, size = 0;
          for (int d = 0; d < a.width; ++d) {
            const double term = static_cast<double>(dout[d]) * v[d];
            sum += term;
            size += std::fabs(term);
          }
          factors[j] = o.factor(r, j);
          grad[j] = factors[j] * sum;
          sizes[j] = factors[j] * (few_digits ? std::fabs(sum) : size);
          delta += (row.weights[j] /= row.total == 0 ? 1 : row.total) * grad[j];
        }
        g.largest.push_back(static_cast<float>(row.largest));
        g.totals.push_back(static_cast<float>(row.total));
        g.deltas.push_back(static_cast<float>(delta));
        for (int j = 0; j < a.keys; ++j) {
          const double p = row.weights[j];
          if (p == 0) continue;
          const double ds = a.scale * p * (grad[j] - delta), size = a.scale * p * (sizes[j] + std::fabs(delta));
          const size_t column = a.column(b, h, j);
          add(g.q, r, ds, size, o.k(column), depth);
          add(g.k, column, ds, size, o.q(r), depth);
          add(g.v, column, factors[j] * p, factors[j] * p, o.dout(r), width);
        }
      }
  return g;
}

}  // namespace ocl::schedule
