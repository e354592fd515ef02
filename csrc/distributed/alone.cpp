// csrc/distributed/alone.cpp: see alone.h.
#include "csrc/distributed/alone.h"

#include "csrc/runtime/memory/allocator.h"
#include "csrc/torch/device_state.h"

namespace ocl::distributed {

Copies copies_between(const std::vector<Span>& from, const std::vector<Span>& to) {
  Copies copies;
  for (size_t i = 0; i < from.size(); ++i) copies.push_back({from[i], to[i]});
  return copies;
}

void complete_alone(const Job& job, const Copies& copies) {
  if (job.device == nullptr) return job.work->complete(0, -1);
  runtime::Queue& queue = aten::current_queue(job.device->index());
  runtime::Allocator& allocator = job.device->allocator();
  for (const auto& [from, to] : copies) {
    if (from.count == 0 || from.address == to.address) continue;
    const runtime::Location source = allocator.use(from.address, queue.stream());
    const runtime::Location target = allocator.use(to.address, queue.stream());
    queue.copy(source.mem, source.offset_bytes, target.mem, target.offset_bytes,
               static_cast<size_t>(from.count) * from.element_bytes());
    allocator.wrote(to.address, queue.stream());
  }
  job.work->complete(queue.stream(), -1);
}

}  // namespace ocl::distributed
