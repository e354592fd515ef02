// tests/null/unit_emulator.cl: the instructions of kernels/wgmma.cl as calls of unit_emulator.cpp, for a build of a kernel as a host program.
// Stands in place of the kernels' own instruction section; the default header of the compiler declares OpenCL's functions, the harness defines them.
ulong emulated_barrier(uint bar, uint what, uint value);
void emulated_copy(uint to, __global const void* from, uint bytes, uint most);
void emulated_copies(int wait, uint but);
void emulated_multiply(float* d, const uint* a, ulong a_at, ulong b_at, uint keep, uint a_columns, uint b_columns);

#define local_address(p) ((uint)(size_t)(p))
#define to_tf32(x) ((as_uint(x) + 0x1000u) & 0xFFFFE000u)
#define for_unit(x) (as_uint(x) + 0x1000u)
#define barrier_init(bar, arrivals) emulated_barrier(bar, 0, arrivals)
#define barrier_arrive(bar) emulated_barrier(bar, 1, 0)
#define barrier_arrive_after_copies(bar) (emulated_copies(1, 0), emulated_barrier(bar, 1, 0))
#define barrier_wait(bar, parity) emulated_barrier(bar, 2, parity)
#define fence_for_unit() emulated_barrier(0, 3, 0)
#define copy_16(to, from, bytes) emulated_copy(to, from, bytes, 16)
#define copy_4(to, from, bytes) emulated_copy(to, from, bytes, 4)
#define copies_end() emulated_copies(0, 0)
#define COPIES_WAIT(but) emulated_copies(1, but)
#define UNIT_BEGIN()
#define UNIT_END() emulated_barrier(0, 4, 0)  // for the whole warpgroup, as an instruction is
#if HALVES
#define MULTIPLY(d, a, b, keep, a_rows, b_rows) emulated_multiply(d, 0, a, b, keep[0] == '1', !(a_rows), !(b_rows))
#else
#define MULTIPLY(d, a, b, keep) emulated_multiply(d, a, 0, b, keep[0] == '1', 0, 0)
#endif
