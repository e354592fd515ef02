// kernels/base/pairs.cl: sums of products by instructions of CPUs. A word of 32 bits has neighbours along K: two bf16, whose
// products are added to a float, or four int8, whose products are added to an int. An instruction takes 16 words.
//
// OpenCL C has no functions for them. A compiler for the host's own instructions takes inline assembly. Intel's runtime compiles
// for SPIR first, where registers have no names; there, the name of LLVM's own function is declared. The types of these
// functions are those of LLVM 16 and later, and an earlier one would end the process.
//
// The instruction for int8 takes its second operand as unsigned: b has 128 added to each number (OFFSET), and a sum starts at
// -128 times the sum of a.
// A launch that defines PAIRS as 0 does not use them.
#if !defined(OCL_PAIRS_CL) && (!defined(PAIRS) || PAIRS)
#define OCL_PAIRS_CL
#ifdef IN_INT8
#define PER_WORD 4
#define SUM int
#define OFFSET 0x80808080u
#define INSTRUCTION "vpdpbusd"
#define WORD_AT(p) as_uint(vload4((size_t)0, (p)))
#define WORDS_AT(p)                                                                                                 \
  (uint16)(as_uint4(vload16((size_t)0, (p))), as_uint4(vload16((size_t)1, (p))), as_uint4(vload16((size_t)2, (p))), \
           as_uint4(vload16((size_t)3, (p))))
#else
#define PER_WORD 2
#define SUM float
#define OFFSET 0u
#define INSTRUCTION "vdpbf16ps"
#define WORD_AT(p) as_uint(vload2((size_t)0, (p)))
#define WORDS_AT(p) (uint16)(as_uint8(vload16((size_t)0, (p))), as_uint8(vload16((size_t)1, (p))))
#endif
#define SUMS OCL_CAT(SUM, 16)
#define VECTOR_K (16 * PER_WORD)  // elements of a vector along K

#if defined(__x86_64__)
OCL_INLINE SUMS add_products(SUMS sums, const uint16 a, const uint16 b) {
  __asm__(INSTRUCTION " %1, %2, %0" : "+v"(sums) : "v"(a), "v"(b));
  return sums;
}
#elif defined(__clang_major__) && __clang_major__ >= 16
#ifdef IN_INT8
typedef char ocl_words __attribute__((ext_vector_type(64)));
SUMS ocl_add_products(SUMS sums, ocl_words b, ocl_words a) __asm("llvm.x86.avx512.vpdpbusd.512");
#else
typedef __bf16 ocl_words __attribute__((ext_vector_type(32)));
SUMS ocl_add_products(SUMS sums, ocl_words b, ocl_words a) __asm("llvm.x86.avx512bf16.dpbf16ps.512");
#endif
#define add_products(sums, a, b) ocl_add_products(sums, __builtin_astype(b, ocl_words), __builtin_astype(a, ocl_words))
#else
#error "there is no way to the instruction"
#endif

// The word of up to `left` elements at p, `step` elements apart. What is beyond them is 0.
OCL_INLINE uint word_of(__global const IN_T* p, const long step, const int left) {
  uint word = 0;
  OCL_UNROLL for (int i = 0; i < PER_WORD; ++i) if (i < left) word |= (uint)p[i * step] << (32 / PER_WORD * i);
  return word;
}

// What sums of products with `rows` rows of A, kn elements from row[i] on, start at. `rows` is a constant.
OCL_INLINE void first_sums(SUM* starts, __global const IN_T* const* row, const int rows, const int kn) {
#ifdef IN_INT8
  const uint16 ones = (uint16)(0x01010101u);
  int16 sums[16];
  OCL_UNROLL for (int i = 0; i < rows; ++i) sums[i] = (int16)(0);
  int k = 0;
  for (; k + VECTOR_K <= kn; k += VECTOR_K)
    OCL_UNROLL for (int i = 0; i < rows; ++i) sums[i] = add_products(sums[i], WORDS_AT(row[i] + k), ones);
  OCL_UNROLL for (int i = 0; i < rows; ++i) {
    const int8 eight = sums[i].lo + sums[i].hi;
    const int4 four = eight.lo + eight.hi;
    starts[i] = -128 * (four.s0 + four.s1 + four.s2 + four.s3);
  }
  for (; k < kn; ++k) OCL_UNROLL for (int i = 0; i < rows; ++i) starts[i] -= 128 * (char)row[i][k];
#else
  OCL_UNROLL for (int i = 0; i < rows; ++i) starts[i] = 0;
#endif
}
#endif  // OCL_PAIRS_CL
