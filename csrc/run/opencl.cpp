// csrc/run/opencl.cpp: the C functions of ocl_run.h for programs that use OpenCL themselves.
#include "csrc/package/tensor.h"
#include "csrc/run/handles.h"
#include "csrc/runtime/device/own_objects.h"
#include "csrc/runtime/memory/allocator.h"

using ocl::package::kStream;
using ocl::run::expect;
using ocl::run::guarded;

extern "C" {

ocl_status ocl_opencl_share(const ocl_opencl* own, int* device) {
  return guarded([&] {
    expect(own && own->context && own->device && device,
           "ocl_opencl_share needs a context, a device and a place for its number");
    *device = ocl::runtime::use_own_objects({own->context, own->device, own->queue});
  });
}

ocl_status ocl_opencl_get(ocl_model* model, ocl_opencl* found) {
  return guarded([&] {
    expect(model && found, "ocl_opencl_get: a pointer is NULL");
    ocl::runtime::Device& device = model->model.device();
    ocl::runtime::Queue& queue = device.queue(kStream);
    queue.share();
    *found = {device.context(), device.id(), queue.get()};
  });
}

ocl_status ocl_opencl_wait(ocl_model* model, struct _cl_event* event) {
  return guarded([&] {
    expect(model && event, "ocl_opencl_wait: a pointer is NULL");
    model->model.device().queue(kStream).wait_for(event);
  });
}

ocl_status ocl_tensor_wrap(ocl_model* model, ocl_dtype dtype, int dims, const int64_t* sizes, struct _cl_mem* memory,
                           size_t offset, ocl_tensor** tensor) {
  return guarded([&] {
    expect(model && memory && tensor && dims >= 0 && (sizes || dims == 0), "ocl_tensor_wrap: a pointer is NULL");
    expect(dtype >= OCL_BOOL && dtype <= OCL_F64, "ocl_tensor_wrap: the dtype is unknown");
    *tensor = new ocl_tensor{ocl::package::wrap_memory(model->model.device(), static_cast<ocl::ir::DType>(dtype),
                                                       std::vector<int64_t>(sizes, sizes + dims), memory, offset)};
  });
}

ocl_status ocl_tensor_memory(const ocl_tensor* tensor, struct _cl_mem** memory, size_t* offset) {
  return guarded([&] {
    expect(tensor && memory && offset, "ocl_tensor_memory: a pointer is NULL");
    const ocl::package::DeviceTensor& found = tensor->tensor;
    expect(found.elements() > 0, "ocl_tensor_memory: the tensor has no elements");
    expect(found.is_dense(), "ocl_tensor_memory: the elements are not in row-major order; read them with ocl_tensor_read");
    const ocl::runtime::Location at = found.memory->device().allocator().use(found.address(), kStream);
    *memory = at.mem;
    *offset = at.offset_bytes;
  });
}

}  // extern "C"
