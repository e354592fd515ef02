// csrc/support/live.h: how many objects of a class there are: what a process keeps, for tests of growth and for reports.
#pragma once

#include <atomic>
#include <cstdint>

namespace ocl {

/// A member of T that counts the objects of T.
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
