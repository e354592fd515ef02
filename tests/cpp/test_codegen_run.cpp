// tests/cpp/test_codegen_run.cpp: generated kernels, of both device classes, on every OpenCL device found, against a slow
// evaluator.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>

#include "tests/cpp/codegen_run.h"

using namespace codegen_test;
using schedule::LoopStrategy;
using schedule::Placement;

namespace {

struct Case {
  std::string graph;
  LoopStrategy strategy = LoopStrategy::kPointwise;
  std::vector<schedule::Phase> phases{};  // empty: one outer phase with all nodes
  int width = 16;
  double tolerance = 2e-6;  // relative to the largest expected value of a buffer
  Symbols symbols{};
  bool index32 = true;
  double low = -2, high = 2;  // of the inputs
  int columns = 32;
};

/// Buffers called t* stay in registers.
schedule::Schedule schedule_of(const Case& c) {
  schedule::Schedule s;
  s.graph = ir::parse_graph(c.graph);
  int outputs = 0;
  for (size_t i = 0; i < s.graph.buffers.size(); ++i) {
    const ir::Buffer& b = s.graph.buffers[i];
    Placement p;
    if (b.role == ir::BufferRole::kInput)
      p = {Placement::Kind::kInput, b.input};
    else if (b.name[0] != 't')
      p = {Placement::Kind::kOutput, outputs++};
    s.placements.push_back(p);
  }
  schedule::Group group;
  group.sizes = s.graph.nodes[0].sizes;
  group.strategy = c.strategy;
  group.phases = c.phases;
  group.vector_width = c.width;
  group.columns = c.columns;
  group.index32 = c.index32;
  for (const ir::Node& node : s.graph.nodes)
    if (ir::is_reduction(node)) group.reduce_sizes = node.reduce_sizes, group.sizes = node.sizes;
  if (group.phases.empty()) {
    group.phases.push_back({});
    for (size_t i = 0; i < s.graph.nodes.size(); ++i) group.phases[0].nodes.push_back(static_cast<int>(i));
  }
  // As the scheduler leaves them: Map nodes of inner phases run over i* and then r*.
  const size_t outer = group.sizes.size();
  for (const schedule::Phase& phase : group.phases) {
    for (const ir::NodeId id : phase.nodes) {
      ir::Node& node = s.graph.nodes[static_cast<size_t>(id)];
      if (!phase.inner || node.kind != ir::NodeKind::kMap) continue;
      std::map<ir::Symbol, IndexExpr> with;
      for (size_t k = outer; k < node.sizes.size(); ++k)
        with[{SymbolKind::kLoop, static_cast<int>(k)}] = IndexExpr::reduce(static_cast<int>(k - outer));
      node.sizes = group.sizes;
      node.reduce_sizes = group.reduce_sizes;
      for (ir::Op& op : node.body.ops)
        for (IndexExpr& e : op.index) e = ir::substitute(e, with);
      for (ir::Store& store : node.stores)
        for (IndexExpr& e : store.index) e = ir::substitute(e, with);
    }
  }
  s.groups.push_back(group);
  return s;
}

void compare(const schedule::Schedule& s, const Memory& expected, const Memory& actual, double tolerance,
             const std::string& text) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (s.placements[i].kind == Placement::Kind::kNowhere) continue;
    double scale = 0.1, worst = 0;
    size_t at = 0;
    for (const double v : expected[i])
      if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
    for (size_t k = 0; k < expected[i].size(); ++k) {
      const double e = expected[i][k], a = actual[i][k];
      const double error = std::isnan(e) && std::isnan(a) ? 0 : e == a ? 0 : std::fabs(e - a);
      if (!(error <= worst)) worst = error, at = k;
    }
    const DType dtype = s.graph.buffers[i].dtype;
    const double allowed = !ir::is_floating(dtype) ? 0
                           : dtype == DType::kF16  ? 1.2e-3
                           : dtype == DType::kBF16 ? 8e-3
                                                   : tolerance;
    INFO("buffer b", i, " element ", at, ": expected ", expected[i][at], ", got ", actual[i][at], "\n", text);
    CHECK(worst <= allowed * scale);
  }
}

void check(const Case& c) {
  const schedule::Schedule s = schedule_of(c);
  const ir::Graph graph = ir::parse_graph(c.graph);
  Evaluator evaluator(graph, c.symbols);
  const Memory input = fill(s, evaluator, c.low, c.high);
  Memory expected = input;
  evaluator.run(expected);
  for_each_device([&](runtime::Device& device) {
    for (const bool is_cpu : {true, false}) {
      if (is_cpu && c.strategy == LoopStrategy::kColumn) continue;
      Caps caps = device.caps();
      caps.is_cpu = is_cpu;
      caps.units = 2;
      schedule::Group group = s.groups[0];
      if (!is_cpu)
        group.vector_width =
            !group.sizes.empty() && group.sizes.back().is_const() && group.sizes.back().constant() % 4 == 0 ? 4 : 1;
      const codegen::KernelSource source = codegen::generate(s, group, caps);
      if (std::getenv("OCL_SHOW_KERNELS")) std::cout << source.text << "\n";
      for (const size_t shift : {3, 4})  // odd offsets, and aligned ones
        if (shift == 3 || (!is_cpu && group.vector_width > 1))
          compare(s, expected, launch(device, s, source, c.symbols, input, shift), c.tolerance, source.text);
    }
  });
}

std::string map2(const std::string& op, const std::string& dtype, int n) {
  const std::string size = std::to_string(n), d = dtype;
  return "buffer b0 in0 " + d + " [" + size + "] strides [1] input 0\nbuffer b1 in1 " + d + " [" + size +
         "] strides [1] input 1\nbuffer b2 buf2 " + d + " [" + size + "] strides [1]\ninputs b0 b1\nnode map [" + size +
         "]\n  v0 = load " + d + " b0[i0]\n  v1 = load " + d + " b1[i0]\n  v2 = " + op + "\n  store b2[i0] = v2\n";
}

}  // namespace

TEST_CASE("pointwise chains, every dtype") {
  for (const char* d : {"f32", "f64", "i32", "i64", "i16", "i8", "u8"})
    for (const int n : {1, 15, 16, 10007}) check({map2(std::string("add ") + d + " v0 v1", d, n)});
  for (const char* d : {"f16", "bf16"}) check({map2("add f32 v0 v1", d, 1000)});
  check({map2("logical_and bool v0 v1", "bool", 1000)});
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
  for (const char* op :
       {"exp", "tanh", "sigmoid", "silu", "gelu_erf", "gelu_erf_slope", "gelu_tanh", "softplus", "relu", "abs", "sign", "neg"})
    check({map2(std::string(op) + " f32 v0", "f32", 333), LoopStrategy::kPointwise, {}, 8, 3e-6});
  for (const char* op : {"erfinv", "digamma", "log", "sqrt", "rsqrt"})
    check({map2(std::string(op) + " f32 v0", "f32", 333), LoopStrategy::kPointwise, {}, 16, 4e-6, {}, true, 0.02, 0.98});
  for (const char* d : {"f32", "f64"})
    for (const char* op : {"floordiv", "remainder", "fmod", "truncdiv", "maximum", "minimum", "logaddexp", "div"})
      check({map2(std::string(op) + " " + d + " v0 v1", d, 333), LoopStrategy::kPointwise, {}, 16, 3e-6});
  for (const char* d : {"i8", "i16", "i32", "i64", "u8"})
    for (const char* op : {"floordiv", "remainder", "fmod", "truncdiv", "maximum"})
      check({map2(std::string(op) + " " + d + " v0 v1", d, 333)});
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
    for (const auto& [rows, cols] : {std::pair(1, 1), std::pair(70, 10), std::pair(5, 5000), std::pair(33, 257)}) {
      for (const char* name : {"sum", "max", "min", "argmax", "argmin", "welford", "softmax"}) {
        const std::string n = name, out = n.starts_with("arg") ? "i64" : "f32";
        check({reduce_rows(n, "f32", out, rows, cols, column), strategy, inner, 16, 1e-5});
      }
      check({reduce_rows("sum", "i32", "i64", rows, cols, column), strategy, inner});
      check({reduce_rows("sum", "bool", "i64", rows, cols, column), strategy, inner});
      check({reduce_rows("max", "i64", "i64", rows, cols, column), strategy, inner});
      check({reduce_rows("any", "bool", "bool", rows, cols, column), strategy, inner});
      check({reduce_rows("all", "bool", "bool", rows, cols, column), strategy, inner});
      check({reduce_rows("sum", "bf16", "f32", rows, cols, column), strategy, inner, 16, 1e-5});
    }
    check({reduce_rows("prod", "f64", "f64", 20, 30, column), strategy, inner, 8, 1e-12});
    check({reduce_rows("argmax", "f64", "i64", 20, 300, column), strategy, inner, 8});
    check({reduce_rows("argmin", "i8", "i64", 20, 300, column), strategy, inner, 16});
  }
}

TEST_CASE("narrow columns: a group has few of them, and many items for long ones") {
  for (const int columns : {4, 8, 16})
    for (const auto& [rows, cols] : {std::pair(6, 5000), std::pair(64, 3000), std::pair(33, 257)})
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
