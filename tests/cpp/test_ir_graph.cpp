// tests/cpp/test_ir_graph.cpp: graphs made with the builder: views, nodes, outputs, text, verification.
#include <doctest/doctest.h>

#include "csrc/ir/builder.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/simplify.h"
#include "csrc/ir/verify.h"
#include "csrc/support/error.h"

using namespace ocl::ir;

namespace {

struct Fixture {
  Builder b;
  IndexExpr n, m;
  Value x;  // f32 [n, m, 64]
  Fixture() {
    n = b.size_symbol({1, 4096, 1});
    m = b.size_symbol({1, 4096, 1});
    x = b.input(DType::kF32, {n, m, 64}, {m * 64, 64, 1}, false, false);
  }
  Value number(double value, DType dtype = DType::kF32) const { return b.constant({true, value, 0}, dtype); }
};

std::string coords(const Value& v) {
  std::string text;
  for (const IndexExpr& c : v.coords) text += (text.empty() ? "" : ", ") + c.str();
  return text;
}

std::string message(const Graph& graph) {
  try {
    verify(graph, Level::kGraph);
  } catch (const ocl::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "views compose coordinates") {
  CHECK(coords(b.reshape(b.reshape(x, {n * m, 64}), {n, m, 64})) == "i0, i1, i2");
  CHECK(coords(b.reshape(x, {n, m, 8, 8})) == "i0, i1, i2*8 + i3");
  CHECK(coords(b.reshape(b.reshape(x, {n, m, 8, 8}), {n, m * 64})) == "i0, i1 // 64, i1 % 64");
  CHECK(coords(b.reshape(b.unsqueeze(x, 1), {n, m, 64})) == "i0, i1, i2");
  CHECK(coords(b.permute(b.permute(x, {2, 0, 1}), {1, 2, 0})) == "i0, i1, i2");
  CHECK(coords(b.slice(b.slice(x, 2, 8, 64, 2), 2, 1, 5, 1)) == "i0, i1, i2*2 + 10");
  CHECK(coords(b.flip(b.flip(x, {2}), {2})) == "i0, i1, i2");
  CHECK(coords(b.select(x, 0, 3)) == "3, i0, i1");
  CHECK(coords(b.diagonal(b.select(x, 0, 0), 1, 0, 1)) == "0, i0, i0 + 1");
  CHECK(coords(b.as_strided(x, {n * m, 64}, {64, 1}, 0)) == "i0 // s1, i0 % s1, i1");
}

TEST_CASE_FIXTURE(Fixture, "reshape around sizes of one and zero") {
  const Value one = b.input(DType::kF32, {1, 5, 1}, {5, 1, 1}, false, false);
  CHECK(coords(b.reshape(one, {5})) == "0, i0, 0");
  CHECK(coords(b.reshape(one, {1, 1, 5, 1})) == "0, i2, 0");
  const Value none = b.input(DType::kF32, {0, 4}, {4, 1}, false, false);
  CHECK(b.reshape(none, {4, 0}).sizes[0].is_const(4));
  CHECK(b.reshape(none, {0}).coords.size() == 2);
}

TEST_CASE_FIXTURE(Fixture, "an op follows PyTorch's types") {
  const auto dtype_of = [&](const char* op, std::vector<DType> types) {
    std::vector<Value> args;
    for (const DType t : types) args.push_back(b.input(t, {4}, {1}, false, false));
    return b.op(op, args).dtype;
  };
  CHECK(dtype_of("add", {DType::kF16, DType::kF16}) == DType::kF16);
  CHECK(dtype_of("add", {DType::kF16, DType::kBF16}) == DType::kF32);
  CHECK(dtype_of("add", {DType::kU8, DType::kI8}) == DType::kI16);
  CHECK(dtype_of("add", {DType::kBool, DType::kBool}) == DType::kBool);
  CHECK(dtype_of("div", {DType::kI64, DType::kI64}) == DType::kF32);
  CHECK(dtype_of("exp", {DType::kBF16}) == DType::kBF16);
  CHECK(dtype_of("lt", {DType::kI32, DType::kF32}) == DType::kBool);
  CHECK(dtype_of("where", {DType::kBool, DType::kBool, DType::kBool}) == DType::kBool);
  CHECK(dtype_of("bitwise_not", {DType::kBool}) == DType::kBool);
  CHECK(dtype_of("floor", {DType::kI32}) == DType::kI32);
  CHECK_THROWS_AS(dtype_of("bitwise_and", {DType::kF32, DType::kF32}), ocl::Error);
  CHECK_THROWS_AS(b.op("add", {x, b.input(DType::kF32, {3}, {1}, false, false)}), ocl::Error);
}

TEST_CASE_FIXTURE(Fixture, "reductions: types, keepdim, positions") {
  const Value half = b.input(DType::kF16, {4, 8}, {8, 1}, false, false),
              ints = b.input(DType::kI32, {4, 8}, {8, 1}, false, false);
  CHECK(b.reduce("sum", half, {1}, false)[0].dtype == DType::kF16);
  CHECK(b.reduce("sum", ints, {1}, false)[0].dtype == DType::kI64);
  CHECK(b.reduce("max", ints, {1}, false)[0].dtype == DType::kI32);
  CHECK(b.reduce("any", half, {1}, false)[0].dtype == DType::kBool);
  CHECK(b.reduce("welford", half, {1}, false)[1].dtype == DType::kF32);
  const Value position = b.reduce("argmax", half, {}, true)[0];
  CHECK(position.dtype == DType::kI64);
  CHECK(position.sizes == Shape{1, 1});
  CHECK(b.graph.nodes.back().body.ops[1].index[0].str() == "r0*8 + r1");
  b.output(position, {});
  CHECK_NOTHROW(b.finish());
}

TEST_CASE_FIXTURE(Fixture, "outputs: the buffer takes the promised layout, or a copy does") {
  const Value y = b.op("exp", {x});
  b.output(b.permute(y, {1, 0, 2}), {64, m * 64, 1});
  CHECK(b.graph.nodes.size() == 1);
  CHECK((*b.graph.buffers[y.buffer].strides)[0] == m * 64);
  // The buffer is an output already, so the value is copied.
  b.output(y, {1, n, n * m});
  CHECK(b.graph.nodes.size() == 2);
  // The output is a view of the input, so no node is added.
  b.output(b.permute(x, {2, 0, 1}), {1, m * 64, 64});
  CHECK(b.graph.nodes.size() == 2);
  CHECK(b.graph.outputs.back().buffer == x.buffer);
  const Value row = b.reduce("sum", x, {2}, true)[0];
  b.output(b.expand(row, {n, m, 7}), {m, 1, 0});  // There is one element per row, repeated by a stride of 0.
  CHECK(b.graph.nodes.size() == 3);
  b.output(b.op("neg", {x}), {});
  CHECK(b.graph.outputs.back().strides.empty());
  CHECK_NOTHROW(b.finish());
}

TEST_CASE_FIXTURE(Fixture, "an output may lack dimensions of one element, and leave its strides open") {
  const Value product = b.contract(b.reshape(x, {1, n * m, 64}), b.reshape(x, {1, 64, n * m}), DType::kF32);
  const size_t nodes = b.graph.nodes.size();
  b.output(b.reshape(product, {n * m, n * m}), {});
  CHECK(b.graph.nodes.size() == nodes);  // no copy
  CHECK(b.graph.outputs.back().buffer == product.buffer);
  CHECK(b.graph.outputs.back().strides.empty());
  CHECK(message(b.graph).empty());
  b.output(b.permute(b.reshape(product, {n * m, n * m}), {1, 0}), {});
  CHECK(b.graph.nodes.size() == nodes + 1);  // Another order of the dimensions needs a copy.
}

TEST_CASE_FIXTURE(Fixture, "text reads back to the same text") {
  b.origin = {"aten.gelu.default", "model.py:61"};
  const Value y = b.op("gelu_erf", {x});
  const Value r = b.reduce("softmax", y, {-1}, true)[0];
  const Value c = b.concat({y, x}, 1);
  ConvolveAttrs attrs;
  attrs.kind = ConvolveKind::kWeight;
  attrs.padding = {1, 2};
  attrs.groups = 4;
  const Value image = b.input(DType::kF16, {2, 8, 5, 5}, {200, 25, 5, 1}, true, true);
  b.reduced_precision = true;
  const Value conv = b.convolve(image, image, attrs, {8, 2, 3, 3}, DType::kF32);
  const Value product = b.contract(x, b.permute(x, {0, 2, 1}), DType::kF32);
  const Value line = b.input(DType::kF32, {2, 60, 3, 1}, {180, 3, 1, 1}, false, false);
  const Value spectrum = b.fft(line, b.op("neg", {line}), {true, 0.5, 180});
  const Value half = b.slice(line, 2, 0, 1, 1), real = b.fft(half, half, {.form = FftForm::kToReal});
  const Value keys = b.input(DType::kI32, {2, n}, {n, 1}, false, false);
  const Value counts = b.sort({keys}, {SortStep::kCount, 64, 0, 24, 1, true})[0];
  const Value ends = b.reshape(counts, {2, counts.sizes[1] * counts.sizes[2]});
  const std::vector<Value> moved = b.sort({keys, ends}, {SortStep::kMove, 64, 0, 24, 1, true});
  const Value sorted = b.sort(moved, {SortStep::kBlocks, 64, 5, 0, 4, true})[0];
  const Value eager = b.call(2, {x}, {{DType::kI64, {n}}}, {{1}})[0];
  BodyBuilder body(b, {n}, {});
  const int at = body.load(eager, {IndexExpr::loop(0)});
  const int mask = body.op("lt", {at, body.constant({false, 0, 64}, DType::kI64)});
  const int gathered = body.load(x, {0, 0, body.as_index(at)}, mask);
  const Value g = body.store({body.op("mul", {gathered, body.constant({true, -0.0, 0}, DType::kF32)})}, {DType::kBF16})[0];
  for (const Value& v : {r, c, conv, product, spectrum, real, sorted, g}) b.output(v, {});
  const Graph graph = b.finish();
  const Graph again = parse_graph(graph.str());
  CHECK(again.str() == graph.str());
  CHECK_NOTHROW(verify(again, Level::kGraph));
  CHECK(graph.str().find("# aten.gelu.default @ model.py:61") != std::string::npos);
  CHECK(graph.str(false).find('#') == std::string::npos);
  CHECK(graph.str().find("-0") != std::string::npos);
}

TEST_CASE("bad text names its line") {
  try {
    parse_graph("buffer b0 x f32 [4]\nnode map [4]\n  v0 = frobnicate f32\n");
    FAIL("parsed");
  } catch (const ocl::Error& error) {
    CHECK(error.kind() == ocl::ErrorKind::kConfig);
    CHECK(std::string(error.what()).find("line 3") != std::string::npos);
  }
}

TEST_CASE("verify names the rule that is broken") {
  const std::string head =
      "buffer b0 in0 f32 [4] strides [1] input 0\nbuffer b1 out f32 [4]\nbuffer b2 other f32 [4]\ninputs b0\nnode map [4]\n";
  const auto broken = [&](const std::string& body) { return message(parse_graph(head + body)); };
  CHECK(broken("  v0 = load f32 b0[i0]\n  store b1[i0] = v0\n").empty());
  CHECK(broken("  v0 = load f32 b0[i0, i0]\n  store b1[i0] = v0\n").find("coordinate per dimension") != std::string::npos);
  CHECK(broken("  v0 = load f32 b0[i1]\n  store b1[i0] = v0\n").find("indices use loops") != std::string::npos);
  CHECK(broken("  v0 = load f32 b0[i0]\n  v1 = add f32 v0 v2\n  store b1[i0] = v1\n").find("precedes") != std::string::npos);
  CHECK(broken("  v0 = load f32 b0[i0]\n  v1 = lt f32 v0 v0\n  store b1[i0] = v1\n").find("types of the op's row") !=
        std::string::npos);
  CHECK(broken("  v0 = load f32 b2[i0]\n  store b1[i0] = v0\n").find("no node before wrote") != std::string::npos);
  CHECK(broken("  v0 = load f32 b0[i0]\n  store b1[9] = v0\n").find("stays inside") != std::string::npos);
  CHECK(broken("  v0 = constant i64 3\n  store b1[i0] = v0\n").find("compute type") != std::string::npos);
}

TEST_CASE("a scan adds to elements that merged loops tell apart") {
  const auto rules = [](const std::string& at) {
    return message(parse_graph(R"(buffer b0 in0 i64 [24, 9] strides [9, 1] input 0
buffer b1 buf1 f32 [2, 3, 4, 9]
inputs b0
node scan sum whole [24] over [9]
  v0 = load i64 b0[i0, r0]
  v1 = constant f32 1.0
  v2 = constant bool 1
  reduce v1 reset v2
  store b1[)" + at + R"(, v0] sum= result 0
result b1 [2, 3, 4, 9] strides [] offset 0
)"));
  };
  CHECK(rules("i0 // 12, (i0 // 4) % 3, i0 % 4").empty());
  CHECK(rules("i0 // 12, i0 // 4 % 2, i0 % 4").find("differ in all loops") != std::string::npos);
  CHECK(rules("i0 // 12, i0 // 4 % 3, 0").find("differ in all loops") != std::string::npos);
}

TEST_CASE("scans and partial stores: text and rules") {
  const std::string text = R"(buffer b0 in0 f32 [4, 9] strides [9, 1] input 0
buffer b1 buf1 f32 [4, 9]
buffer b2 buf2 i32 [9]
buffer b3 buf3 f32 [4, 9]
inputs b0
node map [9]
  v0 = index i32 i0
  v1 = load f32 b0[0, i0]
  v2 = constant f32 0.0
  v3 = gt bool v1 v2
  store b2[i0 // 2] maximum= v0 if v3
node scan sum whole [4] over [9]
  v0 = load f32 b0[i0, r0]
  v1 = load i32 b2[r0]
  v2 = constant i32 3
  v3 = ge bool v1 v2
  reduce v0 reset v3
  store b1[i0, r0] = result 0 if v3
  store b3[i0, v1] sum= result 0
result b1 [4, 9] strides [] offset 0
)";
  Graph graph = parse_graph(text);
  CHECK(graph.str() == text);
  CHECK(message(graph).empty());
  simplify(graph);
  CHECK(graph.nodes.size() == 2);
  CHECK(graph.nodes[1].reset == 3);
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return message(parse_graph(changed));
  };
  CHECK(broken("reset v3", "reset v0").find("bool values of the body") != std::string::npos);
  CHECK(broken("result 0 if v3", "result 0 if v1").find("bool values of the body") != std::string::npos);
  CHECK(broken("node scan sum whole", "node reduce sum whole").find("of a reduction only outer loops") != std::string::npos);
  CHECK(broken("buf2 i32", "buf2 i64").find("maxima of i32") != std::string::npos);
  CHECK(broken("buf3 f32", "buf3 f16").find("in the computing type") != std::string::npos);
  CHECK(broken("store b3[i0, v1] sum=", "store b3[0, v1] sum=").find("differ in all loops") != std::string::npos);
  CHECK(broken("node map [9]", "node map [9]\n  v0 = load f32 b0[0, i0]\n  store b3[0, i0] sum= v0\nnode map [9]")
            .find("a scan adds") != std::string::npos);
  CHECK(broken("over [9]", "over [3, 3]").find("a scan has one loop") != std::string::npos);
}
