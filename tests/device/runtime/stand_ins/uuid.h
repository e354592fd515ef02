// tests/device/runtime/stand_ins/uuid.h: the UUIDs of the GPUs that the stand-ins pretend to be. OCL_STAND_IN_GPUS is how many
// there are, OCL_STAND_IN_GPU the number of the first one.
#pragma once

#include <stdlib.h>
#include <string.h>

static inline int stand_in_count(void) {
  const char* count = getenv("OCL_STAND_IN_GPUS");
  return count ? atoi(count) : 1;
}

static inline void stand_in_uuid(char* uuid, int index) {
  const char* number = getenv("OCL_STAND_IN_GPU");
  memcpy(uuid, "stand-in for GPU", 16);
  uuid[15] = (char)((number ? number[0] : '0') + index);
}
