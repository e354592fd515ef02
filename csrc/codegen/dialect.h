// csrc/codegen/dialect.h: how values are loaded, stored and converted, at any width, and what differs between device classes.
#pragma once

#include <string>

#include "csrc/codegen/expr.h"
#include "csrc/support/caps.h"

namespace ocl::codegen {

/// What differs between device classes in generated kernels; a value, made from the capabilities.
struct Dialect {
  bool is_cpu = true;
  int items = 1;             // work-items of a work-group
  int units = 1;             // compute units
  int max_items = 1;         // work-items of a work-group that computes one long reduction
  int64_t local_bytes = 0;   // local memory of a work-group
  int chunks = 16;           // CPU: work-items of a large launch
  int max_groups = 1 << 16;  // GPU: work-groups of a grid-stride loop
  bool fp64 = true;
  bool converts_halves = true;  // else kernels/base/halves.cl does
};
Dialect make_dialect(const Caps& caps);

/// A hint before a loop of scalars that compilers should not vectorise. One case is the loop over the elements behind the last
/// whole vector. Another is a loop that stores to the elements that it loads: Intel's compiler, 2026.22, crashes on such a loop
/// with a stride and a function like sin.
constexpr const char* kStaysScalar = "#pragma clang loop vectorize(disable)";

/// Element `offset` of `pointer` as a value; f16 and bf16 widen to float, bool becomes 0/1 (a mask as a vector).
/// `aligned`: the address is a multiple of the vector's size, so GPUs may load it in one access. vload alone promises only the
/// alignment of an element.
std::string load_text(ir::DType dtype, int width, const std::string& pointer, const std::string& offset, bool aligned = false);
/// Statement that stores `value` (of the dtype's compute type, rounded to the dtype by convert_text) at `offset`.
std::string store_text(ir::DType dtype, int width, const std::string& pointer, const std::string& offset,
                       const std::string& value, bool aligned = false);

/// Statement that replaces the i32 at `offset` by the larger of itself and `value`, atomically.
std::string maximum_text(const std::string& pointer, const std::string& offset, const std::string& value);

/// `text` of type `from` converted to `to` at the same width. Floats become integers by truncation; f16 and bf16 round.
std::string convert_text(const std::string& text, Type from, ir::DType to);
/// A scalar repeated `width` times; a bool becomes a mask.
std::string broadcast_text(const std::string& text, ir::DType dtype, int width);
/// Lane of a vector as a scalar; a bool becomes 0/1.
std::string lane_text(const std::string& text, ir::DType dtype, int lane);
/// A vector from scalars.
std::string gather_text(const std::vector<std::string>& lanes, ir::DType dtype);
/// The mask (int lanes) as a condition that selects values of `dtype`.
std::string condition_text(const std::string& mask, ir::DType dtype, int width);

/// "float*" and the like in a parameter list: "__global const float* in0, const ulong in0_offset".
/// `alone`: no other parameter points to the same elements in another order, so it is `restrict`.
std::string pointer_parameter(const std::string& name, ir::DType dtype, bool written, bool alone = false);

}  // namespace ocl::codegen
