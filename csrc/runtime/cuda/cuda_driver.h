// csrc/runtime/cuda/cuda_driver.h: CUDA's driver library, opened when it is first needed, and the CUDA devices that are the
// same GPU as an OpenCL device.
#pragma once

#include <cstddef>
#include <string>

#include "csrc/runtime/opencl/device_info.h"

namespace ocl::runtime {

// Types of CUDA's driver API. Their layouts are part of its binary interface.
using CudaContext = void*;
using CudaStreamHandle = void*;
using CudaEventHandle = void*;
using CudaAddress = unsigned long long;
using CudaHandle = unsigned long long;  // Of memory that has no address yet.

struct CudaUuid {
  char bytes[16];
};
struct CudaLocation {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;
};
/// Which memory to create: on a device, exportable as a file descriptor.
struct CudaMemoryKind {
  int type = 1;          // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  CudaLocation location;
  void* windows_attributes = nullptr;
  unsigned char flags[8] = {};
};
struct CudaAccess {
  CudaLocation location;
  int rights = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

/// The driver's functions. A function that the driver lacks is null.
struct CudaFunctions {
#define OCL_CUDA(member, name, parameters) int(*member) parameters = nullptr;
#include "csrc/runtime/cuda/cuda_functions.def"
#undef OCL_CUDA
};

/// Returns the driver's functions. Throws kUnsupported if there is no driver, or if it is too old.
const CudaFunctions& cuda_functions();

/// Throws unless `status` is success: kOutOfMemory or kUnsupported. The message names `call`.
void check_cuda(int status, const char* call);

/// A GPU as CUDA sees it.
class CudaDevice {
 public:
  /// Returns the CUDA device that is the same GPU as `device`, by its UUID. Throws kUnsupported if there is none.
  static const CudaDevice& of(const DeviceInfo& device);
  /// True if of() finds a device. Makes no context of CUDA.
  static bool exists(const DeviceInfo& device) noexcept;
  int index() const { return index_; }    // CUDA's number of the device.
  int handle() const { return handle_; }  // The CUdevice.
  CudaContext context() const { return context_; }
  const CudaUuid& uuid() const { return uuid_; }
  /// Waits for all work of this process on the device. Errors of that work are left to CUDA's own callers.
  void synchronize() const noexcept;

 private:
  CudaDevice(int index, const CudaUuid& uuid);
  int index_, handle_ = 0;
  CudaUuid uuid_;
  CudaContext context_ = nullptr;  // The primary context, which torch uses too.
};

/// Makes a device's primary context the current one of this thread.
class CudaContextGuard {
 public:
  explicit CudaContextGuard(const CudaDevice& device);
  ~CudaContextGuard();
  CudaContextGuard(const CudaContextGuard&) = delete;
  CudaContextGuard& operator=(const CudaContextGuard&) = delete;
};

/// A CUDA stream. The thread that uses it has a CudaContextGuard.
class CudaStream {
 public:
  CudaStream();
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  CudaStreamHandle get() const { return handle_; }
  /// True if all work of the stream is done. Throws kDevice if it failed.
  bool idle() const;

 private:
  CudaStreamHandle handle_ = nullptr;
};

/// A point in a CUDA stream. The thread that uses it has a CudaContextGuard.
class CudaEvent {
 public:
  /// The event is complete when all work is done that is in the stream now.
  explicit CudaEvent(const CudaStream& stream);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  /// Throws kDevice if the work failed.
  bool complete() const;

 private:
  CudaEventHandle handle_ = nullptr;
};

}  // namespace ocl::runtime
