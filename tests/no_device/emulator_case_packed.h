// tests/no_device/emulator_case_packed.h: emulates gemm_packed_warpgroup on operands that pack_group packed, with batch
// 2 and both operands given by strides. Arguments: M N K padding offset groups shared (1 if all products have the same
// B).
using Pack = void(OPERAND_T_HOST*, ulong, int, int, int, long, long, long, long, float*, ulong);
extern "C" Pack pack_a, pack_b;
extern "C" void k(float*, ulong, float*, ulong, int, int, int, long, long, float*, ulong);

/// Matrices [count][width][depth] given by strides, which begin `offset` elements into a buffer.
struct Matrices {
  int count, width, depth;
  ulong offset;
  // Strides in elements.
  long size, along_width, along_depth;
};

/// Depth and floats of a step of a panel: TERMS 3 has a high and a low part of fp16, and a scale for each line.
static constexpr int kStep = TERMS == 3 ? 64 : 32, kStepFloats = TERMS == 3 ? 2 * 2048 + 64 : 2048;

/// Returns the packed blocks of the matrices in x, preceded by `front` floats.
static std::vector<float> packed(Pack* pack, std::vector<OPERAND_T_HOST>& x, const Matrices& m, ulong front) {
  const int steps = (m.depth + kStep - 1) / kStep, panels = (m.width + 63) / 64;
  std::vector<float> blocks(front + static_cast<size_t>(m.count) * panels * steps * kStepFloats + 64, NAN);
  const size_t pairs = (steps + 1) / 2;
  const bool along = m.along_depth == 1;
  launch(along ? pairs : panels, along ? panels : pairs, m.count, 256,
         [&] { pack(x.data(), m.offset, m.width, m.depth, 1, m.size, 0, m.along_width, m.along_depth, blocks.data(), front); });
  return blocks;
}

/// Returns random numbers. For fp32 each has a small term, which is lost if the kernel does not split the number.
static std::vector<float> values(size_t count, uint seed) {
  std::vector<float> v = numbers(count, seed);
#if TERMS == 3
  const std::vector<float> small = numbers(count, seed + 10);
  for (size_t i = 0; i < count; ++i) v[i] += small[i] * 0x1p-14f;
#endif
  return v;
}

int run_case(int, char** argv) {
  const int M = std::atoi(argv[1]), N = std::atoi(argv[2]), K = std::atoi(argv[3]), padding = std::atoi(argv[4]);
  const ulong offset = std::atoi(argv[5]);
  const int groups = std::atoi(argv[6]), shared = std::atoi(argv[7]), batch = 2;
  const auto padded = [&](int n) { return padding ? (n + padding - 1) / padding * padding : n; };
  const long a_row = A_MAJOR == 1   ? padded(K)
                     : A_MAJOR == 0 ? 1
                                    : 2,
             a_col = A_MAJOR == 1 ? 1 : padded(M) * (A_MAJOR == 0 ? 1 : 2);
  const long b_row = B_MAJOR == 1 ? 1 : padded(N) * (B_MAJOR == 0 ? 1 : 2), b_col = B_MAJOR == 1   ? padded(K)
                                                                                    : B_MAJOR == 0 ? 1
                                                                                                   : 2;
  const long a_size = A_MAJOR == 1 ? M * a_row : K * a_col, b_size = B_MAJOR == 1 ? N * b_col : K * b_row;
  const std::vector<float> a = values(offset + batch * a_size, 1), b = values(offset + batch * b_size, 2);
  auto x = stored(a), y = stored(b);
  const long panel = (K + kStep - 1) / kStep * static_cast<long>(kStepFloats);
  std::vector<float> pa = packed(pack_a, x, {batch, M, K, offset, a_size, a_row, a_col}, 32);
  std::vector<float> pb = packed(pack_b, y, {shared ? 1 : batch, N, K, offset, b_size, b_col, b_row}, 32);
  std::vector<float> c(static_cast<size_t>(batch) * M * N, -1e30f);
  launch(groups, 1, batch, TILE_M / 64 * 128 + (TILE_M > 128 ? 128 : 32), [&] {
    k(pa.data(), 32, pb.data(), 32, M, N, K, (M + 63) / 64 * panel, shared ? 0 : (N + 63) / 64 * panel, c.data(), 0);
  });
  const ocl::schedule::Sums want = ocl::schedule::matrix_products(
      batch, M, N, K, [&](int i, int m, int d) { return a[offset + i * a_size + m * a_row + d * a_col]; },
      [&](int i, int d, int n) { return b[offset + (shared ? 0 : i) * b_size + d * b_row + n * b_col]; });
  // Results are exact except for the products of low parts, which the kernel leaves out.
  const double allowed = TERMS == 3 ? 3e-5 : 0;
  long wrong = 0;
  for (size_t at = 0; at < c.size(); ++at)
    if (!(std::fabs(c[at] - want.exact[at]) <= allowed) && wrong++ < 5)
      std::printf("%zu: %g, not %g\n", at, c[at], want.exact[at]);
  std::printf("%ld wrong\n", wrong);
  return wrong != 0;
}
