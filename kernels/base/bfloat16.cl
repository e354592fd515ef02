// kernels/base/bfloat16.cl: the bits of a bf16 number, for the kernels of eager ops (copy.cl, sparse.cl).
// Returns the upper half of a float, rounded to nearest even; NaN stays a quiet NaN.
inline ushort bfloat16_bits(float x) {
  const uint bits = as_uint(x);
  return isnan(x) ? (ushort)0x7fc0 : (ushort)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
