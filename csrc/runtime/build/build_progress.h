// csrc/runtime/build/build_progress.h: a line on the terminal that says how many kernels are built, while building takes long.
#pragma once

#include <cstddef>
#include <memory>

namespace ocl::runtime {

/// Turns the progress lines on or off. They are on by default, and appear only if stderr is a terminal.
void show_build_progress(bool shown);

/// While it lives, a thread waits for what background threads build.
class WaitsForBuilds {
 public:
  WaitsForBuilds() noexcept;
  ~WaitsForBuilds();
  WaitsForBuilds(const WaitsForBuilds&) = delete;
  WaitsForBuilds& operator=(const WaitsForBuilds&) = delete;
};

/// The progress of one batch of builds. A line appears after two seconds and is removed by the destructor. Only one batch of a
/// process at a time has a line. A batch of a background thread has a line while another thread waits for such a batch.
class BuildProgress {
 public:
  /// `what` says what happens to the `kernels`: "built" or "checked". `processes` is the number of worker processes; 0: this
  /// process compiles.
  BuildProgress(const char* what, size_t kernels, size_t processes);
  ~BuildProgress();
  void add(size_t kernels);  // Reports that `kernels` more are done. Thread-safe.

 private:
  struct Line;
  std::unique_ptr<Line> line_;  // Null if no line is shown.
};

}  // namespace ocl::runtime
