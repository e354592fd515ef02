// csrc/distributed/failure.cpp: makes errors and their texts; see failure.h.
#include "csrc/distributed/failure.h"

#include <c10/util/Exception.h>

#include <new>

#include "csrc/support/error.h"

namespace ocl::distributed {

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown error";
  }
}

bool is_out_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const Error& e) {
    return e.kind() == ErrorKind::kOutOfMemory;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::exception_ptr torch_error(const std::string& message, bool out_of_memory) {
  try {
    if (out_of_memory) TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    TORCH_CHECK_WITH(DistBackendError, false, message);
  } catch (...) {
    return std::current_exception();
  }
}

std::string describe_failure(const GroupWork& work, const std::string& reason, c10d::Store& store, const RankNames& names) {
  const std::string what = work.title() + " (collective " + std::to_string(work.number()) + " of group " + names.group + ")";
  return what + " failed on rank " + std::to_string(names.rank) + ": " + reason + ask_peers(store, names, what + ": " + reason);
}

}  // namespace ocl::distributed
