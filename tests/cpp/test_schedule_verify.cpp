// tests/cpp/test_schedule_verify.cpp: violates each rule of a schedule; verify() must find the violation and name the
// rule.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "csrc/ir/builder.h"
#include "csrc/schedule/describe.h"
#include "csrc/schedule/memory_plan.h"
#include "csrc/schedule/pipeline.h"
#include "csrc/schedule/verify.h"
#include "csrc/support/error.h"

using namespace ocl;
using ir::BufferId;
using ir::Builder;
using ir::DType;
using ir::Shape;
using ir::Value;
using schedule::Group;
using schedule::GroupKind;
using schedule::Placement;
using schedule::Schedule;
using schedule::ScheduleLevel;

namespace {

const Shape kSizes = {1024, 100}, kStrides = {100, 1};

Value input(Builder& b, const Shape& sizes = kSizes) {
  return b.input(DType::kF32, sizes, ir::contiguous_strides(sizes), false, false);
}
Value eager(Builder& b, int call, const std::vector<Value>& args) {
  return b.call(call, args, {{DType::kF32, kSizes}}, {kStrides})[0];
}

Schedule scheduled(Builder& b, bool fuse = true) {
  schedule::Options options;
  options.fuse = fuse;
  options.verify = true;
  return make_schedule(b.finish(), Caps{}, options);
}

/// Builds a schedule with eager ops, a product with an epilogue, a softmax in phases, a batch, and a result that is
/// stored in the memory of its operand (this group is too large for the batch).
Schedule everything() {
  Builder b;
  const Value x = input(b), w = input(b, {1, 100, 100});
  const Value first = eager(b, 0, {x}), second = eager(b, 1, {x});
  const Value in_place = b.op("exp", {eager(b, 2, {first, second})});
  const Value third = eager(b, 3, {in_place});
  const Value product = b.op("relu", {b.contract(b.reshape(third, {1, 1024, 100}), w, DType::kF32)});
  const Value row_max = b.reduce("max", product, {-1}, true)[0];
  const Value e = b.op("exp", {b.op("sub", {product, row_max})});
  b.output(b.op("div", {e, b.reduce("sum", e, {-1}, true)[0]}), {102400, 100, 1});
  for (int size : {10, 20, 30}) b.output(b.op("neg", {input(b, {size})}), {1});
  return scheduled(b);
}

/// Returns the message of verify(), "" if it finds nothing.
std::string complaint(const Schedule& s, ScheduleLevel level = ScheduleLevel::kPlaced) {
  try {
    verify(s, level);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInternal);
    return error.what();
  }
  return "";
}

Group& group_of_kind(Schedule& s, GroupKind kind) {
  const auto found = std::find_if(s.groups.begin(), s.groups.end(), [&](const Group& g) { return g.kind == kind; });
  REQUIRE(found != s.groups.end());
  return *found;
}
Group& group_with_phases(Schedule& s) {
  const auto found = std::find_if(s.groups.begin(), s.groups.end(), [](const Group& g) { return g.phases.size() > 1; });
  REQUIRE(found != s.groups.end());
  return *found;
}
/// Returns the buffer that is number `n` among those with this kind of placement.
BufferId buffer_in(const Schedule& s, Placement::Kind kind, int n = 0) {
  for (BufferId b = 0; b < static_cast<BufferId>(s.placements.size()); ++b)
    if (s.placements[b].kind == kind && n-- == 0) return b;
  FAIL("no such buffer");
  return ir::kNone;
}
Placement& placement(Schedule& s, BufferId b) { return s.placements[b]; }

struct Fault {
  const char* rule;
  std::function<void(Schedule&)> plant;
};

const Fault kFaults[] = {
    {"each node whose results are read is in one group", [](Schedule& s) { s.groups.pop_back(); }},
    {"each node whose results are read is in one group", [](Schedule& s) { s.groups.push_back(s.groups.back()); }},
    {"a group has what its kind needs", [](Schedule& s) { group_of_kind(s, GroupKind::kTemplate).kind = GroupKind::kLoops; }},
    {"a group has what its kind needs",
     [](Schedule& s) { group_of_kind(s, GroupKind::kBatch).members[0].strategy = schedule::LoopStrategy::kColumn; }},
    {"share its loops", [](Schedule& s) { group_with_phases(s).sizes.push_back(2); }},
    {"share its loops", [](Schedule& s) { group_with_phases(s).phases[0].inner ^= true; }},
    {"no reduction of its own",
     [](Schedule& s) {
       Group& group = group_with_phases(s);
       group.phases[0].nodes.insert(group.phases[0].nodes.end(), group.phases[1].nodes.begin(), group.phases[1].nodes.end());
       group.phases.erase(group.phases.begin() + 1);
     }},
    {"nothing runs before what it depends on", [](Schedule& s) { std::reverse(s.groups.begin(), s.groups.end()); }},
    {"nothing runs before what it depends on",
     // The first two eager ops are independent, but eager ops must keep their order.
     [](Schedule& s) {
       REQUIRE(s.groups[0].kind == GroupKind::kCall);
       REQUIRE(s.groups[1].kind == GroupKind::kCall);
       std::swap(s.groups[0], s.groups[1]);
     }},
    {"a placement for each buffer", [](Schedule& s) { s.placements.pop_back(); }},
    {"name the same buffer", [](Schedule& s) { std::swap(s.allocations[0], s.allocations[1]); }},
    {"name the same buffer", [](Schedule& s) { std::swap(s.lifetimes[0].buffer, s.lifetimes[1].buffer); }},
    {"name the same buffer", [](Schedule& s) { placement(s, s.graph.inputs[0]).index = 1; }},
    {"leads to memory of the same layout",
     [](Schedule& s) {
       const BufferId b = buffer_in(s, Placement::Kind::kAlias);
       placement(s, b).index = b;
     }},
    {"leads to memory of the same layout",
     // An alias of an input that is not donated.
     [](Schedule& s) { placement(s, buffer_in(s, Placement::Kind::kAlias)).index = s.graph.inputs[0]; }},
    {"an output is an input or memory of its own", [](Schedule& s) { placement(s, s.graph.outputs[0].buffer) = {}; }},
    {"what a group reads and has not stored itself is in memory",
     [](Schedule& s) { placement(s, buffer_in(s, Placement::Kind::kArena)) = {}; }},
    {"a lifetime covers all groups", [](Schedule& s) { s.lifetimes[0].last = s.lifetimes[0].first; }},
    {"not alive at the same time",
     // Two operands of the third eager op in the same memory.
     [](Schedule& s) {
       placement(s, buffer_in(s, Placement::Kind::kArena, 1)) = {Placement::Kind::kAlias,
                                                                 buffer_in(s, Placement::Kind::kArena)};
     }},
};

}  // namespace

TEST_CASE("a schedule keeps all rules, and each planted fault is named") {
  const Schedule good = everything();
  INFO(str(good));
  REQUIRE(complaint(good) == "");
  for (const Fault& fault : kFaults) {
    CAPTURE(fault.rule);
    Schedule bad = good;
    fault.plant(bad);
    const std::string text = complaint(bad);
    CAPTURE(text.substr(0, 300));
    CHECK(text.substr(0, text.find('\n')).find(fault.rule) != std::string::npos);
  }
}

TEST_CASE("members of a batch must be independent") {
  Builder b;
  b.output(b.op("exp", {b.op("neg", {input(b)})}), kStrides);
  Schedule s = scheduled(b, false);
  REQUIRE(s.groups.size() == 2);
  Group batch;
  batch.kind = GroupKind::kBatch;
  batch.members = std::move(s.groups);
  s.groups = {batch};
  CHECK(complaint(s, ScheduleLevel::kGrouped).find("nothing runs before") != std::string::npos);
}

TEST_CASE("a call that waits for another runs after it, but keeps no order with other calls") {
  Builder b;
  const Value x = input(b);
  b.call(0, {x}, {}, {});
  b.output(b.call(1, {}, {{DType::kF32, kSizes}}, {kStrides}, 0)[0], kStrides);
  b.call(2, {x}, {}, {});
  Schedule s = scheduled(b);
  REQUIRE(s.groups.size() == 3);
  REQUIRE(s.groups[2].call == 1);  // The wait is last, because only the caller needs its result.
  for (const auto& [first, second, legal] : {std::tuple{1, 2, true}, std::tuple{0, 1, false}, std::tuple{0, 2, false}}) {
    Schedule swapped = s;
    std::swap(swapped.groups[first], swapped.groups[second]);
    CHECK((complaint(swapped, ScheduleLevel::kGrouped) == "") == legal);
  }
}

TEST_CASE("what is overwritten is read before, and writers of one place keep their order") {
  Builder b;
  const Value x = input(b);
  b.output(b.op("exp", {x}), kStrides);
  b.copy_into(x, b.op("neg", {x}));
  b.copy_into(x, b.op("abs", {x}));
  Schedule s = scheduled(b, false);
  // Two of the groups copy into the input.
  REQUIRE(s.groups.size() == 5);
  REQUIRE(complaint(s) == "");
  std::rotate(s.groups.begin(), s.groups.begin() + 1, s.groups.end());
  CHECK(complaint(s).find("nothing runs before") != std::string::npos);
}

TEST_CASE("a result may take the memory of a donated input from the first group on, while nobody else reads the input") {
  for (const bool read_later : {false, true}) {
    Builder b;
    const Value x = b.input(DType::kF32, kSizes, kStrides, false, true);
    const Value y = b.op("exp", {x});
    b.output(eager(b, 0, {y}), kStrides);
    if (read_later) b.output(eager(b, 1, {x}), kStrides);
    Schedule s = scheduled(b, false);
    REQUIRE(complaint(s) == "");
    CHECK((placement(s, y.buffer).kind == Placement::Kind::kAlias) == !read_later);
    placement(s, y.buffer) = {Placement::Kind::kAlias, x.buffer};
    CHECK((complaint(s).find("not alive at the same time") != std::string::npos) == read_later);
  }
}

TEST_CASE("pieces of a concatenation may be written in any order") {
  Builder b;
  const Value x = input(b), y = input(b);
  b.output(b.concat({b.op("exp", {x}), b.op("neg", {y})}, 0), kStrides);
  Schedule s = scheduled(b, false);
  // The groups are each operand and its copy into the result.
  REQUIRE(s.groups.size() == 4);
  REQUIRE(complaint(s) == "");
  std::rotate(s.groups.begin(), s.groups.begin() + 2, s.groups.end());
  CHECK(complaint(s, ScheduleLevel::kGrouped) == "");
}

TEST_CASE("a memory plan must not overlap in time and space") {
  const std::vector<schedule::Interval> intervals = {{0, 2, 100}, {1, 3, 100}, {3, 4, 100}};
  CHECK_NOTHROW(verify({{0, 128, 0}, 256}, intervals));
  CHECK_THROWS_AS(verify({{0, 64, 0}, 256}, intervals), Error);     // The first two overlap.
  CHECK_THROWS_AS(verify({{128, 64, 0}, 256}, intervals), Error);   // They overlap in the other order.
  CHECK_THROWS_AS(verify({{0, 128, 128}, 256}, intervals), Error);  // The last two have the same offset.
  CHECK_THROWS_AS(verify({{0, 128, 0}, 200}, intervals), Error);    // An interval ends beyond the arena.
}
