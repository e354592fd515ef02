// csrc/distributed/alone.h: collectives of a group with one rank: copies on the current stream, or nothing at all.
#pragma once

#include <vector>

#include "csrc/distributed/span.h"
#include "csrc/distributed/transport.h"

namespace ocl::distributed {

struct SpanCopy {
  Span from, to;
};
using Copies = std::vector<SpanCopy>;

/// Copies from[i] to to[i]. Both have the same sizes.
Copies copies_between(const std::vector<Span>& from, const std::vector<Span>& to);
/// Enqueues the copies on the current stream of the job's device, and completes its work. A span that is copied to itself costs
/// nothing.
void complete_alone(const Job& job, const Copies& copies);

}  // namespace ocl::distributed
