// csrc/codegen/dialect.h: how values are loaded, stored and converted at any width, and what differs between device
// classes.
#pragma once

#include <string>

#include "csrc/codegen/expr.h"
#include "csrc/kernels/caps.h"

namespace ocl::codegen {

/// The properties of a device class that generated kernels depend on. Computed from Caps.
struct Dialect {
  bool is_cpu = true;
  int items = 1;             // Work-items of a work-group.
  int units = 1;             // Number of compute units.
  int max_items = 1;         // Work-items of a work-group that computes one long reduction.
  int64_t local_bytes = 0;   // Bytes of local memory of a work-group.
  int chunks = 16;           // CPU: number of work-items of a large launch.
  int max_groups = 1 << 16;  // GPU: largest number of work-groups for a grid-stride loop.
  bool fp64 = true;
  bool keeps_negations = true;      // -x may be used after a barrier.
  bool extremes_keep_signs = true;  // max(max(a, -b), c) of signed integers is right.
  // vload_half and vstore_half are usable. Otherwise kernels/base/halves.cl replaces them.
  bool converts_halves = true;
  // The assembler has instructions that round two floats to bf16 or fp16. Devices with warp kernels have them, but for those of
  // compute capability 7.5.
  bool rounds_pairs = false;
  bool multiplies_bf16 = false;  // Warps multiply matrices of bf16 (kernels/tensor_core/nibbles.cl).
  // GPU: if not 0, reductions ask for threads of this many work-items (Caps::thread_items).
  int thread_items = 0;
};
Dialect make_dialect(const Caps& caps);

/// A pragma in front of loops over scalars that compilers should not vectorise. One such loop computes the elements
/// after the last whole vector. Another stores to the elements that it loads: Intel's compiler 2026.22 crashes on such
/// a loop with a stride and a function like sin.
constexpr const char* kStaysScalar = "#pragma clang loop vectorize(disable)";
/// Printed in front of a loop that the device's compiler must not unroll.
constexpr const char* kNotUnrolled = "#pragma clang loop unroll(disable)";

/// Returns an expression that loads `width` elements at `offset`. f16 and bf16 become float; bool becomes 0/1 (a mask
/// as a vector). aligned: the address is a multiple of the vector's size, so GPUs may load it in one access. A plain
/// vload guarantees only the alignment of an element.
std::string load_text(ir::DType dtype, int width, const std::string& pointer, const std::string& offset, bool aligned = false);
/// Returns a statement that stores `value` at `offset`. The value has the dtype's compute type and was rounded to the
/// dtype by convert_text.
std::string store_text(ir::DType dtype, int width, const std::string& pointer, const std::string& offset,
                       const std::string& value, bool aligned = false);

/// Returns a statement that atomically replaces the i32 at `offset` by the maximum of itself and `value`.
std::string maximum_text(const std::string& pointer, const std::string& offset, const std::string& value);

/// Returns `text`, which has type `from`, converted to `to` at the same width. Floats are truncated to integers. f16
/// and bf16 round.
std::string convert_text(const std::string& text, Type from, ir::DType to);
/// Returns a scalar in `width` lanes. A bool becomes a mask.
std::string broadcast_text(const std::string& text, ir::DType dtype, int width);
/// Returns one lane of a vector as a scalar. A mask becomes 0/1.
std::string lane_text(const std::string& text, ir::DType dtype, int lane);
/// Returns a vector made of the texts of its lanes.
std::string gather_text(const std::vector<std::string>& lanes, ir::DType dtype);
/// Returns a mask with lanes for another type. from: the type whose comparison gave the mask. to: the type whose values the
/// mask selects; bool makes the int lanes of a bool's value.
std::string mask_text(const std::string& mask, ir::DType from, ir::DType to, int width);

/// Returns the parameters of a buffer: "__global const float* in0, const ulong in0_offset". alone: true if no other
/// parameter points to the same memory, so that the pointer is `restrict`.
std::string pointer_parameter(const std::string& name, ir::DType dtype, bool written, bool alone = false);

}  // namespace ocl::codegen
