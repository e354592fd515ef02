// tests/null/mma_emulator.cl: the instructions of kernels/mma.cl as calls of unit_emulator.cpp, for a build of a kernel as a host program.
// Stands in place of the kernels' own instruction section; the default header of the compiler declares OpenCL's functions, the harness defines them.
void emulated_copy(uint to, __global const void* from, uint bytes, uint most);
void emulated_copies(int wait, uint but);
void emulated_rows(uint* x, uint row, uint columns);
void emulated_product(float* d, const uint* a, const uint* b, uint keep);
uint emulated_halves(float first, float second);
float emulated_value(uint both, uint upper);
float emulated_exp2(float x);
float emulated_lane(float x, uint bit);

#define local_address(p) ((uint)(size_t)(p))
#define copy_16(to, from, bytes) emulated_copy(to, from, bytes, 16)
#define copy_4(to, from, bytes) emulated_copy(to, from, bytes, 4)
#define copies_end() emulated_copies(0, 0)
#define COPIES_WAIT(but) emulated_copies(1, but)
#define read_rows(x, row) emulated_rows(x, row, 0)
#define read_columns(x, row) emulated_rows(x, row, 1)
#define multiply(d, a, b) emulated_product(d, a, b, 1)
#define multiply_first(d, a, b) emulated_product(d, a, b, 0)
#define FRESH(x)
#define two_halves(first, second) emulated_halves(first, second)
#define unit_values(both) ((float2)(emulated_value(both, 0), emulated_value(both, 1)))
#define exp2_of(x) emulated_exp2(x)
#define OTHER_LANE(y, x, bit) y = emulated_lane(x, bit)
