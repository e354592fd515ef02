// tests/no_device/emulator_case_conv.h: emulates convolutions on tensor cores, and their gradients; tensors are channels-last.
// Arguments: batch C K H W R S stride padding dilation groups; with STATISTICS also slices and work-groups. C and K are per
// group of the convolution. BIAS, STATISTICS and B_PACKED are the macros of the kernels.
// WEIGHT selects the gradient of the weight, DATA_GRADIENT that of the input; without them the forward convolution
// runs.
#ifdef WEIGHT
extern "C" void k(OPERAND_T_HOST*, ulong, OPERAND_T_HOST*, ulong, int, int, int, int, int, int, int, int, int, int, int, int,
                  int, int, int, int, long, int, int, int, long, int, int, int, float*, ulong);
#elif STATISTICS
#if BIAS
#define BIAS_TYPES OPERAND_T_HOST*, ulong,
#else
#define BIAS_TYPES
#endif
extern "C" void k(OPERAND_T_HOST*, ulong, OPERAND_T_HOST*, ulong, BIAS_TYPES int, int, int, int, int, int, int, int, int, int,
                  int, int, int, int, int, long, int, int, int, int, float*, ulong);

/// Returns the number of wrong statistics. Slice i has the statistics of the tiles i, i + slices, i + 2 * slices and so
/// on.
static long wrong_statistics(ocl::schedule::Sums values, const float* got, size_t channels, size_t slices) {
// The values are rounded to halves, as the kernel stores them.
#if HALVES_HOST
  for (double& x : values.exact) {
    const uint16_t bits = narrow(static_cast<float>(x));
    x = widen(reinterpret_cast<const char*>(&bits));
  }
#endif
  const ocl::schedule::Sums want = ocl::schedule::channel_statistics(values, channels, TILE_M, slices);
  const size_t block = slices * channels;
  std::vector<double> largest(block);
  for (size_t at = 0; at < values.exact.size(); ++at) {
    double& of = largest[at / channels / TILE_M % slices * channels + at % channels];
    of = std::fmax(of, std::fabs(values.exact[at]));
  }
  long wrong = 0;
  for (size_t at = 0; at < block; ++at) {
    const double mean = want.exact[at], m2 = want.exact[block + at], count = want.exact[2 * block + at], most = largest[at];
    // The kernel rounds means of a tile to an ulp of the largest value.
    const bool right = got[2 * block + at] == count && std::fabs(got[at] - mean) <= 5e-7 * most &&
                       std::fabs(got[block + at] - m2) <= 3e-6 * m2 + 6e-7 * most * std::sqrt(m2) + 1e-14 * count * most * most;
    if (!right && wrong++ < 5)
      std::printf("slice %zu, channel %zu: %g %g %g, not %g %g %g\n", at / channels, at % channels, got[at], got[block + at],
                  got[2 * block + at], mean, m2, count);
  }
  return wrong;
}
#else
extern "C" void k(OPERAND_T_HOST*, ulong, OPERAND_T_HOST*, ulong, int, int, int, int, int, int, int, int, int, int, int, int,
                  int, int, int, long, int, int, int, float*, ulong);
#endif

#ifndef B_PACKED
#define B_PACKED 0
#endif
#ifdef TERMS
#define TERMS_HOST TERMS
#else
#define TERMS_HOST 3
#endif
/// Returns the second operand: filters [groups * wide][deep]. With B_PACKED they are packed as by
/// kernels/pack/group.cl: for each group, blocks of 64 filters by 128 bytes along K, with the 8 chunks of each line
/// permuted. For floats there are two blocks, with the high and the low parts.
static std::vector<char> filters_of(const std::vector<float>& w, int groups, int wide, int deep) {
  const auto elements = stored(w);
  const auto* bytes = reinterpret_cast<const char*>(elements.data());
  const int size = sizeof(elements[0]);
  if (!B_PACKED) return std::vector<char>(bytes, bytes + w.size() * size);
  const int step = 128 / size, panels = (wide + 63) / 64, steps = (deep + step - 1) / step,
            pieces = size == 4 && TERMS_HOST == 3 ? 2 : 1;
  std::vector<char> blocks(static_cast<size_t>(groups) * panels * steps * pieces * 8192, 0);
  for (int g = 0; g < groups; ++g)
    for (int k = 0; k < wide; ++k)
      for (int d = 0; d < deep; ++d) {
        const int line = k % 64, chunk = d % step * size / 16, within = d % step * size % 16;
        char* block = &blocks[((static_cast<size_t>(g) * panels + k / 64) * steps + d / step) * pieces * 8192];
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
        if (pieces == 2) std::memcpy(block + 8192 + at, &low, 4);
      }
  return blocks;
}

static OPERAND_T_HOST* filters_at(std::vector<char>& bytes) { return reinterpret_cast<OPERAND_T_HOST*>(bytes.data()); }

/// The sizes from the command line, and random tensors: x [batch][H][W][GC], w [GK][R][S][C], dy [batch][P][Q][GK].
struct Case {
  ocl::schedule::Convolution shape;
  // P and Q: height and width of dy. GC and GK: channels and filters of all groups together.
  int P, Q, GC, GK;
  std::vector<float> x, w, dy;

  explicit Case(char** argv) {
    const auto arg = [&](int i) { return std::atoi(argv[i + 1]); };
    shape = {arg(0), arg(1), arg(2), arg(3), arg(4), arg(5), arg(6), arg(7), arg(8), arg(9), arg(10)};
    P = shape.P();
    Q = shape.Q();
    GC = shape.groups * shape.C;
    GK = shape.groups * shape.K;
    x = numbers(shape.x_size(), 1);
    w = numbers(shape.w_size(), 2);
    dy = numbers(shape.y_size(), 3);
  }
};

static size_t tiles(long n, int of) { return static_cast<size_t>((n + of - 1) / of); }

#ifdef WEIGHT
/// Returns the kernel's result; `want` gets the reference.
static std::vector<float> computed(Case& c, ocl::schedule::Sums& want) {
  const ocl::schedule::Convolution& s = c.shape;
  const int batch = s.batch, C = s.C, K = s.K, H = s.H, W = s.W, R = s.R, S = s.S;
  const int stride = s.stride, pad = s.pad, dilation = s.dilation, groups = s.groups;
  const int GC = c.GC, GK = c.GK, P = c.P, Q = c.Q;
  const int splits = 3, split_pixels = (batch * P * Q + splits * 64 - 1) / (splits * 64) * 64;
  want = ocl::schedule::convolution_weight_gradient(c.shape, c.x, c.dy, 1, batch * P * Q);
  std::vector<float> slices(c.w.size() * splits, -1e30f);
  auto a = stored(c.dy), b = stored(c.x);
  launch(tiles(R * S * C, TILE_N) * tiles(K, TILE_M), groups, splits, GROUP_ITEMS, [&] {
    k(a.data(), 0, b.data(), 0, batch, C, K, H, W, P, Q, R, S, stride, stride, pad, pad, dilation, dilation, split_pixels,
      static_cast<long>(P) * Q * GK, Q * GK, GK, 1, static_cast<long>(H) * W * GC, W * GC, GC, 1, slices.data(), 0);
  });
  std::vector<float> got(c.w.size(), 0.0f);
  for (size_t i = 0; i < slices.size(); ++i) got[i % got.size()] += slices[i];
  return got;
}
#elif DATA_GRADIENT
/// Returns the kernel's result; `want` gets the reference.
static std::vector<float> computed(Case& c, ocl::schedule::Sums& want) {
  const ocl::schedule::Convolution& s = c.shape;
  const int batch = s.batch, C = s.C, K = s.K, H = s.H, W = s.W, R = s.R, S = s.S;
  const int stride = s.stride, pad = s.pad, dilation = s.dilation, groups = s.groups;
  const int GK = c.GK, P = c.P, Q = c.Q;
  want = ocl::schedule::convolution_data_gradient(c.shape, c.w, c.dy);
  // Filters [GC][R][S][K].
  const std::vector<float> turned = ocl::schedule::filters_channel_first(c.shape, c.w);
  auto a = stored(c.dy);
  auto b = filters_of(turned, groups, C, R * S * K);
  std::vector<float> got(c.x.size(), -1e30f);
  const long pixels = static_cast<long>(batch) * ((H + stride - 1) / stride) * ((W + stride - 1) / stride);
  launch(tiles(pixels, TILE_M) * tiles(C, TILE_N), groups, stride * stride, GROUP_ITEMS, [&] {
    k(a.data(), 0, filters_at(b), 0, batch, K, C, P, Q, H, W, R, S, stride, stride, pad, pad, dilation, dilation,
      static_cast<long>(P) * Q * GK, Q * GK, GK, 1, got.data(), 0);
  });
  return got;
}
#else
#if BIAS
#define BIAS_GIVEN bias.data(), 0,
#else
#define BIAS_GIVEN
#endif
#if STATISTICS
#define SLICES_ARGUMENT slices,
#else
#define SLICES_ARGUMENT
#endif
/// Returns the kernel's result, followed by `slices` slices of statistics; `want` gets the reference of the result
/// only. `all` is the number of work-groups if the kernel stores statistics.
static std::vector<float> computed(Case& c, ocl::schedule::Sums& want, int slices, size_t all) {
  const ocl::schedule::Convolution& s = c.shape;
  const int batch = s.batch, C = s.C, K = s.K, H = s.H, W = s.W, R = s.R, S = s.S;
  const int stride = s.stride, pad = s.pad, dilation = s.dilation, groups = s.groups;
  const int GC = c.GC, GK = c.GK;
#if STATISTICS
  // Makes the mean large compared with the spread, for pixels whose filter window is inside the image.
  for (size_t i = 0; i < c.x.size(); i += static_cast<size_t>(C)) c.x[i] = 64;
  for (size_t j = 0; j < c.w.size(); j += static_cast<size_t>(C)) c.w[j] = 16;
#elif defined(WARP_M) || defined(SUB_M)
  all = tiles(static_cast<long>(batch) * c.P * c.Q, TILE_M) * tiles(K, TILE_N);
#else
  // One work-group computes all tiles.
  all = 1;
#endif
  want = ocl::schedule::convolution(c.shape, c.x, c.w);
  auto a = stored(c.x);
  auto b = filters_of(c.w, groups, K, R * S * C);
  std::vector<float> got(c.dy.size() + static_cast<size_t>(3) * slices * GK, -1e30f);
#if BIAS
  const auto biases = numbers(static_cast<size_t>(GK), 4);
  for (size_t l = 0; l < want.exact.size(); ++l) want.add(l, biases[l % GK]);
  auto bias = stored(biases);
#endif
  launch(all, groups, 1, GROUP_ITEMS, [&] {
    k(a.data(), 0, filters_at(b), 0, BIAS_GIVEN batch, C, K, H, W, c.P, c.Q, R, S, stride, stride, pad, pad, dilation, dilation,
      static_cast<long>(H) * W * GC, W * GC, GC, 1, SLICES_ARGUMENT got.data(), 0);
  });
  return got;
}
#endif

int run_case(int, char** argv) {
  Case c(argv);
  ocl::schedule::Sums want;
  long wrong = 0;
#if STATISTICS
  const int slices = std::atoi(argv[12]);
  const std::vector<float> got = computed(c, want, slices, static_cast<size_t>(std::atoi(argv[13])));
  wrong += wrong_statistics(want, got.data() + want.exact.size(), c.GK, slices);
#elif defined(WEIGHT) || DATA_GRADIENT
  const std::vector<float> got = computed(c, want);
#else
  const std::vector<float> got = computed(c, want, 0, 0);
#endif
  for (size_t i = 0; i < want.exact.size(); ++i)
    if (got[i] != want.exact[i] && wrong++ < 5) std::printf("%zu: %g, not %g\n", i, got[i], want.exact[i]);
  std::printf("%ld wrong\n", wrong);
  return wrong != 0;
}
