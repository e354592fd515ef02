// tests/no_device/emulator_case_gemm.h: emulates gemm_warpgroup, gemm_warp or gemm_subgroup_matrix, with batch 2 and both
// operands given by strides. Arguments: M N K padding offset groups.
extern "C" void k(OPERAND_T_HOST*, ulong, OPERAND_T_HOST*, ulong, int, int, int, int, long, long, long, long, long, long, long,
                  long, float*, ulong);

int run_case(int, char** argv) {
  const int M = std::atoi(argv[1]), N = std::atoi(argv[2]), K = std::atoi(argv[3]), padding = std::atoi(argv[4]);
  const ulong offset = std::atoi(argv[5]);
  const int groups = std::atoi(argv[6]), batch = 2;
  const auto padded = [&](int n) { return padding ? (n + padding - 1) / padding * padding : n; };
  const long a_row = A_K_MAJOR ? padded(K) : 1, a_col = A_K_MAJOR ? 1 : padded(M), b_row = B_K_MAJOR ? 1 : padded(N),
             b_col = B_K_MAJOR ? padded(K) : 1;
  const long a_size = A_K_MAJOR ? M * a_row : K * a_col, b_size = B_K_MAJOR ? N * b_col : K * b_row;
  std::vector<float> a = numbers(offset + batch * a_size, 1), b = numbers(offset + batch * b_size, 2);
  double tolerance = 0;
#if defined(WARP_M) || defined(SUB_M)
  const int tiles = (M + TILE_M - 1) / TILE_M * ((N + TILE_N - 1) / TILE_N);
  // These have one work-group for each tile, so the argument `groups` must be 0.
  if (groups != 0) return 2;
#else
  const int tiles = groups;
#endif
// The values have as many digits as a float has, so that an error shows if the kernel drops their low parts.
#if defined(DIGITS)
  for (std::vector<float>* v : {&a, &b})
    for (size_t i = 0; i < v->size(); ++i) (*v)[i] += static_cast<float>(i * 2654435761u % 65536) / 65536;
  tolerance = 1e-6;
#endif
  auto x = stored(a), y = stored(b);
  std::vector<float> c(static_cast<size_t>(batch) * M * N, -1e30f);
  launch(tiles, 1, batch, GROUP_ITEMS, [&] {
    k(x.data(), offset, y.data(), offset, M, N, K, 1, a_size, 0, a_row, a_col, b_size, 0, b_row, b_col, c.data(), 0);
  });
  const ocl::schedule::Sums want = ocl::schedule::matrix_products(
      batch, M, N, K, [&](int i, int m, int d) { return a[offset + i * a_size + m * a_row + d * a_col]; },
      [&](int i, int d, int n) { return b[offset + i * b_size + d * b_row + n * b_col]; });
  long wrong = 0;
  for (size_t at = 0; at < c.size(); ++at)
    if (!(std::fabs(c[at] - want.exact[at]) <= tolerance * want.sizes[at]) && wrong++ < 5)
      std::printf("%zu: %g, not %g\n", at, c[at], want.exact[at]);
  std::printf("%ld wrong\n", wrong);
  return wrong != 0;
}
