// csrc/runtime/device/own_objects.h: the OpenCL objects of a program that uses a device itself, with which Device then works.
#pragma once

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

struct OwnObjects {
  cl_context context = nullptr;
  cl_device_id device = nullptr;
  cl_command_queue queue = nullptr;  // In order. The queue of stream 0; null: Device makes one.
};

/// Makes the device use these objects, which it keeps, and returns its index. ConfigError if the objects do not belong
/// together, if the device is not listed, or if it is in use with other objects already.
int use_own_objects(const OwnObjects& own);

/// Throws ConfigError if the objects do not belong together or the queue is out of order.
void check_own_objects(const OwnObjects& own);

}  // namespace ocl::runtime
