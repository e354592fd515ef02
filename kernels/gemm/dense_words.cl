// kernels/gemm/dense_words.cl: stores of products of words to a dense C[b][m][n], for launches without an epilogue. Comes before
// gemm/pairs_item.cl and gemm/dot_pairs_item.cl.
#ifndef STORE
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset
#define Y_AT(b, m, n) (y_offset + ((ulong)(b) * M + (m)) * N + (n))
#define STORE(acc, b, m, n) (y[Y_AT(b, m, n)] = (acc))
#define STOREV(acc, b, m, n) vstore16(convert_float16(acc), (size_t)0, y + Y_AT(b, m, n))
#endif
