// csrc/runtime/memory/slab_memory.cpp: chooses how the memory of a slab is created; see slab_memory.h.
#include "csrc/runtime/memory/slab_memory.h"

#include <cstring>
#include <memory>

#include "csrc/runtime/cuda/cuda_memory.h"
#include "csrc/runtime/memory/address_range.h"
#include "csrc/runtime/memory/slab.h"
#include "csrc/runtime/probes/caps.h"
#include "csrc/runtime/queues/queues.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

/// Returns whether a buffer over host memory (CL_MEM_USE_HOST_PTR) really uses that memory. Writes through the queue
/// and looks at the memory.
bool host_memory_is_shared(const DeviceInfo& device, Queue& queue) {
  const size_t bytes = 4096;
  void* pages = os::allocate_pages(bytes);
  if (!pages) return false;
  cl_int status = CL_SUCCESS;
  bool shared = false;
  {
    MemHandle mem(clCreateBuffer(device.context.get(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, pages, &status));
    if (status == CL_SUCCESS) {
      const uint64_t sent = 0x5a17c0de12345678ULL;
      queue.write(mem.get(), 64, &sent, sizeof(sent), true);
      queue.finish();
      shared = std::memcmp(static_cast<std::byte*>(pages) + 64, &sent, sizeof(sent)) == 0;
    }
  }
  os::free_pages(pages, bytes);
  return shared;
}

}  // namespace

SlabMemory::SlabMemory(const DeviceInfo& device, Queues& queues)
    : device_(device), queues_(queues), on_host_(device.caps.is_cpu && host_memory_is_shared(device, queues.of(0))) {
  cl_ulong plain = 0;
  if (clGetDeviceInfo(device.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(plain), &plain, nullptr) == CL_SUCCESS)
    plain_bytes_ = static_cast<size_t>(plain);
}

bool SlabMemory::create(Slab& slab, std::string& problem) {
  const bool created = slab.pool == kShared ? create_shared(slab, problem)
                       : cuda_preferred_    ? create_preferred(slab, problem)
                                            : create_buffer(slab, problem);
  if (created && (on_host_ || device_.caps.unified || commit(slab, problem))) return true;
  release(slab);
  return false;
}

void SlabMemory::release(Slab& slab) noexcept {
  slab.mem = MemHandle();
  slab.cuda.reset();
  if (slab.host) os::free_pages(slab.host, slab.bytes);
  slab.host = nullptr;
  released_.fetch_add(1);
}

void SlabMemory::allow(const CudaDevice& peer, const AddressRange& range) {
  range.for_each_slab([&](const Slab* slab) {
    if (slab->cuda) slab->cuda->allow(peer);
  });
  peers_.push_back(&peer);
}

bool SlabMemory::create_buffer(Slab& slab, std::string& problem) {
  cl_mem_flags flags = CL_MEM_READ_WRITE;
  if (on_host_) {
    slab.host = static_cast<std::byte*>(os::allocate_pages(slab.bytes));
    if (!slab.host) {
      problem = "the system has no memory left";
      return false;
    }
    flags |= CL_MEM_USE_HOST_PTR;
  } else if (device_.caps.unified) {
    flags |= CL_MEM_ALLOC_HOST_PTR;
  }
  if (device_.caps.unrestricted_buffers && slab.bytes > plain_bytes_) flags |= kUnrestrictedSize;
  cl_int status = CL_SUCCESS;
  slab.mem = MemHandle(clCreateBuffer(device_.context.get(), flags, slab.bytes, slab.host, &status));
  if (status != CL_SUCCESS) problem = std::string("clCreateBuffer: ") + status_name(status);
  return status == CL_SUCCESS;
}

bool SlabMemory::create_shared(Slab& slab, std::string& problem) {
  if (slab.bytes > kMostImported)
    fail(ErrorKind::kUnsupported, device_.describe() + ": " + std::to_string(slab.bytes >> 20) +
                                      " MiB cannot be shared with CUDA, at most " + std::to_string(kMostImported >> 20) +
                                      " MiB in one piece can. Use a smaller tensor");
  try {
    slab.cuda = std::make_unique<CudaMemory>(CudaDevice::of(device_), slab.bytes);
    for (const CudaDevice* peer : peers_) slab.cuda->allow(*peer);
    slab.mem = slab.cuda->import(device_.context.get(), slab.bytes);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOutOfMemory) throw;
    problem = error.what();
    return false;
  }
}

bool SlabMemory::create_preferred(Slab& slab, std::string& problem) {
  if (slab.bytes > kMostImported) return create_buffer(slab, problem);
  try {
    return create_shared(slab, problem);
  } catch (const Error& error) {
    cuda_preferred_ = false;
    release(slab);
    log_message(
        LogLevel::kWarning, "runtime",
        device_.describe() + ": new memory is not shared with CUDA, so NCCL and other devices get copies: " + error.what());
    return create_buffer(slab, problem);
  }
}

/// Makes the driver reserve the memory of a new slab. Drivers of discrete GPUs reserve memory at the first use of a buffer,
/// and only that use fails. Using the buffer here turns a full device into an error of this call, which can be handled. The
/// stream's own queue does it, so that work on the slab comes later.
bool SlabMemory::commit(const Slab& slab, std::string& problem) {
  const uint32_t zero = 0;
  try {
    queues_.of(slab.stream).fill(slab.mem.get(), 0, sizeof(zero), &zero, sizeof(zero));
    return true;
  } catch (const Error& error) {
    problem = error.what();
    return false;
  }
}

}  // namespace ocl::runtime
