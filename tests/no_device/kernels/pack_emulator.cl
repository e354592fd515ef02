// tests/no_device/kernels/pack_emulator.cl: the functions of OpenCL C that pack_group needs, for a host without its library.
#define vstore_half_rte(x, i, p) (*(ushort*)(p) = emulated_halves(x, 0.0f))
#define fabs(x) as_float4(as_uint4(x) & 0x7fffffffu)
uint emulated_halves(float first, float second);
