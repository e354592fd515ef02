// csrc/support/processor.cpp: asks the processor, where it is of the x86 family.
#include "csrc/support/processor.h"

#if defined(_M_X64)
#include <intrin.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ocl {

bool multiplies_bf16_pairs() noexcept {
#if defined(_M_X64)
  int registers[4];
  __cpuidex(registers, 7, 1);
  return (registers[0] >> 5 & 1) != 0;
#elif defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
#else
  return false;
#endif
}

}  // namespace ocl
