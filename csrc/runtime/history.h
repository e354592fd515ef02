// csrc/runtime/history.h: what ran, as structs: explain, the profiler, tests and benchmarks read these records.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ocl::runtime {

/// One launch. Times in ns of the device's clock; zero unless timing was on.
struct LaunchRecord {
  std::string kernel;  // "sum_3f9c1e"
  std::string kind;    // pointwise, reduction, gemm, conv_forward, ..., copy, fill
  std::string origin;  // aten ops and model source lines
  int device = 0;
  std::array<size_t, 3> global{}, local{};
  int ops = 0;        // IR nodes fused in this kernel
  int64_t bytes = 0;  // read + written, analytic
  int64_t flops = 0;
  int64_t queued_ns = 0, start_ns = 0, end_ns = 0;
  std::string graph;  // label of the compiled graph; "" for what no graph launches
  int group = 0;      // its position in that graph
};

/// Starts and stops recording. Calls nest: an inner recording's launches belong to the outer one too. `timing` asks for device
/// times: launch code then passes an event, and end_recording waits for it.
void begin_recording(bool timing);
std::vector<LaunchRecord> end_recording();
bool recording() noexcept;
bool recording_times() noexcept;
/// Called by launch code only while recording() is true. The event may be null; it is retained, and its times are read in
/// end_recording, so launch code releases its own reference.
void add_record(LaunchRecord record, void* cl_event_or_null);

}  // namespace ocl::runtime
