// csrc/runtime/queues/queues.cpp: creates the queues of a device when they are first used; see queues.h.
#include "csrc/runtime/queues/queues.h"

#include <algorithm>

namespace ocl::runtime {
namespace {

constexpr int kFirstApart = Queues::kStreams - Queues::kApart;

}  // namespace

Queue& Queues::of(int stream) {
  if (stream < 0 || stream >= kStreams) {
    fail(ErrorKind::kConfig, "stream " + std::to_string(stream) + " of " + device_.describe() +
                                 " does not exist; streams are made by " + "torch.Stream('ocl')");
  }
  std::atomic<Queue*>& slot = queues_[stream];
  if (Queue* queue = slot.load(std::memory_order_acquire)) return *queue;
  const std::lock_guard lock(mutex_);
  if (Queue* queue = slot.load(std::memory_order_acquire)) return *queue;
  constexpr std::array<int, 3> kPriorities = {0, -1, 1};
  const int priority = stream == 0 || stream >= kFirstApart ? 0 : kPriorities[(stream - 1) / kStreamsPerPriority];
  slot.store(new Queue(device_, faults_, stream, priority), std::memory_order_release);
  return *slot.load();
}

int Queues::next_stream(int priority) {
  const int level = priority == 0 ? 0 : priority < 0 ? 1 : 2;
  const unsigned given = given_[level].fetch_add(1);
  return 1 + level * kStreamsPerPriority + static_cast<int>(given % kStreamsPerPriority);
}

int Queues::take_apart() {
  int stream = kFirstApart;
  {
    const std::lock_guard lock(mutex_);
    while (stream < kStreams && taken_[stream - kFirstApart]) ++stream;
    if (stream == kStreams)
      fail(ErrorKind::kUnsupported, device_.describe() + " has no more streams for process groups: " + std::to_string(kApart) +
                                        " are in use.\n  do: destroy groups that are not needed");
    taken_[stream - kFirstApart] = true;
  }
  of(stream).set_apart();
  return stream;
}

void Queues::give_back(int stream) noexcept {
  const std::lock_guard lock(mutex_);
  taken_[stream - kFirstApart] = false;
}

std::vector<EventHandle> Queues::work_so_far() {
  std::vector<EventHandle> events;
  for (const std::atomic<Queue*>& slot : queues_) {
    Queue* queue = slot.load(std::memory_order_acquire);
    if (!queue || queue->apart() || !queue->has_work()) continue;
    EventHandle last = queue->last_work();
    if (!is_done(last.get())) events.push_back(std::move(last));
  }
  return events;
}

bool Queues::have_work() const {
  return std::any_of(queues_.begin(), queues_.end(), [](const std::atomic<Queue*>& slot) {
    const Queue* queue = slot.load(std::memory_order_acquire);
    return queue && queue->has_work();
  });
}

void Queues::synchronize() {
  for (const std::atomic<Queue*>& slot : queues_)
    if (Queue* queue = slot.load(std::memory_order_acquire); queue && queue->has_work()) queue->finish();
}

void Queues::finish_before(std::chrono::steady_clock::time_point deadline) noexcept {
  for (const std::atomic<Queue*>& slot : queues_)
    if (Queue* queue = slot.load(std::memory_order_acquire)) queue->finish_before(deadline);
}

}  // namespace ocl::runtime
