// csrc/exec/observer.h: watches the runs of a plan step by step. The checks of results and of memory are observers.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::exec {

struct BufferSource;
struct Plan;

/// The memory of one run, as addresses on the plan's device. Inputs and outputs without elements are null.
struct RunMemory {
  const std::vector<void*>& inputs;
  const std::vector<void*>& outputs;
  char* arena = nullptr;
  int stream = 0;
};

/// A plan calls its observers at each step of a run, under its mutex. `after` is called when the step is enqueued, which may be
/// before it has run. An error that an observer throws ends the run.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin(const RunMemory& memory) = 0;
  virtual void before(int step) = 0;
  virtual void after(int step) = 0;
  virtual void end() = 0;
};

/// Returns the address of element 0 of a buffer of the plan. Null for a tensor without elements.
char* address_of(const Plan& plan, const RunMemory& memory, const BufferSource& source);
/// Returns the number of bytes from the first to the last element of the memory of `source`, for the plan's current sizes.
int64_t extent_bytes(const Plan& plan, const BufferSource& source);

/// Sets the function that makes the observer of a plan with PlanOptions::check. Python calls this before it makes such
/// a plan (torch_ocl_compile/compile/check.py).
using ObserverFactory = std::function<std::shared_ptr<Observer>(Plan&)>;
void set_check_factory(ObserverFactory factory);
/// Gives a new plan the observers that its options ask for.
void add_observers(Plan& plan, bool check);

}  // namespace ocl::exec
