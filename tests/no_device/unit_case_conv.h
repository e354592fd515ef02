// tests/no_device/unit_case_conv.h: emulated convolutions on units of four warps or one, and their gradients; all tensors
// channels-last.
// Arguments: batch C K H W R S stride padding dilation groups, with STATISTICS parts and work-groups; C and K are per group.
// BIAS, with STATISTICS, and B_PACKED: as of the kernels.
// WEIGHT, DATA_GRADIENT: which of the three.
#ifdef WEIGHT
extern "C" void k(UNIT_T_HOST*, ulong, UNIT_T_HOST*, ulong, int, int, int, int, int, int, int, int, int, int, int, int, int,
                  int, int, int, long, int, int, int, long, int, int, int, float*, ulong);
#elif STATISTICS
#if BIAS
#define BIAS_TYPES UNIT_T_HOST*, ulong,
#else
#define BIAS_TYPES
#endif
extern "C" void k(UNIT_T_HOST*, ulong, UNIT_T_HOST*, ulong, BIAS_TYPES int, int, int, int, int, int, int, int, int, int, int,
                  int, int, int, int, long, int, int, int, int, float*, ulong);

/// Each part of the channels' statistics, behind the pixels: parts are tiles `parts` apart.
static long wrong_statistics(ocl::checks::Sums values, const float* got, size_t channels, size_t parts) {
#if HALVES_HOST  // as the kernel stores them
  for (double& x : values.exact) {
    const uint16_t bits = narrow(static_cast<float>(x));
    x = widen(reinterpret_cast<const char*>(&bits));
  }
#endif
  const ocl::checks::Sums want = ocl::checks::channel_statistics(values, channels, TILE_M, parts);
  const size_t block = parts * channels;
  std::vector<double> largest(block);
  for (size_t at = 0; at < values.exact.size(); ++at) {
    double& of = largest[at / channels / TILE_M % parts * channels + at % channels];
    of = std::fmax(of, std::fabs(values.exact[at]));
  }
  long wrong = 0;
  for (size_t at = 0; at < block; ++at) {
    const double mean = want.exact[at], m2 = want.exact[block + at], count = want.exact[2 * block + at], most = largest[at];
    // Means within a tile are rounded to an ulp of the largest value.
    const bool right = got[2 * block + at] == count && std::fabs(got[at] - mean) <= 5e-7 * most &&
                       std::fabs(got[block + at] - m2) <= 3e-6 * m2 + 6e-7 * most * std::sqrt(m2) + 1e-14 * count * most * most;
    if (!right && wrong++ < 5)
      std::printf("part %zu, channel %zu: %g %g %g, not %g %g %g\n", at / channels, at % channels, got[at], got[block + at],
                  got[2 * block + at], mean, m2, count);
  }
  return wrong;
}
#else
extern "C" void k(UNIT_T_HOST*, ulong, UNIT_T_HOST*, ulong, int, int, int, int, int, int, int, int, int, int, int, int, int,
                  int, int, long, int, int, int, float*, ulong);
#endif

#ifndef B_PACKED
#define B_PACKED 0
#endif
#ifdef TERMS
#define TERMS_HOST TERMS
#else
#define TERMS_HOST 3
#endif
/// The second operand: filters [groups * wide][deep], or of each group the blocks of 64 filters and 128 bytes of the depth,
/// lines of 8 chunks in the order in which the unit expects them; floats as two blocks, of their high and their low parts.
static std::vector<char> filters_of(const std::vector<float>& w, int groups, int wide, int deep) {
  const auto elements = stored(w);
  const auto* bytes = reinterpret_cast<const char*>(elements.data());
  const int size = sizeof(elements[0]);
  if (!B_PACKED) return std::vector<char>(bytes, bytes + w.size() * size);
  const int step = 128 / size, panels = (wide + 63) / 64, steps = (deep + step - 1) / step,
            parts = size == 4 && TERMS_HOST == 3 ? 2 : 1;
  std::vector<char> blocks(static_cast<size_t>(groups) * panels * steps * parts * 8192, 0);
  for (int g = 0; g < groups; ++g)
    for (int k = 0; k < wide; ++k)
      for (int d = 0; d < deep; ++d) {
        const int line = k % 64, chunk = d % step * size / 16, within = d % step * size % 16;
        char* block = &blocks[((static_cast<size_t>(g) * panels + k / 64) * steps + d / step) * parts * 8192];
        const size_t at = static_cast<size_t>(line * 128 + (chunk ^ line % 8) * 16 + within);
        const size_t from = (static_cast<size_t>(g) * wide + k) * deep + d;
        if (size == 2) {
          std::memcpy(block + at, bytes + from * size, 2);
          continue;
        }
        uint32_t bits = 0;
        std::memcpy(&bits, &w[from], 4);
        bits = (bits + 0x1000u) & 0xFFFFE000u;
        float high = 0;
        std::memcpy(&high, &bits, 4);
        std::memcpy(block + at, &high, 4);
        const float low = w[from] - high;
        if (parts == 2) std::memcpy(block + 8192 + at, &low, 4);
      }
  return blocks;
}

static UNIT_T_HOST* filters_at(std::vector<char>& bytes) { return reinterpret_cast<UNIT_T_HOST*>(bytes.data()); }

int run_case(int, char** argv) {
  const auto arg = [&](int i) { return std::atoi(argv[i + 1]); };
  const int batch = arg(0), C = arg(1), K = arg(2), H = arg(3), W = arg(4), R = arg(5), S = arg(6), stride = arg(7),
            pad = arg(8), dilation = arg(9);
  const int groups = arg(10), P = (H + 2 * pad - dilation * (R - 1) - 1) / stride + 1,
            Q = (W + 2 * pad - dilation * (S - 1) - 1) / stride + 1;
  const int GC = groups * C, GK = groups * K, items = UNIT_ITEMS;
  const auto tiles = [](long n, int of) { return static_cast<size_t>((n + of - 1) / of); };
  auto x = numbers(static_cast<size_t>(batch) * H * W * GC, 1),
       w = numbers(static_cast<size_t>(GK) * R * S * C, 2);  // [GK][R][S][C]
  const auto dy = numbers(static_cast<size_t>(batch) * P * Q * GK, 3);
  const ocl::checks::Convolution shape{batch, C, K, H, W, R, S, stride, pad, dilation, groups};
  ocl::checks::Sums want;
  std::vector<float> got;
#ifdef WEIGHT
  const int splits = 3, split_pixels = (batch * P * Q + splits * 64 - 1) / (splits * 64) * 64;
  want = ocl::checks::convolution_weight_gradient(shape, x, dy, 1, batch * P * Q);
  std::vector<float> parts(w.size() * splits, -1e30f);
  auto a = stored(dy), b = stored(x);
  launch(tiles(R * S * C, TILE_N) * tiles(K, TILE_M), groups, splits, items, [&] {
    k(a.data(), 0, b.data(), 0, batch, C, K, H, W, P, Q, R, S, stride, stride, pad, pad, dilation, dilation, split_pixels,
      static_cast<long>(P) * Q * GK, Q * GK, GK, 1, static_cast<long>(H) * W * GC, W * GC, GC, 1, parts.data(), 0);
  });
  got.assign(w.size(), 0.0f);
  for (int s = 0; s < splits; ++s)
    for (size_t i = 0; i < w.size(); ++i) got[i] += parts[s * w.size() + i];
#elif DATA_GRADIENT
  want = ocl::checks::convolution_data_gradient(shape, w, dy);
  const std::vector<float> turned = ocl::checks::turned_filters(shape, w);  // [GC][R][S][K]
  auto a = stored(dy);
  auto b = filters_of(turned, groups, C, R * S * K);
  got.assign(x.size(), -1e30f);
  const long pixels = static_cast<long>(batch) * ((H + stride - 1) / stride) * ((W + stride - 1) / stride);
  launch(tiles(pixels, TILE_M) * tiles(C, TILE_N), groups, stride * stride, items, [&] {
    k(a.data(), 0, filters_at(b), 0, batch, K, C, P, Q, H, W, R, S, stride, stride, pad, pad, dilation, dilation,
      static_cast<long>(P) * Q * GK, Q * GK, GK, 1, got.data(), 0);
  });
#else
#if STATISTICS
  // A mean that is large beside the spread, where no tap lies outside.
  for (size_t i = 0; i < x.size(); i += static_cast<size_t>(C)) x[i] = 64;
  for (size_t j = 0; j < w.size(); j += static_cast<size_t>(C)) w[j] = 16;
#endif
  want = ocl::checks::convolution(shape, x, w);
  auto a = stored(x);
  auto b = filters_of(w, groups, K, R * S * C);
  got.assign(dy.size(), -1e30f);
#if BIAS
  const auto biases = numbers(static_cast<size_t>(GK), 4);
  for (size_t l = 0; l < want.exact.size(); ++l) want.add(l, biases[l % GK]);
  auto bias = stored(biases);
#define BIAS_GIVEN bias.data(), 0,
#else
#define BIAS_GIVEN
#endif
#if STATISTICS
  const int parts = arg(11), all = arg(12);
#elif defined(WARP_M)
  const size_t all = tiles(static_cast<long>(batch) * P * Q, TILE_M) * tiles(K, TILE_N);
#else
  const size_t all = 1;  // takes every tile
#endif
#if STATISTICS
  got.resize(got.size() + static_cast<size_t>(3) * parts * GK, -1e30f);
#define PARTS_GIVEN parts,
#else
#define PARTS_GIVEN
#endif
  launch(all, groups, 1, items, [&] {
    k(a.data(), 0, filters_at(b), 0, BIAS_GIVEN batch, C, K, H, W, P, Q, R, S, stride, stride, pad, pad, dilation, dilation,
      static_cast<long>(H) * W * GC, W * GC, GC, 1, PARTS_GIVEN got.data(), 0);
  });
#endif
  long wrong = 0;
#if STATISTICS
  wrong += wrong_statistics(want, got.data() + want.exact.size(), GK, parts);
#endif
  for (size_t i = 0; i < want.exact.size(); ++i)
    if (got[i] != want.exact[i] && wrong++ < 5) std::printf("%zu: %g, not %g\n", i, got[i], want.exact[i]);
  std::printf("%ld wrong\n", wrong);
  return wrong != 0;
}
