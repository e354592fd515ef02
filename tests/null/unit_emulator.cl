// tests/null/unit_emulator.cl: the instructions of kernels/wgmma.cl as calls of unit_emulator.cpp, for a build of a kernel as a host program.
// Stands in place of the kernels' own instruction section; the default header of the compiler declares OpenCL's functions, the harness defines them.
ulong emulated_barrier(uint bar, uint what, uint value);
void emulated_copy(uint to, __global const void* from, uint bytes, uint most);
void emulated_copies(int wait, uint but);
void emulated_block(uint to, __global const void* from, uint bytes, uint bar);
void emulated_multiply(float* d, const uint* a, ulong a_at, ulong b_at, uint columns, uint keep, uint a_columns, uint b_columns);
uint emulated_halves(float first, float second);
float emulated_value(uint both, uint upper);
float emulated_exp2(float x);
float emulated_lane(float x, uint bit);

#define local_address(p) ((uint)(size_t)(p))
#define to_tf32(x) ((as_uint(x) + 0x1000u) & 0xFFFFE000u)
#define for_unit(x) (as_uint(x) + 0x1000u)
#define barrier_init(bar, arrivals) emulated_barrier(bar, 0, arrivals)
#define barrier_arrive(bar) emulated_barrier(bar, 1, 0)
#define barrier_arrive_after_copies(bar) (emulated_copies(1, 0), emulated_barrier(bar, 1, 0))
#define barrier_expect(bar, bytes) emulated_barrier(bar, 5, bytes)
#define copy_block(to, from, bytes, bar) emulated_block(to, from, bytes, bar)
#define barrier_wait(bar, parity) emulated_barrier(bar, 2, parity)
#define fence_for_unit() emulated_barrier(0, 3, 0)
#define copy_16(to, from, bytes) emulated_copy(to, from, bytes, 16)
#define copy_4(to, from, bytes) emulated_copy(to, from, bytes, 4)
#define copies_end() emulated_copies(0, 0)
#define COPIES_WAIT(but) emulated_copies(1, but)
#define REGISTERS_MORE(n)
#define REGISTERS_LESS(n)
#define UNIT_BEGIN()
#define UNIT_COMMIT()
#define UNIT_WAIT(but) emulated_barrier(0, 4, 0)
#define READY(x)
#define FRESH(x)
#define two_halves(first, second) emulated_halves(first, second)
#define unit_values(both) ((float2)(emulated_value(both, 0), emulated_value(both, 1)))
#define exp2_of(x) emulated_exp2(x)
#define OTHER_LANE(y, x, bit) y = emulated_lane(x, bit)
#define UNIT_END() emulated_barrier(0, 4, 0)  // for the whole warpgroup, as an instruction is
#if HALVES
#define MULTIPLY(d, a, b, keep, a_rows, b_rows) emulated_multiply(d, 0, a, b, TILE_N, keep[0] == '1', !(a_rows), !(b_rows))
#define MULTIPLY_64(d, a, b, keep, transposed) emulated_multiply(d, 0, a, b, 64, keep[0] == '1', transposed[0] == '1', transposed[3] == '1')
#define MULTIPLY_128(d, a, b, keep, transposed) emulated_multiply(d, 0, a, b, 128, keep[0] == '1', transposed[0] == '1', transposed[3] == '1')
#define MULTIPLY_HELD_64(d, a, b) emulated_multiply(d, a, 0, b, 64, 1, 0, 1)
#define MULTIPLY_HELD_128(d, a, b) emulated_multiply(d, a, 0, b, 128, 1, 0, 1)
#else
#define MULTIPLY(d, a, b, keep) emulated_multiply(d, a, 0, b, TILE_N, keep[0] == '1', 0, 0)
#define MULTIPLY_ROWS(d, a, b) emulated_multiply(d, 0, a, b, TILE_N, 1, 0, 0)
#endif
