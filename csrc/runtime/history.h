// csrc/runtime/history.h: records of launches, as structs. explain, the profiler, tests and benchmarks read them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ocl::runtime {

/// One launch. Times are in ns of the device's clock; they are zero unless timing was on.
struct LaunchRecord {
  std::string kernel;  // The kernel's name, such as "sum_3f9c1e".
  // What kind of kernel it is: pointwise, reduction, gemm, conv_forward, ..., copy, fill.
  std::string kind;
  std::string origin;  // The aten ops and the source lines of the model.
  int device = 0;
  std::array<size_t, 3> global{}, local{};
  int ops = 0;        // Number of IR nodes fused in this kernel.
  int64_t bytes = 0;  // Bytes read and written, computed from the shapes.
  int64_t flops = 0;
  int64_t queued_ns = 0, start_ns = 0, end_ns = 0;
};

/// begin_recording and end_recording start and end a recording. Recordings nest: the launches of an inner one belong to
/// the outer one too. With `timing`, launches pass an event, and end_recording waits for it to read the times.
void begin_recording(bool timing);
std::vector<LaunchRecord> end_recording();
bool recording() noexcept;
bool recording_times() noexcept;
/// Adds a record. Call it only while recording() is true. The event may be null. It is retained here, so the caller
/// releases its own reference; end_recording reads its times.
void add_record(LaunchRecord record, void* cl_event_or_null);

}  // namespace ocl::runtime
