// tests/no_device/kernels/operands_emulator.cl: the instructions of kernels/tensor_core/operands.cl as calls of emulator.cpp, for
// a kernel that is built as a host program. The test replaces the instruction section of that file by this text, and those
// of wgmma.cl and warp.cl by wgmma_emulator.cl and mma_emulator.cl. Clang's default header declares OpenCL's functions,
// and emulator.cpp defines them.
void emulated_copy(uint to, __global const void* from, uint bytes, uint most);
void emulated_copies(int wait, uint but);
uint emulated_halves(float first, float second);
float emulated_exp2(float x);
float emulated_lane(float x, uint bit);

#define local_address(p) ((uint)(size_t)(p))
#define copy_16(to, from, bytes) emulated_copy(to, from, bytes, 16)
#define copy_whole_16(to, from) emulated_copy(to, from, 16, 16)
#define copy_4(to, from, bytes) emulated_copy(to, from, bytes, 4)
#define commit_copies() emulated_copies(0, 0)
#define WAIT_COPIES(but) emulated_copies(1, but)
#define RECOMPUTE_FROM(x)
#define two_halves(first, second) emulated_halves(first, second)
#define two_floats(both) ((float2)(emulated_value(both, 0), emulated_value(both, 1)))
#define exp2_of(x) emulated_exp2(x)
#define OTHER_LANE(y, x, bit) y = emulated_lane(x, bit)
