// csrc/runtime/cuda/cuda_driver.cpp: opens CUDA's driver library, and finds devices by UUID; see cuda_driver.h.
#include "csrc/runtime/cuda/cuda_driver.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

struct Driver {
  CudaFunctions functions;
  std::string problem;  // Why there is no driver. "" if there is one.

  Driver() {
    void* library = os::open_library(os::kFileNames.nvidia_driver, problem);
    if (!library) return;
    problem.clear();
#define OCL_CUDA(member, name, parameters)                                                            \
  functions.member = reinterpret_cast<decltype(functions.member)>(os::library_symbol(library, name)); \
  if (!functions.member) problem = std::string("the driver is too old: ") + os::kFileNames.nvidia_driver + " lacks " + name;
#include "csrc/runtime/cuda/cuda_functions.def"
#undef OCL_CUDA
    if (problem.empty() && functions.init(0) != 0) problem = "cuInit failed: there is no NVIDIA GPU that CUDA can use";
  }
};

const Driver& driver() {
  static const Driver instance;
  return instance;
}

/// Returns the index of CUDA's device with this UUID; -1 if there is none.
int index_of(const CudaUuid& uuid) {
  const CudaFunctions& cuda = cuda_functions();
  int count = 0;
  check_cuda(cuda.device_count(&count), "cuDeviceGetCount");
  for (int index = 0; index < count; ++index) {
    int device = 0;
    CudaUuid its{};
    if (cuda.device(&device, index) == 0 && cuda.device_uuid(&its, device) == 0 &&
        std::memcmp(its.bytes, uuid.bytes, sizeof(uuid.bytes)) == 0)
      return index;
  }
  return -1;
}

/// Returns the index and the UUID of CUDA's device that is the same GPU as `device`. Throws kUnsupported if there is none.
int find(const DeviceInfo& device, CudaUuid& uuid) {
  if (clGetDeviceInfo(device.id, CL_DEVICE_UUID_KHR, sizeof(uuid), &uuid, nullptr) != CL_SUCCESS)
    fail(ErrorKind::kUnsupported, device.describe() + " shares no memory with CUDA: it has no UUID (cl_khr_device_uuid)");
  const int index = index_of(uuid);
  if (index < 0)
    fail(ErrorKind::kUnsupported, device.describe() +
                                      " shares no memory with CUDA: no CUDA device has its UUID.\n"
                                      "  do: look at CUDA_VISIBLE_DEVICES");
  return index;
}

/// Interprets the answer of a query. Throws kDevice if the work failed.
bool is_done(int status) {
  constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY
  if (status == 0 || status == kNotReady) return status == 0;
  const char* text = nullptr;
  cuda_functions().error_text(status, &text);
  fail(ErrorKind::kDevice, std::string("the work of a CUDA stream failed: ") + (text ? text : std::to_string(status).c_str()));
}

}  // namespace

const CudaFunctions& cuda_functions() {
  if (!driver().problem.empty()) fail(ErrorKind::kUnsupported, "CUDA cannot be used: " + driver().problem);
  return driver().functions;
}

void check_cuda(int status, const char* call) {
  if (status == 0) return;
  constexpr int kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY
  const char* text = nullptr;
  cuda_functions().error_text(status, &text);
  fail(status == kOutOfMemory ? ErrorKind::kOutOfMemory : ErrorKind::kUnsupported,
       std::string(call) + " failed: " + (text ? text : "unknown error") + " (" + std::to_string(status) + ")");
}

CudaDevice::CudaDevice(int index, const CudaUuid& uuid) : index_(index), uuid_(uuid) {
  check_cuda(cuda_functions().device(&handle_, index), "cuDeviceGet");
  check_cuda(cuda_functions().retain_context(&context_, handle_), "cuDevicePrimaryCtxRetain");
}

const CudaDevice& CudaDevice::of(const DeviceInfo& device) {
  static std::mutex mutex;
  static auto* found = new std::map<int, std::unique_ptr<CudaDevice>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaDevice>& entry = (*found)[device.index];
  if (entry) return *entry;
  CudaUuid uuid{};
  const int index = find(device, uuid);
  entry.reset(new CudaDevice(index, uuid));
  return *entry;
}

bool CudaDevice::exists(const DeviceInfo& device) noexcept {
  try {
    CudaUuid uuid{};
    find(device, uuid);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void CudaDevice::synchronize() const noexcept {
  if (!runtimes_usable()) return;
  try {
    const CudaContextGuard guard(*this);
    cuda_functions().synchronize();
  } catch (const Error&) {
    // Without a context there is no work to wait for.
  }
}

CudaContextGuard::CudaContextGuard(const CudaDevice& device) {
  check_cuda(cuda_functions().push_context(device.context()), "cuCtxPushCurrent");
}

CudaContextGuard::~CudaContextGuard() {
  CudaContext context = nullptr;
  cuda_functions().pop_context(&context);
}

CudaStream::CudaStream() {
  constexpr unsigned kNonBlocking = 1;  // Not ordered with the default stream.
  check_cuda(cuda_functions().create_stream(&handle_, kNonBlocking), "cuStreamCreate");
}

CudaStream::~CudaStream() {
  if (runtimes_usable()) cuda_functions().destroy_stream(handle_);
}

bool CudaStream::idle() const { return is_done(cuda_functions().query_stream(handle_)); }

CudaEvent::CudaEvent(const CudaStream& stream) {
  constexpr unsigned kWithoutTime = 2;  // CU_EVENT_DISABLE_TIMING
  check_cuda(cuda_functions().create_event(&handle_, kWithoutTime), "cuEventCreate");
  check_cuda(cuda_functions().record_event(handle_, stream.get()), "cuEventRecord");
}

CudaEvent::~CudaEvent() {
  if (runtimes_usable()) cuda_functions().destroy_event(handle_);
}

bool CudaEvent::complete() const { return is_done(cuda_functions().query_event(handle_)); }

}  // namespace ocl::runtime
