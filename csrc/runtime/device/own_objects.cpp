// csrc/runtime/device/own_objects.cpp: checks the OpenCL objects of a program; see own_objects.h.
#include "csrc/runtime/device/own_objects.h"

#include <algorithm>
#include <vector>

namespace ocl::runtime {
namespace {

template <class Value>
Value queue_info(cl_command_queue queue, cl_command_queue_info name) {
  Value value{};
  OCL_CHECK(clGetCommandQueueInfo(queue, name, sizeof value, &value, nullptr), "the program's queue");
  return value;
}

}  // namespace

void check_own_objects(const OwnObjects& own) {
  size_t bytes = 0;
  OCL_CHECK(clGetContextInfo(own.context, CL_CONTEXT_DEVICES, 0, nullptr, &bytes), "the program's context");
  std::vector<cl_device_id> devices(bytes / sizeof(cl_device_id));
  OCL_CHECK(clGetContextInfo(own.context, CL_CONTEXT_DEVICES, bytes, devices.data(), nullptr), "the program's context");
  if (std::find(devices.begin(), devices.end(), own.device) == devices.end())
    fail(ErrorKind::kConfig, "the context that the program shares is not one of the device");
  if (own.queue == nullptr) return;
  if (queue_info<cl_context>(own.queue, CL_QUEUE_CONTEXT) != own.context ||
      queue_info<cl_device_id>(own.queue, CL_QUEUE_DEVICE) != own.device)
    fail(ErrorKind::kConfig, "the queue that the program shares belongs to another context or device");
  if (queue_info<cl_command_queue_properties>(own.queue, CL_QUEUE_PROPERTIES) & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
    fail(ErrorKind::kConfig, "the queue that the program shares is out of order; share one that is in order, or none");
}

}  // namespace ocl::runtime
