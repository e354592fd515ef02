// kernels/base/pairs.cl: sums of products of bf16 by an instruction of CPUs, which adds 16 x 2 products to 16 floats.
//
// OpenCL C has no function for it. A compiler for the host's own instructions takes inline assembly. Intel's runtime compiles
// for SPIR first, where registers have no names; there, the name of LLVM's own function is declared. The types of that
// function are those of LLVM 16 and later, and an earlier one would end the process.
#ifndef OCL_PAIRS_CL
#define OCL_PAIRS_CL
#if defined(__x86_64__)
OCL_INLINE float16 add_pairs(float16 sums, const uint16 a, const uint16 b) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
  return sums;
}
#elif defined(__clang_major__) && __clang_major__ >= 16
typedef __bf16 ocl_bf16x32 __attribute__((ext_vector_type(32)));
float16 ocl_add_pairs(float16 sums, ocl_bf16x32 a, ocl_bf16x32 b) __asm("llvm.x86.avx512bf16.dpbf16ps.512");
#define add_pairs(sums, a, b) ocl_add_pairs(sums, __builtin_astype(a, ocl_bf16x32), __builtin_astype(b, ocl_bf16x32))
#else
#error "there is no way to the instruction"
#endif

// Two neighbours of a row as one number, the first one in the lower half; two rows, element by element.
#define PAIR_AT(p) as_uint(vload2((size_t)0, (p)))
#define JOIN_PAIRS(first, second) (convert_uint16(first) | convert_uint16(second) << 16)
#endif  // OCL_PAIRS_CL
