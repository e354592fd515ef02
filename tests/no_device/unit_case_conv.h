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
static long wrong_statistics(const std::vector<float>& pixels_of, const float* got, int channels, int parts) {
  const int pixels = static_cast<int>(pixels_of.size()) / channels;
  const auto value = [&](int pixel, int channel) {
    const float x = pixels_of[static_cast<size_t>(pixel) * channels + channel];
#if HALVES_HOST
    const uint16_t bits = narrow(x);
    return static_cast<double>(widen(reinterpret_cast<const char*>(&bits)));
#else
    return static_cast<double>(x);
#endif
  };
  long wrong = 0;
  for (int part = 0; part < parts; ++part)
    for (int channel = 0; channel < channels; ++channel) {
      double count = 0, sum = 0, m2 = 0, largest = 0;
      const auto each = [&](auto visit) {
        for (int pixel = 0; pixel < pixels; ++pixel)
          if (pixel / TILE_M % parts == part) visit(value(pixel, channel));
      };
      each([&](double x) { ++count, sum += x, largest = std::fmax(largest, std::fabs(x)); });
      each([&](double x) { m2 += (x - sum / count) * (x - sum / count); });
      const auto at = [&](int which) { return got[(static_cast<size_t>(which) * parts + part) * channels + channel]; };
      // Means within a tile are rounded to an ulp of the largest value.
      const bool right =
          at(2) == count && std::fabs(at(0) - sum / count) <= 5e-7 * largest &&
          std::fabs(at(1) - m2) <= 3e-6 * m2 + 6e-7 * largest * std::sqrt(m2) + 1e-14 * count * largest * largest;
      if (!right && wrong++ < 5)
        std::printf("part %d, channel %d: %g %g %g, not %g %g %g\n", part, channel, at(0), at(1), at(2), sum / count, m2,
                    count);
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
  std::vector<float> want, got;
  const auto each = [&](auto visit) {  // every product: indices of x, w, dy
    for (int n = 0; n < batch; ++n)
      for (int p = 0; p < P; ++p)
        for (int q = 0; q < Q; ++q)
          for (int r = 0; r < R; ++r)
            for (int s = 0; s < S; ++s) {
              const int h = p * stride - pad + r * dilation, v = q * stride - pad + s * dilation;
              if (h < 0 || h >= H || v < 0 || v >= W) continue;
              for (int f = 0; f < GK; ++f)
                for (int c = 0; c < C; ++c)
                  visit(((static_cast<size_t>(n) * H + h) * W + v) * GC + f / K * C + c,
                        ((static_cast<size_t>(f) * R + r) * S + s) * C + c,
                        ((static_cast<size_t>(n) * P + p) * Q + q) * GK + f);
            }
  };
#ifdef WEIGHT
  const int splits = 3, split_pixels = (batch * P * Q + splits * 64 - 1) / (splits * 64) * 64;
  want.assign(w.size(), 0.0f);
  each([&](size_t i, size_t j, size_t l) { want[j] += x[i] * dy[l]; });
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
  want.assign(x.size(), 0.0f);
  each([&](size_t i, size_t j, size_t l) { want[i] += w[j] * dy[l]; });
  std::vector<float> turned(static_cast<size_t>(GC) * R * S * K);  // [GC][R][S][K]
  for (int f = 0; f < GK; ++f)
    for (int t = 0; t < R * S; ++t)
      for (int c = 0; c < C; ++c)
        turned[(static_cast<size_t>(f / K * C + c) * R * S + t) * K + f % K] = w[(static_cast<size_t>(f) * R * S + t) * C + c];
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
  want.assign(dy.size(), 0.0f);
  each([&](size_t i, size_t j, size_t l) { want[l] += x[i] * w[j]; });
  auto a = stored(x);
  auto b = filters_of(w, groups, K, R * S * C);
  got.assign(dy.size(), -1e30f);
#if BIAS
  const auto biases = numbers(static_cast<size_t>(GK), 4);
  for (size_t l = 0; l < want.size(); ++l) want[l] += biases[l % GK];
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
  wrong += wrong_statistics(want, got.data() + want.size(), GK, parts);
#endif
  for (size_t i = 0; i < want.size(); ++i)
    if (got[i] != want[i] && wrong++ < 5) std::printf("%zu: %g, not %g\n", i, got[i], want[i]);
  std::printf("%ld wrong\n", wrong);
  return wrong != 0;
}
