// kernels/base/halves.cl: vload_half and vstore_half_rte for devices whose compiler has no half arithmetic. Comes
// before any other file of a program text.
//
// Such a compiler may convert bit by bit. It may also assume that a vector of halves is aligned to its size, which
// OpenCL does not promise: PoCL 3.1 then ends the process with a signal. Here halves are read as integers and converted
// by integer operations, all lanes at once.
#ifndef OCL_HALF_CL
#define OCL_HALF_CL
#define OCL_OVERLOADED static inline __attribute__((overloadable))

// ocl_half_value converts fp16 bits to a float. It adds 112 to the exponent, and 112 once more for inf and nan. A
// subnormal is m * 2^-24: with the exponent of 2^-14 in front, its bits are the float 2^-14 + m * 2^-24, from which
// 2^-14 is subtracted. ocl_half_bits converts a float to fp16 bits, rounded to nearest even. To a value below 2^-14 it
// adds 0.5: the addition rounds the value to multiples of 2^-24, whose number is then in the low bits of the sum.
#define OCL_HALF_OPERATIONS(n)                                                                       \
  OCL_OVERLOADED float##n ocl_half_value(const ushort##n half_bits) {                                \
    const uint##n bits = convert_uint##n(half_bits);                                                 \
    const uint##n m = (bits & 0x7fffu) << 13;                                                        \
    const uint##n normal = m + (m >= 0x0f800000u ? (uint##n)(0x70000000u) : (uint##n)(0x38000000u)); \
    const uint##n small = as_uint##n(as_float##n(m + 0x38800000u) - 0x1p-14f);                       \
    return as_float##n((m < 0x00800000u ? small : normal) | ((bits & 0x8000u) << 16));               \
  }                                                                                                  \
  OCL_OVERLOADED ushort##n ocl_half_bits(const float##n x) {                                         \
    const uint##n bits = as_uint##n(x), m = bits & 0x7fffffffu;                                      \
    const uint##n normal = (m - 0x38000000u + 0xfffu + ((m >> 13) & 1u)) >> 13;                      \
    const uint##n small = as_uint##n(as_float##n(m) + 0.5f) - 0x3f000000u;                           \
    const uint##n large = m > 0x7f800000u ? (uint##n)(0x7e00u) : (uint##n)(0x7c00u);                 \
    const uint##n finite = m < 0x38800000u ? small : normal;                                         \
    return convert_ushort##n((m >= 0x47800000u ? large : finite) | ((bits >> 16) & 0x8000u));        \
  }

OCL_HALF_OPERATIONS()
OCL_HALF_OPERATIONS(2)
OCL_HALF_OPERATIONS(4)
OCL_HALF_OPERATIONS(8)
OCL_HALF_OPERATIONS(16)

#define OCL_HALF_ACCESS(n, space)                                                          \
  OCL_OVERLOADED float##n ocl_half_load##n(const size_t i, space const half* p) {          \
    return ocl_half_value(OCL_HALF_VLOAD##n(i, (space const ushort*)p));                   \
  }                                                                                        \
  OCL_OVERLOADED void ocl_half_store##n(const float##n x, const size_t i, space half* p) { \
    OCL_HALF_VSTORE##n(ocl_half_bits(x), i, (space ushort*)p);                             \
  }
#define OCL_HALF_VLOAD(i, p) (p)[i]
#define OCL_HALF_VLOAD2 vload2
#define OCL_HALF_VLOAD4 vload4
#define OCL_HALF_VLOAD8 vload8
#define OCL_HALF_VLOAD16 vload16
#define OCL_HALF_VSTORE(x, i, p) (p)[i] = (x)
#define OCL_HALF_VSTORE2 vstore2
#define OCL_HALF_VSTORE4 vstore4
#define OCL_HALF_VSTORE8 vstore8
#define OCL_HALF_VSTORE16 vstore16
#define OCL_HALF_WIDTHS(space) \
  OCL_HALF_ACCESS(, space)     \
  OCL_HALF_ACCESS(2, space)    \
  OCL_HALF_ACCESS(4, space)    \
  OCL_HALF_ACCESS(8, space)    \
  OCL_HALF_ACCESS(16, space)

OCL_HALF_WIDTHS(__global)
OCL_HALF_WIDTHS(__local)
OCL_HALF_WIDTHS(__private)

#define vload_half ocl_half_load
#define vload_half2 ocl_half_load2
#define vload_half4 ocl_half_load4
#define vload_half8 ocl_half_load8
#define vload_half16 ocl_half_load16
#define vstore_half_rte ocl_half_store
#define vstore_half2_rte ocl_half_store2
#define vstore_half4_rte ocl_half_store4
#define vstore_half8_rte ocl_half_store8
#define vstore_half16_rte ocl_half_store16

#endif  // OCL_HALF_CL
