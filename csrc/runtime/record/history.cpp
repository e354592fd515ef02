// csrc/runtime/record/history.cpp: stores the commands of the recordings that are open.
#include "csrc/runtime/record/history.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <mutex>

#include "csrc/support/log.h"

namespace ocl::runtime {

std::atomic<unsigned> g_wanted{0};

namespace {

constexpr size_t kMostPending = 4096;  // At most this many events are kept, unless the device is far behind.

int64_t event_time(cl_event event, cl_profiling_info what) {
  cl_ulong time = 0;
  return clGetEventProfilingInfo(event, what, sizeof(time), &time, nullptr) == CL_SUCCESS ? static_cast<int64_t>(time) : 0;
}

/// Warns once of a device whose commands have no times.
void warn_without_times(int device, cl_event event) {
  static std::atomic<uint64_t> warned{0};  // One bit for each device.
  cl_int state = CL_QUEUED;
  cl_ulong time = 0;
  clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
  if (state != CL_COMPLETE ||  // Failed work has no times. synchronize() reports its error.
      clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof time, &time, nullptr) != CL_PROFILING_INFO_NOT_AVAILABLE)
    return;
  const uint64_t bit = uint64_t{1} << (device % 64);
  if ((warned.fetch_or(bit) & bit) == 0)
    log_message(LogLevel::kWarning, "runtime",
                "the driver of ocl:" + std::to_string(device) +
                    " does not tell when commands ran: recordings and profiles have no times of the device");
}

struct Entry {
  CommandRecord record;
  std::mutex mutex;  // Guards the event and the times that are read from it.
  EventHandle event;

  /// Reads the times and releases the event. If the command is not done, waits for it or returns.
  void resolve(bool wait) {
    const std::lock_guard lock(mutex);
    if (!event || !runtimes_usable()) return;
    const cl_event raw = event.get();
    if (wait) {
      clWaitForEvents(1, &raw);  // Failed work has no times. synchronize() reports its error.
    } else {
      cl_int state = CL_QUEUED;
      if (clGetEventInfo(raw, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr) != CL_SUCCESS || state > 0)
        return;
    }
    record.queued_ns = event_time(raw, CL_PROFILING_COMMAND_QUEUED);
    record.start_ns = event_time(raw, CL_PROFILING_COMMAND_START);
    record.end_ns = event_time(raw, CL_PROFILING_COMMAND_END);
    if (record.end_ns == 0 && record.type == CommandType::kLaunch) warn_without_times(record.device, raw);
    event = EventHandle();
  }
};
using EntryPtr = std::shared_ptr<Entry>;

struct Recording {
  int number;
  uint64_t first;  // Position of its first entry.
  unsigned wants;
};

/// The history is never destroyed: a driver may be gone when destructors run at exit.
struct History {
  std::mutex mutex;
  std::deque<EntryPtr> entries;
  uint64_t dropped = 0;   // Position of entries.front().
  uint64_t resolved = 0;  // Entries before this position are resolved, or will be when their recording ends.
  std::vector<Recording> recordings;
  int last_number = 0;

  void note_wanted() {
    unsigned all = 0;
    for (const Recording& o : recordings) all |= o.wants;
    g_wanted.store(all);
  }
};

History& history() {
  static auto* history = new History;
  return *history;
}

struct ThreadRanges {
  uint64_t session = 0;
  ProgramRangePtr innermost;
};
ThreadRanges& thread_ranges() {
  static thread_local ThreadRanges ranges;
  return ranges;
}

bool wants(unsigned wanted, CommandType type) {
  return (wanted & kAllCommands) != 0 || ((wanted & kLaunches) != 0 && type == CommandType::kLaunch);
}

}  // namespace

int begin_recording(bool timing, bool all_commands) {
  History& all = history();
  const std::lock_guard lock(all.mutex);
  const unsigned wants = kLaunches | (timing ? kTimes : 0u) | (all_commands ? kAllCommands : 0u);
  all.recordings.push_back({++all.last_number, all.dropped + all.entries.size(), wants});
  all.note_wanted();
  return all.last_number;
}

std::vector<CommandRecord> end_recording(int recording) {
  History& all = history();
  std::vector<EntryPtr> entries;
  unsigned wanted = 0;
  {
    const std::lock_guard lock(all.mutex);
    const auto found =
        std::find_if(all.recordings.begin(), all.recordings.end(), [&](const Recording& o) { return o.number == recording; });
    if (found == all.recordings.end()) return {};
    wanted = found->wants;
    entries.assign(all.entries.begin() + static_cast<int64_t>(found->first - all.dropped), all.entries.end());
    all.recordings.erase(found);
    all.note_wanted();
    uint64_t needed = all.dropped + all.entries.size();
    for (const Recording& o : all.recordings) needed = std::min(needed, o.first);
    for (; all.dropped < needed; ++all.dropped) all.entries.pop_front();
    all.resolved = std::max(all.resolved, all.dropped);
  }
  std::vector<CommandRecord> records;
  for (const EntryPtr& entry : entries) {
    if (!wants(wanted, entry->record.type)) continue;
    if (wanted & kTimes) entry->resolve(true);
    const std::lock_guard lock(entry->mutex);
    records.push_back(entry->record);
    if (!(wanted & kTimes)) records.back().queued_ns = records.back().start_ns = records.back().end_ns = 0;
  }
  return records;
}

void enter_range(uint64_t session, uint64_t id, bool named_by_user) {
  ThreadRanges& ranges = thread_ranges();
  if (ranges.session != session) ranges = {session, nullptr};
  ranges.innermost = std::make_shared<const ProgramRange>(ProgramRange{id, named_by_user, ranges.innermost});
}

void leave_range(uint64_t session, bool named_by_user) {
  ThreadRanges& ranges = thread_ranges();
  // The profiler leaves a range that was entered before the session began; ignore it.
  if (ranges.session != session || !ranges.innermost || ranges.innermost->named_by_user != named_by_user) return;
  ranges.innermost = ranges.innermost->outer;
}

int64_t unix_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

NotedCommand::NotedCommand(CommandType type, int device, int stream)
    : noted_(wants(wanted_, type)), type_(type), device_(device), stream_(stream) {
  if (noted_) called_ns_ = unix_ns();
}

cl_event* NotedCommand::event(cl_event* callers) {
  target_ = callers;
  if (!callers && noted_ && (wanted_ & kTimes) != 0) target_ = &own_;
  return target_;
}

void NotedCommand::done(int64_t bytes, const LaunchInfoPtr& info) {
  if (!noted_) return;
  auto entry = std::make_shared<Entry>();
  CommandRecord& record = entry->record;
  record.type = type_;
  record.info = info;
  record.device = device_;
  record.stream = stream_;
  record.bytes = bytes;
  record.thread = os::thread_id();
  record.called_ns = called_ns_;
  record.returned_ns = unix_ns();
  record.range = thread_ranges().innermost;
  if ((wanted_ & kTimes) != 0 && target_ && *target_) {
    if (target_ != &own_) clRetainEvent(*target_);
    entry->event = EventHandle(*target_);
  }
  History& all = history();
  std::vector<EntryPtr> oldest;
  {
    const std::lock_guard lock(all.mutex);
    if (all.recordings.empty()) return;
    all.entries.push_back(std::move(entry));
    const uint64_t end = all.dropped + all.entries.size();
    if (end - all.resolved < kMostPending) return;
    for (; all.resolved < end - kMostPending / 2; ++all.resolved) oldest.push_back(all.entries[all.resolved - all.dropped]);
  }
  for (const EntryPtr& old : oldest) old->resolve(false);
}

std::string amount(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; value >= 999.5 && prefix + 1 < std::size(kPrefixes); ++prefix) value /= 1000;
  char text[64];
  std::snprintf(text, sizeof text,
                value < 9.995 && prefix > 0   ? "%.2f %s%s"
                : value < 99.95 && prefix > 0 ? "%.1f %s%s"
                                              : "%.0f %s%s",
                value, kPrefixes[prefix], unit);
  return text;
}

namespace {

struct CommandNames {
  const char *name, *function;
};
/// Indexed by CommandType.
constexpr CommandNames kCommands[] = {
    {"launch", "clEnqueueNDRangeKernel"},
    {"upload", "clEnqueueWriteBuffer"},
    {"download", "clEnqueueReadBuffer"},
    {"copy", "clEnqueueCopyBuffer"},
    {"fill", "clEnqueueFillBuffer"},
    {"wait of a stream", "clEnqueueBarrierWithWaitList"},
    {"wait of the host for a stream", "clFinish"},
    {"wait of the host for an event", "clWaitForEvents"},
};

}  // namespace

const char* name(CommandType type) { return kCommands[static_cast<int>(type)].name; }
const char* function(CommandType type) { return kCommands[static_cast<int>(type)].function; }

std::string sizes_text(int dims, const std::array<size_t, 3>& sizes) {
  std::string text;
  for (int i = 0; i < dims; ++i) text.append(i ? "x" : "").append(std::to_string(sizes[i]));
  return text;
}

std::string title_of(const CommandRecord& record) {
  if (record.type == CommandType::kLaunch) return record.info->title;
  const std::string text = name(record.type);
  return record.bytes > 0 ? text + " " + amount(static_cast<double>(record.bytes), "B") : text;
}

}  // namespace ocl::runtime
