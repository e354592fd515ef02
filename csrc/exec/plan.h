// csrc/exec/plan.h: graph -> Plan: the one place where schedule, codegen, cache and runtime meet.
// Everything that can be computed once is computed here; executor.h runs the result.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/codegen/kernel_source.h"
#include "csrc/exec/kept.h"
#include "csrc/ir/graph.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/memory_history.h"
#include "csrc/runtime/program.h"
#include "csrc/schedule/memory_plan.h"
#include "csrc/schedule/pipeline.h"
#include "csrc/support/live.h"

namespace ocl::exec {

struct PlanOptions {
  schedule::Options schedule;
  int64_t most_kept_bytes = 0;  // limit for kept weights, over all plans; 0: nothing is kept
  std::string disable;          // kernels not to use, with commas and no spaces: "warpgroup,conv_statistics"
  std::string kernel_family;    // "item" or "group": kernels for CPUs or GPUs whatever the device is; "" or "auto": by its caps
  int vector_floats = 0;        // width of a CPU's vectors; 0: the device's
  int units = 0;                // compute units to share work among, 0: the device's
  std::string label;            // "forward graph 3": for messages
  std::string failed_dir;       // where source and log of a kernel that does not build are saved
  std::string dump_dir;         // every kernel as a file, "" for none
  std::string choice;           // a candidate that tuning tries for every problem; "": measured choices, or the cost models
  bool tuned = true;            // follow measured choices
  std::string appended;         // text after every kernel: tests make one that does not build
};

/// Bytes behind one kernel argument pair: which memory, resolved at every call.
struct BufferSource {
  enum class Kind : uint8_t { kInput, kOutput, kArena, kScratch };
  Kind kind = Kind::kInput;
  int index = 0;  // input position, output allocation, or interval of the memory plan
  int element_bytes = 4;
  ir::IndexExpr offset;  // elements
  int slot = 0;          // kernel argument of the pointer; its offset is slot + 1
};

/// One launch with what its kernel was last given, so that a call patches only what changed.
struct Launch {
  codegen::KernelSource source;
  std::vector<BufferSource> buffers;
  runtime::KernelHandle kernel;
  std::string origin;
  int ops = 0;
  int name_id = 0;  // number of the kernel's name, for the queue's error messages
  schedule::Work work;
  // State of the last call
  struct Bound {
    cl_mem mem = nullptr;
    cl_ulong offset = 0;
  };
  std::vector<Bound> bound;
  std::vector<int64_t> offsets;  // elements, for the current symbols
  std::array<size_t, 3> global{1, 1, 1};
  bool empty = false;  // some grid dimension is zero: nothing to launch
};

struct Step {
  int launch = ir::kNone;       // index into launches, or
  ir::NodeId call = ir::kNone;  // a kCall node
  bool kept = false;            // reads parameters alone: runs when one of them has changed
};

/// A compiled graph on one device. Not copyable; calls are serialised by `mutex` (kernel arguments are state).
struct Plan {
  runtime::Device* device = nullptr;
  schedule::Schedule schedule;
  std::vector<Launch> launches;
  std::vector<Step> steps;
  std::vector<schedule::Interval> intervals;  // arena buffers, then scratch
  std::vector<ir::IndexExpr> interval_bytes;
  std::vector<int> interval_of;  // per buffer, kNone if not in the arena
  std::vector<std::shared_ptr<runtime::Program>> programs;
  std::vector<schedule::PassTrace> passes;
  double check_seconds = 0, schedule_seconds = 0, codegen_seconds = 0, build_seconds = 0;
  std::vector<int> written_inputs;                                    // positions of inputs that the plan writes
  runtime::PurposeText arena_purpose, results_purpose, kept_purpose;  // of memory, for snapshots and errors
  // Results of kept steps: which parameters they depend on, and the place of each interval in their memory (-1: in the arena)
  int64_t most_kept_bytes = 0, kept_size_bytes = 0;
  std::vector<int> kept_inputs;
  std::vector<int64_t> kept_offsets;
  std::mutex mutex;
  std::shared_ptr<Kept> kept;
  // For the symbol values of the last call
  bool bound = false;
  std::vector<int64_t> symbols;
  schedule::MemoryPlan memory;
  Live<Plan> live;
};

/// Schedules, generates, builds. Throws the core's errors; a failing pass or kernel is named with its aten ops.
std::unique_ptr<Plan> make_plan(ir::Graph graph, runtime::Device& device, const runtime::BinaryStore& store,
                                const PlanOptions& options);

/// The device's caps, with the family of kernels and the kernels that the options ask for. ConfigError for a name in `disable`
/// that is none.
Caps caps_for(const runtime::Device& device, const PlanOptions& options);

/// The kernels of a graph for given capabilities, without a device: the null backend of tests and `explain`.
struct Rendered {
  schedule::Schedule schedule;
  std::vector<codegen::KernelSource> kernels;  // one per group that launches, in order
  std::vector<schedule::PassTrace> passes;
};
Rendered render(ir::Graph graph, const Caps& caps, const schedule::Options& options);

/// "aten.relu, aten.sum (model.py:61)" for messages and records.
std::string origin_of(const schedule::Schedule& schedule, const schedule::Group& group);
/// The memory behind a buffer: follows aliases.
BufferSource source_of(const Plan& plan, ir::BufferId buffer);

}  // namespace ocl::exec
