// kernels/base/bfloat16.cl: the bits of a bf16 number, for the kernels of eager ops (copy.cl, sparse.cl).
// bfloat16_bits returns the upper half of a float, rounded to nearest even; NaN stays a quiet NaN.
inline ushort bfloat16_bits(float x) {
  const uint bits = as_uint(x);
  return isnan(x) ? (ushort)0x7fc0 : (ushort)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline ushort16 bfloat16_bits16(float16 x) {
  const uint16 bits = as_uint16(x), rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return convert_ushort16(select(rounded, (uint16)(0x7fc0), isnan(x)));
}
