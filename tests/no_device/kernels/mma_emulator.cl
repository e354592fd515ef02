// tests/no_device/kernels/mma_emulator.cl: the instructions of kernels/tensor_core/warp.cl as calls of emulator.cpp; see operands_emulator.cl.
void emulated_rows(uint* x, uint row, uint columns);
void emulated_product(float* d, const uint* a, const uint* b, uint keep);

#define read_rows(x, row) emulated_rows(x, row, 0)
#define read_columns(x, row) emulated_rows(x, row, 1)
#define multiply(d, a, b) emulated_product(d, a, b, 1)
#define multiply_first(d, a, b) emulated_product(d, a, b, 0)
