// tests/device/stand_ins/uuid.h: the UUID of the GPU that the stand-ins pretend to be. OCL_STAND_IN_GPU is its number.
#pragma once

#include <stdlib.h>
#include <string.h>

static inline void stand_in_uuid(char* uuid) {
  const char* number = getenv("OCL_STAND_IN_GPU");
  memcpy(uuid, "stand-in for GPU", 16);
  uuid[15] = number ? number[0] : '0';
}
