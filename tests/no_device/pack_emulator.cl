// tests/no_device/pack_emulator.cl: the functions of OpenCL C that pack_group needs, for a host without its library.
#undef vload_half
#define vload_half(i, p) emulated_from_half(*(const ushort*)(p))
#define vstore_half_rte(x, i, p) (*(ushort*)(p) = emulated_to_half(x))
#define fmax(a, b) max(a, b)
#define fabs(x) as_float4(as_uint4(x) & 0x7fffffffu)
float emulated_from_half(uint bits);
uint emulated_to_half(float x);
