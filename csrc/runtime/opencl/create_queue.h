// csrc/runtime/opencl/create_queue.h: creates command queues whose commands have times, where the driver has such queues.
#pragma once

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

struct CreatedQueue {
  QueueHandle handle;  // Null if `status` is an error.
  bool times = true;   // The events of commands have times.
  cl_int status = CL_SUCCESS;
};

/// Creates an in-order queue. OpenCL asks every device for times, and some drivers refuse them all the same. `priority` is one
/// of CL_QUEUE_PRIORITY_..., or 0 for a queue without one.
CreatedQueue create_queue(cl_context context, cl_device_id device, cl_queue_properties priority = 0);

}  // namespace ocl::runtime
