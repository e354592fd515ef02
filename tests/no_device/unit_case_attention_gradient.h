// tests/no_device/unit_case_attention_gradient.h: emulated attention_gradient_wgmma or attention_gradient_mma, queries behind
// each other in memory as [b, l, h, d]. Arguments: as in unit_case_attention.h.
#if MASK == 1
using Mask = unsigned char;
#elif MASK == 3
using Mask = float;
#endif
extern "C" void k(UNIT_T_HOST*, ulong, UNIT_T_HOST*, ulong, UNIT_T_HOST*, ulong, UNIT_T_HOST*, ulong, float*, ulong, float*,
                  ulong,
#ifdef MASK
                  Mask*, ulong,
#endif
#ifdef DROPOUT
                  long*, ulong,
#endif
                  int, int, int, int, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long,
                  long, long,
#ifdef MASK
                  long, long, long, long,
#endif
                  float*, ulong);

/// [b, l, h, d], rows filled up to a multiple of 8.
struct Operand {
  Operand(int batch, int length, int heads, int depth, ulong offset, uint seed)
      : length(length),
        heads(heads),
        size((depth + 7) / 8 * 8),
        offset(offset),
        depth(depth),
        values(numbers(offset + static_cast<size_t>(batch) * length * heads * size, seed)) {
#if TERMS == 3
    for (float& x : values) x *= 1.2345678f;  // has a low part
#endif
    memory = stored(values);
  }
  const float* at(int b, int h, int i) const {
    return &values[offset + ((static_cast<size_t>(b) * length + i) * heads + h) * size];
  }
  long batch_stride() const { return static_cast<long>(length) * heads * size; }
  long row_stride() const { return static_cast<long>(heads) * size; }
  int length, heads;
  long size;
  ulong offset;
  int depth;
  std::vector<float> values;
  std::vector<UNIT_T_HOST> memory;
};
static double dot(const float* x, const float* y, int n) {
  double sum = 0;
  for (int d = 0; d < n; ++d) sum += static_cast<double>(x[d]) * y[d];
  return sum;
}

int run_case(int, char** argv) {
  const int batch = std::atoi(argv[1]), heads = std::atoi(argv[2]), group = std::atoi(argv[3]), queries = std::atoi(argv[4]),
            keys = std::atoi(argv[5]);
  const ulong offset = std::atoi(argv[6]);
  const int k_heads = heads / group;
  Operand q(batch, queries, heads, DEPTH, offset, 1), dout(batch, queries, heads, DEPTH2, offset, 5);
  Operand key(batch, keys, k_heads, DEPTH, offset, 2), value(batch, keys, k_heads, DEPTH2, offset, 3);
  const size_t rows = static_cast<size_t>(batch) * heads * queries, columns = static_cast<size_t>(batch) * k_heads * keys;
  std::vector<float> sums(2 * rows), delta(rows);
#ifdef MASK
  std::vector<Mask> mask(static_cast<size_t>(heads) * queries * keys);
  const auto bias = numbers(mask.size(), 4);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = MASK == 1 ? bias[i] > -0.5f : bias[i];
  for (int j = 0; j < keys; ++j) mask[keys + j] = MASK == 1 ? 0 : mask[keys + j];  // a query that sees nothing
#endif
  std::vector<long> state = {0x123456789ABCDEFl, 0x7000000012l};
  // Results and their sizes: of queries, or of keys, then values.
  const size_t keys_size = columns * DEPTH;
  std::vector<double> exact(PASS == 1 ? rows * DEPTH : keys_size + columns * DEPTH2), sizes(exact.size(), 1e-30);
  for (int b = 0; b < batch; ++b)
    for (int h = 0; h < heads; ++h)
      for (int i = 0; i < queries; ++i) {
        const size_t row = (static_cast<size_t>(b) * heads + h) * queries + i;
        std::vector<double> p(keys), grad(keys), factors(keys, 1);
        double most = -HUGE_VAL, total = 0, sum = 0;
        for (int j = 0; j < keys; ++j) {
          p[j] = 0.125 * dot(q.at(b, h, i), key.at(b, h / group, j), DEPTH);
          grad[j] = dot(dout.at(b, h, i), value.at(b, h / group, j), DEPTH2);
#ifdef DROPOUT
          factors[j] = kept(state.data(), row * ((keys + 3) / 4) + j / 4, j % 4);
          grad[j] *= factors[j];
#endif
#ifdef MASK
          const Mask m = mask[(static_cast<size_t>(h) * queries + i) * keys + j];
          p[j] = MASK == 1 ? (m ? p[j] : -HUGE_VAL) : p[j] + m;
#endif
          if (CAUSAL && j > i) p[j] = -HUGE_VAL;
          most = std::max(most, p[j]);
        }
        for (double& x : p) total += x = x == -HUGE_VAL ? 0.0 : std::exp(x - most);
        for (int j = 0; j < keys; ++j) sum += (p[j] /= total == 0 ? 1 : total) * grad[j];
        sums[row] = total == 0 ? 0 : most;
        sums[rows + row] = total;
        delta[row] = sum;
        for (int j = 0; j < keys; ++j) {
          const double ds = 0.125 * p[j] * (grad[j] - sum), size = 0.125 * p[j] * (std::fabs(grad[j]) + std::fabs(sum));
          const size_t column = (static_cast<size_t>(b) * k_heads + h / group) * keys + j;
          const auto add = [&](size_t to, double weight, double weight_size, const float* x, int n) {
            for (int d = 0; d < n; ++d) exact[to + d] += weight * x[d], sizes[to + d] += weight_size * std::fabs(x[d]);
          };
          if (PASS == 1) add(row * DEPTH, ds, size, key.at(b, h / group, j), DEPTH);
          if (PASS == 2)
            add(column * DEPTH, ds, size, q.at(b, h, i), DEPTH),
                add(keys_size + column * DEPTH2, factors[j] * p[j], factors[j] * p[j], dout.at(b, h, i), DEPTH2);
        }
      }
  std::vector<float> y(exact.size(), -1e30f);
  Operand &a = PASS == 1 ? q : key, &other = PASS == 1 ? key : q, &a2 = PASS == 1 ? dout : value,
          &other2 = PASS == 1 ? value : dout;
  const long per_head = queries, per_batch = static_cast<long>(heads) * queries;
  launch(((PASS == 1 ? queries : keys) + TILE_M - 1) / TILE_M, PASS == 1 ? heads : k_heads, batch, UNIT_ITEMS, [&] {
    k(a.memory.data(), offset, other.memory.data(), offset, a2.memory.data(), offset, other2.memory.data(), offset, sums.data(),
      0, delta.data(), 0,
#ifdef MASK
      mask.data(), 0,
#endif
#ifdef DROPOUT
      state.data(), 0,
#endif
      heads, group, queries, keys, a.batch_stride(), a.size, a.row_stride(), other.batch_stride(), other.size,
      other.row_stride(), a2.batch_stride(), a2.size, a2.row_stride(), other2.batch_stride(), other2.size, other2.row_stride(),
      rows, per_batch, per_head, per_batch, per_head,
#ifdef MASK
      0, static_cast<long>(queries) * keys, keys, 1,
#endif
      y.data(), 0);
  });
  double worst = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = std::fabs(y[i] - exact[i]) / sizes[i];
    if (!(error <= TOLERANCE) && worst <= TOLERANCE) std::printf("%zu: %g, not %g\n", i, y[i], exact[i]);
    worst = error <= worst ? worst : error == error ? error : HUGE_VAL;
  }
  std::printf("largest error %g, allowed %g\n", worst, TOLERANCE);
  return !(worst <= TOLERANCE);
}
