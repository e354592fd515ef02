// tests/no_device/kernels/emulator_matrix.h: the matrix instructions of kernels/tensor_core/subgroup_matrix.cl in software.
// Part of emulator.cpp, after the conversions.
//
// Which element of a matrix a lane has in which place is written down here a second time, from the vendors' descriptions, so
// that a mistake in the kernels' functions shows:
//   DPAS   "Function Reference" of the OpenCL extension cl_intel_subgroup_matrix_multiply_accumulate. A row of A is spread
//          over the lanes, with the lowest K first; B is packed in pairs along K; results have one row a component.
//   WMMA   Instruction set manuals of RDNA 3 (7.9) and RDNA 4 (7.12). On RDNA 3 lanes 16 to 31 must repeat the operands of
//          lanes 0 to 15; this is tested. Results alternate between the halves of the subgroup there. On RDNA 4 lanes 0 to
//          15 hold the depths 0 to 3 and 8 to 11, the other lanes the rest.
//   MFMA   Instruction set manual of CDNA (matrix core section), and AMD's matrix instruction calculator.
#ifdef MATRIX_MFMA
#if !HALVES_HOST
constexpr int kInputs = 1;
#elif MATRIX_MFMA == 2 && defined(IN_BF16)
constexpr int kInputs = 2;
#else
constexpr int kInputs = 4;
#endif
constexpr int kRows = 32, kColumns = 32;
constexpr int kDepth = 2 * kInputs, kResults = 16;
#elif defined(MATRIX_WMMA)
constexpr int kRows = 16, kColumns = 16, kInputs = MATRIX_WMMA == 11 ? 16 : 8, kDepth = 16, kResults = 8;
#else
constexpr int kRows = 8, kColumns = MATRIX_DPAS, kDepth = HALVES_HOST ? 16 : 8, kResults = 8;
#endif

static float matrix_element(const void* from, int at) {
  const char* bytes = static_cast<const char*>(from) + at * sizeof(OPERAND_T_HOST);
#if HALVES_HOST
  return widen(bytes);
#else
  uint bits;
  std::memcpy(&bits, bytes, 4);
#ifdef MATRIX_DPAS
  bits &= 0xffffe000;  // TF32
#endif
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
#endif
}

/// c += a * b for one instruction. All lanes of a subgroup call it together.
extern "C" void emulated_matrix(float* c, const void* a, const void* b) {
  static float left[64][kRows][kDepth], right[64][kDepth][kColumns];
  const int sub = static_cast<int>(self().local) / LANES_HOST, lane = static_cast<int>(self().local) % LANES_HOST;
  const auto put = [](float& to, float x, bool again) {
    if (again && !(to == x)) std::printf("lanes disagree about an operand\n"), std::exit(1);
    to = x;
  };
#ifdef MATRIX_DPAS
#if !HALVES_HOST
  // 16 lanes have 2 rows of A, and a lane 8 values of its column of B.
  for (int e = 0; e < 4; ++e) put(left[sub][(16 * e + lane) / 8][(16 * e + lane) % 8], matrix_element(a, e), false);
  for (int k = 0; k < 8; ++k) put(right[sub][k][lane], matrix_element(b, k), false);
#else
  // 16 values of a row of A are in 16 lanes, or two in each of 8 lanes. A lane has 16 values of its column of B.
  constexpr int kTogether = 16 / MATRIX_DPAS;
  for (int row = 0; row < kRows; ++row)
    for (int e = 0; e < kTogether; ++e)
      put(left[sub][row][lane * kTogether + e], matrix_element(a, row * kTogether + e), false);
  for (int pair = 0; pair < 8; ++pair)
    for (int e = 0; e < 2; ++e) put(right[sub][2 * pair + e][lane], matrix_element(b, 2 * pair + e), false);
#endif
#else
  const int line = lane % kRows, half = lane / kRows;
  const bool repeated = kInputs == kDepth;
  for (int again = 0; again <= (repeated ? 1 : 0); ++again) {
    if (again == (repeated ? half : 0))
      for (int e = 0; e < kInputs; ++e) {
#ifdef MATRIX_WMMA
        const int k = repeated ? e : e / 4 * 8 + half * 4 + e % 4;
#else
        const int k = half * kInputs + e;
#endif
        put(left[sub][line][k], matrix_element(a, e), again);
        put(right[sub][k][line], matrix_element(b, e), again);
      }
    if (repeated) g_warp[sub].wait();
  }
#endif
  g_warp[sub].wait();
  for (int i = 0; i < kResults; ++i) {
#if defined(MATRIX_MFMA)
    const int block = i / 4, row = block * 8 + lane / 32 * 4 + i % 4, column = lane % 32;
#elif defined(MATRIX_WMMA)
    const int row = MATRIX_WMMA == 11 ? i * 2 + lane / 16 : lane / 16 * 8 + i, column = lane % 16;
#else
    const int row = i, column = lane;
#endif
    for (int k = 0; k < kDepth; ++k) c[i] += left[sub][row][k] * right[sub][k][column];
  }
  g_warp[sub].wait();
}

/// Returns x of the lane in the other half of the subgroup.
extern "C" uint emulated_half(uint x) {
  static uint values[64][64];
  const int sub = static_cast<int>(self().local) / LANES_HOST, lane = static_cast<int>(self().local) % LANES_HOST;
  values[sub][lane] = x;
  g_warp[sub].wait();
  const uint y = values[sub][lane ^ (LANES_HOST / 2)];
  g_warp[sub].wait();
  return y;
}
