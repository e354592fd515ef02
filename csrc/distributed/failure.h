// csrc/distributed/failure.h: the errors that a failed collective raises.
#pragma once

#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/distributed/peers.h"
#include "csrc/distributed/work.h"

namespace ocl::distributed {

std::string message_of(const std::exception_ptr& error);
bool is_out_of_memory(const std::exception_ptr& error);
/// Returns a torch.distributed.DistBackendError, or a torch.OutOfMemoryError.
std::exception_ptr torch_error(const std::string& message, bool out_of_memory);
/// Returns the text of the error of a collective that failed for `reason`. Tells the other ranks, and asks them whether
/// they failed too.
std::string describe_failure(const GroupWork& work, const std::string& reason, c10d::Store& store, const RankNames& names);

}  // namespace ocl::distributed
