// csrc/distributed/nccl_agreement.h: the ranks of a new group decide together whether they use NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "csrc/distributed/nccl_engine.h"
#include "csrc/distributed/peers.h"

namespace ocl::distributed {

struct NcclWish {
  bool wanted = false;                  // The option `nccl` of this rank.
  std::vector<std::string> files = {};  // Where the library may be.
};

/// Connects the ranks by NCCL, on this thread's current ocl device, and starts the transport. All ranks of the group call it.
/// Returns nullptr on all ranks if a rank does not want NCCL, cannot open it, has no NVIDIA device, shares its device with
/// another rank, or cannot connect. One of the ranks that want it then logs why.
std::shared_ptr<NcclEngine> start_nccl(const NcclWish& wish, const c10::intrusive_ptr<c10d::Store>& store,
                                       const RankNames& names, std::chrono::milliseconds timeout);

}  // namespace ocl::distributed
