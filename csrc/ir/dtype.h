// csrc/ir/dtype.h: element types of buffers and values.
#pragma once

#include <cstdint>
#include <string>

namespace ocl::ir {

// The 8-bit floats are named by their bits of exponent and mantissa. fnuz: finite, one NaN, no negative zero.
enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz
};

int size_bytes(DType t);    // Bytes of an element in memory: bool 1, bf16 2.
const char* name(DType t);  // "f32", "bool", "i64", as in the text of a graph.
DType parse_dtype(const std::string& text);
bool is_floating(DType t);
bool is_integral(DType t, bool with_bool);
/// Returns the type in which a body computes: f32 for floats of 8 and 16 bits, otherwise the type itself.
DType compute_type(DType t);
bool is_f8(DType t);
/// True for floats of 8 and 16 bits. A cast to such a type rounds, and the body holds the result as f32.
bool is_narrow_float(DType t);
/// Returns PyTorch's promotion of the dtypes of two tensors that have dimensions: bool < integers < floating point. u8 with i8
/// gives i16, f16 with bf16 gives f32.
DType promote(DType a, DType b);
/// Returns the integer that a buffer of the dtype holds after `value` is stored: value modulo 2^bits, for bool whether it is
/// not 0.
int64_t wrapped(int64_t value, DType t);

}  // namespace ocl::ir
