// tests/no_device/emulator_case_attention_gradient.h: emulates attention_gradient_warpgroup or attention_gradient_warp,
// with operands [b, l, h, d] in memory. Arguments: as in emulator_case_attention.h.
#include "emulator_attention.h"

extern "C" void k(OPERAND_T_HOST*, ulong, OPERAND_T_HOST*, ulong, OPERAND_T_HOST*, ulong, OPERAND_T_HOST*, ulong, float*, ulong,
                  float*, ulong,
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

/// An operand [b, l, h, d], whose rows are padded to a multiple of 8 elements.
struct Operand {
  Operand(int batch, int length, int heads, int depth, ulong offset, uint seed)
      : length(length),
        heads(heads),
        size((depth + 7) / 8 * 8),
        offset(offset),
        depth(depth),
        values(numbers(offset + static_cast<size_t>(batch) * length * heads * size, seed)) {
#if TERMS == 3
    // More digits than TF32 has, so that the low part of each split value is not 0.
    for (float& x : values) x *= 1.2345678f;
#endif
    memory = stored(values);
  }
  /// Returns the row of a query or key, given its index in [b, h, l].
  const float* row(size_t r) const {
    return &values[offset + ((r / length / heads * length + r % length) * heads + r / length % heads) * size];
  }
  long batch_stride() const { return static_cast<long>(length) * heads * size; }
  long row_stride() const { return static_cast<long>(heads) * size; }
  int length, heads;
  long size;
  ulong offset;
  int depth;
  std::vector<float> values;
  std::vector<OPERAND_T_HOST> memory;
};
int run_case(int, char** argv) {
  const int batch = std::atoi(argv[1]), heads = std::atoi(argv[2]), group = std::atoi(argv[3]), queries = std::atoi(argv[4]),
            keys = std::atoi(argv[5]);
  const ulong offset = std::atoi(argv[6]);
  const int k_heads = heads / group;
  Operand q(batch, queries, heads, DEPTH, offset, 1), dout(batch, queries, heads, DEPTH2, offset, 5);
  Operand key(batch, keys, k_heads, DEPTH, offset, 2), value(batch, keys, k_heads, DEPTH2, offset, 3);
  const size_t rows = static_cast<size_t>(batch) * heads * queries;
  MaskAndDropout extra(heads, queries, keys);
#ifdef MASK
  // A bool mask hides all keys from the second query of the first head.
  for (int j = 0; j < keys; ++j) extra.mask[keys + j] = MASK == 1 ? 0 : extra.mask[keys + j];
#endif
  const auto bias = [&](int head, int i, int j) { return extra.bias(head, i, j); };
  const auto factor = [&](size_t row, int j) { return extra.factor(row, j); };
  const auto rows_of = [](const Operand& x) { return [&x](size_t r) { return x.row(r); }; };
  const ocl::schedule::Attention shape{batch, heads, group, queries, keys, DEPTH, DEPTH2, 0.125, CAUSAL};
  auto gradients = ocl::schedule::attention_gradients(
      shape, ocl::schedule::AttentionOperands{rows_of(q), rows_of(key), rows_of(value), rows_of(dout), bias, factor}, true);
  // Pass 1 computes the gradient of q. Pass 2 computes the gradient of k, followed by that of v.
  ocl::schedule::Sums want = PASS == 1 ? gradients.q : gradients.k;
  if (PASS == 2) want.append(gradients.v);
  std::vector<float> sums = gradients.largest, delta = gradients.deltas;
  sums.insert(sums.end(), gradients.totals.begin(), gradients.totals.end());
  std::vector<float> y(want.exact.size(), -1e30f);
  Operand &a = PASS == 1 ? q : key, &other = PASS == 1 ? key : q, &a2 = PASS == 1 ? dout : value,
          &other2 = PASS == 1 ? value : dout;
  const long per_head = queries, per_batch = static_cast<long>(heads) * queries;
  launch(((PASS == 1 ? queries : keys) + TILE_M - 1) / TILE_M, PASS == 1 ? heads : k_heads, batch, GROUP_ITEMS, [&] {
    k(a.memory.data(), offset, other.memory.data(), offset, a2.memory.data(), offset, other2.memory.data(), offset, sums.data(),
      0, delta.data(), 0,
#ifdef MASK
      extra.mask.data(), 0,
#endif
#ifdef DROPOUT
      extra.state.data(), 0,
#endif
      heads, group, queries, keys, a.batch_stride(), a.size, a.row_stride(), other.batch_stride(), other.size,
      other.row_stride(), a2.batch_stride(), a2.size, a2.row_stride(), other2.batch_stride(), other2.size, other2.row_stride(),
      rows, per_batch, per_head, per_batch, per_head,
#ifdef MASK
      0, static_cast<long>(queries) * keys, keys, 1,
#endif
      y.data(), 0);
  });
  const double worst = largest_error(y, want, TOLERANCE);
  std::printf("largest error %g, allowed %g\n", worst, TOLERANCE);
  return !(worst <= TOLERANCE);
}
