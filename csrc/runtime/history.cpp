// csrc/runtime/history.cpp: stores the launches of the recordings that are open.
#include "csrc/runtime/history.h"

#include <atomic>
#include <mutex>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {
namespace {

struct Entry {
  LaunchRecord record;
  EventHandle event;
};

std::atomic<int> g_recordings{0};        // Number of open recordings.
std::atomic<int> g_timed_recordings{0};  // Number of open recordings that want times.
std::mutex g_mutex;

// Neither list is ever destroyed: a driver may be gone when destructors run at exit.
std::vector<Entry>& entries() {
  static auto* entries = new std::vector<Entry>;
  return *entries;
}

struct Opened {
  size_t first;  // Index of the recording's first record.
  bool timing;
};
std::vector<Opened>& opened() {
  static auto* opened = new std::vector<Opened>;
  return *opened;
}

int64_t event_time(cl_event event, cl_profiling_info what) {
  cl_ulong time = 0;
  return clGetEventProfilingInfo(event, what, sizeof(time), &time, nullptr) == CL_SUCCESS ? static_cast<int64_t>(time) : 0;
}

}  // namespace

void begin_recording(bool timing) {
  std::lock_guard lock(g_mutex);
  opened().push_back({entries().size(), timing});
  g_recordings.fetch_add(1);
  if (timing) g_timed_recordings.fetch_add(1);
}

std::vector<LaunchRecord> end_recording() {
  std::lock_guard lock(g_mutex);
  if (opened().empty()) return {};
  const Opened last = opened().back();
  opened().pop_back();
  g_recordings.fetch_sub(1);
  if (last.timing) g_timed_recordings.fetch_sub(1);
  std::vector<LaunchRecord> records;
  for (size_t i = last.first; i < entries().size(); ++i) {
    Entry& entry = entries()[i];
    if (cl_event event = entry.event.get()) {
      // Failed work has no times. synchronize() reports its error.
      clWaitForEvents(1, &event);
      entry.record.queued_ns = event_time(event, CL_PROFILING_COMMAND_QUEUED);
      entry.record.start_ns = event_time(event, CL_PROFILING_COMMAND_START);
      entry.record.end_ns = event_time(event, CL_PROFILING_COMMAND_END);
      entry.event = EventHandle();
    }
    records.push_back(entry.record);
  }
  if (opened().empty()) entries().clear();
  return records;
}

bool recording() noexcept { return g_recordings.load(std::memory_order_relaxed) > 0; }
bool recording_times() noexcept { return g_timed_recordings.load(std::memory_order_relaxed) > 0; }

void add_record(LaunchRecord record, void* cl_event_or_null) {
  std::lock_guard lock(g_mutex);
  if (opened().empty()) return;
  const auto event = static_cast<cl_event>(cl_event_or_null);
  if (event) clRetainEvent(event);
  entries().push_back({std::move(record), EventHandle(event)});
}

}  // namespace ocl::runtime
