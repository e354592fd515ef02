// tests/device/runtime/stand_ins/nccl.c: an NCCL over host memory, with only the functions of
// csrc/distributed/nccl_functions.def. Ranks are processes that share the folder OCL_STAND_IN_FOLDER; a message is a
// file in this folder. A thread executes the groups of calls in order, and counts them in the stream.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stream.h"

enum { kSuccess = 0, kInternal = 3, kInvalid = 4, kInProgress = 7, kMostRanks = 8, kMostCalls = 256 };
enum Kind { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kReceive };
enum Op { kSum, kProduct, kMax, kMin, kAverage, kFirstScaled = 100 };

struct Call {
  enum Kind kind;
  const char* from;
  char* to;
  size_t count;
  int type, op, peer;
  double factor;
};
struct Group {
  struct Call calls[kMostCalls];
  int count;
  struct Stream* stream;
  struct Group* next;
};
struct Comm {
  char name[64];
  int ranks, rank, sent[kMostRanks], received[kMostRanks], asked, started, aborted, stopping;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t woken;
  struct Group* next;
};

char stand_in_log[1 << 16];  // Names of the calls, with type and operation; tests read it.
static double g_factors[1000];
static int g_scaled = 0;
static __thread struct Group* g_group;
static __thread struct Comm* g_comm;

static const char* folder(void) { return getenv("OCL_STAND_IN_FOLDER"); }
static int setting(const char* name) { return getenv(name) ? atoi(getenv(name)) : 0; }
static size_t size_of(int type) {
  static const size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}

// Elements of tensors of each type, as double

static double get(const char* memory, int type, size_t i) {
  switch (type) {
    case 0: return ((const int8_t*)memory)[i];
    case 1: return ((const uint8_t*)memory)[i];
    case 2: return ((const int32_t*)memory)[i];
    case 3: return ((const uint32_t*)memory)[i];
    case 4: return (double)((const int64_t*)memory)[i];
    case 6: return (double)((const _Float16*)memory)[i];
    case 7: return ((const float*)memory)[i];
    case 8: return ((const double*)memory)[i];
    default: {
      const uint32_t bits = (uint32_t)((const uint16_t*)memory)[i] << 16;
      float value;
      memcpy(&value, &bits, 4);
      return value;
    }
  }
}

static void put(char* memory, int type, size_t i, double value) {
  switch (type) {
    case 0: ((int8_t*)memory)[i] = (int8_t)(int64_t)value; return;
    case 1: ((uint8_t*)memory)[i] = (uint8_t)(int64_t)value; return;
    case 2: ((int32_t*)memory)[i] = (int32_t)value; return;
    case 3: ((uint32_t*)memory)[i] = (uint32_t)value; return;
    case 4: ((int64_t*)memory)[i] = (int64_t)value; return;
    case 6: ((_Float16*)memory)[i] = (_Float16)value; return;
    case 7: ((float*)memory)[i] = (float)value; return;
    case 8: ((double*)memory)[i] = value; return;
    default: {
      const float single = (float)value;
      uint32_t bits;
      memcpy(&bits, &single, 4);
      ((uint16_t*)memory)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
  }
}

static double combine(int op, double a, double b) {
  switch (op) {
    case kProduct: return a * b;
    case kMax: return a > b ? a : b;
    case kMin: return a < b ? a : b;
    default: return a + b;
  }
}

// Messages between ranks, as files

static void send_bytes(struct Comm* comm, int peer, const char* from, size_t bytes) {
  char path[512], part[520];
  snprintf(path, sizeof(path), "%s/%s.%d.%d.%d", folder(), comm->name, comm->rank, peer, comm->sent[peer]++);
  snprintf(part, sizeof(part), "%s.part", path);
  FILE* file = fopen(part, "wb");
  fwrite(from, 1, bytes, file);
  fclose(file);
  rename(part, path);
}

/// Returns 0 if the group was aborted.
static int receive_bytes(struct Comm* comm, int peer, char* to, size_t bytes) {
  char path[512];
  snprintf(path, sizeof(path), "%s/%s.%d.%d.%d", folder(), comm->name, peer, comm->rank, comm->received[peer]++);
  FILE* file = NULL;
  while (!(file = fopen(path, "rb"))) {
    if (__atomic_load_n(&comm->aborted, __ATOMIC_SEQ_CST)) return 0;
    usleep(200);
  }
  const size_t read = fread(to, 1, bytes, file);
  fclose(file);
  unlink(path);
  if (read != bytes) abort();
  return 1;
}

static int receive_reduced(struct Comm* comm, const struct Call* call) {
  const size_t bytes = call->count * size_of(call->type);
  char* part = malloc(bytes + 1);
  double* sum = malloc((call->count + 1) * sizeof(double));
  int ok = 1;
  for (int rank = 0; ok && rank < comm->ranks; ++rank) {
    ok = receive_bytes(comm, rank, part, bytes);
    for (size_t i = 0; ok && i < call->count; ++i) {
      const double value = get(part, call->type, i) * call->factor;
      sum[i] = rank == 0 ? value : combine(call->op, sum[i], value);
    }
  }
  for (size_t i = 0; ok && i < call->count; ++i)
    put(call->to, call->type, i, call->op == kAverage ? sum[i] / comm->ranks : sum[i]);
  free(part);
  free(sum);
  return ok;
}

static void post(struct Comm* comm, const struct Call* call) {
  const size_t bytes = call->count * size_of(call->type);
  for (int rank = 0; rank < comm->ranks; ++rank) {
    const int sends = call->kind == kAllReduce || call->kind == kAllGather || call->kind == kReduceScatter ||
                      ((call->kind == kReduce || call->kind == kSend) && rank == call->peer) ||
                      (call->kind == kBroadcast && comm->rank == call->peer);
    if (sends) send_bytes(comm, rank, call->from + (call->kind == kReduceScatter ? rank * bytes : 0), bytes);
  }
}

static int complete(struct Comm* comm, const struct Call* call) {
  const size_t bytes = call->count * size_of(call->type);
  switch (call->kind) {
    case kAllReduce:
    case kReduceScatter: return receive_reduced(comm, call);
    case kReduce: return comm->rank != call->peer || receive_reduced(comm, call);
    case kBroadcast:
    case kReceive: return receive_bytes(comm, call->peer, call->to, bytes);
    case kAllGather:
      for (int rank = 0; rank < comm->ranks; ++rank)
        if (!receive_bytes(comm, rank, call->to + rank * bytes, bytes)) return 0;
      return 1;
    default: return 1;
  }
}

static void* work(void* data) {
  struct Comm* comm = data;
  while (1) {
    pthread_mutex_lock(&comm->mutex);
    while (!comm->next && !comm->stopping) pthread_cond_wait(&comm->woken, &comm->mutex);
    struct Group* group = comm->next;
    if (group) comm->next = group->next;
    pthread_mutex_unlock(&comm->mutex);
    if (!group) return NULL;
    usleep((useconds_t)setting("OCL_STAND_IN_DELAY_US"));
    for (int i = 0; i < group->count; ++i) post(comm, &group->calls[i]);
    for (int i = 0; i < group->count; ++i)
      if (!complete(comm, &group->calls[i])) break;
    __atomic_add_fetch(&group->stream->finished, 1, __ATOMIC_SEQ_CST);
    free(group);
  }
}

// NCCL's functions

int ncclGetVersion(int* version) {
  *version = setting("OCL_STAND_IN_NCCL_VERSION") ? setting("OCL_STAND_IN_NCCL_VERSION") : 22105;
  return kSuccess;
}
const char* ncclGetErrorString(int status) { return status == kInternal ? "internal error" : "invalid argument"; }

struct Id {
  char bytes[128];
};
int ncclGetUniqueId(struct Id* id) {
  static int count = 0;
  memset(id, 0, sizeof(*id));
  snprintf(id->bytes, sizeof(id->bytes), "comm%d-%d", (int)getpid(), count++);
  return kSuccess;
}

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};
int ncclCommInitRankConfig(struct Comm** made, int ranks, struct Id id, int rank, struct Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0 || ranks > kMostRanks) return kInvalid;
  if (getenv("OCL_STAND_IN_INIT_FAILS")) return kInternal;
  struct Comm* comm = calloc(1, sizeof(*comm));
  snprintf(comm->name, sizeof(comm->name), "%.63s", id.bytes);
  comm->ranks = ranks;
  comm->rank = rank;
  *made = comm;
  for (int peer = 0; peer < ranks; ++peer) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.join.%d", folder(), comm->name, rank);
    fclose(fopen(path, "wb"));
  }
  return kInProgress;
}
int ncclCommGetAsyncError(struct Comm* comm, int* state) {
  *state = kSuccess;
  for (int peer = 0; !comm->started && peer < comm->ranks; ++peer) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.join.%d", folder(), comm->name, peer);
    if (access(path, F_OK) != 0) *state = kInProgress;
  }
  if (!comm->started && *state == kSuccess) {
    pthread_mutex_init(&comm->mutex, NULL);
    pthread_cond_init(&comm->woken, NULL);
    pthread_create(&comm->thread, NULL, &work, comm);
    comm->started = 1;
  }
  if (*state == kSuccess && setting("OCL_STAND_IN_ASYNC_ERROR") && strlen(stand_in_log) > 0) *state = kInternal;
  return kSuccess;
}
int ncclCommFinalize(struct Comm* comm) { return kSuccess; }
int ncclCommDestroy(struct Comm* comm) {
  if (comm->started) {
    pthread_mutex_lock(&comm->mutex);
    comm->stopping = 1;
    pthread_cond_signal(&comm->woken);
    pthread_mutex_unlock(&comm->mutex);
    pthread_join(comm->thread, NULL);
  }
  strcat(stand_in_log, "close ");
  free(comm);
  return kSuccess;
}
int ncclCommAbort(struct Comm* comm) {
  __atomic_store_n(&comm->aborted, 1, __ATOMIC_SEQ_CST);
  strcat(stand_in_log, "abort ");
  return ncclCommDestroy(comm);
}

int ncclGroupStart(void) {
  if (g_group) return kInvalid;
  g_group = calloc(1, sizeof(*g_group));
  g_comm = NULL;
  return kSuccess;
}
int ncclGroupEnd(void) {
  struct Group* group = g_group;
  g_group = NULL;
  if (!g_comm) {
    free(group);
    return kSuccess;
  }
  ++group->stream->enqueued;
  pthread_mutex_lock(&g_comm->mutex);
  struct Group** last = &g_comm->next;
  while (*last) last = &(*last)->next;
  *last = group;
  pthread_cond_signal(&g_comm->woken);
  pthread_mutex_unlock(&g_comm->mutex);
  return kInProgress;
}

int ncclRedOpCreatePreMulSum(int* op, void* factor, int type, int residence, struct Comm* comm) {
  if (residence != 1) return kInvalid;
  g_factors[g_scaled] = get(factor, type, 0);
  *op = kFirstScaled + g_scaled++;
  return kSuccess;
}
int ncclRedOpDestroy(int op, struct Comm* comm) { return op >= kFirstScaled ? kSuccess : kInvalid; }

static int add(const char* name, struct Comm* comm, void* stream, struct Call call) {
  if (!g_group || g_group->count == kMostCalls || !stream) return kInvalid;
  char text[64];
  snprintf(text, sizeof(text), "%s(%d,%d) ", name, call.type, call.op);
  if (strlen(stand_in_log) < sizeof(stand_in_log) - 128) strcat(stand_in_log, text);
  call.factor = 1;
  if (call.op >= kFirstScaled) {
    call.factor = g_factors[call.op - kFirstScaled];
    call.op = kSum;
  }
  g_group->calls[g_group->count++] = call;
  g_group->stream = stream;
  g_comm = comm;
  return kSuccess;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, struct Comm* comm, void* stream) {
  return add("all_reduce", comm, stream, (struct Call){kAllReduce, from, to, count, type, op, 0, 1});
}
int ncclReduce(const void* from, void* to, size_t count, int type, int op, int root, struct Comm* comm, void* stream) {
  return add("reduce", comm, stream, (struct Call){kReduce, from, to, count, type, op, root, 1});
}
int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, struct Comm* comm, void* stream) {
  return add("broadcast", comm, stream, (struct Call){kBroadcast, from, to, count, type, 0, root, 1});
}
int ncclAllGather(const void* from, void* to, size_t count, int type, struct Comm* comm, void* stream) {
  return add("all_gather", comm, stream, (struct Call){kAllGather, from, to, count, type, 0, 0, 1});
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, struct Comm* comm, void* stream) {
  return add("reduce_scatter", comm, stream, (struct Call){kReduceScatter, from, to, count, type, op, 0, 1});
}
int ncclSend(const void* from, size_t count, int type, int peer, struct Comm* comm, void* stream) {
  return add("send", comm, stream, (struct Call){kSend, from, NULL, count, type, 0, peer, 1});
}
int ncclRecv(void* to, size_t count, int type, int peer, struct Comm* comm, void* stream) {
  return add("receive", comm, stream, (struct Call){kReceive, NULL, to, count, type, 0, peer, 1});
}
