// csrc/support/error.h: the errors of the C++ core. Each kind becomes a Python exception class of its own.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace ocl {

/// Says whose fault an error is. `errors.py` has one exception class per kind.
enum class ErrorKind { kConfig, kUnsupported, kDevice, kBuild, kOutOfMemory, kInternal, kOutOfBounds, kIndex };

/// An error with its kind. Its message says what happened, where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message) : std::runtime_error(std::move(message)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

[[noreturn]] inline void fail(ErrorKind kind, std::string message) { throw Error(kind, std::move(message)); }

/// Returns the position of a line in the source tree, such as "csrc/ir/builder.cpp:331". The folder in which the source was
/// built is cut off.
inline std::string position(const std::string& file, int line) {
  const size_t folder = file.rfind("csrc/");
  return (folder == std::string::npos ? file : file.substr(folder)) + ":" + std::to_string(line);
}

/// Throws an InternalError unless `condition` holds. Only a bug in this project can break the condition.
#define OCL_ASSERT(condition, message)                                                                      \
  do {                                                                                                      \
    if (!(condition))                                                                                       \
      ::ocl::fail(::ocl::ErrorKind::kInternal,                                                              \
                  std::string(message) + " [" #condition ", " + ::ocl::position(__FILE__, __LINE__) + "]"); \
  } while (false)

}  // namespace ocl
