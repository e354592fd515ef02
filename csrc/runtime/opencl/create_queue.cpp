// csrc/runtime/opencl/create_queue.cpp: see create_queue.h.
#include "csrc/runtime/opencl/create_queue.h"

namespace ocl::runtime {

CreatedQueue create_queue(cl_context context, cl_device_id device, cl_queue_properties priority) {
  CreatedQueue made;
  // Profiling is always on: without events it costs nothing that can be measured, and a recording can start at any time.
  for (const cl_command_queue_properties wished : {CL_QUEUE_PROFILING_ENABLE, 0}) {
    if (priority != 0) {
      const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, wished, CL_QUEUE_PRIORITY_KHR, priority, 0};
      made.handle = QueueHandle(clCreateCommandQueueWithProperties(context, device, properties, &made.status));
    } else {
      made.handle = QueueHandle(clCreateCommandQueue(context, device, wished, &made.status));
    }
    made.times = wished != 0;
    if (made.status != CL_INVALID_QUEUE_PROPERTIES && made.status != CL_INVALID_VALUE) break;
  }
  return made;
}

}  // namespace ocl::runtime
