// csrc/runtime/opencl/cl.cpp: names of OpenCL status codes, and errors made from them.
#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {
namespace {

struct StatusName {
  cl_int status;
  const char* name;
};

#define OCL_STATUS(code) {code, #code}
constexpr StatusName kStatusNames[] = {
    OCL_STATUS(CL_SUCCESS),
    OCL_STATUS(CL_DEVICE_NOT_FOUND),
    OCL_STATUS(CL_DEVICE_NOT_AVAILABLE),
    OCL_STATUS(CL_COMPILER_NOT_AVAILABLE),
    OCL_STATUS(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    OCL_STATUS(CL_OUT_OF_RESOURCES),
    OCL_STATUS(CL_OUT_OF_HOST_MEMORY),
    OCL_STATUS(CL_PROFILING_INFO_NOT_AVAILABLE),
    OCL_STATUS(CL_MEM_COPY_OVERLAP),
    OCL_STATUS(CL_BUILD_PROGRAM_FAILURE),
    OCL_STATUS(CL_MAP_FAILURE),
    OCL_STATUS(CL_MISALIGNED_SUB_BUFFER_OFFSET),
    OCL_STATUS(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    OCL_STATUS(CL_COMPILE_PROGRAM_FAILURE),
    OCL_STATUS(CL_LINKER_NOT_AVAILABLE),
    OCL_STATUS(CL_LINK_PROGRAM_FAILURE),
    OCL_STATUS(CL_DEVICE_PARTITION_FAILED),
    OCL_STATUS(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
    OCL_STATUS(CL_INVALID_VALUE),
    OCL_STATUS(CL_INVALID_DEVICE_TYPE),
    OCL_STATUS(CL_INVALID_PLATFORM),
    OCL_STATUS(CL_INVALID_DEVICE),
    OCL_STATUS(CL_INVALID_CONTEXT),
    OCL_STATUS(CL_INVALID_QUEUE_PROPERTIES),
    OCL_STATUS(CL_INVALID_COMMAND_QUEUE),
    OCL_STATUS(CL_INVALID_HOST_PTR),
    OCL_STATUS(CL_INVALID_MEM_OBJECT),
    OCL_STATUS(CL_INVALID_BINARY),
    OCL_STATUS(CL_INVALID_BUILD_OPTIONS),
    OCL_STATUS(CL_INVALID_PROGRAM),
    OCL_STATUS(CL_INVALID_PROGRAM_EXECUTABLE),
    OCL_STATUS(CL_INVALID_KERNEL_NAME),
    OCL_STATUS(CL_INVALID_KERNEL_DEFINITION),
    OCL_STATUS(CL_INVALID_KERNEL),
    OCL_STATUS(CL_INVALID_ARG_INDEX),
    OCL_STATUS(CL_INVALID_ARG_VALUE),
    OCL_STATUS(CL_INVALID_ARG_SIZE),
    OCL_STATUS(CL_INVALID_KERNEL_ARGS),
    OCL_STATUS(CL_INVALID_WORK_DIMENSION),
    OCL_STATUS(CL_INVALID_WORK_GROUP_SIZE),
    OCL_STATUS(CL_INVALID_WORK_ITEM_SIZE),
    OCL_STATUS(CL_INVALID_GLOBAL_OFFSET),
    OCL_STATUS(CL_INVALID_EVENT_WAIT_LIST),
    OCL_STATUS(CL_INVALID_EVENT),
    OCL_STATUS(CL_INVALID_OPERATION),
    OCL_STATUS(CL_INVALID_BUFFER_SIZE),
    OCL_STATUS(CL_INVALID_GLOBAL_WORK_SIZE),
    OCL_STATUS(CL_INVALID_PROPERTY),
    OCL_STATUS(CL_INVALID_COMPILER_OPTIONS),
    OCL_STATUS(CL_INVALID_LINKER_OPTIONS),
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};
#undef OCL_STATUS

/// Returns "clFinish" for "clFinish(queue_.get())".
std::string call_name(const char* call) {
  const std::string text = call;
  const size_t end = text.find('(');
  return text.substr(0, end);
}

}  // namespace

const char* status_name(cl_int status) {
  for (const StatusName& row : kStatusNames)
    if (row.status == status) return row.name;
  thread_local std::string unknown;
  unknown = std::to_string(status);
  return unknown.c_str();
}

void raise_status(cl_int status, const char* call, const std::string& where) {
  std::string message = call_name(call) + ": " + status_name(status) + " (" + std::to_string(status) + ")";
  if (!where.empty()) message += ", " + where;
  const bool memory = status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_HOST_MEMORY;
  fail(memory ? ErrorKind::kOutOfMemory : ErrorKind::kDevice, std::move(message));
}

ContextHandle retained(cl_context context) {
  OCL_CHECK(clRetainContext(context), "the program's context");
  return ContextHandle(context);
}

QueueHandle retained(cl_command_queue queue) {
  OCL_CHECK(clRetainCommandQueue(queue), "the program's queue");
  return QueueHandle(queue);
}

MemHandle retained(cl_mem memory) {
  OCL_CHECK(clRetainMemObject(memory), "a buffer of the program");
  return MemHandle(memory);
}

EventHandle retained(cl_event event) {
  OCL_CHECK(clRetainEvent(event), "an event");
  return EventHandle(event);
}

bool completed(cl_int execution_status, const std::string& where) {
  if (execution_status < 0) raise_status(execution_status, "the work before an event", where);
  return execution_status == CL_COMPLETE;
}

bool is_done(cl_event event) noexcept {
  cl_int state = CL_QUEUED;
  return clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr) == CL_SUCCESS &&
         state <= CL_COMPLETE;
}

}  // namespace ocl::runtime
