// tests/cpp/test_codegen_text.cpp: the writer, the spelling of constants and indices, library functions, and canonical
// kernel texts. It needs no device.
#include <doctest/doctest.h>

#include <cmath>

#include "csrc/codegen/dialect.h"
#include "csrc/codegen/generate.h"
#include "csrc/codegen/op_library.h"
#include "csrc/codegen/shared_function.h"
#include "csrc/codegen/writer.h"
#include "csrc/ir/parse.h"
#include "csrc/support/error.h"

using namespace ocl;
using namespace ocl::codegen;
using ir::DType;
using ir::IndexExpr;

namespace {

std::string real(double x, DType dtype = DType::kF32) { return literal({{true, x, 0}, dtype}); }
std::string integer(int64_t x, DType dtype) { return literal({{false, 0, x}, dtype}); }

schedule::Schedule one_group(const std::string& text) {
  schedule::Schedule s;
  s.graph = ir::parse_graph(text);
  for (const ir::Buffer& b : s.graph.buffers)
    s.placements.push_back(
        {b.role == ir::BufferRole::kInput ? schedule::Placement::Kind::kInput : schedule::Placement::Kind::kOutput, 0});
  schedule::Group group;
  group.sizes = s.graph.nodes[0].sizes;
  group.phases = {{false, {0}}};
  group.vector_width = 16;
  group.index32 = true;
  s.groups.push_back(group);
  return s;
}

}  // namespace

TEST_CASE("the writer fills placeholders in order and indents blocks") {
  Writer inner;
  inner.line("x += $c;", Literal{{true, 0.5, 0}, DType::kF32});
  Writer w;
  w.open("for (int $s = 0; $s < $d; ++$s)", "i", "i", 8, "i");
  w.line("const $t a = 1;", Type{DType::kF32, 16});
  w.append(inner);
  w.close();
  w.line("$$");
  CHECK(w.str() == "for (int i = 0; i < 8; ++i) {\n  const float16 a = 1;\n  x += 0x1p-1f;\n}\n$\n");
  CHECK_THROWS_AS(w.line("$s"), Error);
  CHECK_THROWS_AS(w.line("none", "left"), Error);
}

TEST_CASE("constants are exact") {
  CHECK(real(0.1) == "0x1.99999ap-4f");
  CHECK(real(0.1, DType::kF64) == "0x1.999999999999ap-4");
  CHECK(real(-0.0) == "-0.0f");
  CHECK(real(1e30) == "0x1.93e594p+99f");
  CHECK(real(NAN) == "NAN");
  CHECK(real(-INFINITY, DType::kF64) == "(double)-INFINITY");
  CHECK(real(1e300) == "INFINITY");
  CHECK(integer(5, DType::kI64) == "5L");
  CHECK(integer(INT64_MIN, DType::kI64) == "LONG_MIN");
  CHECK(integer(INT32_MIN, DType::kI32) == "INT_MIN");
  CHECK(integer(7, DType::kBool) == "1");
  CHECK(integer(3, DType::kF32) == "3.0f");
}

TEST_CASE("index expressions keep their meaning in C") {
  ir::Ranges ranges;
  ranges.set_extent({ir::SymbolKind::kLoop, 0}, 10);
  ranges.set({ir::SymbolKind::kSize, 0}, {1, 100, 1});
  const IndexSpelling narrow{
      false, false, [](ir::Symbol s) {
        return (s.kind == ir::SymbolKind::kLoop ? "i" : s.kind == ir::SymbolKind::kSize ? "s" : "r") + std::to_string(s.index);
      }};
  const auto text = [&](const std::string& e) { return index_text(ir::parse_index(e), ranges, narrow); };
  CHECK(text("i0 // 3") == "i0 / 3");
  CHECK(text("i0 % s0") == "i0 % s0");
  CHECK(text("(r0 - 4) // s0") == "op_index_floordiv_i32(r0 - 4, s0)");
  CHECK(text("(r0 - 4) % s0") == "op_index_mod_i32(r0 - 4, s0)");
  CHECK(text("i0*4 - i0 // 2 + 7") == "i0 * 4 - i0 / 2 + 7");
  CHECK(text("min(i0, 5)") == "min((int)5, i0)");
  CHECK(text("i0 // 2 * 3") == "(i0 / 2) * 3");
  const IndexSpelling wide{true, false, narrow.name};
  CHECK(index_text(ir::parse_index("max(i0 - 4, 0)"), ranges, wide) == "max((long)0, i0 - 4)");
  CHECK(index_text(ir::parse_index("i0*4294967296"), ranges, wide) == "i0 * 4294967296L");
  // OpenCL has no function min(int, long).
  const IndexSpelling mixed{true, true, narrow.name};
  CHECK(index_text(ir::parse_index("min(i0, r0)"), ranges, mixed) == "min((long)i0, (long)r0)");
  CHECK(index_text(ir::parse_index("max(i0 - 4, 0)"), ranges, mixed) == "max((long)0, (long)(i0 - 4))");
}

TEST_CASE("bf16 and fp16 are rounded in pairs where an instruction does it") {
  Dialect gpu;
  gpu.is_cpu = false;
  const std::string call = "op_round_bf16_f32x4(x) + op_round_bf16_f32(y)";
  CHECK(called_functions(call, gpu).find("asm") == std::string::npos);
  gpu.rounds_pairs = true;
  const std::string text = called_functions(call, gpu);
  CHECK(text.find("return (float4)(op_bf16_pair(x.s0, x.s1), op_bf16_pair(x.s2, x.s3));") != std::string::npos);
  CHECK(text.find("return op_bf16_pair(x, 0.0f).x;") != std::string::npos);
  CHECK(text.find("asm") == text.rfind("asm"));
  const std::string bits = called_functions("op_f16_bits_f32x4(x) + op_f16_bits_f32x2(y) + op_f16_bits_f32(z)", gpu);
  CHECK(bits.find("return as_ushort4((uint2)(op_f16_pair_bits(x.s0, x.s1), op_f16_pair_bits(x.s2, x.s3)));") !=
        std::string::npos);
  CHECK(bits.find("return as_ushort2(op_f16_pair_bits(x.s0, x.s1));") != std::string::npos);
  CHECK(bits.find("return (ushort)(op_f16_pair_bits(x, 0.0f));") != std::string::npos);
}

TEST_CASE("the larger of two floats is one instruction where there is one") {
  Dialect gpu;
  gpu.is_cpu = false;
  gpu.rounds_pairs = true;
  const std::string text = called_functions("op_maximum_f32x4(x, y)", gpu);
  CHECK(text.find("op_max_instruction(x.s3, y.s3)") != std::string::npos);
  CHECK(text.find("max.NaN.f32") != std::string::npos);
  for (const char* other : {"op_maximum_f64(x, y)", "op_maximum_i32(x, y)", "op_fmax_f32(x, y)"})
    CHECK(called_functions(other, gpu).find("asm") == std::string::npos);
  gpu.rounds_pairs = false;
  CHECK(called_functions("op_maximum_f32x4(x, y)", gpu).find("asm") == std::string::npos);
}

TEST_CASE("aligned vectors of fp16 are one access") {
  CHECK(load_text(ir::DType::kF16, 8, "p", "i", true) == "op_f16_value_f32x8(*(__global const ushort8*)(p + i))");
  CHECK(load_text(ir::DType::kF16, 8, "p", "i") == "vload_half8(0, p + i)");
  CHECK(store_text(ir::DType::kF16, 4, "p", "i", "v", true) == "*(__global ushort4*)(p + i) = op_f16_bits_f32x4(v);");
  CHECK(store_text(ir::DType::kF16, 1, "p", "i", "v", true) == "vstore_half_rte(v, 0, p + i);");
}

TEST_CASE("library functions are written out for the types that call them, callees first") {
  Dialect cpu, gpu;
  gpu.is_cpu = false;
  const std::string text = called_functions("x = op_logaddexp_f32x8(a, b) + op_logaddexp_f32x8(c, d); y = op_abs_i16(z);", gpu);
  CHECK(text.find("OCL_INLINE float8 op_maximum_f32x8(float8 a, float8 b)") <
        text.find("OCL_INLINE float8 op_logaddexp_f32x8(float8 a, float8 b)"));
  CHECK(text.find("op_logaddexp_f32x8(float8 a, float8 b)") == text.rfind("op_logaddexp_f32x8(float8 a, float8 b)"));
  CHECK(text.find("OCL_INLINE short op_abs_i16(short x) {\n  const short all_bits = x < (short)(0) ?") != std::string::npos);
  CHECK(text.find("return op_sub_i16(x ^ all_bits, all_bits);") != std::string::npos);
  // A product of two ushort would be computed in int, and overflow.
  CHECK(text.find("return convert_short(convert_uint(a) - convert_uint(b));") != std::string::npos);
  CHECK(called_functions("op_relu_f64x2(x)", gpu).find("return x < ((double2)(0.0)) ? ((double2)(0.0)) : x;") !=
        std::string::npos);
  CHECK(called_functions("op_sigmoid_f32(x)", gpu).find("return 1.0f / (1.0f + exp(-x));") != std::string::npos);
  CHECK(called_functions("op_softplus_f32x16(x)", cpu).find("float16 op_own_exp_f32x16(float16 x)") != std::string::npos);
  CHECK(called_functions("op_softplus_f64x8(x)", cpu).find("op_own") == std::string::npos);
  for (const bool is_cpu : {true, false}) CHECK(own_function("op_gelu_erf", ir::DType::kF32, is_cpu) == "op_own_gelu_erf");
  CHECK(own_function("exp", ir::DType::kF32, true) == "op_own_exp");
  CHECK(own_function("exp", ir::DType::kF32, false) == "exp");
  CHECK(own_function("exp", ir::DType::kF64, true) == "exp");
  CHECK(called_functions("a + b", gpu).empty());
  // Comments of the library are left out, so that a function named in one is not taken for a call.
  CHECK(called_functions("op_philox_normal_f32(x, y, z)", gpu).find("//") == std::string::npos);
  CHECK_THROWS_AS(called_functions("op_nothing_f32(x)", gpu), Error);
}

TEST_CASE("conversions between masks and numbers") {
  CHECK(convert_text("v", {DType::kBool, 1}, DType::kF32) == "(float)v");
  CHECK(convert_text("v", {DType::kBool, 16}, DType::kF32) == "convert_float16((v & 1))");
  CHECK(convert_text("v", {DType::kF64, 4}, DType::kBool) == "convert_int4((v != 0.0))");
  CHECK(convert_text("v", {DType::kF32, 1}, DType::kU8) == "(uchar)(int)v");
  CHECK(broadcast_text("v", DType::kBool, 4) == "(int4)(-v)");
  CHECK(lane_text("v", DType::kBool, 11) == "(-v.sb)");
}

TEST_CASE("equal graphs give equal text, whatever their buffers are called") {
  const std::string a =
      "buffer b0 in0 f32 [s0] strides [1] input 0\nbuffer b1 buf1 f32 [s0] strides [1]\ninputs b0\nnode map [s0]\n"
      "  v0 = load f32 b0[i0]\n  v1 = relu f32 v0\n  store b1[i0] = v1\n";
  const std::string symbol = "symbol s0 1..100000 divisor 1\n";
  const std::string b =
      "buffer b0 unused f32 [3] strides [1] input 0\nbuffer b1 x f32 [s1] strides [1] input 1\nbuffer b2 y f32 [s1] strides "
      "[1]\n"
      "inputs b0 b1\nnode map [s1]\n  v0 = constant f32 3\n  v1 = load f32 b1[i0]\n  v2 = relu f32 v1\n  store b2[i0] = v2\n";
  const schedule::Schedule one = one_group(symbol + a), two = one_group(symbol + "symbol s1 1..100000 divisor 1\n" + b);
  for (const bool is_cpu : {true, false}) {
    Caps caps;
    caps.is_cpu = is_cpu;
    const KernelSource first = generate(one, one.groups[0], caps), second = generate(two, two.groups[0], caps);
    CHECK(first.text == second.text);
    CHECK(first.name == second.name);
    CHECK(first.name.starts_with("pointwise_"));
    CHECK(first.text.find(first.name) != std::string::npos);
    CHECK(first.buffers.size() == 2);
    CHECK(first.ints[0].slot == 4);
    CHECK(first.text.find("//@kernel\n") != std::string::npos);
  }
}

TEST_CASE("heads and joined parts of whole vectors are read and written as vectors") {
  // The map splits [48, 192] into heads [3, 48, 64]. Its load has a mask, as for a part of a concatenated tensor.
  const schedule::Schedule heads = one_group(
      "buffer b0 in0 f32 [48, 192] strides [192, 1] input 0\nbuffer b1 buf1 f32 [3, 48, 64] strides [3072, 64, 1]\ninputs b0\n"
      "node map [48, 192]\n  v0 = index i64 i1 // 64\n  v1 = constant i64 1\n  v2 = lt bool v0 v1\n"
      "  v3 = load f32 b0[i0, i1] if v2\n  store b1[i1 // 64, i0, i1 % 64] = v3\n");
  const schedule::Schedule odd = one_group(
      "buffer b0 in0 f32 [48, 192] strides [192, 1] input 0\nbuffer b1 buf1 f32 [8, 48, 24] strides [1152, 24, 1]\ninputs b0\n"
      "node map [48, 192]\n  v0 = load f32 b0[i0, i1]\n  store b1[i1 // 24, i0, i1 % 24] = v0\n");
  Caps caps;
  caps.is_cpu = true;
  const std::string whole = generate(heads, heads.groups[0], caps).text, parts = generate(odd, odd.groups[0], caps).text;
  CHECK(whole.find("vstore16(") != std::string::npos);
  CHECK(whole.find(".s1") == std::string::npos);
  // A vector of 16 elements would cross the boundary between heads of 24 elements.
  CHECK(parts.find("vstore16(") == std::string::npos);
}

TEST_CASE("functions that differ in integers share a text") {
  const std::vector<std::string> texts = {"f(x + 9, x + 18, v0[32] * 2, 0x1p-3f)", "f(x)",
                                          "f(x + 27, x + 54, v0[32] * 3, 0x1p-3f)"};
  const std::vector<SharedFunction> functions = share_functions(texts);
  REQUIRE(functions.size() == 2);
  CHECK(functions[0].users == std::vector<size_t>{0, 2});
  CHECK(functions[0].text == "f(x + size0, x + (2 * size0), v0[32] * size1, 0x1p-3f)");
  CHECK(functions[0].values == std::vector<std::vector<int64_t>>{{9, 27}, {2, 3}});
  CHECK(functions[1].users == std::vector<size_t>{1});
  CHECK(functions[1].text == "f(x)");
  CHECK(functions[1].values.empty());
}

TEST_CASE("what must be constant is not shared") {
  const auto shared = [](const std::string& a, const std::string& b) { return share_functions({a, b}).size() == 1; };
  CHECK(shared("x + 5", "x + 6"));
  CHECK_FALSE(shared("float16 x", "float8 x"));
  CHECK_FALSE(shared("float x[5];", "float x[6];"));
  CHECK_FALSE(shared("x\n#pragma unroll 5\ny", "x\n#pragma unroll 6\ny"));
  CHECK_FALSE(shared("0x1p-5f", "0x1p-6f"));
  CHECK_FALSE(shared("5.0f", "6.0f"));
  CHECK_FALSE(shared("5L", "6L"));
  CHECK_FALSE(shared("x + 5", "x + 3000000000"));
  CHECK_FALSE(shared("v.s5", "v.s6"));
}
