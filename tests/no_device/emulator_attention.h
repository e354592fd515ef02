// tests/no_device/emulator_attention.h: the mask and the dropout of the emulated attention kernels, for the kernel and
// for the reference.
#pragma once
#if MASK == 1
using Mask = unsigned char;
#elif MASK == 3
using Mask = float;
#endif

/// The mask [heads, queries, keys] of a case with MASK, and the state of the random numbers of a case with DROPOUT.
struct MaskAndDropout {
  MaskAndDropout(int heads, int queries, int keys) : queries(queries), keys(keys) {
#ifdef MASK
    mask.resize(static_cast<size_t>(heads) * queries * keys);
    const auto added = numbers(mask.size(), 4);
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = MASK == 1 ? added[i] > -0.5f : added[i];
#endif
  }

  /// Returns what a head's mask adds to the score of query i and key j.
  double bias(int head, int i, int j) const {
#ifdef MASK
    const Mask m = mask[(static_cast<size_t>(head) * queries + i) * keys + j];
    return MASK == 1 ? (m ? 0.0 : -HUGE_VAL) : static_cast<double>(m);
#else
    return 0.0;
#endif
  }

  /// Returns the dropout factor of key j's probability: 0, 2, or 1 without dropout. `row` is an index in [batch, heads,
  /// queries].
  double factor(size_t row, int j) const {
#ifdef DROPOUT
    return static_cast<double>(kept(state.data(), row * ((keys + 3) / 4) + j / 4, j % 4));
#else
    return 1.0;
#endif
  }

  int queries, keys;
#ifdef MASK
  std::vector<Mask> mask;
#endif
  std::vector<long> state = {0x123456789ABCDEFl, 0x7000000012l};
};
