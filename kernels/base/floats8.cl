// kernels/base/floats8.cl: floats of 8 bits. A format has three functions: op_FORMAT_value converts the code of an element to a
// float; op_round_FORMAT rounds a float to the nearest value of the format, ties to even; op_FORMAT_bits converts such a value to
// its code. The file follows the rules of ops.cl, and compiles alone.
//
//   format      exponent, mantissa, bias   largest   beyond it   zeros     NaN
//   f8e4m3      4, 3, 7                    448       448         +0, -0    0x7f, 0xff
//   f8e5m2      5, 2, 15                   57344     infinity    +0, -0    0x7d to 0x7f, 0xfd to 0xff
//   f8e4m3fnuz  4, 3, 8                    240       NaN         +0        0x80
//   f8e5m2fnuz  5, 2, 16                   57344     NaN         +0        0x80
//
// A code without its sign is moved so that its exponent begins at bit 23, where a float has its own. `offset` is then the difference of
// the biases, as bits of a float: adding it makes the float. Subnormal numbers get the bits of the smallest normal number
// (offset + 1 << 23) in front, which is then subtracted. So no step has a subnormal float, which a device may take for 0.
#ifndef OCL_INLINE
#define OCL_INLINE static inline
#endif

OCL_INLINE float op_f8_value(uint m, uint offset) {
  const uint smallest = offset + (uint)(0x00800000);
  const uint below = as_uint(as_float(m + smallest) - as_float(smallest));
  return as_float(m < (uint)(0x00800000) ? below : m + offset);
}

// Rounds the bits of a positive float to `unit`, the unit of the last place that is kept. Below the smallest normal number,
// adding and subtracting `anchor` rounds: the unit of the last place of `anchor` is the smallest subnormal number.
OCL_INLINE uint op_f8_round(uint m, uint offset, uint unit, float anchor) {
  const uint odd = (m & unit) != (uint)(0) ? (uint)(1) : (uint)(0);
  const uint normal = (m + (unit >> 1) - (uint)(1) + odd) & ~(unit - (uint)(1));
  const uint below = as_uint((as_float(m) + anchor) - anchor);
  return m < offset + (uint)(0x00800000) ? below : normal;
}

// Returns the code of a positive value below the smallest normal number: how often it holds the smallest subnormal one.
OCL_INLINE uint op_f8_below(uint m, float anchor) {
  return as_uint(as_float(m) + anchor) - as_uint(anchor);
}

OCL_INLINE float op_f8e4m3_value(uint bits) {
  const uint m = (bits & (uint)(0x7f)) << 20;
  const uint finite = as_uint(op_f8_value(m, (uint)(0x3c000000)));
  return as_float((m == (uint)(0x07f00000) ? (uint)(0x7fc00000) : finite) | ((bits & (uint)(0x80)) << 24));
}

OCL_INLINE float op_f8e5m2_value(uint bits) {
  const uint m = (bits & (uint)(0x7f)) << 21;
  const uint finite = as_uint(op_f8_value(m, (uint)(0x38000000)));
  return as_float((m >= (uint)(0x0f800000) ? m + (uint)(0x70000000) : finite) | ((bits & (uint)(0x80)) << 24));
}

// The same for CPUs that convert halves, in fewer instructions: op_half_NAME replaces op_NAME. The code becomes a half, which may be
// subnormal, because the conversion of halves handles such numbers at full speed. That of e4m3 is the value / 256. In its code for
// NaN, the seven bits below the sign are 1, and only there the addition carries into the highest bit of the exponent.
OCL_INLINE float op_half_f8e4m3_value(uint bits) {
  const short code = (as_short(convert_ushort(bits << 8)) >> (short)(1)) & (short)(-16512);
  const short number = code | ((code + (short)(0x80)) & (short)(0x4000));
  return vload_half(0, (const __private half*)&number) * (float)(256.0f);
}

OCL_INLINE float op_half_f8e5m2_value(uint bits) {
  const ushort number = convert_ushort(bits << 8);
  return vload_half(0, (const __private half*)&number);
}

OCL_INLINE float op_f8e4m3fnuz_value(uint bits) {
  const uint finite = as_uint(op_f8_value((bits & (uint)(0x7f)) << 20, (uint)(0x3b800000)));
  return as_float(bits == (uint)(0x80) ? (uint)(0x7fc00000) : finite | ((bits & (uint)(0x80)) << 24));
}

OCL_INLINE float op_f8e5m2fnuz_value(uint bits) {
  const uint finite = as_uint(op_f8_value((bits & (uint)(0x7f)) << 21, (uint)(0x37800000)));
  return as_float(bits == (uint)(0x80) ? (uint)(0x7fc00000) : finite | ((bits & (uint)(0x80)) << 24));
}

OCL_INLINE float op_round_f8e4m3(float x) {
  const uint bits = as_uint(x), m = bits & (uint)(0x7fffffff);
  const uint r = op_f8_round(m, (uint)(0x3c000000), (uint)(0x00100000), (float)(0x1p14f));
  const uint beyond = m > (uint)(0x7f800000) ? (uint)(0x7fc00000) : (uint)(0x43e00000);
  return as_float((r > (uint)(0x43e00000) ? beyond : r) | (bits & (uint)(0x80000000)));
}

OCL_INLINE float op_round_f8e5m2(float x) {
  const uint bits = as_uint(x), m = bits & (uint)(0x7fffffff);
  const uint r = op_f8_round(m, (uint)(0x38000000), (uint)(0x00200000), (float)(0x1p7f));
  const uint beyond = m > (uint)(0x7f800000) ? (uint)(0x7fe00000) : (uint)(0x7f800000);
  return as_float((r > (uint)(0x47600000) ? beyond : r) | (bits & (uint)(0x80000000)));
}

OCL_INLINE float op_round_f8e4m3fnuz(float x) {
  const uint bits = as_uint(x);
  const uint r = op_f8_round(bits & (uint)(0x7fffffff), (uint)(0x3b800000), (uint)(0x00100000), (float)(0x1p13f));
  const uint sign = r == (uint)(0) ? (uint)(0) : bits & (uint)(0x80000000);
  return as_float(r > (uint)(0x43700000) ? (uint)(0x7fc00000) : r | sign);
}

OCL_INLINE float op_round_f8e5m2fnuz(float x) {
  const uint bits = as_uint(x);
  const uint r = op_f8_round(bits & (uint)(0x7fffffff), (uint)(0x37800000), (uint)(0x00200000), (float)(0x1p6f));
  const uint sign = r == (uint)(0) ? (uint)(0) : bits & (uint)(0x80000000);
  return as_float(r > (uint)(0x47600000) ? (uint)(0x7fc00000) : r | sign);
}

OCL_INLINE uint op_f8e4m3_bits(float x) {
  const uint bits = as_uint(x), m = bits & (uint)(0x7fffffff);
  const uint finite = m < (uint)(0x3c800000) ? op_f8_below(m, (float)(0x1p14f)) : (m - (uint)(0x3c000000)) >> 20;
  return (m > (uint)(0x7f800000) ? (uint)(0x7f) : finite) | ((bits >> 24) & (uint)(0x80));
}

OCL_INLINE uint op_f8e5m2_bits(float x) {
  const uint bits = as_uint(x), m = bits & (uint)(0x7fffffff);
  const uint finite = m < (uint)(0x38800000) ? op_f8_below(m, (float)(0x1p7f)) : (m - (uint)(0x38000000)) >> 21;
  return (m >= (uint)(0x7f800000) ? (m >> 21) & (uint)(0x7f) : finite) | ((bits >> 24) & (uint)(0x80));
}

OCL_INLINE uint op_f8e4m3fnuz_bits(float x) {
  const uint bits = as_uint(x), m = bits & (uint)(0x7fffffff);
  const uint finite = m < (uint)(0x3c000000) ? op_f8_below(m, (float)(0x1p13f)) : (m - (uint)(0x3b800000)) >> 20;
  return m > (uint)(0x7f800000) ? (uint)(0x80) : finite | ((bits >> 24) & (uint)(0x80));
}

OCL_INLINE uint op_f8e5m2fnuz_bits(float x) {
  const uint bits = as_uint(x), m = bits & (uint)(0x7fffffff);
  const uint finite = m < (uint)(0x38000000) ? op_f8_below(m, (float)(0x1p6f)) : (m - (uint)(0x37800000)) >> 21;
  return m > (uint)(0x7f800000) ? (uint)(0x80) : finite | ((bits >> 24) & (uint)(0x80));
}
