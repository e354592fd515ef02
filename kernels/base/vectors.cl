// kernels/base/vectors.cl: vload and vstore of float4, 8 and 16 as one access each, for CPU runtimes. Comes before any
// other file of a program text. Some compilers load the elements of a vector one by one and do not always join them
// again: PoCL 3.1 makes five stores of a vstore16.
#ifndef OCL_VECTOR_CL
#define OCL_VECTOR_CL
#ifdef __clang__  // Clang allows a typedef with a smaller alignment
#define OCL_VECTOR_ACCESS(type, n, space)                                                                          \
  static inline __attribute__((overloadable)) type##n ocl_vload##n(const size_t i, space const type* p) {          \
    return *(space const ocl_##type##n*)(p + n * i);                                                               \
  }                                                                                                                \
  static inline __attribute__((overloadable)) void ocl_vstore##n(const type##n x, const size_t i, space type* p) { \
    *(space ocl_##type##n*)(p + n * i) = x;                                                                        \
  }
#define OCL_VECTOR_WIDTH(type, n)                                       \
  typedef type##n ocl_##type##n __attribute__((aligned(sizeof(type)))); \
  OCL_VECTOR_ACCESS(type, n, __global)                                  \
  OCL_VECTOR_ACCESS(type, n, __local)                                   \
  OCL_VECTOR_ACCESS(type, n, __private)
#define OCL_VECTOR_TYPE(type) OCL_VECTOR_WIDTH(type, 4) OCL_VECTOR_WIDTH(type, 8) OCL_VECTOR_WIDTH(type, 16)

OCL_VECTOR_TYPE(float)
OCL_VECTOR_TYPE(int)
OCL_VECTOR_TYPE(uchar)
OCL_VECTOR_TYPE(ushort)
OCL_VECTOR_TYPE(uint)
OCL_VECTOR_TYPE(char)
OCL_VECTOR_TYPE(short)
OCL_VECTOR_TYPE(long)
OCL_VECTOR_TYPE(ulong)
#ifdef cl_khr_fp64
OCL_VECTOR_TYPE(double)
#endif

#define vload4 ocl_vload4
#define vload8 ocl_vload8
#define vload16 ocl_vload16
#define vstore4 ocl_vstore4
#define vstore8 ocl_vstore8
#define vstore16 ocl_vstore16
#endif
#endif  // OCL_VECTOR_CL
