// csrc/runtime/cuda/cuda_memory.cpp: creates memory with CUDA, and imports it into OpenCL; see cuda_memory.h.
#include "csrc/runtime/cuda/cuda_memory.h"

#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

constexpr int kLeastGranularity = 0;  // CU_MEM_ALLOC_GRANULARITY_MINIMUM
constexpr int kFileDescriptor = 1;    // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

}  // namespace

CudaMemory::CudaMemory(const CudaDevice& device, size_t bytes) : device_(device) {
  const CudaFunctions& cuda = cuda_functions();
  const CudaContextGuard guard(device);
  CudaMemoryKind kind;
  kind.location.device = device.handle();
  size_t step = 0;
  check_cuda(cuda.granularity(&step, &kind, kLeastGranularity), "cuMemGetAllocationGranularity");
  bytes_ = (bytes + step - 1) / step * step;
  try {
    check_cuda(cuda.create_memory(&handle_, bytes_, &kind, 0), "cuMemCreate");
    created_ = true;
    check_cuda(cuda.reserve_addresses(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve");
    check_cuda(cuda.map(address_, bytes_, 0, handle_, 0), "cuMemMap");
    mapped_ = true;
    allow(device);
  } catch (const Error&) {
    release();
    throw;
  }
}

void CudaMemory::allow(const CudaDevice& peer) {
  CudaAccess access;
  access.location.device = peer.handle();
  check_cuda(cuda_functions().set_access(address_, bytes_, &access, 1), "cuMemSetAccess");
}

CudaMemory::~CudaMemory() {
  if (!runtimes_usable()) return;
  try {
    const CudaContextGuard guard(device_);
    release();
  } catch (const Error&) {
    // CUDA has ended, and the memory with it.
  }
}

void CudaMemory::release() noexcept {
  const CudaFunctions& cuda = cuda_functions();
  if (mapped_) cuda.unmap(address_, bytes_);
  if (address_) cuda.free_addresses(address_, bytes_);
  if (created_) cuda.release_memory(handle_);
}

MemHandle CudaMemory::import(cl_context context, size_t bytes) const {
  int descriptor = -1;
  check_cuda(cuda_functions().export_memory(&descriptor, handle_, kFileDescriptor, 0), "cuMemExportToShareableHandle");
  const cl_mem_properties properties[] = {CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR, static_cast<cl_mem_properties>(descriptor),
                                          0};
  cl_int status = CL_SUCCESS;
  MemHandle mem(clCreateBufferWithProperties(context, properties, CL_MEM_READ_WRITE, bytes, nullptr, &status));
  if (status == CL_SUCCESS) return mem;  // The driver owns the descriptor now.
  os::close_descriptor(descriptor);
  fail(ErrorKind::kUnsupported, std::string("memory of CUDA cannot be imported: clCreateBufferWithProperties: ") +
                                    status_name(status) + " (cl_khr_external_memory_opaque_fd)");
}

}  // namespace ocl::runtime
