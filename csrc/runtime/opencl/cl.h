// csrc/runtime/opencl/cl.h: the basis for all OpenCL calls: owning handles, and OCL_CHECK, which turns a status code into an
// Error.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <string>
#include <utility>

#include "csrc/support/error.h"
#include "csrc/support/os.h"

namespace ocl::runtime {

/// Returns the name of a status code, such as "CL_OUT_OF_RESOURCES" for -5. An unknown code is returned as a number.
const char* status_name(cl_int status);

/// Throws DeviceError, or OutOfMemory for allocation failures. The message names the call, the status and `where`
/// (device, kernel, ...).
[[noreturn]] void raise_status(cl_int status, const char* call, const std::string& where);

#define OCL_CHECK(call, where)                                                                \
  do {                                                                                        \
    const cl_int ocl_status_ = (call);                                                        \
    if (ocl_status_ != CL_SUCCESS) ::ocl::runtime::raise_status(ocl_status_, #call, (where)); \
  } while (false)

/// False in a forked child, which lacks the runtimes' threads, and at the end of the process, when the runtimes'
/// destructors may have run.
inline bool runtimes_usable() noexcept { return !os::is_forked_child() && !os::is_ending(); }

/// Owns one reference to an OpenCL object. Movable. The destructor calls `Release` only while the runtimes are usable.
template <typename T, cl_int(CL_API_CALL* Release)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T raw) : raw_(raw) {}
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (raw_ && runtimes_usable()) Release(raw_);
  }
  T get() const { return raw_; }
  explicit operator bool() const { return raw_ != nullptr; }

 private:
  T raw_ = nullptr;
};

using MemHandle = Handle<cl_mem, clReleaseMemObject>;
using ContextHandle = Handle<cl_context, clReleaseContext>;
using QueueHandle = Handle<cl_command_queue, clReleaseCommandQueue>;
using ProgramHandle = Handle<cl_program, clReleaseProgram>;
using KernelHandle = Handle<cl_kernel, clReleaseKernel>;
using EventHandle = Handle<cl_event, clReleaseEvent>;

/// Each returns another handle of an object.
ContextHandle retained(cl_context context);
QueueHandle retained(cl_command_queue queue);
MemHandle retained(cl_mem memory);
EventHandle retained(cl_event event);

/// Returns whether an event with this execution status is complete. DeviceError with `where` if the work before it
/// failed.
bool completed(cl_int execution_status, const std::string& where);

/// True if the work before the event is over, with or without an error.
bool is_done(cl_event event) noexcept;

}  // namespace ocl::runtime
