// tests/cpp/test_ir_simplify.cpp: what simplify(graph) removes, and what it must not remove.
#include <doctest/doctest.h>

#include "csrc/ir/builder.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/simplify.h"
#include "csrc/ir/simplify_body.h"
#include "csrc/ir/verify.h"

using namespace ocl::ir;

namespace {

/// Simplifies the body of a map from b0 (f32), b1 (f16) and b2 (i64) to b3, and returns its text.
std::string body(const std::string& ops, const std::string& dtype = "f32") {
  const std::string text =
      "buffer b0 a f32 [64] strides [1] input 0\nbuffer b1 b f16 [64] strides [1] input 1\n"
      "buffer b2 c i64 [64] strides [1] input 2\nbuffer b3 out " +
      dtype + " [64]\ninputs b0 b1 b2\nnode map [64]\n" + ops + "result b3 [64] strides [] offset 0\n";
  Graph graph = parse_graph(text);
  verify(graph, Level::kGraph);
  simplify(graph);
  verify(graph, Level::kGraph);
  const std::string after = graph.str();
  CHECK_FALSE(simplify(graph));  // A second simplification changes nothing.
  const size_t begin = after.find("node map [64]\n") + 14;
  return after.substr(begin, after.find("result") - begin);
}

}  // namespace

TEST_CASE("constants fold, equal ops merge, unused ops go") {
  CHECK(body("  v0 = constant f32 2.0\n  v1 = constant f32 3.0\n  v2 = mul f32 v0 v1\n  v3 = load f32 b0[i0]\n  v4 = load f32 "
             "b0[i0]\n"
             "  v5 = add f32 v3 v2\n  v6 = add f32 v2 v4\n  v7 = mul f32 v5 v6\n  v8 = exp f32 v7\n  store b3[i0] = v7\n") ==
        "  v0 = constant f32 6.0\n  v1 = load f32 b0[i0]\n  v2 = add f32 v0 v1\n  v3 = mul f32 v2 v2\n  store b3[i0] = v3\n");
}

TEST_CASE("IEEE results survive") {
  const std::string plus_zero = "  v0 = constant f32 0.0\n  v1 = load f32 b0[i0]\n  v2 = add f32 v0 v1\n  store b3[i0] = v2\n";
  CHECK(body(plus_zero) == plus_zero);  // The addition must stay, because -0 + 0 is 0.
  const std::string times_zero = "  v0 = constant f32 0.0\n  v1 = load f32 b0[i0]\n  v2 = mul f32 v0 v1\n  store b3[i0] = v2\n";
  CHECK(body(times_zero) == times_zero);  // The product must stay, because inf * 0 is NaN.
  CHECK(body("  v0 = load f32 b0[i0]\n  v1 = constant f32 0.0\n  v2 = sub f32 v0 v1\n  store b3[i0] = v2\n") ==
        "  v0 = load f32 b0[i0]\n  store b3[i0] = v0\n");
}

TEST_CASE("integers wrap around") {
  const std::string undone =
      "  v0 = load i64 b2[i0]\n  v1 = constant i64 3\n  v2 = mul i64 v0 v1\n  v3 = floordiv i64 v2 v1\n  store b3[i0] = v3\n";
  CHECK(body(undone, "i64") == undone);  // The product may have wrapped around.
  CHECK(body("  v0 = constant i32 2147483647\n  v1 = constant i32 1\n  v2 = add i32 v0 v1\n  store b3[i0] = v2\n", "i32") ==
        "  v0 = constant i32 -2147483648\n  store b3[i0] = v0\n");
  CHECK(body("  v0 = constant i8 -128\n  v1 = neg i8 v0\n  v2 = abs i8 v1\n  store b3[i0] = v2\n", "i8") ==
        "  v0 = constant i8 -128\n  store b3[i0] = v0\n");
  CHECK(body("  v0 = load i64 b2[i0]\n  v1 = constant i64 -1\n  v2 = mul i64 v0 v1\n  store b3[i0] = v2\n", "i64") ==
        "  v0 = load i64 b2[i0]\n  v1 = neg i64 v0\n  store b3[i0] = v1\n");
  Builder builder;
  CHECK(builder.constant({false, 0, 300}, DType::kI8, {}).constant.i == 44);
  CHECK(builder.constant({false, 0, 1LL << 40}, DType::kI32, {}).constant.i == 0);
}

TEST_CASE("casts: lossless chains shorten, rounding ones stay") {
  CHECK(body("  v0 = load f32 b1[i0]\n  v1 = cast f64 v0\n  v2 = cast f32 v1\n  store b3[i0] = v2\n") ==
        "  v0 = load f32 b1[i0]\n  store b3[i0] = v0\n");
  CHECK(body("  v0 = load f32 b0[i0]\n  v1 = cast f16 v0\n  v2 = cast f32 v1\n  v3 = add f32 v2 v2\n  store b3[i0] = v3\n") ==
        "  v0 = load f32 b0[i0]\n  v1 = cast f16 v0\n  v2 = add f32 v1 v1\n  store b3[i0] = v2\n");
  const std::string narrowing = "  v0 = load i64 b2[i0]\n  v1 = cast i32 v0\n  v2 = cast f32 v1\n  store b3[i0] = v2\n";
  CHECK(body(narrowing) == narrowing);
  CHECK(is_lossless(DType::kI16, DType::kF32));
  CHECK_FALSE(is_lossless(DType::kI32, DType::kF32));
  CHECK_FALSE(is_lossless(DType::kF16, DType::kBF16));
  CHECK_FALSE(is_lossless(DType::kI8, DType::kU8));
}

TEST_CASE("an index value that is an expression becomes a plain coordinate") {
  CHECK(body("  v0 = index i64 i0 // 2\n  v1 = load f32 b0[v0*2]\n  store b3[i0] = v1\n") ==
        "  v0 = load f32 b0[(i0 // 2)*2]\n  store b3[i0] = v0\n");
}

TEST_CASE("equal nodes compute once, dead nodes go; results stay apart") {
  Builder b;
  const Value x = b.input(DType::kF32, {8}, {1}, false, false);
  const Value y = b.op("exp", {x}), z = b.op("exp", {x});
  const Value sum = b.op("add", {b.op("sin", {y}), b.op("sin", {z})});
  b.op("log", {x});
  const Value p = b.op("neg", {x}), q = b.op("neg", {x});
  for (const Value& v : {sum, p, q}) b.output(v, {});
  Graph graph = b.finish();
  REQUIRE(graph.nodes.size() == 8);
  CHECK(simplify(graph));
  verify(graph, Level::kGraph);
  CHECK(graph.nodes.size() == 5);  // The remaining nodes are exp, sin, add, neg and neg.
  CHECK(graph.outputs[1].buffer != graph.outputs[2].buffer);
  CHECK_FALSE(simplify(graph));
}

TEST_CASE("a node is not merged across a write to what it reads") {
  Builder b;
  const Value x = b.input(DType::kF32, {8}, {1}, false, false);
  const Value before = b.op("exp", {x});
  b.copy_into(x, b.op("sin", {x}));
  const Value after = b.op("exp", {x});
  b.output(b.op("sub", {after, before}), {});
  Graph graph = b.finish();
  const size_t nodes = graph.nodes.size();
  simplify(graph);
  CHECK(graph.nodes.size() == nodes);  // The write to the input is visible outside and stays.
}

TEST_CASE("a negative zero is another constant than zero") {
  CHECK(body("  v0 = constant f32 0.0\n  v1 = constant f32 -0.0\n  v2 = load f32 b0[i0]\n  v3 = fmax f32 v0 v2\n  v4 = fmax "
             "f32 v1 v3\n"
             "  store b3[i0] = v4\n")
            .find("-0") != std::string::npos);
}

TEST_CASE("a buffer without elements is not read, even where a sum over nothing loads from it") {
  Graph graph = parse_graph(
      "buffer b0 a f32 [0] strides [1] input 0\nbuffer b1 out f32 []\ninputs b0\nnode reduce sum whole [] over [0]\n"
      "  v0 = load f32 b0[0]\n  reduce v0\n  store b1[] = result 0\nresult b1 [] strides [] offset 0\n");
  verify(graph, Level::kGraph);
  simplify(graph);
  verify(graph, Level::kGraph);
  CHECK(graph.str().find("load") == std::string::npos);
}
