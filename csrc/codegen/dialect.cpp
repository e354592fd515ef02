// csrc/codegen/dialect.cpp: spells loads, stores and conversions in OpenCL C.
#include "csrc/codegen/dialect.h"

#include <algorithm>

#include "csrc/ir/simplify_body.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

namespace {

std::string lanes(int width) { return width > 1 ? std::to_string(width) : ""; }

/// Returns "p + offset" without a superfluous "+ 0".
std::string address(const std::string& pointer, const std::string& offset) {
  return offset == "0" ? pointer : pointer + " + " + offset;
}

/// Returns the offset of an aligned vector as one term. A pointer with many terms hides from some compilers which buffer it
/// points into. Then they keep the load of a vector behind the store of the one before.
std::string in_one(const std::string& offset) { return offset.find(" + ") == std::string::npos ? offset : "(" + offset + ")"; }

const char* same_size_integer(int bytes) { return bytes == 1 ? "char" : bytes == 2 ? "short" : bytes == 4 ? "int" : "long"; }

}  // namespace

Dialect make_dialect(const Caps& caps) {
  Dialect dialect;
  dialect.is_cpu = caps.is_cpu;
  dialect.items = caps.is_cpu ? 1 : std::min(256, caps.max_group_size);
  dialect.units = caps.units;
  dialect.max_items = caps.is_cpu ? 1 : std::min(1024, caps.max_group_size);
  dialect.local_bytes = caps.local_bytes;
  dialect.chunks = caps.units * 6;
  dialect.max_groups = caps.is_cpu ? 1 << 16 : std::max(64, caps.units * 32);
  dialect.fp64 = caps.fp64;
  dialect.keeps_negations = caps.is_cpu || caps.keeps_negations;  // Kernels for CPUs have no barriers.
  dialect.extremes_keep_signs = caps.extremes_keep_signs;
  dialect.converts_halves = caps.fp16_convert;
  dialect.rounds_pairs = caps.matrix == MatrixInstructions::kNone &&
                         (caps.kernels.has(KernelLevel::k_warp) || caps.kernels.has(KernelLevel::k_warpgroup));
  dialect.multiplies_bf16 = dialect.rounds_pairs && (caps.kernels.has(KernelId::k_gemm_warp, KernelType::kBf16) ||
                                                     caps.kernels.has(KernelId::k_gemm_warpgroup, KernelType::kBf16));
  // Compilers choose 8, 16 or 32 work-items by the registers that a kernel needs. Where 16 are the fewest, they always take 32.
  dialect.thread_items = !caps.is_cpu && caps.thread_items >= 16 ? caps.thread_items : 0;
  return dialect;
}

std::string load_text(DType dtype, int width, const std::string& pointer, const std::string& offset, bool aligned) {
  const std::string n = lanes(width), at = address(pointer, aligned ? in_one(offset) : offset);
  std::string plain = width > 1 ? "vload" + n + "(0, " + at + ")" : pointer + "[" + offset + "]";
  aligned = aligned && width > 1;
  const std::string stored = dtype == DType::kF16 ? "ushort" : storage_name(dtype);
  if (aligned) plain = "*(__global const " + stored + n + "*)(" + at + ")";
  switch (dtype) {
    case DType::kBool:
      return width > 1 ? "(convert_int" + n + "(" + plain + ") != 0)" : "(" + plain + " != 0)";
    case DType::kF16:
      return aligned ? "op_f16_value_" + type_suffix({DType::kF32, width}) + "(" + plain + ")"
                     : "vload_half" + n + "(0, " + at + ")";
    case DType::kBF16:
      if (aligned && width == 8) {
        // Some compilers load 8 elements of 16 bits in two halves. The two loads of this text become one.
        const std::string words = "*(__global const uint4*)(" + at + ")";
        return "(float8)(as_float4(" + words + " << 16), as_float4(" + words + " & 0xffff0000u)).s04152637";
      }
      return "as_float" + n + "(" + (width > 1 ? "convert_uint" + n + "(" + plain + ")" : "(uint)" + plain) + " << 16)";
    default:
      // As words: some compilers load each byte into a register of its own.
      if (aligned && width == 8 && (dtype == DType::kU8 || dtype == DType::kI8))
        return "as_" + stored + "8(*(__global const uint2*)(" + at + "))";
      if (ir::is_f8(dtype))
        return std::string("op_") + ir::name(dtype) + "_value_" + type_suffix({DType::kF32, width}) + "(" +
               (width > 1 ? "convert_uint" + n : "(uint)") + "(" + plain + "))";
      return plain;
  }
}

std::string store_text(DType dtype, int width, const std::string& pointer, const std::string& offset, const std::string& value,
                       bool aligned) {
  const std::string n = lanes(width), at = address(pointer, aligned ? in_one(offset) : offset);
  std::string bits = value, stored = storage_name(dtype);
  aligned = aligned && width > 1;
  if (dtype == DType::kF16) {
    if (!aligned) return "vstore_half" + n + "_rte(" + value + ", 0, " + at + ");";
    bits = "op_f16_bits_" + type_suffix({DType::kF32, width}) + "(" + value + ")";
    stored = "ushort";
  }
  if (dtype == DType::kBool) bits = width > 1 ? "convert_uchar" + n + "(" + value + " & 1)" : "(uchar)" + value;
  if (ir::is_f8(dtype))
    bits = "convert_uchar" + n + "(op_" + ir::name(dtype) + "_bits_" + type_suffix({DType::kF32, width}) + "(" + value + "))";
  // The value is already rounded to bf16, so its upper 16 bits are the result.
  if (dtype == DType::kBF16) bits = "convert_ushort" + n + "(as_uint" + n + "(" + value + ") >> 16)";
  // Some compilers split 8 elements of 16 bits into two stores. Each would fill every other half of a warp's sectors.
  if (aligned && width == 8 && (dtype == DType::kBF16 || dtype == DType::kF16)) {
    bits = dtype == DType::kF16 ? "as_uint4(" + bits + ")"
                                : "as_uint4((" + value + ").even) >> 16 | as_uint4((" + value + ").odd)";
    stored = "uint4";
  } else {
    stored += n;
  }
  if (aligned) return "*(__global " + stored + "*)(" + at + ") = " + bits + ";";
  return width > 1 ? "vstore" + n + "(" + bits + ", 0, " + at + ");" : pointer + "[" + offset + "] = " + bits + ";";
}

std::string maximum_text(const std::string& pointer, const std::string& offset, const std::string& value) {
  return "atomic_max(" + address(pointer, offset) + ", " + value + ");";
}

std::string convert_text(const std::string& text, Type from, DType to) {
  const std::string n = lanes(from.width);
  const auto convert = [&](const char* type, const std::string& x) {
    return from.width > 1 ? std::string("convert_") + type + n + "(" + x + ")" : std::string("(") + type + ")" + x;
  };
  const DType source = ir::compute_type(from.dtype), target = ir::compute_type(to);
  if (to == DType::kBool) {
    if (source == DType::kBool) return text;
    std::string zero = literal({{false, 0, 0}, source});
    // OpenCL has no operators for a char16 and an int.
    if (from.width > 1 && lane_bytes(source) < 4) zero = "(" + type_name({source, 1}) + ")" + zero;
    return mask_text("(" + text + " != " + zero + ")", source, DType::kBool, from.width);
  }
  std::string result = text;
  if (source == DType::kBool) {
    if (from.width > 1) result = "(" + text + " & 1)";
    if (target != DType::kI32) result = convert(type_name({target, 1}).c_str(), result);
  } else if (source != target) {
    const bool narrow = ir::is_floating(source) && (target == DType::kU8 || target == DType::kI8 || target == DType::kI16);
    if (narrow) result = convert("int", result);
    if (lane_bytes(source) == 1 && target == DType::kF32 && from.width % 4 == 0)
      result = std::string("op_") + ir::name(source) + "_value_" + type_suffix({target, from.width}) + "(" + result + ")";
    else
      result = convert(type_name({target, 1}).c_str(), result);
  }
  if (ir::is_narrow_float(to) && !ir::is_lossless(from.dtype, to))
    result = std::string("op_round_") + ir::name(to) + "_" + type_suffix({DType::kF32, from.width}) + "(" + result + ")";
  return result;
}

std::string broadcast_text(const std::string& text, DType dtype, int width) {
  if (width == 1) return text;
  return "(" + type_name({dtype, width}) + ")(" + (dtype == DType::kBool ? "-" : "") + text + ")";
}

std::string lane_text(const std::string& text, DType dtype, int lane) {
  return dtype == DType::kBool ? "(-" + text + lane_suffix(lane) + ")" : text + lane_suffix(lane);
}

std::string gather_text(const std::vector<std::string>& lanes, DType dtype) {
  std::string text = "(" + type_name({dtype, static_cast<int>(lanes.size())}) + ")(";
  for (size_t i = 0; i < lanes.size(); ++i) text += (i ? ", " : "") + std::string(dtype == DType::kBool ? "-" : "") + lanes[i];
  return text + ")";
}

std::string mask_text(const std::string& mask, DType from, DType to, int width) {
  if (width == 1 || lane_bytes(from) == lane_bytes(to)) return mask;
  const std::string converted = std::string("convert_") + same_size_integer(lane_bytes(to)) + lanes(width) + "(" + mask + ")";
  // A vector's ?: tests the sign. Mesa 22.3 (rusticl) takes a sign-extended int as not negative.
  return lane_bytes(to) == 8 ? "(" + converted + " != 0)" : converted;
}

std::string pointer_parameter(const std::string& name, DType dtype, bool written, bool alone) {
  return std::string("__global ") + (written ? "" : "const ") + storage_name(dtype) + (alone ? "* restrict " : "* ") + name +
         ", const ulong " + name + "_offset";
}

}  // namespace ocl::codegen
