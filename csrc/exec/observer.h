// csrc/exec/observer.h: watches the runs of a plan step by step. The checks of results and of memory are observers.
#pragma once

#include "csrc/exec/run_state.h"

namespace ocl::exec {

/// An executor calls its observers at each step of a run, under its mutex. `after` is called when the step is enqueued, which
/// may be before it has run. An error that an observer throws ends the run.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin(const RunMemory& memory) = 0;
  virtual void before(int step) = 0;
  virtual void after(int step) = 0;
  virtual void end() = 0;
};

}  // namespace ocl::exec
