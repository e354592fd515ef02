// csrc/codegen/instructions.cpp: see instructions.h.
#include "csrc/codegen/instructions.h"

#include <algorithm>
#include <array>

namespace ocl::codegen {

using ir::DType;

namespace {

/// Returns a lane of a vector: "x.s3".
std::string lane_of(const std::string& vector, int lane) { return vector + ".s" + "0123456789abcdef"[lane]; }

/// Returns the text of a function of vectors that returns the vector of the lanes in `calls`, or one scalar.
std::string vector_function(const std::string& name, Type type, const std::vector<std::string>& arguments,
                            const std::string& calls) {
  const std::string t = type_name(type);
  std::string parameters;
  for (const std::string& argument : arguments) parameters += (parameters.empty() ? "" : ", ") + t + " " + argument;
  const std::string result = type.width == 1 ? calls : "(" + t + ")(" + calls + ")";
  return "OCL_INLINE " + t + " " + name + "_" + type_suffix(type) + "(" + parameters + ") {\n  return " + result + ";\n}";
}

/// A function that instructions compute.
struct Instruction {
  const char* function;  // Of base/ops.cl, which `make` replaces.
  const char* called;    // The function of scalars, pairs or words that it calls.
  const char* text;      // The text of `called`.
  std::string (*make)(const Instruction& row, Type type);
  bool of_integers = false;  // It replaces that for signed integers of up to 32 bits, others that for floats.
  int lanes = 1;             // The width of vectors is a multiple of this.
};

// Instructions that round two floats at once. They give the same bits as the functions of base/ops.cl, except that every NaN
// becomes 0x7fff. They return the rounded floats, or their bits, the first in the low half.
constexpr const char* kBf16Pair =
    "OCL_INLINE float2 op_bf16_pair(float x, float y) {\n"
    "  uint both;\n"
    "  asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(both) : \"f\"(y), \"f\"(x));\n"
    "  return as_float2((uint2)(both << 16, both & 0xffff0000u));\n"
    "}\n\n";

constexpr const char* kF16Pair =
    "OCL_INLINE float2 op_f16_pair(float x, float y) {\n"
    "  float2 both;\n"
    "  asm(\"{ .reg .b32 b; .reg .b16 l, h; cvt.rn.f16x2.f32 b, %3, %2; mov.b32 {l, h}, b; cvt.f32.f16 %0, l; cvt.f32.f16 %1, "
    "h; }\"\n"
    "      : \"=f\"(both.x), \"=f\"(both.y) : \"f\"(x), \"f\"(y));\n"
    "  return both;\n"
    "}\n\n";

constexpr const char* kF16PairBits =
    "OCL_INLINE uint op_f16_pair_bits(float x, float y) {\n"
    "  uint both;\n"
    "  asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(both) : \"f\"(y), \"f\"(x));\n"
    "  return both;\n"
    "}\n\n";

/// Returns the text of a function that calls the instruction for each two lanes.
std::string in_pairs(const Instruction& instruction, Type type) {
  const std::string pair = instruction.called, n = std::to_string(type.width);
  const bool bits = pair.ends_with("_bits");
  std::string pairs = type.width == 1 ? pair + "(x, 0.0f)" + (bits ? "" : ".x") : "";
  for (int lane = 0; lane + 1 < type.width; lane += 2)
    pairs += (lane ? ", " : "") + (pair + "(" + lane_of("x", lane) + ", " + lane_of("x", lane + 1) + ")");
  if (!bits) return vector_function(instruction.function, type, {"x"}, pairs);
  const std::string result = type.width == 1 ? "ushort" : "ushort" + n;
  if (type.width > 2) pairs = "(uint" + std::to_string(type.width / 2) + ")(" + pairs + ")";
  return "OCL_INLINE " + result + " " + instruction.function + "_" + type_suffix(type) + "(" + type_name(type) +
         " x) {\n  return " + (type.width == 1 ? "(ushort)" : "as_" + result) + "(" + pairs + ");\n}";
}

// The instruction has a relative error of 2^-11, a quarter of the rounding error of bf16.
constexpr const char* kTanhInstruction =
    "OCL_INLINE float op_tanh_instruction(float x) {\n"
    "  float y;\n"
    "  asm(\"tanh.approx.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n"
    "  return y;\n"
    "}\n\n";

// native_exp2 also gives subnormal results, which takes a comparison and two products more.
constexpr const char* kExp2Instruction =
    "OCL_INLINE float op_exp2_instruction(float x) {\n"
    "  float y;\n"
    "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n"
    "  return y;\n"
    "}\n\n";

// The minimum and the maximum of signed integers as those of unsigned ones, for assemblers that lose signs
// (Caps::extremes_keep_signs). The compiler must not see through the changes of the highest bit.
constexpr const char* kUnsignedExtremes =
    "OCL_INLINE uint op_other_sign(uint x) {\n"
    "  uint y;\n"
    "  asm(\"xor.b32 %0, %1, 0x80000000;\" : \"=r\"(y) : \"r\"(x));\n"
    "  return y;\n"
    "}\n\n"
    "OCL_INLINE int op_unsigned_min(int x, int y) {\n"
    "  return as_int(op_other_sign(min(op_other_sign(as_uint(x)), op_other_sign(as_uint(y)))));\n"
    "}\n\n"
    "OCL_INLINE int op_unsigned_max(int x, int y) {\n"
    "  return as_int(op_other_sign(max(op_other_sign(as_uint(x)), op_other_sign(as_uint(y)))));\n"
    "}\n\n";

// The minimum and the maximum of floats, NaN if one is. In OpenCL C they take two comparisons and a selection.
constexpr const char* kFloatExtremes =
    "OCL_INLINE float op_min_instruction(float x, float y) {\n"
    "  float z;\n"
    "  asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(z) : \"f\"(x), \"f\"(y));\n"
    "  return z;\n"
    "}\n\n"
    "OCL_INLINE float op_max_instruction(float x, float y) {\n"
    "  float z;\n"
    "  asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(z) : \"f\"(x), \"f\"(y));\n"
    "  return z;\n"
    "}\n\n";

template <int arguments>
std::string in_lanes(const Instruction& row, Type type) {
  return by_lane(row.function, row.called, type,
                 arguments == 1 ? std::vector<std::string>{"x"} : std::vector<std::string>{"x", "y"});
}

// The floats of the four bytes of a word. The byte becomes the lowest bits of 2^23, which is subtracted: on a compute unit of
// compute capability 9.0, a permutation of bytes and a difference take a third of the time of a conversion.
constexpr const char* kByteValues =
    "OCL_INLINE float4 op_byte_values(uint word, float zero) {\n"
    "  uint4 bits;\n"
    "  asm(\"prmt.b32 %0, %1, 0x4b000000, 0x7440;\" : \"=r\"(bits.x) : \"r\"(word));\n"
    "  asm(\"prmt.b32 %0, %1, 0x4b000000, 0x7441;\" : \"=r\"(bits.y) : \"r\"(word));\n"
    "  asm(\"prmt.b32 %0, %1, 0x4b000000, 0x7442;\" : \"=r\"(bits.z) : \"r\"(word));\n"
    "  asm(\"prmt.b32 %0, %1, 0x4b000000, 0x7443;\" : \"=r\"(bits.w) : \"r\"(word));\n"
    "  return as_float4(bits) - zero;\n"
    "}\n\n";

/// Returns the text of op_u8_value or op_i8_value for a vector of whole words.
std::string of_bytes(const Instruction& row, Type type) {
  const std::string function = row.function;
  const bool has_sign = function == "op_i8_value";
  const int words = type.width / 4;
  const std::string name = words > 1 ? "uint" + std::to_string(words) : "uint";
  std::string parts;
  for (int word = 0; word < words; ++word)
    parts += std::string(word ? ", " : "") + "op_byte_values(" + (words > 1 ? lane_of("words", word) : "words") +
             (has_sign ? ", 8388736.0f)" : ", 8388608.0f)");
  // The other sign bit makes -128 to 127 the numbers 0 to 255.
  return "OCL_INLINE " + type_name(type) + " " + function + "_" + type_suffix(type) + "(" + (has_sign ? "char" : "uchar") +
         std::to_string(type.width) + " x) {\n  const " + name + " words = as_" + name + "(x)" +
         (has_sign ? " ^ 0x80808080u" : "") + ";\n  return (" + type_name(type) + ")(" + parts + ");\n}";
}

constexpr std::array<Instruction, 13> kInstructions = {{
    {"op_round_bf16", "op_bf16_pair", kBf16Pair, in_pairs},
    {"op_round_f16", "op_f16_pair", kF16Pair, in_pairs},
    {"op_f16_bits", "op_f16_pair_bits", kF16PairBits, in_pairs},
    {kShortTanh, "op_tanh_instruction", kTanhInstruction, in_lanes<1>},
    {"op_fast_exp2", "op_exp2_instruction", kExp2Instruction, in_lanes<1>},
    {"op_minimum", "op_min_instruction", kFloatExtremes, in_lanes<2>},
    {"op_maximum", "op_max_instruction", kFloatExtremes, in_lanes<2>},
    {"op_minimum", "op_unsigned_min", kUnsignedExtremes, in_lanes<2>, true},
    {"op_maximum", "op_unsigned_max", kUnsignedExtremes, in_lanes<2>, true},
    {"op_fmin", "op_unsigned_min", kUnsignedExtremes, in_lanes<2>, true},
    {"op_fmax", "op_unsigned_max", kUnsignedExtremes, in_lanes<2>, true},
    {"op_u8_value", "op_byte_values", kByteValues, of_bytes, false, 4},
    {"op_i8_value", "op_byte_values", kByteValues, of_bytes, false, 4},
}};

}  // namespace

std::string by_lane(const std::string& name, const std::string& scalar, Type type, const std::vector<std::string>& arguments) {
  std::string calls;
  for (int lane = 0; lane < type.width; ++lane) {
    calls += (lane ? ", " : "") + scalar + "(";
    for (const std::string& argument : arguments)
      calls += (&argument == arguments.data() ? "" : ", ") + (type.width == 1 ? argument : lane_of(argument, lane));
    calls += ")";
  }
  return vector_function(name, type, arguments, calls);
}

std::optional<Replacement> by_instructions(const std::string& function, Type type, const Dialect& dialect) {
  const bool loses_signs =
      !dialect.extremes_keep_signs && (type.dtype == DType::kI8 || type.dtype == DType::kI16 || type.dtype == DType::kI32);
  const bool of_floats = dialect.rounds_pairs && type.dtype == DType::kF32;
  const auto row = std::ranges::find_if(kInstructions, [&](const Instruction& each) {
    return each.function == function && type.width % each.lanes == 0 && (each.of_integers ? loses_signs : of_floats);
  });
  if (row == kInstructions.end()) return std::nullopt;
  return {{row->text, row->make(*row, type)}};
}

}  // namespace ocl::codegen
