// tests/no_device/unit_case_attention.h: emulated attention_wgmma or attention_mma, queries behind each other in memory as [b,
// l, h, d]. Arguments: batch heads, heads of q per head of k, queries keys offset.
#if MASK == 1
using Mask = unsigned char;
#elif MASK == 3
using Mask = float;
#endif
extern "C" void k(UNIT_T_HOST*, ulong, UNIT_T_HOST*, ulong, UNIT_T_HOST*, ulong,
#ifdef MASK
                  Mask*, ulong,
#endif
#ifdef DROPOUT
                  long*, ulong,
#endif
                  int, int, int, int, long, long, long, long, long, long, long, long, long,
#ifdef MASK
                  long, long, long, long,
#endif
                  float*, ulong);

int run_case(int, char** argv) {
  const int batch = std::atoi(argv[1]), heads = std::atoi(argv[2]), group = std::atoi(argv[3]), queries = std::atoi(argv[4]),
            keys = std::atoi(argv[5]);
  const ulong offset = std::atoi(argv[6]);
  const int k_heads = heads / group;
  const auto padded = [](int n) { return (n + 7) / 8 * 8; };
  const long q_row = heads * padded(DEPTH), k_row = k_heads * padded(DEPTH), v_row = k_heads * padded(WIDTH);
  const auto q = numbers(offset + batch * queries * q_row, 1), k_ = numbers(offset + batch * keys * k_row, 2),
             v = numbers(offset + batch * keys * v_row, 3);
  auto qs = stored(q), ks = stored(k_), vs = stored(v);
  const size_t rows = static_cast<size_t>(batch) * heads * queries;
  std::vector<long> state = {0x123456789ABCDEFl, 0x7000000012l};
  std::vector<float> y(rows * (WIDTH + 2), -1e30f);
#ifdef MASK
  std::vector<Mask> mask(static_cast<size_t>(heads) * queries * keys);
  const auto bias = numbers(mask.size(), 4);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = MASK == 1 ? bias[i] > -0.5f : bias[i];
#endif
  launch((queries + TILE_M - 1) / TILE_M, heads, batch, UNIT_ITEMS, [&] {
    k(qs.data(), offset, ks.data(), offset, vs.data(), offset,
#ifdef MASK
      mask.data(), 0,
#endif
#ifdef DROPOUT
      state.data(), 0,
#endif
      heads, group, queries, keys, queries * q_row, padded(DEPTH), q_row, keys * k_row, padded(DEPTH), k_row, keys * v_row,
      padded(WIDTH), v_row,
#ifdef MASK
      0, static_cast<long>(queries) * keys, keys, 1,
#endif
      y.data(), 0);
  });
  double worst = 0;
  for (int b = 0; b < batch; ++b)
    for (int h = 0; h < heads; ++h)
      for (int i = 0; i < queries; ++i) {
        std::vector<double> s(keys);
        double most = -HUGE_VAL, total = 0;
        for (int j = 0; j < keys; ++j) {
          for (int d = 0; d < DEPTH; ++d)
            s[j] += static_cast<double>(q[offset + (b * queries + i) * q_row + h * padded(DEPTH) + d]) *
                    k_[offset + (b * keys + j) * k_row + h / group * padded(DEPTH) + d];
          s[j] *= 0.125;
#ifdef MASK
          const Mask m = mask[(static_cast<size_t>(h) * queries + i) * keys + j];
          s[j] = MASK == 1 ? (m ? s[j] : -HUGE_VAL) : s[j] + m;
#endif
          if (CAUSAL && j > i) s[j] = -HUGE_VAL;
          most = std::max(most, s[j]);
        }
        for (double& x : s) total += x = x == -HUGE_VAL ? 0.0 : std::exp(x - most);
        const size_t row = (static_cast<size_t>(b) * heads + h) * queries + i;
        const auto compare = [&](double got, double want, double size) {
          const double error = std::fabs(got - want) / size;
          if (!(error <= TOLERANCE) && worst <= TOLERANCE) std::printf("(%d, %d, %d): %g, not %g\n", b, h, i, got, want);
          worst = error <= worst ? worst : error == error ? error : HUGE_VAL;
        };
        for (int d = 0; d < WIDTH; ++d) {
          double sum = 0, size = 1e-30;
          for (int j = 0; j < keys; ++j) {
#ifdef DROPOUT
            const double factor = kept(state.data(), row * ((keys + 3) / 4) + j / 4, j % 4);
#else
            const double factor = 1;
#endif
            const double term =
                total == 0 ? 0 : factor * s[j] / total * v[offset + (b * keys + j) * v_row + h / group * padded(WIDTH) + d];
            sum += term, size += std::fabs(term);
          }
          compare(y[row * WIDTH + d], sum, size);
        }
        compare(y[rows * WIDTH + row], total == 0 ? 0 : most, std::max(1.0, std::fabs(most)));
        compare(y[rows * (WIDTH + 1) + row], total, total + 1e-30);
      }
  std::printf("largest error %g, allowed %g\n", worst, TOLERANCE);
  return !(worst <= TOLERANCE);
}
