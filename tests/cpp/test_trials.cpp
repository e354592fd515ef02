// tests/cpp/test_trials.cpp: trials of kernels in this process and in build workers, and the checks that are made of them.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>

#include "csrc/checks/device_check.h"
#include "csrc/ir/builder.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/runtime/build/trial.h"
#include "csrc/schedule/families/case.h"
#include "csrc/schedule/pipeline.h"
#include "csrc/support/error.h"
#include "csrc/support/log.h"
#include "tests/cpp/other_process.h"
#include "tests/cpp/runtime_devices.h"
#include "tests/cpp/with_pool.h"

using namespace ocl;
using namespace ocl::runtime;

namespace {

/// Doubles x from `x_offset` on, `count` elements a work-group.
std::string doubling(const std::string& body = "y[y_offset + i] = 2.0f * x[x_offset + i] + (float)added + (float)wide;") {
  return "__kernel void checked_kernel(__global float* x, ulong x_offset, int added, long wide, __global float* y, ulong "
         "y_offset) {\n"
         "  const ulong i = get_global_id(0);\n  " +
         body + "\n}\n";
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TrialLaunch doubled(size_t program) {
  TrialLaunch launch;
  launch.program = program;
  launch.integers = {int32_t{0}, int64_t{0}};
  launch.groups = {2, 1, 1};
  launch.local = 2;
  launch.results = {4};
  return launch;
}

/// A launch that adds 3 + 4 to four times its input: an input is packed first, by the second program.
Trial trial(const std::string& text = doubling()) {
  Trial trial;
  trial.programs = {text, doubling()};
  TrialRun run;
  run.name = "a case";
  run.launch = doubled(0);
  run.launch.integers = {int32_t{3}, int64_t{4}};
  run.launch.inputs.resize(1);
  run.launch.inputs[0].pack = {doubled(1)};
  run.launch.inputs[0].pack[0].inputs = {{bytes_of({-100, 1, 2, 3, 4}), 1, {}}};
  run.exact = {11, 15, 19, 23};
  run.sizes = {11, 15, 19, 23};
  run.tolerance = 1e-6;
  trial.runs = {run};
  return trial;
}

TrialResult run_here(Device& device, const Trial& trial) {
  return run_trial(device.context(), device.id(), device.build_options(), trial);
}

TrialVerdict run_there(Device& device, const Trial& trial) {
  return try_in_workers(device, 1, [&](size_t) { return trial; })[0];
}

/// The kinds of errors, with the message of each.
struct Mistake {
  Trial trial;
  std::string message;
};
std::vector<Mistake> mistakes() {
  std::vector<Mistake> found;
  found.push_back({trial(), "it, as a case, gives wrong results: number 2 is 19, not 19.001"});
  found.back().trial.runs[0].exact[2] += 0.001;
  found.push_back({trial(doubling("y[y_offset + i] = NAN;")), "it, as a case, gives wrong results: number 0 is nan, not 11"});
  found.push_back({trial(doubling("y[y_offset + i - 1] = 1.0f;")), "it, as a case, does not run"});
  found.push_back({trial(doubling("y[y_offset + i + 4] = 1.0f;")), "it, as a case, does not run"});
  found.push_back({trial("__kernel void checked_kernel( {"), "it, as a case, does not build"});
  found.push_back({trial("__kernel void other_kernel() {}\n"), "it, as a case, does not run"});
  return found;
}

}  // namespace

TEST_CASE("a trial that is right, and mistakes") {
  const WithPool pool(2);
  for_each_device([](Device& device) {
    CHECK(run_here(device, trial()).fault == "");
    const TrialVerdict verdict = run_there(device, trial());
    CHECK(verdict.known);
    CHECK(verdict.fault == "");
    for (const Mistake& mistake : mistakes()) {
      CHECK(run_here(device, mistake.trial).fault == mistake.message);
      CHECK(run_there(device, mistake.trial).fault == mistake.message);
    }
    // A worker that has answered a mistake serves the next trial, or another worker does.
    CHECK(run_there(device, trial()).fault == "");
  });
}

TEST_CASE("a trial passes through a message unchanged") {
  const os::Message message = message_of(trial());
  CHECK(message_of(trial_of(message)) == message);
  for (size_t end = 0; end < message.size(); ++end)
    CHECK_THROWS_AS(trial_of({message.begin(), message.begin() + static_cast<std::ptrdiff_t>(end)}), Error);
  os::Message longer = message;
  longer.emplace_back();
  CHECK_THROWS_AS(trial_of(longer), Error);
  const std::string& text = message[0];
  for (size_t end = 0; end < text.size(); ++end) CHECK_THROWS_AS(trial_of({text.substr(0, end)}), Error);
  CHECK_THROWS_AS(trial_of({text + ' '}), Error);
}

TEST_CASE("a process that ends is the fault of its trial, and the other trials are run") {
  for (const std::string mode : {"crash", "hang"}) {
    CAPTURE(mode);
    const WithPool pool(2, mode, mode == "hang" ? std::chrono::milliseconds(500) : std::chrono::seconds(60));
    for_each_device([&](Device& device) {
      const auto make = [](size_t i) { return trial(doubling() + (i == 2 ? "// deadly\n" : "")); };
      std::mutex mutex;
      std::set<size_t> done;
      const auto note = [&](size_t i) {
        const std::lock_guard lock(mutex);
        done.insert(i);
      };
      const std::vector<TrialVerdict> verdicts = try_in_workers(device, 5, make, note);
      CHECK(done.size() == 5);
      for (size_t i = 0; i < 5; ++i) {
        CHECK(verdicts[i].known);
        if (i != 2) CHECK(verdicts[i].fault == "");
      }
      CHECK(verdicts[2].fault.find("it, as a case, ends its process: ") == 0);
    });
  }
}

TEST_CASE("without workers nothing is known") {
  const WithPool pool(2);
  set_build_pool({2, std::chrono::seconds(60), "/nowhere/worker"});
  set_log_sink([](LogLevel, const char*, const std::string&) {});
  for_each_device([](Device& device) {
    const TrialVerdict verdict = run_there(device, trial());
    CHECK(!verdict.known);
    CHECK(verdict.death == "");
  });
  set_log_sink({});
}

namespace {

Caps gpu(KernelLevel level) {
  Caps caps;
  caps.is_cpu = false;
  caps.units = 132;
  caps.local_bytes = 227 << 10;
  caps.max_group_size = 1024;
  caps.kernels.add(level);
  return caps;
}

ir::Value matrix(ir::Builder& b, ir::DType type, const ir::Shape& sizes, bool transposed) {
  ir::Shape strides = ir::contiguous_strides(sizes);
  if (transposed) strides = {sizes[1] * sizes[2], 1, sizes[1]};
  return b.input(type, sizes, strides, false, false);
}

/// Returns the number of cases of all forms of a launch's kernel that are like it.
size_t cases_like(const schedule::TemplateLaunch& launch) {
  size_t found = 0;
  const KernelType type = schedule::type_of(launch);
  for (const KernelRow& row : kernel_rows())
    if (row.base == kernel_row(launch.kernel).base &&
        std::ranges::any_of(row.types, [&](const KernelRow::Checked& checked) { return checked.type == type; }))
      for (const schedule::CheckCase& check :
           schedule::check_cases(row, type, MatrixInstructions::kNone, schedule::CaseSet::kTiles))
        found += is_like(check, launch);
  return found;
}

constexpr KernelLevel kLevels[] = {KernelLevel::k_warp, KernelLevel::k_warpgroup};
constexpr ir::DType kTypes[] = {ir::DType::kF32, ir::DType::kBF16, ir::DType::kF16};

/// Compares the launches of tensor core kernels with their cases. Each must be like `least` cases. Returns the number of
/// launches.
size_t compare(const schedule::Schedule& made, KernelLevel level, ir::DType type, size_t least) {
  size_t compared = 0;
  for (const schedule::Group& group : made.groups) {
    const KernelRow& row = kernel_row(group.launch.kernel);
    if (group.kind != schedule::GroupKind::kTemplate || !row.on_tensor_cores() || row.operation == KernelOperation::k_pack)
      continue;
    const std::string kernel = row.name;
    CAPTURE(kernel);
    CAPTURE(group.launch.variant);
    CHECK(row.level == level);
    CHECK(schedule::storage_of(schedule::type_of(group.launch)) == type);
    CHECK(cases_like(group.launch) >= least);
    CHECK(cases_like(group.launch) <= 8);
    ++compared;
  }
  return compared;
}

schedule::Schedule convolution(const Caps& caps, ir::DType type, ir::ConvolveKind kind, int channels, int image) {
  ir::ConvolveAttrs attrs;
  attrs.kind = kind;
  attrs.stride = attrs.dilation = {1, 1};
  attrs.padding = {1, 1};
  const ir::Shape images = {8, channels, image, image}, filters = {channels, channels, 3, 3};
  ir::Builder b;
  const auto input = [&](const ir::Shape& sizes) {
    return b.input(type, sizes, {sizes[1] * sizes[2] * sizes[3], 1, sizes[3] * sizes[1], sizes[1]}, false, false);
  };
  const bool of_weight = kind == ir::ConvolveKind::kWeight;
  const ir::Shape& made = of_weight ? filters : images;
  const ir::Value first = input(images), second = input(of_weight ? images : filters);
  b.output(b.convolve(first, second, attrs, made, type), ir::contiguous_strides(made));
  return schedule::make_schedule(b.finish(), caps, {});
}

schedule::Schedule attention(const Caps& caps, ir::DType type, ir::AttentionKind kind, int depth, int rows) {
  ir::AttentionAttrs attrs;
  attrs.kind = kind;
  attrs.scale = 0.25;
  ir::Builder b;
  const auto input = [&](ir::DType dtype, const ir::Shape& sizes) {
    return b.input(dtype, sizes, ir::contiguous_strides(sizes), false, false);
  };
  const ir::Shape sizes = {2, 12, rows, depth};
  std::vector<ir::Value> operands = {input(type, sizes), input(type, sizes), input(type, sizes)};
  if (kind != ir::AttentionKind::kForward) {
    operands.push_back(input(type, sizes));
    operands.push_back(input(ir::DType::kF32, {2, 2, 12, rows}));
    operands.push_back(input(ir::DType::kF32, {2, 12, rows}));
  }
  for (const ir::Value& result : b.attention(operands, attrs)) b.output(result, ir::contiguous_strides(result.sizes));
  return schedule::make_schedule(b.finish(), caps, {});
}

schedule::Schedule product(const Caps& caps, ir::DType type, bool a_depth, bool b_depth, int size) {
  ir::Builder b;
  const ir::Shape sizes = {1, size, size};
  const ir::Value made = b.contract(matrix(b, type, sizes, !a_depth), matrix(b, type, sizes, b_depth), type);
  b.output(made, ir::contiguous_strides(sizes));
  return schedule::make_schedule(b.finish(), caps, {});
}

}  // namespace

TEST_CASE("for each tile and order of a product there is a case") {
  size_t compared = 0;
  for (const KernelLevel level : kLevels)
    for (const ir::DType type : kTypes)
      for (const bool a_depth : {false, true})
        for (const bool b_depth : {false, true})
          for (const int size : {64, 256, 1024, 4096})
            // One case has aligned operands, the other one has not.
            compared += compare(product(gpu(level), type, a_depth, b_depth, size), level, type, 2);
  CHECK(compared >= 96);
}

TEST_CASE("for each tile of a convolution and of its gradients there is a case") {
  size_t compared = 0;
  for (const KernelLevel level : kLevels)
    for (const ir::DType type : kTypes)
      for (const auto kind : {ir::ConvolveKind::kForward, ir::ConvolveKind::kData, ir::ConvolveKind::kWeight})
        for (const int channels : {64, 128, 512})
          for (const int image : {7, 28, 56}) {
            // Sizes choose the tile of this kernel, so its only case is not asked for tiles.
            const bool any = kind == ir::ConvolveKind::kWeight && level == KernelLevel::k_warpgroup;
            compared += compare(convolution(gpu(level), type, kind, channels, image), level, type, any ? 0 : 1);
          }
  CHECK(compared >= 140);
}

TEST_CASE("for each tile of attention and of its gradients there are cases") {
  size_t compared = 0;
  for (const KernelLevel level : kLevels)
    for (const ir::DType type : kTypes)
      for (const auto kind : {ir::AttentionKind::kForward, ir::AttentionKind::kQuery, ir::AttentionKind::kKeyValue})
        for (const int depth : {32, 64, 128})
          for (const int rows : {64, 1024}) compared += compare(attention(gpu(level), type, kind, depth, rows), level, type, 2);
  CHECK(compared >= 80);
}

TEST_CASE("a kernel that fails its check is left out, and its verdict is stored") {
  const WithPool pool(2);
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, const char*, const std::string& message) {
    if (level == LogLevel::kWarning) warnings.push_back(message);
  });
  for_each_device([&](Device& device) {
    if (device.caps().kernels.has(KernelLevel::k_warp)) return;  // There the kernel passes.
    const Caps caps = gpu(KernelLevel::k_warp);
    const schedule::Schedule made = product(caps, ir::DType::kBF16, true, false, 256);
    std::map<std::string, std::string> entries;
    std::mutex mutex;
    const BinaryStore store = {[&](const std::string& key) {
                                 const std::lock_guard lock(mutex);
                                 return entries.count(key) ? entries[key] : std::string();
                               },
                               [&](const std::string& key, const std::string& value) {
                                 const std::lock_guard lock(mutex);
                                 entries[key] = value;
                               },
                               {},
                               {}};
    warnings.clear();
    const KernelId id = KernelId::k_gemm_warp;
    CHECK(checks::unfailed_kernels(device, caps).kernels.has(id, KernelType::kBf16));
    {
      checks::LaunchChecks checks(device, store, made);
      CHECK(!checks.passed());  // No compiler of a CPU knows mma.
    }
    CHECK(warnings.size() == 1);
    CHECK(!entries.empty());
    for (const auto& [key, verdict] : entries) CHECK(verdict == "wrong");
    CHECK(!checks::unfailed_kernels(device, caps).kernels.has(id, KernelType::kBf16));
    CHECK(checks::unfailed_kernels(device, caps).kernels.has(id, KernelType::kFp16));
    // A verdict that is stored starts no process, whether it is good or bad.
    set_build_pool({2, std::chrono::seconds(60), "/nowhere/worker"});
    CHECK(!checks::LaunchChecks(device, store, made).passed());
    for (auto& [key, verdict] : entries) verdict = "right";
    CHECK(checks::LaunchChecks(device, store, made).passed());
    CHECK(warnings.size() == 1);
    set_build_pool({2, std::chrono::seconds(60), ""});
  });
  set_log_sink({});
}

TEST_CASE("two schedules that need the same checks at the same time share them") {
  const WithPool pool(2);
  set_log_sink([](LogLevel, const char*, const std::string&) {});
  for_each_device([](Device& device) {
    if (device.caps().kernels.has(KernelLevel::k_warp)) return;  // There the kernels pass.
    const schedule::Schedule made = product(gpu(KernelLevel::k_warp), ir::DType::kF16, true, false, 256);
    std::map<std::string, int> stored;
    std::mutex mutex;
    const BinaryStore store = {[](const std::string&) { return std::string(); },
                               [&](const std::string& key, const std::string&) {
                                 const std::lock_guard lock(mutex);
                                 ++stored[key];
                               },
                               {},
                               {}};
    {
      checks::LaunchChecks first(device, store, made), second(device, store, made);
      CHECK(!second.passed());
      CHECK(!first.passed());
    }
    CHECK(!stored.empty());
    for (const auto& [key, times] : stored) CHECK(times == 1);
  });
  set_log_sink({});
}
