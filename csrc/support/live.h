// csrc/support/live.h: counts the objects of a class that exist. Tests use the count to find leaks, and reports show it.
#pragma once

#include <atomic>
#include <cstdint>

namespace ocl {

/// Counts the objects of class T. It must be a member of T.
template <class T>
class Live {
 public:
  Live() noexcept { ++count_; }
  Live(const Live&) noexcept { ++count_; }
  Live& operator=(const Live&) noexcept = default;
  ~Live() { --count_; }
  static int64_t count() noexcept { return count_; }

 private:
  static inline std::atomic<int64_t> count_{0};
};

}  // namespace ocl
