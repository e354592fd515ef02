// kernels/attention/dense_rows.cl: the outputs of attention on tensor cores without generated epilogue macros: dense, one
// behind the other. Comes after attention/parameters.cl.
#ifndef STORE
#ifdef TASKS
#define Y_HEADS (ROWS_ARE_KEYS ? heads / heads_per_kv : heads)
#define Y_BATCHES batches
#else
#define Y_HEADS get_num_groups(1)
#define Y_BATCHES get_num_groups(2)
#endif
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset
#define EPILOGUE_FUNCTION_PARAMS EPILOGUE_PARAMS
#define EPILOGUE_PASS , y, y_offset
#define Y_AT(b, h, r) (((ulong)(b) * Y_HEADS + (h)) * (ROWS_ARE_KEYS ? keys : queries) + (r))
#define Y1_OFFSET (y_offset + Y_AT(Y_BATCHES, 0, 0) * WIDTH)
#define STORE(acc, b, h, r, d) (y[y_offset + Y_AT(b, h, r) * WIDTH + (d)] = (acc))
#define STOREV(acc, b, h, r, d) OCL_CAT(vstore, VW)(acc, 0, y + y_offset + Y_AT(b, h, r) * WIDTH + (d))
#if PASS == 3
#undef Y_AT
#define Y_AT(b, h, r) (((ulong)(b) * heads + (h)) * queries + (r))
#define Y1_AT(b, h, r, d, width) (((ulong)(b) * heads + (h)) * keys + (r)) * (width) + (d)
#define Y2_OFFSET (Y1_OFFSET + Y1_AT(batches, 0, 0, 0, DEPTH))
#define STORE1(acc, b, h, r, d) (y[Y1_OFFSET + Y1_AT(b, h, r, d, DEPTH)] = (acc))
#define STORE1V(acc, b, h, r, d) OCL_CAT(vstore, VW)(acc, 0, y + Y1_OFFSET + Y1_AT(b, h, r, d, DEPTH))
#define STORE2(acc, b, h, r, d) (y[Y2_OFFSET + Y1_AT(b, h, r, d, DEPTH2)] = (acc))
#define STORE2V(acc, b, h, r, d) OCL_CAT(vstore, VW)(acc, 0, y + Y2_OFFSET + Y1_AT(b, h, r, d, DEPTH2))
#elif PASS == 0
#define STORE1(acc, which, b, h, r) (y[Y1_OFFSET + Y_AT(Y_BATCHES, 0, 0) * (which) + Y_AT(b, h, r)] = (acc))
#else
#define STORE1(acc, b, h, r, d) (y[Y1_OFFSET + Y_AT(b, h, r) * DEPTH2 + (d)] = (acc))
#define STORE1V(acc, b, h, r, d) OCL_CAT(vstore, VW)(acc, 0, y + Y1_OFFSET + Y_AT(b, h, r) * DEPTH2 + (d))
#endif
#endif
