// csrc/runtime/queues/gate.cpp: holds a queue back by a user event; see gate.h.
#include "csrc/runtime/queues/gate.h"

#include "csrc/runtime/queues/queue.h"

namespace ocl::runtime {

Gate::Gate(Queue& queue) : signal_(queue.device()) { signal_.block(queue); }

Gate::~Gate() { open(); }

void Gate::open() { signal_.set(); }

}  // namespace ocl::runtime
