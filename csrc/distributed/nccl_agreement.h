// csrc/distributed/nccl_agreement.h: the ranks of a new group decide together whether they use NCCL.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "csrc/distributed/nccl_engine.h"
#include "csrc/distributed/peers.h"

namespace ocl::distributed {

/// The option `nccl` of a rank. kIfPossible: a group without NVIDIA devices uses gloo without a word, and so does a group of
/// one rank. kRequested: one of the ranks logs why it is not used.
enum class NcclUse : uint8_t { kNever, kIfPossible, kRequested };
struct NcclSettings {
  NcclUse use = NcclUse::kNever;
  std::vector<std::string> files = {};  // Where the library may be.
};

struct NcclStart {
  std::shared_ptr<NcclEngine> engine;  // Null if the group uses gloo.
  std::string text;                    // The version and what it runs on; without an engine, why NCCL is not used.
};

/// Connects the ranks by NCCL, on this thread's current ocl device, and starts the transport. All ranks of the group call it.
/// There is no engine on any rank if a rank does not want NCCL, cannot open it, has no NVIDIA device, shares its device with
/// another rank, or cannot connect.
NcclStart start_nccl(const NcclSettings& settings, const c10::intrusive_ptr<c10d::Store>& store, const RankNames& names,
                     std::chrono::milliseconds timeout);

/// Returns the version of NCCL that this process can use on a device. Throws kUnsupported if there is none, or no CUDA device.
std::string nccl_ability(const std::vector<std::string>& files, const runtime::Device& device);

}  // namespace ocl::distributed
