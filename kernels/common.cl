// kernels/common.cl: types, hints, loads and stores shared by all kernels; comes before any other file of a program text. OpenCL C 1.2.
#ifndef OCL_COMMON_CL
#define OCL_COMMON_CL

// ---- hints ----
#ifndef OCL_UNROLL                // put before a loop with constant bounds: unroll it fully
#if defined(__clang__) || defined(OCL_HAS_UNROLL_HINT)
#define OCL_UNROLL __attribute__((opencl_unroll_hint))
#else
#define OCL_UNROLL
#endif
#endif
#ifndef OCL_INLINE                // every helper function of a kernel file
#define OCL_INLINE static inline
#endif
#ifndef ONE_ITEM                  // CPU family: a work-group is one work-item
#define ONE_ITEM __attribute__((reqd_work_group_size(1, 1, 1)))
#endif

// ---- types ----
#define OCL_CAT_(a, b) a##b
#define OCL_CAT(a, b) OCL_CAT_(a, b)
#ifndef VW
#define VW 16                     // floats in a vector: 16 (AVX-512), 8 (AVX2), 4 (NEON, SSE, GPUs)
#endif
#define VEC OCL_CAT(float, VW)    // float16, float8 or float4
#define VEC_UINT OCL_CAT(uint, VW)
typedef float4 V4;
typedef float8 V8;
typedef float16 V16;

// Storage type of the inputs: float, or IN_HALF (fp16) or IN_BF16 (upper 16 bits of a float). Arithmetic is always in float.
#ifndef IN_T
#if defined(IN_HALF)
#define IN_T half
#elif defined(IN_BF16)
#define IN_T ushort
#else
#define IN_T float
#endif
#endif

// ---- load ---- p: pointer to storage in any address space, i: index in elements, no alignment beyond the element's
#if defined(IN_HALF)
#define LOAD(p, i) vload_half((size_t)0, (p) + (i))
#define LOADV(p, i) OCL_CAT(vload_half, VW)((size_t)0, (p) + (i))
#elif defined(IN_BF16)
#define LOAD(p, i) as_float((uint)(p)[i] << 16)
#define LOADV(p, i) OCL_CAT(as_float, VW)(OCL_CAT(convert_uint, VW)(OCL_CAT(vload, VW)((size_t)0, (p) + (i))) << 16)
#else
#define LOAD(p, i) ((p)[i])
#define LOADV(p, i) OCL_CAT(vload, VW)((size_t)0, (p) + (i))
#endif
#define VLOAD(p) OCL_CAT(vload, VW)((size_t)0, (p))          // VW floats from any float pointer

// ---- store ----
#define VSTORE(v, p) OCL_CAT(vstore, VW)((v), (size_t)0, (p))  // VW floats to any float pointer

#endif  // OCL_COMMON_CL
