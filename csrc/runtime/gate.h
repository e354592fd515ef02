// csrc/runtime/gate.h: holds a queue back. Tests make it late on purpose with this: what depends on luck then fails each time.
#pragma once

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Queue;

/// Work that the queue gets after the gate was made starts when the gate opens, at the latest when it is destroyed.
class Gate {
 public:
  explicit Gate(Queue& queue);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open();

 private:
  EventHandle event_;
  bool shut_ = true;
};

}  // namespace ocl::runtime
