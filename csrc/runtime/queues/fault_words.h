// csrc/runtime/queues/fault_words.h: words of device memory in which kernels note mistakes of the user's program, such as an
// index out of range.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/runtime/record/location.h"

namespace ocl::runtime {

/// A kernel runs after its call has returned, so it cannot throw. Instead, it stores a number into a word, and the next wait of
/// the host (Queue::finish, a blocking Queue::read) reads all words and throws. Words are never given back: programs have few
/// different texts. Thread-safe.
///
/// A word is 0 if nothing happened. Otherwise it says which index was wrong: see index_of.
class FaultWords {
 public:
  struct Chunk {
    void* address = nullptr;
    Location at;
  };
  static constexpr size_t kChunkBytes = 4096;

  /// Returns the address of the word for a mistake with this message, in which "{}" stands for the index. Equal messages have
  /// one word. `more` returns kChunkBytes bytes of zeros that are never freed. It must not wait for a queue in a way that looks
  /// for faults.
  void* word(const std::string& message, const std::function<Chunk()>& more);
  /// Call when work that may store into words has been enqueued on a queue. `queue` is true from then on until the queue's next
  /// wait.
  void expect(std::atomic<bool>& queue) noexcept;
  /// True if work may have stored into words since the last waits of all queues.
  bool expected() const noexcept { return expecting_.load(std::memory_order_relaxed) > 0; }

  /// What one wait of a queue reads. Make it before the wait, and call raise() after it.
  class Reading {
   public:
    /// Enqueues reads of all words, if expected(). `expects`: what expect() got for this queue.
    Reading(FaultWords& words, cl_command_queue queue, std::atomic<bool>& expects);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    /// Call when the queue has done all work so far. Throws kIndex if a word is not 0, after setting all words to 0.
    void raise();

   private:
    FaultWords& words_;
    cl_command_queue queue_;
    std::unique_ptr<int32_t[]> values_;  // Null if there is nothing to read.
    size_t count_ = 0;
  };

  /// Returns the index that a word other than 0 stands for: -n is stored as n, and n as n + 2^30, both up to kLargest.
  static int64_t index_of(int32_t word) noexcept;
  static constexpr int32_t kLargest = (1 << 30) - 1;

 private:
  static constexpr size_t kChunkWords = kChunkBytes / sizeof(int32_t);

  std::string message_of(size_t word, int32_t value) const;

  std::mutex mutex_;
  std::vector<Chunk> chunks_;
  std::vector<std::string> messages_;              // Of each word, in the order of their making.
  std::unordered_map<std::string, size_t> known_;  // Message -> its word.
  std::atomic<int> expecting_{0};  // The number of queues that may have stored into words since their last wait.
};

}  // namespace ocl::runtime
