// csrc/exec/plan.h: a graph compiled for one device, with everything that can be computed once. make_plan.h makes it, and
// executor.h runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/codegen/kernel_source.h"
#include "csrc/ir/graph.h"
#include "csrc/runtime/build/program.h"
#include "csrc/runtime/device/device.h"
#include "csrc/runtime/record/memory_history.h"
#include "csrc/schedule/describe.h"
#include "csrc/schedule/memory_plan.h"
#include "csrc/schedule/pipeline.h"
#include "csrc/support/live.h"

namespace ocl::exec {

/// The memory behind one buffer argument of a kernel. It is resolved at every call.
struct BufferSource {
  enum class Kind : uint8_t { kInput, kOutput, kArena, kScratch };
  Kind kind = Kind::kInput;
  int index = 0;  // Number of the input, of the output allocation, or of the interval in the memory plan.
  int element_bytes = 4;
  ir::IndexExpr offset;  // The offset of element 0 in elements.
  int slot = 0;          // The kernel's argument number of the pointer. The next argument is the offset.
};

/// One launch of a kernel.
struct Launch {
  codegen::KernelSource source;
  std::vector<BufferSource> buffers;
  std::string origin;
  int group = 0;  // Position in the schedule's groups.
  int ops = 0;
  int name_id = 0;  // Number of the kernel's name for error messages of the queue.
  schedule::Work work;
};

struct Step {
  int launch = ir::kNone;       // Index into `launches`, or kNone.
  ir::NodeId call = ir::kNone;  // A kCall node, or kNone.
  bool kept = false;            // True if the step reads only parameters, so that it runs only when one of them has changed.
};

class WholePlan;

/// A graph compiled for one device. It does not change any more.
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
  std::vector<int> written_inputs;           // Positions of inputs that the plan writes.
  std::vector<BufferSource> output_sources;  // Where each output of the graph lies.
  bool checked = false;                      // Every launch is compared with the interpreter (PlanOptions::check).
  int64_t guard_bytes = 0;                   // Size of the guard zones around buffers of the arena and results.
  // What the memory is for, in snapshots and error messages.
  runtime::PurposeText arena_purpose, results_purpose, kept_purpose;
  // Results of kept steps: the parameters that they depend on, and the offset of each interval in their memory (-1: it
  // is in the arena).
  int64_t most_kept_bytes = 0, kept_size_bytes = 0;
  std::vector<int> kept_inputs;
  std::vector<int64_t> kept_offsets;
  // If the plan comes from a store, it has only what running it needs: no nodes, groups and texts. This makes all of it.
  std::shared_ptr<WholePlan> whole;
  Live<Plan> live;
};

/// Makes a plan with all that describes it, when it is first asked for.
class WholePlan {
 public:
  explicit WholePlan(std::function<std::unique_ptr<const Plan>()> make) : make_(std::move(make)) {}
  const Plan& get();

 private:
  std::mutex mutex_;
  std::function<std::unique_ptr<const Plan>()> make_;
  std::unique_ptr<const Plan> made_;
};
/// Returns the plan with its nodes, groups and texts.
const Plan& whole_plan(const Plan& plan);

/// Returns the aten ops and source lines of a group for messages and records: "aten.relu, aten.sum (model.py:61)".
std::string origin_of(const schedule::Schedule& schedule, const schedule::Group& group);
/// Returns the memory of a buffer. An alias has the memory of the buffer that it refers to.
BufferSource source_of(const Plan& plan, ir::BufferId buffer);

}  // namespace ocl::exec
