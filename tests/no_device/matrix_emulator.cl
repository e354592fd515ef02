// tests/no_device/matrix_emulator.cl: the instructions of kernels/tensor_core/subgroup_matrix.cl as a call of emulator_matrix.h; see operands_emulator.cl.
void emulated_matrix(float* c, const void* a, const void* b);

ALWAYS_INLINE FragmentC multiply_parts(const PartA a, const PartB b, const FragmentC c) {
  FragmentC d = c;
  emulated_matrix((float*)&d, &a, &b);
  return d;
}
