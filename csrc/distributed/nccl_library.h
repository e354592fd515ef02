// csrc/distributed/nccl_library.h: NCCL, opened when a group first asks for it.
#pragma once

#include <climits>
#include <cstddef>
#include <string>
#include <vector>

namespace ocl::distributed {

// Types of NCCL's functions. Their layouts are part of its binary interface.
using NcclComm = void*;
struct NcclId {
  char bytes[128];
};
/// The first fields of NCCL's configuration, which all versions since 2.14 have. Newer versions read `size`, and take their
/// defaults for the rest.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;  // Calls return before they are done, so that a rank can give up.
  int unused = INT_MIN;
};

enum NcclStatus { kNcclSuccess = 0, kNcclInProgress = 7 };

struct NcclFunctions {
#define OCL_NCCL(member, name, parameters) int(*member) parameters = nullptr;
#include "csrc/distributed/nccl_functions.def"
#undef OCL_NCCL
  const char* (*error_text)(int status) = nullptr;
};

struct NcclLibrary {
  NcclFunctions functions;
  int version = 0;  // 22105 for 2.21.5.
};

/// Returns NCCL, from the first of `files` that can be opened. The first call that succeeds decides. Throws kUnsupported if
/// there is none, or if it is older than 2.14.
const NcclLibrary& nccl_library(const std::vector<std::string>& files);
std::string nccl_version_text(int version);

}  // namespace ocl::distributed
