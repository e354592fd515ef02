// csrc/runtime/record/history.h: records of what devices did, as structs. Profilers, explain, tests and benchmarks read them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// What a launch computes. All launches of a call site with the same sizes share one object.
struct LaunchInfo {
  std::string kernel;  // The kernel's name, such as "sum_3f9c1e".
  std::string kind;    // What kind of kernel it is: pointwise, reduction, gemm, conv_forward, ..., copy.
  std::string origin;  // The aten ops and the source lines of the model.
  std::string title;   // The text in tables and traces: "gemm 64x10x4096 @ model.py:61, 5.24 MFLOP, 1.20 MB: addmm".
  std::array<size_t, 3> global{1, 1, 1}, local{1, 1, 1};
  std::string graph;  // Label of the compiled graph. Empty for a kernel that no graph launches.
  int group = 0;      // The kernel's position in that graph.
  int ops = 0;        // Number of IR nodes fused in this kernel.
  int64_t bytes = 0;  // Bytes read and written, computed from the shapes.
  int64_t flops = 0;
  bool tensor_cores = false;
};
using LaunchInfoPtr = std::shared_ptr<const LaunchInfo>;

enum class CommandType : uint8_t { kLaunch, kUpload, kDownload, kCopy, kFill, kStreamWait, kQueueFinish, kEventWait };

/// A range of the program that a profiler watches. `id` is the profiler's number for it. Ranges nest.
struct ProgramRange {
  uint64_t id = 0;
  bool named_by_user = false;
  std::shared_ptr<const ProgramRange> outer;
};
using ProgramRangePtr = std::shared_ptr<const ProgramRange>;

/// One command of a queue, or one wait of the host.
struct CommandRecord {
  CommandType type = CommandType::kLaunch;
  LaunchInfoPtr info;  // Only of a launch.
  int device = 0, stream = 0;
  int64_t bytes = 0;                                // Bytes of a transfer or a fill.
  int64_t thread = 0;                               // The system's number of the calling thread.
  int64_t called_ns = 0, returned_ns = 0;           // When the call that enqueued or waited began and ended, in unix time.
  ProgramRangePtr range;                            // The innermost range that the call was in.
  int64_t queued_ns = 0, start_ns = 0, end_ns = 0;  // Times of the device's clock. Zero unless timing was on.
};

/// What the open recordings record, as bits that are or-ed over all recordings.
enum Wanted : unsigned { kLaunches = 1, kTimes = 2, kAllCommands = 4 };
extern std::atomic<unsigned> g_wanted;
inline unsigned wanted() noexcept { return g_wanted.load(std::memory_order_relaxed); }

/// Starts a recording of the launches of all threads and returns its number. Recordings may overlap in any way. `timing` asks
/// for the device's times. `all_commands` asks for transfers, fills and waits too.
int begin_recording(bool timing, bool all_commands = false);
/// Ends a recording. Waits for the recorded commands if it was timed. The list is empty if no open recording has this number.
std::vector<CommandRecord> end_recording(int recording);

/// The profiler calls these when the thread enters or leaves a range. Each session has a number of its own. Ranges of an older
/// session are forgotten.
void enter_range(uint64_t session, uint64_t id, bool named_by_user);
void leave_range(uint64_t session, bool named_by_user);

/// Returns nanoseconds since 1970.
int64_t unix_ns() noexcept;

/// Records one command while it is enqueued. Does nothing unless a recording wants it.
class NotedCommand {
 public:
  NotedCommand(CommandType type, int device, int stream);
  /// Returns where to put the command's event, or nullptr if no event is needed. `callers` is where the caller wants
  /// the event, or nullptr.
  cl_event* event(cl_event* callers = nullptr);
  /// Must be called when the command is enqueued or the wait is over.
  void done(int64_t bytes = 0, const LaunchInfoPtr& info = nullptr);
  bool noted() const { return noted_; }

 private:
  const unsigned wanted_ = wanted();
  const bool noted_;
  CommandType type_;
  int device_, stream_;
  int64_t called_ns_ = 0;
  cl_event own_ = nullptr;
  cl_event* target_ = nullptr;
};

const char* name(CommandType type);      // Returns "launch", "upload", ...
const char* function(CommandType type);  // Returns the name of OpenCL's function, such as "clEnqueueNDRangeKernel".
/// True if the device executes the command; false if the host does.
inline bool is_of_device(CommandType type) { return type < CommandType::kQueueFinish; }
/// Returns the launch's title, or "upload 1.20 MB".
std::string title_of(const CommandRecord& record);
/// Returns "1.20 MB": three digits and a decimal prefix.
std::string amount(double value, const char* unit);
/// Returns the first `dims` sizes of a launch as a text, such as "64x4".
std::string sizes_text(int dims, const std::array<size_t, 3>& sizes);

}  // namespace ocl::runtime
