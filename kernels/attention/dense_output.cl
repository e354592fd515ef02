// kernels/attention/dense_output.cl: the outputs of item.cl and group.cl without generated epilogue macros: dense. Y_VSTORE
// stores a vector.
#define WIDTH2 DEPTH2
#ifndef STORE
#define EPILOGUE_PARAMS \
  , __global float *y0, const ulong y0_offset, __global float *y1, const ulong y1_offset, const int y_rows
#define EPILOGUE_FUNCTION_PARAMS EPILOGUE_PARAMS
#define EPILOGUE_PASS , y0, y0_offset, y1, y1_offset, y_rows
#define Y_HEADS (PASS == 2 ? heads / heads_per_kv : heads)
#define Y_AT(b, h, r, d, width) ((((ulong)(b) * Y_HEADS + (h)) * y_rows + (r)) * (width) + (d))
#define STORE(acc, b, h, r, d) (y0[y0_offset + Y_AT(b, h, r, d, WIDTH)] = (acc))
#define STOREV(acc, b, h, r, d) Y_VSTORE(acc, y0 + y0_offset + Y_AT(b, h, r, d, WIDTH))
#define STORE1V(acc, b, h, r, d) Y_VSTORE(acc, y1 + y1_offset + Y_AT(b, h, r, d, WIDTH2))
#if PASS == 0
#define STORE1(acc, which, b, h, r) \
  (y1[y1_offset + (ulong)(which) * get_global_size(2) * heads * y_rows + Y_AT(b, h, r, 0, 1)] = (acc))
#else
#define STORE1(acc, b, h, r, d) (y1[y1_offset + Y_AT(b, h, r, d, WIDTH2)] = (acc))
#endif
#endif
