// tests/cpp/test_codegen_run.cpp: generated pointwise kernels for CPUs and GPUs, run on every OpenCL device.
#include <doctest/doctest.h>

#include "tests/cpp/codegen_case.h"

using namespace codegen_test;

namespace {

/// Returns a kernel that stores the result of each of `ops`, such as "add f32 v0 v1", in a buffer of its own.
std::string map2(const std::vector<std::string>& ops, const std::string& dtype, int n) {
  const std::string size = std::to_string(n), d = dtype;
  std::string text;
  const auto buffer = [&](size_t index, const std::string& name) {
    text += "buffer b" + std::to_string(index) + " " + name + " " + d + " [" + size + "] strides [1]";
  };
  for (const size_t i : {0, 1}) buffer(i, "in" + std::to_string(i)), text += " input " + std::to_string(i) + "\n";
  for (size_t i = 2; i < ops.size() + 2; ++i) buffer(i, "buf" + std::to_string(i)), text += "\n";
  text += "inputs b0 b1\nnode map [" + size + "]\n  v0 = load " + d + " b0[i0]\n  v1 = load " + d + " b1[i0]\n";
  for (size_t i = 2; i < ops.size() + 2; ++i)
    text += "  v" + std::to_string(i) + " = " + ops[i - 2] + "\n  store b" + std::to_string(i) + "[i0] = v" +
            std::to_string(i) + "\n";
  return text;
}

/// Returns `names` with `operands`: "exp" and " f32 v0" give "exp f32 v0".
std::vector<std::string> each(const std::vector<std::string>& names, const std::string& operands) {
  std::vector<std::string> ops;
  for (const std::string& name : names) ops.push_back(name + operands);
  return ops;
}

}  // namespace

TEST_CASE("pointwise chains, every dtype") {
  for (const int n : {1, 15, 16, 10007}) check({map2({"add f32 v0 v1"}, "f32", n)});
  for (const char* d : {"f64", "i32", "i64", "i16", "i8", "u8"}) check({map2({std::string("add ") + d + " v0 v1"}, d, 1007)});
  for (const char* d : {"f16", "bf16"}) check({map2({"add f32 v0 v1"}, d, 1000)});
  check({map2({"logical_and bool v0 v1"}, "bool", 1000)});
}

TEST_CASE("broadcasts, transposed and reversed reads, a symbolic size") {
  check({R"(symbol s0 1..4096 divisor 1
buffer b0 in0 f32 [s0, 37] strides [37, 1] input 0
buffer b1 in1 f32 [37] strides [1] input 1
buffer b2 in2 f32 [] strides [] input 2
buffer b3 in3 f32 [37, s0] strides [s0, 1] input 3
buffer b4 buf4 f32 [s0, 37] strides [37, 1]
buffer b5 t5 f32 [s0, 37] strides [37, 1]
inputs b0 b1 b2 b3
node map [s0, 37]
  v0 = load f32 b0[i0, i1]
  v1 = load f32 b1[i1]
  v2 = load f32 b2[]
  v3 = add f32 v0 v1
  v4 = mul f32 v3 v2
  store b5[i0, i1] = v4
node map [s0, 37]
  v0 = load f32 b5[i0, i1]
  v1 = load f32 b3[i1, i0]
  v2 = load f32 b0[i0, 36 - i1]
  v3 = sub f32 v0 v1
  v4 = maximum f32 v3 v2
  v5 = constant f32 -0.5
  v6 = mul f32 v4 v5
  store b4[i0, i1] = v6
)",
         LoopStrategy::kPointwise,
         {},
         16,
         2e-6,
         {{0, 61}}});
}

TEST_CASE("masks: uniform, per lane, along a padded row") {
  check({R"(buffer b0 in0 f32 [9, 40] strides [40, 1] input 0
buffer b1 buf1 f32 [11, 44] strides [44, 1]
buffer b2 buf2 f32 [11, 44] strides [44, 1]
inputs b0
node map [11, 44]
  v0 = index i64 i0 - 1
  v1 = constant i64 0
  v2 = ge bool v0 v1
  v3 = constant i64 9
  v4 = lt bool v0 v3
  v5 = logical_and bool v2 v4
  v6 = index i64 i1 - 2
  v7 = ge bool v6 v1
  v8 = constant i64 40
  v9 = lt bool v6 v8
  v10 = logical_and bool v7 v9
  v11 = logical_and bool v5 v10
  v12 = load f32 b0[i0 - 1, i1 - 2] if v11
  v13 = load f32 b0[i0 - 1, 3] if v5
  v14 = load f32 b0[i0 - 1, 39 - i1 % 40] if v11
  v15 = add f32 v12 v13
  v16 = add f32 v15 v14
  store b1[i0, i1] = v16
  v17 = load f32 b0[i0 // 2, 1] if v10
  v18 = where f32 v10 v17 v16
  store b2[i0, i1] = v18
)"});
}

TEST_CASE("stores under masks, and the larger of two") {
  const std::string map = R"(buffer b0 in0 i64 [50] strides [1] input 0
buffer b1 in1 f32 [50, 33] strides [33, 1] input 1
buffer b2 buf2 f32 [50, 33] strides [33, 1]
buffer b3 buf3 f32 [50, 66] strides [66, 1]
buffer b4 buf4 i32 [7] strides [1]
inputs b0 b1
node map [50, 33]
  v0 = load i64 b0[i0]
  v1 = constant i64 4
  v2 = ge bool v0 v1
  v3 = load f32 b1[i0, i1]
  v4 = constant f32 0.0
  v5 = gt bool v3 v4
  v6 = logical_and bool v2 v5
  v7 = index i32 i0*33 + i1
  v8 = index i64 (i0*5 + i1*3) % 7
  store b2[i0, i1] = v3 if v2
  store b2[i0, 32 - i1] = v3 if v5
  store b3[i0, i1*2] = v3 if v6
  store b4[v8] maximum= v7 if v5
)";
  for (const int width : {1, 16}) check({map, LoopStrategy::kPointwise, {}, width});
}

TEST_CASE("gather by a value, scatter by a value, strided stores") {
  check({R"(buffer b0 in0 i64 [50] strides [1] input 0
buffer b1 in1 f32 [70, 33] strides [33, 1] input 1
buffer b2 buf2 f32 [50, 33] strides [33, 1]
buffer b3 buf3 f32 [33, 50] strides [1, 33]
buffer b4 buf4 f32 [50, 66] strides [66, 1]
inputs b0 b1
node map [50, 33]
  v0 = load i64 b0[i0]
  v1 = constant i64 10
  v2 = add i64 v0 v1
  v3 = load f32 b1[v2, i1]
  store b2[i0, i1] = v3
  store b3[i1, i0] = v3
  store b4[i0, i1*2] = v3
)"});
  check({R"(buffer b0 in0 i64 [500] strides [1] input 0
buffer b1 in1 f16 [70] strides [1] input 1
buffer b2 buf2 f16 [500] strides [1]
inputs b0 b1
node map [500]
  v0 = load i64 b0[i0]
  v1 = constant i64 10
  v2 = add i64 v0 v1
  v3 = load f16 b1[v2]
  v4 = cast f32 v3
  store b2[499 - i0] = v4
)"});
}

TEST_CASE("ops against the C library") {
  const std::vector<std::string> smooth = {"exp",       "tanh",     "sigmoid", "silu", "gelu_erf", "gelu_erf_slope",
                                           "gelu_tanh", "softplus", "relu",    "abs",  "sign",     "neg"};
  check({map2(each(smooth, " f32 v0"), "f32", 333), LoopStrategy::kPointwise, {}, 8, 3e-6});
  check({map2(each({"erfinv", "digamma", "log", "sqrt", "rsqrt"}, " f32 v0"), "f32", 333),
         LoopStrategy::kPointwise,
         {},
         16,
         4e-6,
         {},
         true,
         0.02,
         0.98});
  const std::vector<std::string> divisions = {"floordiv", "remainder", "fmod", "truncdiv", "maximum"};
  for (const std::string d : {"f32", "f64"}) {
    check({map2(each(divisions, " " + d + " v0 v1"), d, 333), LoopStrategy::kPointwise, {}, 16, 3e-6});
    check({map2(each({"minimum", "logaddexp", "div"}, " " + d + " v0 v1"), d, 333), LoopStrategy::kPointwise, {}, 16, 3e-6});
  }
  for (const std::string d : {"i8", "i16", "i32", "i64", "u8"}) check({map2(each(divisions, " " + d + " v0 v1"), d, 333)});
}

TEST_CASE("casts, comparisons and choices between dtypes of every size") {
  for (const char* d : {"f32", "f64", "i32", "i64", "i16", "i8", "u8", "f16", "bf16", "bool"}) {
    const std::string t = d;
    check({"buffer b0 in0 f32 [100] strides [1] input 0\nbuffer b1 in1 " + t + " [100] strides [1] input 1\nbuffer b2 buf2 " +
               t +
               " [100] strides [1]\nbuffer b3 buf3 bool [100] strides [1]\nbuffer b4 buf4 f32 [100] strides [1]\ninputs b0 "
               "b1\nnode map [100]\n"
               "  v0 = load f32 b0[i0]\n  v1 = abs f32 v0\n  v2 = load " +
               t + " b1[i0]\n  v3 = cast " + t +
               " v1\n  v4 = cast f32 v2\n"
               "  v5 = lt bool v4 v0\n  v6 = where " +
               (t == "f16" || t == "bf16" ? "f32" : t) +
               " v5 v3 v2\n  store b2[i0] = v6\n"
               "  v7 = eq bool v3 v2\n  store b3[i0] = v7\n  v8 = cast f32 v3\n  store b4[i0] = v8\n",
           LoopStrategy::kPointwise,
           {},
           16});
  }
}

TEST_CASE("Philox 4x32-10 gives the published numbers") {
  // Random123's known answer for counter 0 and key 0: words 6627e8d5 e169c58d ...
  Case c{R"(buffer b0 buf0 i64 [33] strides [1]
buffer b1 buf1 i64 [33] strides [1]
buffer b2 buf2 f32 [33] strides [1]
buffer b3 buf3 f32 [33] strides [1]
node map [33]
  v0 = constant i64 0
  v1 = index i64 i0
  v2 = philox_bits i64 v0 v0 v1
  v3 = constant i64 4294967295
  v4 = bitwise_and i64 v2 v3
  store b0[i0] = v4
  v5 = constant i64 32
  v6 = shift_right i64 v2 v5
  v7 = bitwise_and i64 v6 v3
  store b1[i0] = v7
  v8 = philox_uniform f32 v0 v0 v1
  store b2[i0] = v8
  v9 = philox_normal f32 v0 v0 v1
  store b3[i0] = v9
)"};
  const schedule::Schedule s = schedule_of(c);
  for_each_device([&](runtime::Device& device) {
    const Memory memory(4, std::vector<double>(33));
    const Memory result = launch(device, s, codegen::generate(s, s.groups[0], device.caps()), {}, memory);
    CHECK(result[0][0] == double{0x6627e8d5});
    CHECK(result[1][0] == double{0xe169c58d});
    CHECK(result[2][0] == double{0x6627e8} / (1 << 24));
    for (size_t i = 0; i < 33; ++i) {
      const double u = std::floor(result[0][i] / 256) / (1 << 24), angle = std::floor(result[1][i] / 256) / (1 << 24);
      CHECK(result[2][i] == u);
      CHECK(std::fabs(result[3][i] - std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * M_PI * angle)) < 1e-5);
    }
  });
}
