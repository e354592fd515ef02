// csrc/runtime/gate.cpp: holds a queue back by a user event; see gate.h.
#include "csrc/runtime/gate.h"

#include "csrc/runtime/queue.h"

namespace ocl::runtime {

Gate::Gate(Queue& queue) {
  cl_int status = CL_SUCCESS;
  event_ = EventHandle(clCreateUserEvent(queue.device().context.get(), &status));
  OCL_CHECK(status, "clCreateUserEvent on " + queue.device().describe());
  queue.wait_for(event_.get());
  queue.flush();
}

Gate::~Gate() { open(); }

void Gate::open() {
  if (!shut_) return;
  shut_ = false;
  clSetUserEventStatus(event_.get(), CL_COMPLETE);
}

}  // namespace ocl::runtime
