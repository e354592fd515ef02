// tests/no_device/kernels/nibbles_emulator.cl: the instructions of kernels/tensor_core/nibbles.cl as calls of emulator.cpp; see
// operands_emulator.cl.
void emulated_copy(uint to, __global const void* from, uint bytes, uint most);
void emulated_copies(int wait, uint but);
void emulated_product(float* d, const uint* a, const uint* b, uint keep);
uint emulated_halves(float first, float second);
float emulated_exp2(float x);

#define NIBBLE_COPY_1(to, from) emulated_copy((uint)(size_t)(to), from, 4, 4)
#define NIBBLE_COPY_2(to, from) emulated_copy((uint)(size_t)(to), from, 8, 8)
#define NIBBLE_COPY_4(to, from) emulated_copy((uint)(size_t)(to), from, 16, 16)
#define NIBBLE_WAIT(but) emulated_copies(1, but)
#define nibble_commit() emulated_copies(0, 0)
#define pair_bf16(x, y) emulated_halves(x, y)
#define nibble_pair(word) (((word) & 0x000f000fu) | 0x43004300u)
static inline float4 multiply_bf16(float4 c, uint4 a, uint2 b) {
  emulated_product((float*)&c, (const uint*)&a, (const uint*)&b, 1);
  return c;
}
