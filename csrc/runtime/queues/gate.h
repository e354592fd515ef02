// csrc/runtime/queues/gate.h: holds a queue back. Tests delay a queue with it, so that a race between queues fails every time.
#pragma once

#include "csrc/runtime/queues/signal.h"

namespace ocl::runtime {

class Queue;

/// Work that is enqueued after the gate was made starts when the gate opens. The destructor opens it too.
class Gate {
 public:
  explicit Gate(Queue& queue);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open();

 private:
  Signal signal_;
};

}  // namespace ocl::runtime
