// tests/no_device/kernels/matrix_emulator.cl: the instructions of kernels/tensor_core/subgroup_matrix.cl as a call of emulator_matrix.h; see operands_emulator.cl.
void emulated_matrix(float* c, const void* a, const void* b);
uint emulated_halves(float first, float second);
uint emulated_half(uint x);
float emulated_exp2(float x);
#define two_halves(first, second) emulated_halves(first, second)
#define other_half(x) emulated_half(x)
#define exp2_of(x) emulated_exp2(x)

ALWAYS_INLINE FragmentC multiply_parts(const PartA a, const PartB b, const FragmentC c) {
  FragmentC d = c;
  emulated_matrix((float*)&d, &a, &b);
  return d;
}
