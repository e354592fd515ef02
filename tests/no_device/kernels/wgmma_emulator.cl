// tests/no_device/kernels/wgmma_emulator.cl: the instructions of kernels/tensor_core/wgmma.cl as calls of emulator.cpp; see operands_emulator.cl.
ulong emulated_barrier(uint bar, uint what, uint value);
void emulated_block(uint to, __global const void* from, uint bytes, uint bar);
ulong emulated_map(__global const void* matrix, uint width, uint rows, uint heads, uint batches, ulong row, ulong head, ulong batch, uint box_rows);
void emulated_box(uint to, ulong map, int column, int row, int head, int batch, uint bar);
void emulated_multiply(float* d, const uint* a, ulong a_at, ulong b_at, uint columns, uint keep, uint a_columns, uint b_columns);

#define to_tf32(x) ((as_uint(x) + 0x1000u) & 0xFFFFE000u)
#define to_tf32_operand(x) (as_uint(x) + 0x1000u)
#define barrier_init(bar, arrivals) emulated_barrier(bar, 0, arrivals)
#define barrier_arrive(bar) emulated_barrier(bar, 1, 0)
#define barrier_arrive_after_copies(bar) (emulated_copies(1, 0), emulated_barrier(bar, 1, 0))
#define barrier_expect(bar, bytes) emulated_barrier(bar, 5, bytes)
#define copy_block(to, from, bytes, bar) emulated_block(to, from, bytes, bar)
#define tensor_map(map, number, matrix, width, rows, stride, box_rows) emulated_map(matrix, width, rows, 1, 1, stride, 0, 0, box_rows)
#define copy_box(to, map, column, row, bar) emulated_box(to, map, column, row, 0, 0, bar)
#define head_map(map, number, ...) emulated_map(__VA_ARGS__)
#define acquire_map(place)
#define copy_matrix_box(to, map, column, row, head, batch, bar) emulated_box(to, map, column, row, head, batch, bar)
#define copy_head_box(to, map, row, head, batch, bar) emulated_box(to, map, 0, row, head, batch, bar)
#define barrier_wait(bar, parity) emulated_barrier(bar, 2, parity)
#define warpgroup_number() ((int)get_local_id(0) >> 7)
#define warp_sync() emulated_barrier(0, 6, 0)
#define fence_async_proxy() emulated_barrier(0, 3, 0)
#define GROW_REGISTERS(n)
#define SHRINK_REGISTERS(n)
#define SHARE_UNIT()
#define WGMMA_FENCE()
#define WGMMA_COMMIT()
#define WGMMA_WAIT(but) emulated_barrier(0, 4, 0)
#define FENCE_REGISTER(x)
#define WGMMA_FINISH() emulated_barrier(0, 4, 0)  // a wgmma instruction, too, belongs to the whole warpgroup
#if HALVES
#define MULTIPLY(d, a, b, keep, a_rows, b_rows) emulated_multiply(d, 0, a, b, TILE_N, keep[0] == '1', !(a_rows), !(b_rows))
#define MULTIPLY_64(d, a, b, keep, transposed) emulated_multiply(d, 0, a, b, 64, keep[0] == '1', transposed[0] == '1', transposed[3] == '1')
#define MULTIPLY_128(d, a, b, keep, transposed) emulated_multiply(d, 0, a, b, 128, keep[0] == '1', transposed[0] == '1', transposed[3] == '1')
#define MULTIPLY_96(d, a, b, keep, transposed) emulated_multiply(d, 0, a, b, 96, keep[0] == '1', transposed[0] == '1', transposed[3] == '1')
#define MULTIPLY_112(d, a, b, keep, transposed) emulated_multiply(d, 0, a, b, 112, keep[0] == '1', transposed[0] == '1', transposed[3] == '1')
#define MULTIPLY_208(d, a, b, keep, transposed) emulated_multiply(d, 0, a, b, 208, keep[0] == '1', transposed[0] == '1', transposed[3] == '1')
#define MULTIPLY_A_REGISTERS_64(d, a, b) emulated_multiply(d, a, 0, b, 64, 1, 0, 1)
#define MULTIPLY_A_REGISTERS_128(d, a, b) emulated_multiply(d, a, 0, b, 128, 1, 0, 1)
#else
#define MULTIPLY(d, a, b, keep) emulated_multiply(d, a, 0, b, TILE_N, keep[0] == '1', 0, 0)
#define MULTIPLY_ROWS(d, a, b) emulated_multiply(d, 0, a, b, TILE_N, 1, 0, 0)
#endif
