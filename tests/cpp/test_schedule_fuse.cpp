// tests/cpp/test_schedule_fuse.cpp: the number of launches of small graphs on CPUs and GPUs, and their order.
#include <doctest/doctest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "csrc/ir/builder.h"
#include "csrc/ir/parse.h"
#include "csrc/schedule/describe.h"
#include "csrc/schedule/pipeline.h"
#include "csrc/schedule/schedule.h"
#include "csrc/support/error.h"

using namespace ocl;
using namespace ocl::ir;
using ocl::schedule::GroupKind;
using ocl::schedule::LoopStrategy;
using ocl::schedule::Neighbour;
using ocl::schedule::Placement;
using ocl::schedule::Schedule;

namespace {

Caps cpu() { return {}; }
Caps gpu() {
  Caps caps;
  caps.is_cpu = false;
  caps.units = 132;
  caps.local_bytes = 48 << 10;
  caps.max_group_size = 1024;
  return caps;
}

Value input(Builder& b, Shape sizes, bool parameter = false) {
  const Shape strides = contiguous_strides(sizes);
  return b.input(DType::kF32, std::move(sizes), strides, parameter, false);
}
Value number(Builder& b, double value) { return b.constant({true, value, 0}, DType::kF32); }

/// Checks pairs of groups of which one reads what the other stores: both must record why they are not fused.
void check_neighbours(const Schedule& s) {
  std::vector<const ocl::schedule::Group*> groups;  // all groups, with the members of a batch instead of the batch
  for (const auto& group : s.groups)
    if (group.members.empty())
      groups.push_back(&group);
    else
      for (const auto& member : group.members) groups.push_back(&member);
  std::map<NodeId, const ocl::schedule::Group*> group_of;
  for (const auto* group : groups)
    for (const NodeId node : group->nodes()) group_of[node] = group;
  const auto names = [&](const ocl::schedule::Group* group, const ocl::schedule::Group* other) {
    return std::any_of(group->apart.begin(), group->apart.end(),
                       [&](const Neighbour& n) { return group_of.at(n.node) == other && std::string(n.reason) != ""; });
  };
  for (const auto& [producer, group] : group_of)
    for (const BufferId buffer : writes(s.graph.nodes[producer]))
      for (const auto& [consumer, other] : group_of) {
        const std::vector<BufferId> read = reads(s.graph.nodes[consumer]);
        if (consumer <= producer || group == other || std::find(read.begin(), read.end(), buffer) == read.end()) continue;
        CHECK(names(group, other));
        CHECK(names(other, group));
      }
}

Schedule scheduled(Builder& b, const Caps& caps = cpu(), bool fuse = true) {
  ocl::schedule::Options options;
  options.verify = true;
  options.fuse = fuse;
  Schedule s = make_schedule(b.finish(), caps, options);
  INFO(str(s));
  // No node reads a buffer before the group that writes it has run.
  std::vector<bool> written(s.graph.buffers.size(), false);
  for (const BufferId in : s.graph.inputs) written[in] = true;
  for (const auto& group : s.groups)
    for (const NodeId node : group.nodes()) {
      for (const BufferId buffer : reads(s.graph.nodes[node])) CHECK(written[buffer]);
      for (const BufferId buffer : writes(s.graph.nodes[node])) written[buffer] = true;
    }
  for (const Output& output : s.graph.outputs) CHECK(written[output.buffer]);
  for (size_t buffer = 0; buffer < s.graph.buffers.size(); ++buffer) CHECK(s.graph.buffers[buffer].strides.has_value());
  check_neighbours(s);
  return s;
}

Value softmax(Builder& b, const Value& x) {
  const Value highest = b.reduce("max", x, {-1}, true)[0];
  const Value e = b.op("exp", {b.op("sub", {x, highest})});
  return b.op("div", {e, b.reduce("sum", e, {-1}, true)[0]});
}

Value batch_norm_statistics(Builder& b, const Value& x, const Value& running, std::vector<Value>& saved) {
  const auto results = b.reduce("welford", x, {0, 2, 3}, true);
  const Value var = b.op("div", {results[1], number(b, 1000)});
  const Value scale = b.op("rsqrt", {b.op("add", {var, number(b, 1e-5)})});
  const Value flat = b.reshape(results[0], running.sizes);
  b.copy_into(running, b.op("add", {b.op("mul", {running, number(b, 0.9)}), b.op("mul", {flat, number(b, 0.1)})}));
  saved.push_back(results[0]);
  saved.push_back(scale);
  return b.op("mul", {b.op("sub", {x, results[0]}), scale});
}

}  // namespace

TEST_CASE("a pointwise chain is one launch and keeps nothing in memory") {
  Builder b;
  const Value x = input(b, {64, 100}), y = input(b, {100});
  b.output(b.op("relu", {b.op("add", {b.op("exp", {x}), y})}), {100, 1});
  const Schedule s = scheduled(b);
  CHECK(s.groups.size() == 1);
  CHECK(s.lifetimes.empty());
  CHECK(s.groups[0].index32);
}

TEST_CASE("a chain through reshape, permute and slice is one launch") {
  Builder b;
  const Value x = input(b, {8, 6, 4});
  Value v = b.op("exp", {x});
  v = b.op("neg", {b.reshape(v, {8, 24})});
  v = b.op("relu", {b.permute(v, {1, 0})});
  b.output(b.op("abs", {b.slice(v, 0, 2, 20, 2)}), {8, 1});
  CHECK(scheduled(b).groups.size() == 1);
}

TEST_CASE("a diamond with several outputs is one launch") {
  Builder b;
  const Value x = input(b, {1000});
  const Value e = b.op("exp", {x});
  const Value p = b.op("neg", {e}), q = b.op("sqrt", {e});
  b.output(p, {1});
  b.output(b.op("add", {p, q}), {1});
  b.output(e, {1});
  CHECK(scheduled(b).groups.size() == 1);
}

TEST_CASE("a diamond around a reduction makes no cycle") {
  Builder b;
  const Value x = input(b, {512, 4096, 64});
  const Value e = b.op("exp", {x});
  const Value total = b.reduce("sum", e, {1}, true)[0];
  b.output(b.op("div", {e, total}), {4096 * 64, 64, 1});
  CHECK(scheduled(b).groups.size() == 2);
}

TEST_CASE("softmax over rows is one launch") {
  for (const Caps& caps : {cpu(), gpu()}) {
    Builder b;
    b.output(softmax(b, input(b, {4096, 1000})), {1000, 1});
    const Schedule s = scheduled(b, caps);
    CHECK(s.groups.size() == 1);
    CHECK(s.groups[0].strategy == LoopStrategy::kRow);
  }
}

TEST_CASE("relu into a sum, and what follows the sum, is one launch") {
  Builder b;
  const Value x = input(b, {512, 256});
  const Value total = b.reduce("sum", b.op("relu", {x}), {1}, false)[0];
  b.output(b.op("mul", {total, number(b, 0.5)}), {1});
  CHECK(scheduled(b).groups.size() == 1);
}

TEST_CASE("a long sum is split into parts") {
  for (const Caps& caps : {cpu(), gpu()}) {
    Builder b;
    b.output(b.reduce("sum", input(b, {1 << 20}), {0}, false)[0], {});
    CHECK(scheduled(b, caps).groups.size() == 2);
  }
}

TEST_CASE("sibling reductions over the same elements are one launch") {
  Builder b;
  const Value x = input(b, {64, 4096, 128}), y = input(b, {64, 4096, 128});
  b.output(b.reduce("sum", x, {1}, false)[0], {128, 1});
  b.output(b.reduce("sum", b.op("mul", {x, y}), {1}, false)[0], {128, 1});
  CHECK(scheduled(b).groups.size() == 1);
}

TEST_CASE("a mutated input is read before it is overwritten") {
  Builder b;
  const Value x = input(b, {4096, 16}), w = input(b, {16, 4096});
  // This node reads x transposed, so it cannot be fused with the store to x.
  const Value before = b.op("exp", {b.permute(x, {1, 0})});
  b.copy_into(x, b.op("add", {x, number(b, 1)}));
  const Value after = b.op("add", {x, number(b, 2)});
  b.output(b.op("add", {before, w}), {4096, 1});
  b.output(after, {16, 1});
  const Schedule s = scheduled(b);
  REQUIRE(s.groups.size() == 2);
  for (const NodeId node : s.groups[0].nodes())
    for (const BufferId buffer : writes(s.graph.nodes[node])) CHECK(buffer != s.graph.inputs[0]);
}

TEST_CASE("a mutated input and what reads the new value are one launch, in place") {
  Builder b;
  const Value x = input(b, {4096}), g = input(b, {4096});
  b.copy_into(x, b.op("sub", {x, b.op("mul", {g, number(b, 0.1)})}));
  b.output(b.op("abs", {x}), {1});
  CHECK(scheduled(b).groups.size() == 1);
}

TEST_CASE("twenty counters are one launch") {
  Builder b;
  for (int i = 0; i < 20; ++i) {
    const Value counter = b.input(DType::kI64, {}, {}, false, false);
    b.copy_into(counter, b.op("add", {counter, b.constant({false, 0, 1}, DType::kI64)}));
  }
  const Schedule s = scheduled(b);
  REQUIRE(s.groups.size() == 1);
  CHECK(s.groups[0].kind == GroupKind::kBatch);
  CHECK(s.groups[0].members.size() == 20);
}

TEST_CASE("an optimizer over many parameters is a few launches") {
  Builder b;
  for (int i = 0; i < 120; ++i) {
    const Shape sizes{64 + i, 100};
    const Value p = input(b, sizes), g = input(b, sizes), m = input(b, sizes);
    const Value momentum = b.op("add", {b.op("mul", {m, number(b, 0.9)}), g});
    b.copy_into(m, momentum);
    b.copy_into(p, b.op("sub", {p, b.op("mul", {momentum, number(b, 0.1)})}));
  }
  const Schedule s = scheduled(b);
  CHECK(s.groups.size() == 2);
  CHECK(s.lifetimes.empty());
}

TEST_CASE("convolution, bias, residual and relu are one launch beside the packing of weights") {
  for (const Caps& caps : {cpu(), gpu()}) {
    Builder b;
    const Shape sizes{2, 64, 28, 28};
    const Value x = b.input(DType::kF32, sizes, {64 * 784, 1, 28 * 64, 64}, false, false), w = input(b, {64, 64, 3, 3}, true),
                bias = input(b, {64}, true);
    const Value residual = b.input(DType::kF32, sizes, {64 * 784, 1, 28 * 64, 64}, false, false);
    ConvolveAttrs attrs;
    attrs.padding = {1, 1};
    Value y = b.convolve(x, w, attrs, sizes, DType::kF32);
    y = b.op("add", {y, b.reshape(bias, {1, 64, 1, 1})});
    b.output(b.op("relu", {b.op("add", {y, residual})}), {});
    const Schedule s = scheduled(b, caps);
    int templates = 0, loops = 0;
    for (const auto& group : s.groups) (group.kind == GroupKind::kTemplate ? templates : loops) += 1;
    if (templates == 0) {
      MESSAGE("no template takes this convolution here");
      CHECK(loops == 1);
    } else {
      CHECK(templates == 1);
      CHECK(loops <= 1);
    }
  }
}

namespace {

/// Builds batch norm in training and a ReLU, over 16 images of 14x14.
Schedule batch_norm_of(int64_t channels, const Caps& caps) {
  Builder b;
  const Shape strides{channels * 196, 1, 14 * channels, channels};
  const Value x = b.input(DType::kF32, {16, channels, 14, 14}, strides, false, false), running = input(b, {channels});
  std::vector<Value> saved;
  b.output(b.op("relu", {batch_norm_statistics(b, x, running, saved)}), strides);
  for (const Value& value : saved) b.output(value, {});
  return scheduled(b, caps);
}

}  // namespace

TEST_CASE("batch norm: statistics with all per-channel work, and the normalisation; few channels share rows first") {
  for (const auto& [channels, launches] : {std::pair(512, 2), std::pair(64, 3)}) {
    const Schedule s = batch_norm_of(channels, cpu());
    CHECK(static_cast<int>(s.groups.size()) == launches);
    CHECK(s.groups[0].strategy == LoopStrategy::kSequential);
  }
}

TEST_CASE("batch norm of many channels is one launch on GPUs: columns narrow enough that many units have some") {
  for (const auto& [channels, columns] : {std::pair(512, 8), std::pair(256, 4)}) {
    const Schedule s = batch_norm_of(channels, gpu());
    REQUIRE(s.groups.size() == 1);
    CHECK(s.groups[0].strategy == LoopStrategy::kColumn);
    CHECK(s.groups[0].columns == columns);
  }
}

TEST_CASE("batch norm of few channels is three launches on GPUs: its statistics are split") {
  Builder b;
  const Value x = b.input(DType::kF32, {16, 64, 56, 56}, {64 * 3136, 1, 56 * 64, 64}, false, false), running = input(b, {64});
  std::vector<Value> saved;
  b.output(batch_norm_statistics(b, x, running, saved), {64 * 3136, 1, 56 * 64, 64});
  CHECK(scheduled(b, gpu()).groups.size() == 3);
}

TEST_CASE("ordered sums of partial results are one launch, unless too many bytes wait for it") {
  for (const Caps& caps : {cpu(), gpu()})
    for (const bool large : {false, true}) {
      Builder b;
      // The partial results of a large product have 8 MB.
      const int64_t n = large ? 512 : 32;
      for (int i = 0; i < 6; ++i) {
        const Value parts = b.contract(input(b, {8, n, 4}), input(b, {8, 4, n}), DType::kF32);
        b.output(b.reduce("sum", parts, {0}, false)[0], {n, 1});
      }
      int batches = 0, alone = 0;
      for (const auto& group : scheduled(b, caps).groups) {
        batches += group.kind == GroupKind::kBatch && group.members[0].strategy == LoopStrategy::kSequential;
        alone += group.kind == GroupKind::kLoops && group.strategy == LoopStrategy::kSequential;
      }
      CHECK(batches == (large ? 2 : 1));
      CHECK(alone == 0);
    }
}

TEST_CASE("groups that stay apart say why") {
  const auto reasons = [](const Schedule& s) {
    std::vector<std::string> found;
    for (const auto& group : s.groups)
      for (const Neighbour& other : group.apart) found.push_back(other.reason);
    return found;
  };
  {
    Builder b;  // The rows are larger than caches.
    const Value x = input(b, {4, 1 << 20});
    b.output(softmax(b, x), {1 << 20, 1});
    CHECK(!reasons(scheduled(b)).empty());
  }
  {
    Builder b;
    const Value x = input(b, {64, 64});
    b.output(b.op("exp", {b.reduce("sum", b.op("neg", {x}), {0}, false)[0]}), {1});
    const std::vector<std::string> found = reasons(scheduled(b, cpu(), false));
    REQUIRE(!found.empty());
    for (const std::string& reason : found) CHECK(reason == "fusion is off");
  }
}

TEST_CASE("layer norm is one launch") {
  Builder b;
  const Value x = input(b, {8, 512, 768}), weight = input(b, {768}), bias = input(b, {768});
  const auto results = b.reduce("welford", x, {-1}, true);
  const Value scale = b.op("rsqrt", {b.op("add", {b.op("div", {results[1], number(b, 768)}), number(b, 1e-5)})});
  const Value y = b.op("mul", {b.op("sub", {x, results[0]}), scale});
  b.output(b.op("add", {b.op("mul", {y, weight}), bias}), {512 * 768, 768, 1});
  b.output(results[0], {});
  b.output(scale, {});
  CHECK(scheduled(b).groups.size() == 1);
}

TEST_CASE("symbolic sizes fuse like constants") {
  Builder b;
  const IndexExpr n = b.size_symbol({1, 4096, 1});
  const Value x = b.input(DType::kF32, {n, 100}, {100, 1}, false, false);
  b.output(softmax(b, b.op("exp", {x})), {100, 1});
  const Schedule s = scheduled(b);
  CHECK(s.groups.size() == 1);
  CHECK(s.groups[0].index32);
}

TEST_CASE("a partial store is not handed on in a register") {
  for (const Caps& caps : {cpu(), gpu()}) {
    Builder b;
    const Value x = input(b, {64}), y = input(b, {64});
    const Value z = b.copy(x);
    BodyBuilder nest(b, {64}, {});
    const int loaded = nest.load(y, {IndexExpr::loop(0)});
    nest.add_store(z, {IndexExpr::loop(0)}, loaded, nest.op("gt", {loaded, nest.constant({true, 0, 0}, DType::kF32)}));
    nest.end();
    b.output(b.op("exp", {z}), {1});
    const Schedule s = scheduled(b, caps);
    CHECK(s.groups.size() == 3);
    for (const Placement& placement : s.placements) CHECK(placement.kind != Placement::Kind::kAlias);
  }
}

TEST_CASE("a scan runs alone and takes its producer in") {
  for (const Caps& caps : {cpu(), gpu()}) {
    Builder b;
    const Value x = b.op("exp", {input(b, {64, 32})});
    const Value sums = b.buffer(DType::kF32, {64, 32});
    BodyBuilder nest(b, {64}, {32});
    const std::vector<IndexExpr> at = {IndexExpr::loop(0), IndexExpr::reduce(0)};
    nest.scan("sum", {nest.load(x, at)}, DType::kF32);
    nest.add_store(sums, at, 0);
    nest.end();
    b.output(b.op("neg", {sums}), {32, 1});
    const Schedule s = scheduled(b, caps);
    CHECK(s.groups.size() == 2);
    CHECK(s.groups[0].strategy == (caps.is_cpu ? LoopStrategy::kSequential : LoopStrategy::kRow));
  }
}

TEST_CASE("a CPU reduces windows of short rows side by side, and a short row alone as a row") {
  for (const auto& [window, strategy] :
       {std::pair(3, LoopStrategy::kSequential), std::pair(8, LoopStrategy::kRow), std::pair(1, LoopStrategy::kRow)}) {
    Builder b;
    const Value x = input(b, {64, 64, 64});
    BodyBuilder nest(b, {64, 28, 28}, {window, window == 1 ? 3 : window});
    const auto at = [](int i) { return IndexExpr::loop(i + 1) * 2 + IndexExpr::reduce(i); };
    b.output(nest.reduce("max", {nest.load(x, {IndexExpr::loop(0), at(0), at(1)})}, {DType::kF32})[0], {784, 28, 1});
    CHECK(scheduled(b, cpu()).groups[0].strategy == strategy);
  }
}

TEST_CASE("verifying between passes names the pass") {
  const char* text =
      "buffer b0 in0 f32 [4] strides [1] input 0\nbuffer b1 out f32 [4]\ninputs b0\nnode map [4]\n"
      "  v0 = load f32 b0[i0]\n  store b1[9] = v0\nresult b1 [4] strides [1] offset 0\n";
  ocl::schedule::Options options;
  std::vector<ocl::schedule::PassTrace> trace;
  options.trace = &trace;
  CHECK_NOTHROW(make_schedule(parse_graph(text), cpu(), options));
  CHECK(std::none_of(trace.begin(), trace.end(), [](const auto& pass) { return pass.verified; }));
  options.verify = true;
  try {
    make_schedule(parse_graph(text), cpu(), options);
    FAIL("a store outside its buffer went unseen");
  } catch (const ocl::Error& error) {
    CHECK(std::string(error.what()).find("after the pass byte_products: the graph breaks the rule") == 0);
  }
}
