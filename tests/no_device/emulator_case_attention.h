// tests/no_device/emulator_case_attention.h: emulates attention_warpgroup or attention_warp, with operands [b, l, h, d]
// in memory. Arguments: batch, heads, heads of q per head of k, queries, keys, offset.
#include "emulator_attention.h"

extern "C" void k(OPERAND_T_HOST*, ulong, OPERAND_T_HOST*, ulong, OPERAND_T_HOST*, ulong,
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
  std::vector<float> y(rows * (WIDTH + 2), -1e30f);
  MaskAndDropout extra(heads, queries, keys);
  launch((queries + TILE_M - 1) / TILE_M, heads, batch, GROUP_ITEMS, [&] {
    k(qs.data(), offset, ks.data(), offset, vs.data(), offset,
#ifdef MASK
      extra.mask.data(), 0,
#endif
#ifdef DROPOUT
      extra.state.data(), 0,
#endif
      heads, group, queries, keys, queries * q_row, padded(DEPTH), q_row, keys * k_row, padded(DEPTH), k_row, keys * v_row,
      padded(WIDTH), v_row,
#ifdef MASK
      0, static_cast<long>(queries) * keys, keys, 1,
#endif
      y.data(), 0);
  });
  const ocl::schedule::Attention shape{batch, heads, group, queries, keys, DEPTH, WIDTH, 0.125, CAUSAL};
  // Maps the index of a query or key in [b, h, l] to its row in [b, l, h, d].
  const auto rows_of = [](const std::vector<float>& x, ulong offset, int length, int heads, long size) {
    return [=, &x](size_t r) {
      return &x[offset + (r / length / heads * length + r % length) * heads * size + r / length % heads * size];
    };
  };
  const auto bias = [&](int head, int i, int j) { return extra.bias(head, i, j); };
  const auto factor = [&](size_t row, int j) { return extra.factor(row, j); };
  const ocl::schedule::Sums want = ocl::schedule::attention(
      shape, ocl::schedule::AttentionOperands{rows_of(q, offset, queries, heads, padded(DEPTH)),
                                              rows_of(k_, offset, keys, k_heads, padded(DEPTH)),
                                              rows_of(v, offset, keys, k_heads, padded(WIDTH)), nullptr, bias, factor});
  const double worst = largest_error(y, want, TOLERANCE);
  std::printf("largest error %g, allowed %g\n", worst, TOLERANCE);
  return !(worst <= TOLERANCE);
}
