// csrc/runtime/queues/fault_words.cpp: see fault_words.h.
#include "csrc/runtime/queues/fault_words.h"

#include <algorithm>
#include <cstring>

#include "csrc/support/error.h"

namespace ocl::runtime {

namespace {

void set_to_zero(cl_command_queue queue, const Location& at, size_t offset) {
  const int32_t zero = 0;
  cl_event event = nullptr;
  OCL_CHECK(clEnqueueFillBuffer(queue, at.mem, &zero, sizeof zero, at.offset_bytes + offset, sizeof zero, 0, nullptr, &event),
            "words for faults");
  const EventHandle done(event);
  OCL_CHECK(clWaitForEvents(1, &event), "words for faults");
}

}  // namespace

void* FaultWords::word(const std::string& message, const std::function<Chunk()>& more) {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(message);
  const size_t word = known == known_.end() ? messages_.size() : known->second;
  if (word / kChunkWords == chunks_.size()) chunks_.push_back(more());
  if (known == known_.end()) {
    messages_.push_back(message);
    known_.emplace(message, word);
  }
  return static_cast<char*>(chunks_[word / kChunkWords].address) + word % kChunkWords * sizeof(int32_t);
}

void FaultWords::expect(std::atomic<bool>& queue) noexcept {
  if (!queue.exchange(true)) expecting_.fetch_add(1);
}

FaultWords::Reading::Reading(FaultWords& words, cl_command_queue queue, std::atomic<bool>& expects)
    : words_(words), queue_(queue) {
  if (!words.expected()) return;
  // Work that is enqueued from now on is for the next wait. Work of other queues may not be done, so it stays expected.
  if (expects.exchange(false)) words.expecting_.fetch_sub(1);
  const std::lock_guard lock(words.mutex_);
  count_ = words.messages_.size();
  values_ = std::make_unique<int32_t[]>(count_);
  for (size_t first = 0, c = 0; first < count_; first += kChunkWords, ++c) {
    const Location& at = words.chunks_[c].at;
    const size_t bytes = std::min(kChunkWords, count_ - first) * sizeof(int32_t);
    if (at.host == nullptr)
      OCL_CHECK(clEnqueueReadBuffer(queue, at.mem, CL_FALSE, at.offset_bytes, bytes, &values_[first], 0, nullptr, nullptr),
                "words for faults");
  }
}

FaultWords::Reading::~Reading() {
  // If the wait failed, the runtime may still write here.
  if (values_) (void)values_.release();
}

void FaultWords::Reading::raise() {
  if (!values_) return;
  const std::unique_ptr<int32_t[]> values = std::move(values_);
  std::string text;
  const std::lock_guard lock(words_.mutex_);
  for (size_t i = 0; i < count_; ++i) {
    const Location& at = words_.chunks_[i / kChunkWords].at;
    const size_t offset = i % kChunkWords * sizeof(int32_t);
    if (at.host != nullptr) std::memcpy(&values[i], at.host + offset, sizeof(int32_t));
    if (values[i] == 0) continue;
    text += (text.empty() ? "" : "\n") + words_.message_of(i, values[i]);
    set_to_zero(queue_, at, offset);
  }
  if (!text.empty()) fail(ErrorKind::kIndex, text);
}

int64_t FaultWords::index_of(int32_t word) noexcept {
  constexpr int32_t kPositive = kLargest + 1;
  return word >= kPositive ? word - kPositive : -word;
}

std::string FaultWords::message_of(size_t word, int32_t value) const {
  const int64_t index = index_of(value);
  std::string text = messages_[word], number = std::to_string(index);
  if (index == kLargest || index == -kLargest) number = (index > 0 ? "of " : "of -") + std::to_string(kLargest) + " or beyond";
  const size_t place = text.find("{}");
  return place == std::string::npos ? text : text.replace(place, 2, number);
}

}  // namespace ocl::runtime
