// tests/cpp/test_codegen_graphs.cpp: whole graphs, scheduled and generated for CPUs and GPUs, run on every OpenCL
// device and compared with a slow evaluator.
#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>

#include "csrc/schedule/describe.h"
#include "tests/cpp/codegen_run.h"

using namespace codegen_test;
using schedule::Placement;

namespace {

/// Schedules the graph, generates and runs the kernels of all groups in order, and compares the outputs with the
/// evaluator of the unscheduled graph.
void check_graph(const std::string& text, double tolerance = 3e-6, const Symbols& symbols = {}, int* launches = nullptr,
                 bool half_caps = false) {
  const ir::Graph graph = ir::parse_graph(text);
  Evaluator evaluator(graph, symbols);
  for_each_device([&](runtime::Device& device) {
    for (const bool is_cpu : {true, false}) {
      Caps caps = device.caps();
      caps.is_cpu = is_cpu;
      if (half_caps) caps.vector_floats = 8;
      const schedule::Schedule s = schedule::make_schedule(graph, caps, {});
      Memory expected = [&] {
        schedule::Schedule plain;
        plain.graph = graph;
        return fill(plain, evaluator, -1, 1);
      }();
      Evaluator after(s.graph, symbols);
      Memory memory(s.graph.buffers.size());
      for (size_t i = 0; i < memory.size(); ++i)
        if (s.graph.buffers[i].strides) memory[i].resize(after.elements(static_cast<int>(i)));
      for (const ir::BufferId id : graph.inputs) memory[id] = expected[id];
      evaluator.run(expected);
      std::string kernels;
      for (const schedule::Group& group : s.groups) {
        const codegen::KernelSource source = codegen::generate(s, group, caps);
        kernels += source.text;
        if (std::getenv("OCL_SHOW_KERNELS")) std::cout << source.text << "\n";
        Memory next = launch(device, s, source, symbols, memory);
        for (size_t i = 0; i < memory.size(); ++i) memory[i] = next[i];
      }
      if (launches) CHECK(static_cast<int>(s.groups.size()) == *launches);
      INFO(schedule::str(s), kernels.substr(0, 20000));
      for (const ir::Output& output : graph.outputs) {
        const auto& e = expected[output.buffer];
        ir::BufferId home = output.buffer;
        while (s.placements[home].kind == Placement::Kind::kAlias) home = s.placements[home].index;
        const auto& a = memory[output.buffer];
        REQUIRE(a.size() == e.size());
        double scale = 1e-3, worst = 0;
        for (size_t k = 0; k < e.size(); ++k)
          scale = std::max(scale, std::fabs(e[k])), worst = std::max(worst, std::fabs(e[k] - a[k]));
        CHECK(worst <= tolerance * scale);
      }
    }
  });
}

}  // namespace

TEST_CASE("a batch: members of one text share a function") {
  std::string text, inputs = "inputs", nodes, results;
  int id = 0;
  for (const int n : {5, 1000, 40000, 16, 333}) {
    const std::string p = "b" + std::to_string(id), g = "b" + std::to_string(id + 1), q = "b" + std::to_string(id + 2),
                      size = std::to_string(n);
    text += "buffer " + p + " in f32 [" + size + "] strides [1] input " + std::to_string(id / 3 * 2) + "\nbuffer " + g +
            " in f32 [" + size + "] strides [1] input " + std::to_string(id / 3 * 2 + 1) + "\nbuffer " + q + " buf f32 [" +
            size + "] strides [1]\n";
    inputs += " " + p + " " + g;
    const std::string op = n == 333 ? "sub" : "add";
    nodes += "node map [" + size + "]\n  v0 = load f32 " + p + "[i0]\n  v1 = load f32 " + g +
             "[i0]\n  v2 = constant f32 0.1\n  v3 = mul f32 v1 v2\n" + "  v4 = " + op + " f32 v0 v3\n  store " + q +
             "[i0] = v4\n";
    results += "result " + q + " [" + size + "] strides [1] offset 0\n";
    id += 3;
  }
  int launches = 1;
  check_graph(text + inputs + "\n" + nodes + results, 2e-6, {}, &launches);
}

TEST_CASE("a batch of ordered sums: members of one text, and of other lengths, beside a pointwise one") {
  std::string text, inputs = "inputs", nodes, results;
  int id = 0;
  for (const auto& [length, n] :
       {std::pair(8, 700), std::pair(59, 5), std::pair(8, 40000), std::pair(3, 333), std::pair(1, 99)}) {
    const std::string x = "b" + std::to_string(id), y = "b" + std::to_string(id + 1), size = std::to_string(n),
                      parts = std::to_string(length);
    text += "buffer " + x + " in f32 [" + parts + ", " + size + "] strides [" + size + ", 1] input " + std::to_string(id / 2) +
            "\nbuffer " + y + " buf f32 [" + size + "] strides [1]\n";
    inputs += " " + x;
    nodes += length == 1
                 ? "node map [" + size + "]\n  v0 = load f32 " + x + "[0, i0]\n  v1 = exp f32 v0\n  store " + y + "[i0] = v1\n"
                 : "node reduce sum whole [" + size + "] over [" + parts + "]\n  v0 = load f32 " + x +
                       "[r0, i0]\n  reduce v0\n  store " + y + "[i0] = result 0\n";
    results += "result " + y + " [" + size + "] strides [1] offset 0\n";
    id += 2;
  }
  int launches = 1;
  check_graph(text + inputs + "\n" + nodes + results, 2e-6, {}, &launches);
}

TEST_CASE("a contraction with bias and activation in its epilogue") {
  for (const auto& [m, n, k] : {std::tuple(7, 5, 3), std::tuple(37, 130, 70), std::tuple(64, 64, 64)}) {
    const std::string M = std::to_string(m), N = std::to_string(n), K = std::to_string(k);
    check_graph("buffer b0 in0 f32 [1, " + M + ", " + K + "] strides [" + std::to_string(m * k) + ", " + K +
                ", 1] input 0\nbuffer b1 in1 f32 [1, " + K + ", " + N + "] strides [" + std::to_string(k * n) + ", 1, " + K +
                "] input 1 parameter\nbuffer b2 in2 f32 [" + N + "] strides [1] input 2\nbuffer b3 buf3 f32 [1, " + M + ", " +
                N + "]\nbuffer b4 buf4 f32 [1, " + M + ", " + N + "] strides [" + std::to_string(m * n) + ", " + N +
                ", 1]\ninputs b0 b1 b2\nnode contract [1, " + M + ", " + N + "] over [" + K + "]\n  operand b0 [1, " + M +
                ", " + K + "] at [i0, i1, i2]\n  operand b1 [1, " + K + ", " + N +
                "] at [i0, i1, i2]\n  output b3\nnode map [1, " + M + ", " + N +
                "]\n  v0 = load f32 b3[i0, i1, i2]\n  v1 = load f32 b2[i2]\n  v2 = add f32 v0 v1\n  v3 = tanh f32 v2\n  store "
                "b4[i0, i1, i2] = v3\n"
                "result b4 [1, " +
                M + ", " + N + "] strides [" + std::to_string(m * n) + ", " + N + ", 1] offset 0\n");
  }
}
