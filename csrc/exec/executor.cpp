// csrc/exec/executor.cpp: runs a plan: binds symbol values, sets changed kernel arguments, enqueues.
#include "csrc/exec/executor.h"

#include <atomic>
#include <cstring>
#include <set>
#include <utility>

#include "csrc/exec/launch_info.h"
#include "csrc/exec/observers.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/schedule/memory_plan.h"

namespace ocl::exec {
namespace {

// Alignment of buffers in the arena in bytes. It is a multiple of a cache line and of every vector store.
constexpr int64_t kArenaAlignment = 256;

void bind_launch(RunState& state, size_t index) {
  const Launch& planned = state.plan.launches[index];
  LaunchState& launch = state.launches[index];
  const codegen::KernelSource& source = planned.source;
  launch.empty = false;
  launch.info = nullptr;  // The sizes may have changed, so the next recording makes a new description.
  for (int d = 0; d < 3; ++d) {
    const int64_t groups = value_of(state, source.groups[d]);
    launch.empty |= groups <= 0;
    launch.global[d] = static_cast<size_t>(groups) * source.local[d];
  }
  launch.offsets.clear();
  for (const BufferSource& buffer : planned.buffers) launch.offsets.push_back(value_of(state, buffer.offset));
  // The offsets may have changed, so the next call sets all arguments again.
  launch.bound.assign(planned.buffers.size(), LaunchState::Bound{});
  for (const codegen::IntArg& arg : source.ints) {
    const int64_t value = value_of(state, arg.value);
    const cl_uint slot = static_cast<cl_uint>(arg.slot);
    if (arg.wide) {
      const cl_long wide = value;
      OCL_CHECK(clSetKernelArg(launch.kernel.get(), slot, sizeof(wide), &wide), source.name);
    } else {
      OCL_ASSERT(launch.empty || (value >= INT32_MIN && value <= INT32_MAX),
                 "an int argument of " + source.name + " does not fit");
      const cl_int narrow = static_cast<cl_int>(value);
      OCL_CHECK(clSetKernelArg(launch.kernel.get(), slot, sizeof(narrow), &narrow), source.name);
    }
  }
}

void bind_shapes(RunState& state) {
  const Plan& plan = state.plan;
  const ir::Graph& graph = plan.schedule.graph;
  state.allocation_shapes.clear();
  for (const ir::BufferId id : plan.schedule.allocations) {
    const ir::Buffer& buffer = graph.buffers[id];
    state.allocation_shapes.push_back({values_of(state, buffer.sizes), values_of(state, *buffer.strides), 0});
  }
  state.output_shapes.clear();
  for (const ir::Output& output : graph.outputs)
    state.output_shapes.push_back(
        {values_of(state, output.sizes), values_of(state, output.strides), value_of(state, output.offset)});
}

/// Returns the intervals of the plan with their sizes in this call. If there are guard zones, each has room for a zone on each
/// side.
std::vector<schedule::Interval> sized_intervals(const RunState& state) {
  std::vector<schedule::Interval> intervals = state.plan.intervals;
  for (size_t i = 0; i < intervals.size(); ++i)
    intervals[i].size_bytes = value_of(state, state.plan.interval_bytes[i]) + 2 * state.plan.guard_bytes;
  return intervals;
}

/// The memory of one call. Each address that the caller passes is resolved once.
struct Memory {
  std::vector<runtime::Location> inputs, outputs;
  std::vector<runtime::Location> blocks;          // Of intervals that are not in the arena; empty if all are.
  const std::vector<int64_t>* offsets = nullptr;  // Of intervals in the arena.
  runtime::Location arena, kept;
  char *arena_address = nullptr, *kept_address = nullptr;
};

bool is_kept(const Plan& plan, int interval) { return !plan.kept_offsets.empty() && plan.kept_offsets[interval] >= 0; }

runtime::Location locate(const RunState& state, const Memory& memory, const BufferSource& source) {
  const Plan& plan = state.plan;
  runtime::Location at;
  switch (source.kind) {
    case BufferSource::Kind::kInput:
      return memory.inputs[source.index];
    case BufferSource::Kind::kOutput:
      return memory.outputs[source.index];
    case BufferSource::Kind::kArena:
    case BufferSource::Kind::kScratch:
      if (is_kept(plan, source.index)) {
        at = memory.kept;
        at.offset_bytes += static_cast<size_t>(plan.kept_offsets[source.index]);
        return at;
      }
      if (!memory.blocks.empty() && memory.blocks[source.index].mem) return memory.blocks[source.index];
      at = memory.arena;
      at.offset_bytes += static_cast<size_t>((*memory.offsets)[source.index]);
      return at;
  }
  return at;
}

/// Where a run's commands go: to the queue, or to its thread.
struct Target {
  runtime::Queue& queue;
  bool posts = false;

  /// Sets an argument of eight bytes: a cl_mem or a number.
  template <class Value>
  void set_argument(cl_kernel kernel, int slot, Value value, const std::string& name) const {
    static_assert(sizeof value == sizeof(uint64_t));
    if (posts) {
      runtime::PostedCommand command{.kind = runtime::PostedCommand::Kind::kArgument, .kernel = kernel};
      command.slot = static_cast<cl_uint>(slot);
      std::memcpy(command.value.data(), &value, sizeof value);
      return queue.post(command);
    }
    OCL_CHECK(clSetKernelArg(kernel, static_cast<cl_uint>(slot), sizeof value, &value), name);
  }
};

void patch(RunState& state, size_t index, const Memory& memory, const Target& target) {
  const Launch& planned = state.plan.launches[index];
  LaunchState& launch = state.launches[index];
  for (size_t i = 0; i < planned.buffers.size(); ++i) {
    const BufferSource& source = planned.buffers[i];
    const runtime::Location at = locate(state, memory, source);
    const cl_ulong offset =
        at.offset_bytes / static_cast<size_t>(source.element_bytes) + static_cast<cl_ulong>(launch.offsets[i]);
    LaunchState::Bound& bound = launch.bound[i];
    if (bound.mem != at.mem || at.mem == nullptr) {
      target.set_argument(launch.kernel.get(), source.slot, at.mem, planned.source.name);
      bound.mem = at.mem;
      bound.offset = ~offset;
    }
    if (bound.offset != offset) {
      target.set_argument(launch.kernel.get(), source.slot + 1, offset, planned.source.name);
      bound.offset = offset;
    }
  }
}

std::atomic<bool> g_skipped{false};

void enqueue(RunState& state, size_t index, const Target& target) {
  if (g_skipped.load(std::memory_order_relaxed)) return;
  const Launch& planned = state.plan.launches[index];
  LaunchState& launch = state.launches[index];
  if (target.posts)
    return target.queue.post({.kind = runtime::PostedCommand::Kind::kLaunch,
                              .name_id = planned.name_id,
                              .kernel = launch.kernel.get(),
                              .global = &launch.global,
                              .local = &planned.source.local});
  if (runtime::wanted() && !launch.info) launch.info = launch_info(state, index);
  target.queue.launch(launch.kernel.get(), 3, launch.global, planned.source.local, nullptr, planned.name_id, launch.info);
}

/// Chooses where the commands of a run go.
Target target_of(Executor& executor, runtime::Queue& queue) {
  RunState& state = executor.state;
  const Target target{queue, executor.observers.empty() && queue.may_post(executor.enqueue_cost)};
  if (state.posted_to != nullptr && (state.posted_to != &queue || !target.posts)) {
    runtime::Queue& other = *std::exchange(state.posted_to, nullptr);
    other.drain();  // Its thread may still set arguments.
    if (other.posted_failures() != state.failures) state.forget_arguments();
  }
  if (!target.posts) return target;
  if (state.posted_to != nullptr && queue.posted_failures() != state.failures) state.forget_arguments();
  state.posted_to = &queue;
  state.failures = queue.posted_failures();
  return target;
}

void* address_of(const RunState& state, const Memory& memory, const std::vector<void*>& inputs,
                 const std::vector<void*>& outputs, ir::BufferId buffer) {
  const Plan& plan = state.plan;
  const BufferSource source = source_of(plan, buffer);
  const bool arena = source.kind == BufferSource::Kind::kArena;
  if (arena && is_kept(plan, source.index)) return memory.kept_address + plan.kept_offsets[source.index];
  return address_of(state, RunMemory{inputs, outputs, memory.arena_address, 0}, source);
}

CallOperand operand(const RunState& state, const ir::Buffer& buffer, void* address, const ir::Shape& sizes,
                    const ir::Shape& strides, const ir::IndexExpr& offset) {
  return {address, values_of(state, sizes), values_of(state, strides), value_of(state, offset), buffer.dtype};
}

/// Makes later work of `queue` wait for writes that other streams have enqueued to inputs of the kept steps. An input's version
/// counts enqueued writes of all streams, whether they are done or not.
void wait_for_writers(const Plan& plan, const Memory& memory, runtime::Queue& queue) {
  std::set<int> writers;
  for (const int i : plan.kept_inputs)
    if (memory.inputs[i].mem) writers.insert(memory.inputs[i].writer);
  writers.erase(queue.stream());
  for (const int stream : writers) queue.wait_for(plan.device->queue(stream).last_work().get());
}

/// Returns the results of the kept steps. If the results of an earlier call are out of date, enqueues their computation.
std::shared_ptr<Kept> kept_results(Executor& executor, Memory& memory, const std::vector<void*>& inputs, const Target& target) {
  runtime::Queue& queue = target.queue;
  const Plan& plan = *executor.plan;
  runtime::Allocator& allocator = plan.device->allocator();
  Kept::Key key;
  for (const int i : plan.kept_inputs) key.emplace_back(inputs[i], memory.inputs[i].version);
  std::shared_ptr<Kept> kept = executor.kept;
  const bool stale = !kept || !kept->matches(key);
  if (stale) {
    executor.kept.reset();
    kept.reset();  // Frees its memory, so that the new results can use it.
    const runtime::MemoryPurpose purpose(plan.kept_purpose);
    kept = std::make_shared<Kept>(*plan.device, static_cast<size_t>(plan.kept_size_bytes), key, queue.stream());
  }
  memory.kept = allocator.use(kept->address(), queue.stream());
  memory.kept_address = static_cast<char*>(kept->address());
  if (!stale) {
    kept->make_ready(queue);
    return kept;
  }
  wait_for_writers(plan, memory, queue);
  for (const Step& step : plan.steps) {
    const auto launch = static_cast<size_t>(step.launch);
    if (!step.kept || executor.state.launches[launch].empty) continue;
    patch(executor.state, launch, memory, target);
    enqueue(executor.state, launch, target);
  }
  kept->computed(queue);
  // The process keeps too much already, so these results serve this call only.
  if (kept_bytes() > plan.most_kept_bytes) return kept;
  for (const int i : plan.kept_inputs)
    if (inputs[i]) allocator.attach(inputs[i], kept);
  executor.kept = kept;
  return kept;
}

/// What the steps of one run need.
struct Run {
  RunState& state;
  const Memory& memory;
  const std::vector<void*>&inputs, &outputs;
  const CallHandler& call;
  const Target& target;
};

void run_call(const Run& run, const ir::Node& node) {
  const RunState& state = run.state;
  const Plan& plan = state.plan;
  const ir::Graph& graph = plan.schedule.graph;
  const auto address = [&](ir::BufferId buffer) { return address_of(state, run.memory, run.inputs, run.outputs, buffer); };
  std::vector<CallOperand> operands, results;
  for (const ir::View& view : node.operands) {
    const std::optional<ir::Strided> window = ir::strided(graph, view);
    OCL_ASSERT(window.has_value(), "an operand of an eager op is no strided window");
    operands.push_back(
        operand(state, graph.buffers[view.buffer], address(view.buffer), view.sizes, window->strides, window->offset));
  }
  for (const ir::BufferId buffer : node.outputs) {
    const ir::Buffer& b = graph.buffers[buffer];
    if (plan.schedule.placements[buffer].kind == schedule::Placement::Kind::kNowhere) {
      results.push_back({});  // No step reads this result.
      continue;
    }
    results.push_back(operand(state, b, address(buffer), b.sizes, *b.strides, 0));
  }
  run.call(node.call, operands, results);
}

void run_step(const Run& run, const Step& step) {
  if (step.launch == ir::kNone) return run_call(run, run.state.plan.schedule.graph.nodes[step.call]);
  const auto launch = static_cast<size_t>(step.launch);
  if (run.state.launches[launch].empty || step.kept) return;
  patch(run.state, launch, run.memory, run.target);
  enqueue(run.state, launch, run.target);
}

/// Runs the steps with the observers around each of them.
void run_observed(const Run& run, const std::vector<std::shared_ptr<Observer>>& observers) {
  const RunMemory memory{run.inputs, run.outputs, run.memory.arena_address, run.target.queue.stream()};
  for (const auto& observer : observers) observer->begin(memory);
  for (size_t i = 0; i < run.state.plan.steps.size(); ++i) {
    for (const auto& observer : observers) observer->before(static_cast<int>(i));
    run_step(run, run.state.plan.steps[i]);
    for (const auto& observer : observers) observer->after(static_cast<int>(i));
  }
  for (const auto& observer : observers) observer->end();
}

/// The arena of a run, and the blocks of the intervals that are not in it. They are freed at the end, also of a run that fails.
struct Held {
  runtime::Allocator& allocator;
  const runtime::PurposeText& purpose;
  int stream;
  void* arena = nullptr;
  std::vector<void*> blocks;

  runtime::Location allocate(void*& address, int64_t bytes) const {
    const runtime::MemoryPurpose named(purpose);
    address = allocator.allocate(static_cast<size_t>(bytes), stream);
    return allocator.resolve(address);
  }
  void free(void*& address) const { allocator.free(std::exchange(address, nullptr)); }
  ~Held() {
    free(arena);
    for (void*& block : blocks) free(block);
  }
};

/// Returns what it costs to enqueue the launches of a plan. On an H200, a launch takes 3.5 us, and each buffer 0.2 to
/// 0.4 us more.
size_t enqueue_cost_of(const Plan& plan) {
  constexpr size_t kBuffersOfLaunch = 12;
  size_t buffers = 0;
  for (const Launch& launch : plan.launches) buffers += launch.buffers.size();
  return plan.launches.size() + buffers / kBuffersOfLaunch;
}

}  // namespace

void skip_launches(bool skipped) { g_skipped = skipped; }
bool launches_skipped() { return g_skipped.load(std::memory_order_relaxed); }

Executor::Executor(std::unique_ptr<const Plan> of)
    : plan(std::move(of)), times(memory_times(*plan)), enqueue_cost(enqueue_cost_of(*plan)), state(*plan) {
  for (size_t i = 0; i < plan->launches.size(); ++i)
    state.launches.emplace_back().kernel = plan->programs[i]->create_kernel(plan->launches[i].source.name);
  observers = observers_of(state);
}

Executor::~Executor() {
  if (state.posted_to != nullptr) state.posted_to->drain();  // Its thread may still use the kernels.
}

void bind_symbols(RunState& state, const std::vector<int64_t>& symbols) {
  if (state.bound && state.symbols == symbols) return;
  if (state.posted_to != nullptr) state.posted_to->drain();  // Its thread reads sizes of launches.
  const Plan& plan = state.plan;
  state.bound = false;
  state.symbols = symbols;
  for (size_t i = 0; i < state.launches.size(); ++i) bind_launch(state, i);
  state.late.reset();
  // If there are guard zones, the offset is the offset of the buffer between the zones.
  state.memory = schedule::plan_memory(sized_intervals(state), kArenaAlignment);
  for (int64_t& offset : state.memory.offsets) offset += plan.guard_bytes;
  bind_shapes(state);
  state.result_bytes = 0;
  for (size_t i = 0; i < plan.schedule.allocations.size(); ++i)
    state.result_bytes += extent_bytes(state, {BufferSource::Kind::kOutput, static_cast<int>(i), 1, {}, 0});
  state.bound = true;
}

bool holds_less_late(const Executor& executor, size_t fault_words) {
  const RunState& state = executor.state;
  const bool are_most = state.memory.arena_bytes >= kLeastBlock && state.result_bytes > state.memory.arena_bytes;
  return executor.times.possible && executor.times.words == fault_words && (executor.times.gives_back || are_most);
}

void run(Executor& executor, const std::vector<void*>& inputs, std::vector<void*>& outputs, const CallHandler& call, int stream,
         const LateMemory* late) {
  const Plan& plan = *executor.plan;
  RunState& state = executor.state;
  OCL_ASSERT(state.bound, "run before bind_symbols");
  runtime::Allocator& allocator = plan.device->allocator();
  runtime::Queue& queue = plan.device->queue(stream);
  const Target target = target_of(executor, queue);
  Memory memory;
  memory.inputs = allocator.use(inputs, stream);
  memory.outputs = allocator.use(outputs, stream);
  // Versions are updated after everything is enqueued, so a thread that sees a new version also finds the writes in the
  // stream's queue.
  struct Writes {
    const Plan& plan;
    const std::vector<void*>& inputs;
    int stream;
    ~Writes() { plan.device->allocator().wrote(inputs, plan.written_inputs, stream); }
  } writes{plan, inputs, stream};
  Held held{allocator, plan.arena_purpose, stream, nullptr, {}};
  if (late != nullptr) {
    if (!state.late) state.late = late_arena(sized_intervals(state), plan.steps.size(), kArenaAlignment);
    memory.blocks.resize(plan.intervals.size());
    held.blocks.resize(plan.intervals.size());
  }
  const schedule::MemoryPlan& arena = late != nullptr ? state.late->arena : state.memory;
  memory.offsets = &arena.offsets;
  if (arena.arena_bytes > 0) {
    memory.arena = held.allocate(held.arena, arena.arena_bytes);
    memory.arena_address = static_cast<char*>(held.arena);
  }
  const auto forget_released = [&] {
    if (const uint64_t released = allocator.slabs_released(); std::exchange(state.slabs_released, released) != released)
      state.forget_arguments();
  };
  forget_released();
  std::shared_ptr<Kept> kept;  // Alive until everything is enqueued.
  if (plan.kept_size_bytes > 0) kept = kept_results(executor, memory, inputs, target);
  const Run this_run{state, memory, inputs, outputs, call, target};
  if (late != nullptr)
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      for (const int output : executor.times.first_writes[i]) {
        outputs[output] = late->allocate(output);
        if (outputs[output]) memory.outputs[output] = allocator.use(outputs[output], stream);
        forget_released();
      }
      for (const int interval : state.late->begin_at[i]) {
        memory.blocks[interval] = held.allocate(held.blocks[interval], state.late->block_bytes[interval]);
        forget_released();
      }
      run_step(this_run, plan.steps[i]);
      for (const int input : executor.times.last_uses[i]) late->release(input);
      for (const int interval : state.late->end_at[i]) held.free(held.blocks[interval]);
    }
  else if (executor.observers.empty() || launches_skipped())
    for (const Step& step : plan.steps) run_step(this_run, step);
  else
    run_observed(this_run, executor.observers);
  if (target.posts)
    queue.post({.kind = runtime::PostedCommand::Kind::kFlush});
  else
    queue.flush();
}

}  // namespace ocl::exec
