// tests/device/runtime/stand_ins/cuda.c: a libcuda over host memory, with only the functions of
// csrc/runtime/cuda/cuda_functions.def. "Device memory" is a file in memory (memfd), so that two addresses, or two
// libraries, can map the same bytes.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stream.h"
#include "uuid.h"

enum { kInvalid = 1, kOutOfMemory = 2, kStep = 2 << 20, kNotReady = 600 };

// Counters that tests read: allocations that are not freed, waits for the device, contexts on the stack, copies between GPUs.
int stand_in_live = 0, stand_in_waits = 0, stand_in_contexts = 0, stand_in_copies = 0;

struct Kind {
  int type, handle_types, location, device;
};

int cuInit(unsigned flags) { return getenv("OCL_STAND_IN_NO_GPU") ? 100 : 0; }
int cuGetErrorString(int status, const char** text) {
  *text = status == kOutOfMemory ? "out of memory" : "invalid argument";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = stand_in_count();
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetUuid(char* uuid, int device) {
  stand_in_uuid(uuid, device);
  if (getenv("OCL_STAND_IN_OTHER_UUID")) uuid[0] ^= 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &stand_in_contexts;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  __atomic_add_fetch(&stand_in_contexts, 1, __ATOMIC_SEQ_CST);
  return context == &stand_in_contexts ? 0 : kInvalid;
}
int cuCtxPopCurrent_v2(void** context) {
  __atomic_sub_fetch(&stand_in_contexts, 1, __ATOMIC_SEQ_CST);
  return 0;
}
int cuCtxSynchronize(void) {
  __atomic_add_fetch(&stand_in_waits, 1, __ATOMIC_SEQ_CST);
  return 0;
}

int cuStreamCreate(void** stream, unsigned flags) {
  *stream = calloc(1, sizeof(struct Stream));
  return flags == 1 ? 0 : kInvalid;
}
static int reached(const struct Stream* stream, int count) {
  return __atomic_load_n(&stream->finished, __ATOMIC_SEQ_CST) >= count ? 0 : kNotReady;
}
int cuStreamQuery(void* stream) { return reached(stream, ((struct Stream*)stream)->enqueued); }
int cuStreamDestroy_v2(void* stream) { return 0; }

int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = getenv("OCL_STAND_IN_NO_PEERS") == NULL;
  return device != peer ? 0 : kInvalid;
}
struct Copy {
  void *to, *from;
  size_t bytes;
  struct Stream* stream;
  int number;
};
/// Copies when the stream's earlier work is done, and some time later, so that work that does not wait for it is wrong.
static void* copy(void* data) {
  struct Copy* task = data;
  while (__atomic_load_n(&task->stream->finished, __ATOMIC_SEQ_CST) != task->number) usleep(20);
  usleep(task->number % 3 * 400);
  memcpy(task->to, task->from, task->bytes);
  __atomic_add_fetch(&task->stream->finished, 1, __ATOMIC_SEQ_CST);
  free(task);
  return NULL;
}
int cuMemcpyPeerAsync(unsigned long long to, void* to_context, unsigned long long from, void* from_context, size_t bytes,
                      void* stream) {
  if (to_context != &stand_in_contexts || from_context != &stand_in_contexts || getenv("OCL_STAND_IN_NO_COPIES")) return kInvalid;
  struct Copy* task = malloc(sizeof(struct Copy));
  *task = (struct Copy){(void*)to, (void*)from, bytes, stream, ((struct Stream*)stream)->enqueued++};
  __atomic_add_fetch(&stand_in_copies, 1, __ATOMIC_SEQ_CST);
  pthread_t thread;
  return pthread_create(&thread, NULL, &copy, task) == 0 && pthread_detach(thread) == 0 ? 0 : kInvalid;
}

struct Event {
  struct Stream* stream;
  int count;
};
int cuEventCreate(void** event, unsigned flags) {
  *event = calloc(1, sizeof(struct Event));
  return flags == 2 ? 0 : kInvalid;
}
int cuEventRecord(void* event, void* stream) {
  *(struct Event*)event = (struct Event){stream, ((struct Stream*)stream)->enqueued};
  return 0;
}
int cuEventQuery(void* event) { return reached(((struct Event*)event)->stream, ((struct Event*)event)->count); }
int cuEventDestroy_v2(void* event) {
  free(event);
  return 0;
}

int cuMemGetAllocationGranularity(size_t* bytes, const struct Kind* kind, int option) {
  *bytes = kStep;
  return 0;
}
int cuMemCreate(unsigned long long* handle, size_t bytes, const struct Kind* kind, unsigned long long flags) {
  if (kind->type != 1 || kind->handle_types != 1 || kind->location != 1 || bytes % kStep != 0) return kInvalid;
  if (getenv("OCL_STAND_IN_FULL")) return kOutOfMemory;
  const int file = memfd_create("stand-in", 0);
  if (file < 0 || ftruncate(file, (off_t)bytes) != 0) return kOutOfMemory;
  *handle = (unsigned long long)file;
  __atomic_add_fetch(&stand_in_live, 1, __ATOMIC_SEQ_CST);
  return 0;
}
int cuMemRelease(unsigned long long handle) {
  __atomic_sub_fetch(&stand_in_live, 1, __ATOMIC_SEQ_CST);
  return close((int)handle);
}
int cuMemExportToShareableHandle(int* shareable, unsigned long long handle, int type, unsigned long long flags) {
  *shareable = dup((int)handle);
  return type == 1 ? 0 : kInvalid;
}
int cuMemAddressReserve(unsigned long long* address, size_t bytes, size_t alignment, unsigned long long wanted,
                        unsigned long long flags) {
  void* reserved = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *address = (unsigned long long)reserved;
  return reserved == MAP_FAILED ? kOutOfMemory : 0;
}
int cuMemAddressFree(unsigned long long address, size_t bytes) { return munmap((void*)address, bytes); }
int cuMemMap(unsigned long long address, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags) {
  void* at = mmap((void*)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
  return at == MAP_FAILED ? kInvalid : 0;
}
int cuMemUnmap(unsigned long long address, size_t bytes) {
  void* at = mmap((void*)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return at == MAP_FAILED ? kInvalid : 0;
}
int cuMemSetAccess(unsigned long long address, size_t bytes, const struct Kind* access, size_t count) {
  return mprotect((void*)address, bytes, PROT_READ | PROT_WRITE) == 0 && count == 1 ? 0 : kInvalid;
}
