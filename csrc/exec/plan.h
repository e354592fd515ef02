// csrc/exec/plan.h: turns a graph into a Plan. Only here do schedule, codegen, cache and runtime meet. Everything that
// can be computed once is computed here; executor.h runs the result.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/codegen/kernel_source.h"
#include "csrc/exec/kept.h"
#include "csrc/exec/observer.h"
#include "csrc/ir/graph.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/history.h"
#include "csrc/runtime/memory_history.h"
#include "csrc/runtime/program.h"
#include "csrc/schedule/memory_plan.h"
#include "csrc/schedule/pipeline.h"
#include "csrc/support/live.h"

namespace ocl::exec {

struct PlanOptions {
  schedule::Options schedule;
  int64_t most_kept_bytes = 0;  // Limit on the bytes of kept weights over all plans. 0: nothing is kept.
  std::string disable;          // Comma-separated names of kernels that must not be used: "warpgroup,conv_statistics".
  // "item": use CPU kernels; "group": use GPU kernels; "" or "auto": decide by the device's caps.
  std::string kernel_family;
  int vector_floats = 0;   // Width of a CPU's vectors in floats. 0: the device's width.
  int units = 0;           // Number of compute units to divide work among. 0: the device's number.
  std::string label;       // Name of the graph in messages: "forward graph 3".
  std::string op;          // Name of the op in a plan for one eager op: "aten::add".
  std::string failed_dir;  // Folder for source and log of a kernel that does not build.
  std::string dump_dir;    // Folder for the text of every kernel. "": not written.
  // A candidate that tuning tries for every problem. "": use measured choices or the cost models.
  std::string choice;
  bool tuned = true;     // Use measured choices.
  std::string appended;  // Text added after every kernel. Tests use it to make a kernel that does not build.
  // (kernel, part of its text, what replaces the part). Tests use it to make kernels that compute or store wrongly.
  std::vector<std::tuple<std::string, std::string, std::string>> replaced;
  bool check = false;        // Compares the results of every launch with the interpreter's.
  bool guard_zones = false;  // Fills memory with NaN and looks for stores beside buffers, see guard_zones.h.
};

/// The memory behind one buffer argument of a kernel. It is resolved at every call.
struct BufferSource {
  enum class Kind : uint8_t { kInput, kOutput, kArena, kScratch };
  Kind kind = Kind::kInput;
  int index = 0;  // Number of the input, of the output allocation, or of the interval in the memory plan.
  int element_bytes = 4;
  ir::IndexExpr offset;  // The offset of element 0 in elements.
  int slot = 0;          // The kernel's argument number of the pointer. The next argument is the offset.
};

/// One launch. It stores the kernel arguments that were set last, so that a call sets only arguments that have changed.
struct Launch {
  codegen::KernelSource source;
  std::vector<BufferSource> buffers;
  runtime::KernelHandle kernel;
  std::string origin;
  int group = 0;  // Position in the schedule's groups.
  int ops = 0;
  int name_id = 0;  // Number of the kernel's name for error messages of the queue.
  schedule::Work work;
  // The buffer arguments of the last call:
  struct Bound {
    cl_mem mem = nullptr;
    cl_ulong offset = 0;
  };
  std::vector<Bound> bound;
  std::vector<int64_t> offsets;  // The buffers' offsets in elements, for the current symbol values.
  std::array<size_t, 3> global{1, 1, 1};
  bool empty = false;           // True if a grid dimension is zero, so that there is nothing to launch.
  runtime::LaunchInfoPtr info;  // Describes the launch in recordings. It is made when a recording first needs it.
};

/// The shape of one of the caller's tensors, in numbers.
struct TensorShape {
  std::vector<int64_t> sizes, strides;  // Strides in elements.
  int64_t offset = 0;                   // Offset in elements.
};

struct Step {
  int launch = ir::kNone;       // Index into `launches`, or kNone.
  ir::NodeId call = ir::kNone;  // A kCall node, or kNone.
  bool kept = false;            // True if the step reads only parameters, so that it runs only when one of them has changed.
};

/// A graph compiled for one device. Not copyable. Calls hold `mutex`, because a cl_kernel stores its arguments.
struct Plan {
  runtime::Device* device = nullptr;
  std::string label, op;  // As in PlanOptions.
  schedule::Schedule schedule;
  std::vector<Launch> launches;
  std::vector<Step> steps;
  // Lifetimes of the buffers in the arena, followed by the lifetimes of scratch memory.
  std::vector<schedule::Interval> intervals;
  std::vector<ir::IndexExpr> interval_bytes;
  std::vector<int> interval_of;  // Interval of each buffer; kNone if it is not in the arena.
  std::vector<std::shared_ptr<runtime::Program>> programs;
  std::vector<schedule::PassTrace> passes;
  double check_seconds = 0, schedule_seconds = 0, codegen_seconds = 0, build_seconds = 0;
  std::vector<int> written_inputs;                   // Positions of inputs that the plan writes.
  std::vector<BufferSource> output_sources;          // Where each output of the graph lies.
  std::vector<std::shared_ptr<Observer>> observers;  // Checks that watch every step; usually none.
  int64_t guard_bytes = 0;                           // Size of the guard zones around buffers of the arena and results.
  // What the memory is for, in snapshots and error messages.
  runtime::PurposeText arena_purpose, results_purpose, kept_purpose;
  // Results of kept steps: the parameters that they depend on, and the offset of each interval in their memory (-1: it
  // is in the arena).
  int64_t most_kept_bytes = 0, kept_size_bytes = 0;
  std::vector<int> kept_inputs;
  std::vector<int64_t> kept_offsets;
  std::mutex mutex;
  std::shared_ptr<Kept> kept;
  // State for the symbol values of the last call:
  bool bound = false;
  std::vector<int64_t> symbols;
  schedule::MemoryPlan memory;
  std::vector<TensorShape> allocation_shapes;  // Shapes of schedule.allocations, as whole buffers.
  std::vector<TensorShape> output_shapes;      // Shapes of the graph's outputs.
  Live<Plan> live;
};

/// Fills an empty plan: schedules the graph, generates and builds its kernels. If it throws CompilerCrash, the plan has the
/// schedule and the launches. Call make_plan (make_plan.h), which handles that.
void fill_plan(Plan& plan, ir::Graph graph, runtime::Device& device, const runtime::BinaryStore& store,
               const PlanOptions& options);

/// Returns the device's caps, restricted to the kernels that the options allow. ConfigError for an unknown name in `disable`.
Caps caps_for(const runtime::Device& device, const PlanOptions& options);

/// The schedule and kernels of a graph for given caps, made without a device. Tests and `explain` use it.
struct RenderedPlan {
  schedule::Schedule schedule;
  std::vector<codegen::KernelSource> kernels;  // One per group that launches a kernel, in order.
  std::vector<schedule::PassTrace> passes;
};
RenderedPlan render(ir::Graph graph, const Caps& caps, const schedule::Options& options);

/// Returns the aten ops and source lines of a group for messages and records: "aten.relu, aten.sum (model.py:61)".
std::string origin_of(const schedule::Schedule& schedule, const schedule::Group& group);
/// Returns the memory of a buffer. An alias has the memory of the buffer that it refers to.
BufferSource source_of(const Plan& plan, ir::BufferId buffer);

}  // namespace ocl::exec
