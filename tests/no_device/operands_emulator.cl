// tests/no_device/operands_emulator.cl: the instructions of kernels/tensor_core/operands.cl as calls of emulator.cpp, for a build of a kernel as a host program.
// Stands in place of the file's own instruction section, as wgmma_emulator.cl and mma_emulator.cl do; the default header of the compiler declares
// OpenCL's functions, the harness defines them.
void emulated_copy(uint to, __global const void* from, uint bytes, uint most);
void emulated_copies(int wait, uint but);
uint emulated_halves(float first, float second);
float emulated_value(uint both, uint upper);
float emulated_exp2(float x);
float emulated_lane(float x, uint bit);

#define local_address(p) ((uint)(size_t)(p))
#define copy_16(to, from, bytes) emulated_copy(to, from, bytes, 16)
#define copy_4(to, from, bytes) emulated_copy(to, from, bytes, 4)
#define commit_copies() emulated_copies(0, 0)
#define WAIT_COPIES(but) emulated_copies(1, but)
#define RECOMPUTE_FROM(x)
#define two_halves(first, second) emulated_halves(first, second)
#define two_floats(both) ((float2)(emulated_value(both, 0), emulated_value(both, 1)))
#define exp2_of(x) emulated_exp2(x)
#define OTHER_LANE(y, x, bit) y = emulated_lane(x, bit)
