// csrc/support/processor.cpp: asks the processor, where it is of the x86 family.
#include "csrc/support/processor.h"

#include <array>

#if defined(_M_X64)
#include <intrin.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ocl {
namespace {

/// Returns the registers a, b, c and d of the page about extensions; zeros on other processors.
std::array<unsigned, 4> extensions([[maybe_unused]] int page) noexcept {
  std::array<unsigned, 4> found{};
#if defined(_M_X64)
  int registers[4];
  __cpuidex(registers, 7, page);
  for (int i = 0; i < 4; ++i) found[i] = static_cast<unsigned>(registers[i]);
#elif defined(__x86_64__)
  if (__get_cpuid_count(7, static_cast<unsigned>(page), &found[0], &found[1], &found[2], &found[3]) == 0) return {};
#endif
  return found;
}

}  // namespace

bool multiplies_bf16_pairs() noexcept { return (extensions(1)[0] >> 5 & 1) != 0; }
bool multiplies_bytes() noexcept { return (extensions(0)[2] >> 11 & 1) != 0; }

}  // namespace ocl
