// csrc/runtime/record/memory_history.cpp: keeps allocator events; see memory_history.h.
#include "csrc/runtime/record/memory_history.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <utility>

namespace ocl::runtime {
namespace {

PurposeText& purpose_of_thread() {
  thread_local PurposeText purpose;
  return purpose;
}

struct EventSettings {
  std::mutex mutex;
  HistorySettings settings;
  std::atomic<bool> sites{false};
  std::atomic<size_t> most_events{0};
};
EventSettings& event_settings() {
  // Never destroyed, because tensors are freed while static objects are destroyed.
  static auto* instance = new EventSettings;
  return *instance;
}

int64_t unix_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

MemoryPurpose::MemoryPurpose(PurposeText text) : previous_(std::move(purpose_of_thread())) {
  purpose_of_thread() = std::move(text);
}
MemoryPurpose::~MemoryPurpose() { purpose_of_thread() = std::move(previous_); }
const PurposeText& MemoryPurpose::current() { return purpose_of_thread(); }

void set_memory_history(const HistorySettings& settings) {
  EventSettings& all = event_settings();
  const std::lock_guard lock(all.mutex);
  all.settings = settings;
  all.sites = settings.sites && settings.hook;
  all.most_events = settings.most_events;
}

CallSite call_site() {
  EventSettings& all = event_settings();
  if (!all.sites) return nullptr;
  CallSiteHook hook = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    hook = all.settings.hook;
  }
  return hook ? hook() : nullptr;
}

void MemoryHistory::record(MemoryAction action, uintptr_t address, size_t bytes, int stream, CallSite site,
                           int64_t device_free) {
  const size_t most = event_settings().most_events;
  if (most == 0) return;
  if (events_.size() > most) clear();  // The limit was lowered.
  MemoryEvent event{action, address, static_cast<int64_t>(bytes), stream, unix_us(), device_free, std::move(site), nullptr};
  if (action == MemoryAction::kAlloc) event.purpose = MemoryPurpose::current();
  if (events_.size() < most) {
    // The limit was raised: make the ring a list again.
    std::rotate(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(next_), events_.end());
    next_ = 0;
    events_.push_back(std::move(event));
  } else {
    events_[next_] = std::move(event);
    next_ = (next_ + 1) % most;
  }
}

std::vector<MemoryEvent> MemoryHistory::events() const {
  std::vector<MemoryEvent> ordered(events_.begin() + static_cast<std::ptrdiff_t>(next_), events_.end());
  ordered.insert(ordered.end(), events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(next_));
  return ordered;
}

std::string size_text(int64_t bytes) {
  char text[64];
  if (bytes >= int64_t{1} << 30)
    std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  else
    std::snprintf(text, sizeof(text), "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

}  // namespace ocl::runtime
