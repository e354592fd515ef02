// tests/cpp/codegen_case.h: runs a fused group that is given as text on every OpenCL device, and compares with the
// Evaluator of codegen_run.h.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>

#include "tests/cpp/codegen_run.h"

namespace codegen_test {

using schedule::LoopStrategy;
using schedule::Placement;

struct Case {
  std::string graph;
  LoopStrategy strategy = LoopStrategy::kPointwise;
  // If empty, the group has one outer phase with all nodes.
  std::vector<schedule::Phase> phases{};
  int width = 16;
  // The allowed error, divided by the largest expected value of a buffer.
  double tolerance = 2e-6;
  Symbols symbols{};
  bool index32 = true;
  // Inputs are random numbers between low and high.
  double low = -2, high = 2;
  int columns = 32;
};

/// Returns the schedule of one group. Buffers whose names begin with t stay in registers.
inline schedule::Schedule schedule_of(const Case& c) {
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
  // As the scheduler does, Map nodes of inner phases run over i* and then r*.
  const size_t outer = group.sizes.size();
  for (const schedule::Phase& phase : group.phases) {
    for (const ir::NodeId id : phase.nodes) {
      ir::Node& node = s.graph.nodes[id];
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

inline void compare(const schedule::Schedule& s, const Memory& expected, const Memory& actual, double tolerance,
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

inline void check(const Case& c) {
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
      for (const size_t shift : {3, 4})  // Buffers begin at odd elements, and at multiples of a vector.
        if (shift == 3 || (!is_cpu && group.vector_width > 1))
          compare(s, expected, launch(device, s, source, c.symbols, input, shift), c.tolerance, source.text);
    }
  });
}

}  // namespace codegen_test
