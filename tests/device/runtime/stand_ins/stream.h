// tests/device/runtime/stand_ins/stream.h: a CUDA stream as stand_ins/cuda.c makes it, and stand_ins/nccl.c uses it.
struct Stream {
  int enqueued, finished;  // Numbers of groups of calls.
};
