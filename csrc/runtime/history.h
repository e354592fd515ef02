// csrc/runtime/history.h: what ran, as structs: profilers, explain, tests and benchmarks read these records.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

/// What a launch computes. Equal for all calls with the same sizes, so their records share it.
struct LaunchInfo {
  std::string kernel;  // "sum_3f9c1e"
  std::string kind;    // pointwise, reduction, gemm, conv_forward, ..., copy
  std::string origin;  // aten ops and model source lines
  std::string title;   // "gemm 64x10x4096 @ model.py:61, 5.24 MFLOP, 1.2 MB: addmm": for tables and traces
  std::array<size_t, 3> global{1, 1, 1}, local{1, 1, 1};
  int ops = 0;        // IR nodes fused in this kernel
  int64_t bytes = 0;  // read + written, analytic
  int64_t flops = 0;
  bool tensor_cores = false;
};
using LaunchInfoPtr = std::shared_ptr<const LaunchInfo>;

enum class CommandType : uint8_t { kLaunch, kUpload, kDownload, kCopy, kFill, kStreamWait, kQueueFinish, kEventWait };

/// A range of the program that a profiler watches, by the profiler's number; ranges nest.
struct ProgramRange {
  uint64_t id = 0;
  bool named_by_user = false;
  std::shared_ptr<const ProgramRange> outer;
};
using ProgramRangePtr = std::shared_ptr<const ProgramRange>;

/// One command of a queue, or one wait of the host.
struct CommandRecord {
  CommandType type = CommandType::kLaunch;
  LaunchInfoPtr info;  // of a launch
  int device = 0, stream = 0;
  int64_t bytes = 0;                                // of a transfer or fill
  int64_t thread = 0;                               // the system's number of the calling thread
  int64_t called_ns = 0, returned_ns = 0;           // of the call that enqueued or waited: unix time
  ProgramRangePtr range;                            // the innermost one that the call was in
  int64_t queued_ns = 0, start_ns = 0, end_ns = 0;  // the device's clock; zero unless timing was on
};

/// What the open recordings want, together.
enum Wanted : unsigned { kLaunches = 1, kTimes = 2, kAllCommands = 4 };
extern std::atomic<unsigned> g_wanted;
inline unsigned wanted() noexcept { return g_wanted.load(std::memory_order_relaxed); }

/// Starts a recording of the launches of all threads; returns its number. Recordings may overlap in any way. `timing` asks for
/// the device's times; `all_commands` for transfers, fills and waits too.
int begin_recording(bool timing, bool all_commands = false);
/// Ends it; waits for the recorded commands if it was timed. Empty for a number that no open recording has.
std::vector<CommandRecord> end_recording(int recording);

/// Ranges of this thread, from the profiler with this number (a new one for each session). A range of an older session is
/// forgotten.
void enter_range(uint64_t session, uint64_t id, bool named_by_user);
void leave_range(uint64_t session, bool named_by_user);

/// Nanoseconds since 1970.
int64_t unix_ns() noexcept;

/// Notes one command while it is enqueued. Does nothing unless a recording wants it.
class NotedCommand {
 public:
  NotedCommand(CommandType type, int device, int stream);
  /// Where the command's event goes; nullptr if nobody wants one. `callers`: an event that the caller wants anyhow.
  cl_event* event(cl_event* callers = nullptr);
  /// Call it when the command is enqueued, or the wait is over.
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

const char* name(CommandType type);      // "launch", "upload", ...
const char* function(CommandType type);  // OpenCL's: "clEnqueueNDRangeKernel", ...
/// Whether the device does something, rather than the host.
inline bool is_of_device(CommandType type) { return type < CommandType::kQueueFinish; }
/// "upload 1.2 MB", or the launch's title.
std::string title_of(const CommandRecord& record);
/// "1.2 MB": three digits and a decimal prefix.
std::string amount(double value, const char* unit);

}  // namespace ocl::runtime
