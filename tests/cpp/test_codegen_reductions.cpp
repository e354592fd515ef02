// tests/cpp/test_codegen_reductions.cpp: generated reductions and scans for CPUs and GPUs, run on every OpenCL device.
#include <doctest/doctest.h>

#include <tuple>

#include "tests/cpp/codegen_case.h"

using namespace codegen_test;

TEST_CASE("scans: along columns and rows, afresh, of several results") {
  const std::string scan = R"(buffer b0 in0 f32 [40, 33] strides [33, 1] input 0
buffer b1 in1 bool [40, 33] strides [33, 1] input 1
buffer b2 buf2 f32 [40, 33] strides [33, 1]
buffer b3 buf3 f32 [40, 33] strides [33, 1]
inputs b0 b1
node scan twosum whole [33] over [40]
  v0 = load f32 b0[r0, i0]
  v1 = load bool b1[r0, i0]
  v2 = constant f32 0.5
  v3 = gt bool v0 v2
  reduce v0 reset v3
  store b2[r0, i0] = result 0
  store b3[39 - r0, i0] = result 0 if v1
)";
  for (const int width : {1, 16}) check({scan, LoopStrategy::kSequential, {{true, {0}}}, width});
  check({R"(buffer b0 in0 f16 [40, 33] strides [33, 1] input 0
buffer b1 buf1 f16 [40, 33] strides [33, 1]
buffer b2 buf2 i64 [40, 33] strides [33, 1]
inputs b0
node scan last_max whole [40] over [33]
  v0 = load f32 b0[i0, r0]
  v1 = floor f32 v0
  v2 = index i64 r0
  reduce v1 v2
  store b1[i0, r0] = result 0
  store b2[i0, r0] = result 1
)",
         LoopStrategy::kSequential,
         {{true, {0}}},
         1});
  const std::string exponentials = R"(buffer b0 in0 f32 [40, 33] strides [33, 1] input 0
buffer b1 buf1 f32 [40, 33] strides [33, 1]
buffer b2 buf2 f32 [40, 33] strides [33, 1]
inputs b0
node scan softmax_twosum whole [33] over [40]
  v0 = load f32 b0[r0, i0]
  reduce v0
  store b1[r0, i0] = result 0
  store b2[r0, i0] = result 1
)";
  for (const int width : {1, 16}) check({exponentials, LoopStrategy::kSequential, {{true, {0}}}, width});
}

namespace {

std::string reduce_rows(const std::string& reduction, const std::string& in, const std::string& out, int rows, int cols,
                        bool column) {
  const std::string r = std::to_string(rows), c = std::to_string(cols);
  const bool two = reduction == "welford" || reduction == "softmax", position = reduction == "argmax" || reduction == "argmin";
  std::string text =
      "buffer b0 in0 " + in +
      (column ? " [" + c + ", " + r + "] strides [" + r + ", 1]" : " [" + r + ", " + c + "] strides [" + c + ", 1]") +
      " input 0\nbuffer b1 buf1 " + out + " [" + r + "] strides [1]\n";
  if (two) text += "buffer b2 buf2 " + out + " [" + r + "] strides [1]\n";
  text += "inputs b0\nnode reduce " + reduction + " whole [" + r + "] over [" + c + "]\n  v0 = load " + in +
          (column ? " b0[r0, i0]\n" : " b0[i0, r0]\n");
  if (position) text += "  v1 = index i64 r0\n";
  text += position ? "  reduce v0 v1\n" : "  reduce v0\n";
  text += "  store b1[i0] = result 0\n";
  if (two) text += "  store b2[i0] = result 1\n";
  return text;
}

}  // namespace

TEST_CASE("every reduction, rows and columns") {
  const std::vector<schedule::Phase> inner{{true, {0}}};
  for (const LoopStrategy strategy : {LoopStrategy::kRow, LoopStrategy::kSequential, LoopStrategy::kColumn}) {
    const bool column = strategy != LoopStrategy::kRow;
    const auto f32 = [&](const std::string& name, int rows, int cols) {
      check({reduce_rows(name, "f32", name.starts_with("arg") ? "i64" : "f32", rows, cols, column), strategy, inner, 16, 1e-5});
    };
    for (const char* name : {"sum", "max", "min", "argmax", "argmin", "welford", "softmax"}) f32(name, 33, 257);
    for (const char* name : {"sum", "argmax", "welford", "softmax"}) f32(name, 5, 5000);
    for (const char* name : {"sum", "argmax"}) f32(name, 1, 1);
    f32("sum", 70, 10);
    check({reduce_rows("sum", "i32", "i64", 33, 257, column), strategy, inner});
    check({reduce_rows("sum", "bool", "i64", 70, 10, column), strategy, inner});
    check({reduce_rows("max", "i64", "i64", 5, 5000, column), strategy, inner});
    check({reduce_rows("any", "bool", "bool", 33, 257, column), strategy, inner});
    check({reduce_rows("all", "bool", "bool", 70, 10, column), strategy, inner});
    check({reduce_rows("sum", "bf16", "f32", 33, 257, column), strategy, inner, 16, 1e-5});
    check({reduce_rows("prod", "f64", "f64", 20, 30, column), strategy, inner, 8, 1e-12});
    check({reduce_rows("argmax", "f64", "i64", 20, 300, column), strategy, inner, 8});
    check({reduce_rows("argmin", "i8", "i64", 20, 300, column), strategy, inner, 16});
  }
}

TEST_CASE("narrow columns: a group has few of them, and many items for long ones") {
  for (const auto& [columns, rows, cols] : {std::tuple(4, 6, 5000), std::tuple(8, 64, 3000), std::tuple(16, 33, 257)})
    for (const char* name : {"sum", "argmax", "welford"}) {
      const std::string n = name, out = n.starts_with("arg") ? "i64" : "f32";
      Case c{reduce_rows(n, "f32", out, rows, cols, true), LoopStrategy::kColumn, {{true, {0}}}, 16, 1e-5};
      c.columns = columns;
      check(c);
    }
}

TEST_CASE("softmax of rows: max, sum of exponentials, quotient; results of reductions in later phases") {
  check({R"(symbol s0 1..4096 divisor 1
buffer b0 in0 f32 [s0, 203] strides [203, 1] input 0
buffer b1 t1 f32 [s0] strides [1]
buffer b2 t2 f32 [s0, 203] strides [203, 1]
buffer b3 buf3 f32 [s0] strides [1]
buffer b4 buf4 f32 [s0, 203] strides [203, 1]
buffer b5 t5 f32 [s0] strides [1]
inputs b0
node reduce max whole [s0] over [203]
  v0 = load f32 b0[i0, r0]
  reduce v0
  store b1[i0] = result 0
node map [s0, 203]
  v0 = load f32 b0[i0, i1]
  v1 = load f32 b1[i0]
  v2 = sub f32 v0 v1
  v3 = exp f32 v2
  store b2[i0, i1] = v3
node reduce sum whole [s0] over [203]
  v0 = load f32 b2[i0, r0]
  reduce v0
  store b3[i0] = result 0
node map [s0]
  v0 = load f32 b3[i0]
  v1 = reciprocal f32 v0
  store b5[i0] = v1
node map [s0, 203]
  v0 = load f32 b0[i0, i1]
  v1 = load f32 b1[i0]
  v2 = sub f32 v0 v1
  v3 = exp f32 v2
  v4 = load f32 b5[i0]
  v5 = mul f32 v3 v4
  store b4[i0, i1] = v5
)",
         LoopStrategy::kRow,
         {{true, {0}}, {true, {1, 2}}, {false, {3}}, {true, {4}}},
         16,
         2e-6,
         {{0, 37}}});
}

TEST_CASE("pooling windows and sums over several loops") {
  check({R"(buffer b0 in0 f32 [2, 15, 15, 24] strides [5400, 360, 24, 1] input 0
buffer b1 buf1 f32 [2, 7, 7, 24] strides [1176, 168, 24, 1]
inputs b0
node reduce max whole [2, 7, 7, 24] over [3, 3]
  v0 = load f32 b0[i0, i1*2 + r0, i2*2 + r1, i3]
  reduce v0
  store b1[i0, i1, i2, i3] = result 0
)",
         LoopStrategy::kSequential,
         {{true, {0}}}});
  for (const LoopStrategy strategy : {LoopStrategy::kSequential, LoopStrategy::kColumn})
    check({R"(buffer b0 in0 f32 [6, 40, 7, 50] strides [14000, 350, 50, 1] input 0
buffer b1 buf1 f32 [50] strides [1]
inputs b0
node reduce sum whole [50] over [6, 40, 7]
  v0 = load f32 b0[r0, r1, r2, i0]
  reduce v0
  store b1[i0] = result 0
)",
           strategy,
           {{true, {0}}},
           16,
           1e-5});
  check({R"(buffer b0 in0 f32 [6, 40, 70] strides [2800, 70, 1] input 0
buffer b1 buf1 f32 [40] strides [1]
buffer b2 buf2 f32 [40] strides [1]
inputs b0
node reduce sum whole [40] over [6, 70]
  v0 = load f32 b0[r0, i0, r1]
  reduce v0
  store b1[i0] = result 0
node reduce welford whole [40] over [6, 70]
  v0 = load f32 b0[r0, i0, r1]
  reduce v0
  store b2[i0] = result 1
)",
         LoopStrategy::kRow,
         {{true, {0, 1}}},
         16,
         1e-5});
  check({R"(buffer b0 in0 f32 [5000] strides [1] input 0
buffer b1 buf1 f32 [] strides []
inputs b0
node reduce sum whole [] over [5000]
  v0 = load f32 b0[r0]
  reduce v0
  store b1[] = result 0
)",
         LoopStrategy::kRow,
         {{true, {0}}},
         16,
         1e-5});
}
