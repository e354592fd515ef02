// csrc/runtime/build_progress.h: a line on the terminal that says how many kernels are built, while building takes long.
#pragma once

#include <cstddef>
#include <memory>

namespace ocl::runtime {

/// Turns the progress lines on or off. They are on by default, and appear only if stderr is a terminal.
void show_build_progress(bool shown);

/// One batch of builds. Its line appears after two seconds and is removed by the destructor. Only one batch of a process has a
/// line.
class BuildProgress {
 public:
  /// `what` is done to so many kernels: "built", "checked". `processes`: worker processes; 0: this process compiles.
  BuildProgress(const char* what, size_t kernels, size_t processes);
  ~BuildProgress();
  void add(size_t kernels);  // are done. Thread-safe

 private:
  struct Line;
  std::unique_ptr<Line> line_;  // none where nothing is shown
};

}  // namespace ocl::runtime
