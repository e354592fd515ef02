// csrc/support/processor.h: instructions of the host's processor. A CPU device runs on the same one.
#pragma once

namespace ocl {

/// True if the processor adds products of pairs of bf16 to floats, 16 at a time (AVX-512 BF16).
bool multiplies_bf16_pairs() noexcept;
/// True if the processor adds products of four unsigned and signed bytes to ints, 16 at a time (AVX-512 VNNI).
bool multiplies_bytes() noexcept;

}  // namespace ocl
