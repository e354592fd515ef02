// csrc/distributed/nccl_agreement.cpp: the ranks publish in the store what they can do; see nccl_agreement.h.
//
//   key               value
//   able/R   "off", "none REASON" (no NVIDIA device), "no REASON" or "yes VERSION GPU" of rank R
//   id       the id of rank 0's NCCL, by which the ranks find each other
//   joined/R "yes" or "no REASON" of rank R, after it has tried to connect
//
// The keys begin with ocl/nccl/N. N counts the groups that have had this part of the store, because a store may outlive a
// group.
#include "csrc/distributed/nccl_agreement.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "csrc/distributed/failure.h"
#include "csrc/support/log.h"
#include "csrc/torch/device_state.h"

namespace ocl::distributed {
namespace {

constexpr std::chrono::milliseconds kLongest{120'000};  // For NCCL to connect.
constexpr std::chrono::milliseconds kLook{200};
constexpr const char* kFollows = "another rank failed to connect";

std::string reason_now() {
  std::string text = message_of(std::current_exception());
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

bool begins_with(const std::string& text, const char* word) { return text.compare(0, std::strlen(word), word) == 0; }

class Agreement {
 public:
  Agreement(c10d::Store& store, const RankNames& names, std::chrono::milliseconds timeout)
      : store_(store), names_(names), timeout_(std::min(timeout, kLongest)) {}

  void publish(const std::string& subject, const std::string& value) { store_.set(key(subject, names_.rank), value); }

  /// Returns the values that all ranks wrote under `subject`. A rank that wrote nothing in time counts as "no".
  std::vector<std::string> gather(const std::string& subject) {
    std::vector<std::string> values;
    for (int rank = 0; rank < names_.size; ++rank) {
      try {
        store_.wait({key(subject, rank)}, timeout_);
        values.push_back(store_.get_to_str(key(subject, rank)));
      } catch (const std::exception&) {
        values.emplace_back("no it gave no answer in time");
      }
    }
    return values;
  }

  /// Returns why the ranks do not use NCCL, in words; "" if all said yes. A rank that refused only because another rank
  /// had refused (kFollows) is reported only if there is no other reason.
  std::string refusal(const std::vector<std::string>& values) const {
    std::string followed;
    for (int rank = 0; rank < names_.size; ++rank) {
      const std::string& value = values[rank];
      if (begins_with(value, "yes")) continue;
      if (value == "off") return names_.of(rank) + " does not ask for it";
      const std::string reason = value.substr(value.find(' ') + 1);
      if (reason != kFollows) return names_.of(rank) + ": " + reason;
      followed = names_.of(rank) + ": " + reason;
    }
    return followed;
  }

  /// Logs on the first rank that wants NCCL why it is not used. Nobody need know of ranks without NVIDIA devices if this rank
  /// did not ask for NCCL.
  void report(const std::vector<std::string>& able, const std::string& reason, NcclUse use) const {
    for (int rank = 0; rank < names_.rank; ++rank)
      if (able[rank] != "off") return;
    const bool expected = use == NcclUse::kIfPossible && std::any_of(able.begin(), able.end(), [](const std::string& value) {
                            return value == "off" || begins_with(value, "none");
                          });
    log_message(expected ? LogLevel::kInfo : LogLevel::kWarning, "distributed",
                "the process group " + names_.group + " uses gloo and not NCCL: " + reason);
  }

  bool somebody_failed() {
    for (int rank = 0; rank < names_.size; ++rank)
      if (store_.check({key("joined", rank)}) && store_.get_to_str(key("joined", rank)) != "yes") return true;
    return false;
  }

  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  static std::string key(const std::string& subject, int rank) { return subject + "/" + std::to_string(rank); }
  c10d::Store& store_;
  const RankNames& names_;
  const std::chrono::milliseconds timeout_;
};

/// Returns what this rank publishes under "able".
std::string ability(const NcclSettings& settings) {
  const runtime::CudaDevice* cuda = nullptr;
  try {
    cuda = &runtime::CudaDevice::of(aten::device_at(-1).info());
  } catch (...) {
    return (settings.use == NcclUse::kIfPossible ? "none " : "no ") + reason_now();
  }
  std::string text = "yes ";
  try {
    text += nccl_version_text(nccl_library(settings.files).version) + " ";
  } catch (...) {
    return "no " + reason_now();
  }
  for (const char byte : cuda->uuid().bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

/// Compares the versions and GPUs of ranks that have all said yes. Returns why they cannot work together, or "".
std::string mismatch(const std::vector<std::string>& able, const RankNames& names) {
  std::map<std::string, int> rank_of;
  const auto version = [](const std::string& value) { return value.substr(4, value.rfind(' ') - 4); };
  for (int rank = 0; rank < names.size; ++rank) {
    if (version(able[rank]) != version(able[0]))
      return names.of(0) + " has NCCL " + version(able[0]) + ", and " + names.of(rank) + " has " + version(able[rank]);
    const auto [other, is_new] = rank_of.emplace(able[rank].substr(able[rank].rfind(' ')), rank);
    if (!is_new) return names.of(other->second) + " and " + names.of(rank) + " use the same GPU";
  }
  return "";
}

NcclId share_id(const NcclLibrary& library, c10d::Store& store, int rank, std::chrono::milliseconds timeout) {
  constexpr const char* kKey = "id";
  NcclId id{};
  if (rank == 0) {
    // "no" reports to the others at once that there is none.
    if (library.functions.unique_id(&id) != kNcclSuccess)
      store.set(kKey, "no");
    else
      store.set(kKey, std::string(id.bytes, sizeof(id.bytes)));
  }
  store.wait({kKey}, timeout);
  const std::string bytes = store.get_to_str(kKey);
  if (bytes.size() != sizeof(id.bytes)) fail(ErrorKind::kDevice, "ncclGetUniqueId failed");
  std::memcpy(id.bytes, bytes.data(), sizeof(id.bytes));
  return id;
}

/// Connects this rank. Throws if that fails, if it takes too long, or if another rank has failed.
std::unique_ptr<NcclCommunicator> join(const NcclSettings& settings, c10d::Store& store, const RankNames& names,
                                       Agreement& agreement) {
  const NcclLibrary& library = nccl_library(settings.files);
  const NcclId id = share_id(library, store, names.rank, agreement.timeout());
  const auto deadline = std::chrono::steady_clock::now() + agreement.timeout();
  auto next_look = std::chrono::steady_clock::now() + kLook;
  const auto give_up = [&] {
    const auto now = std::chrono::steady_clock::now();
    if (now > deadline) fail(ErrorKind::kDevice, "NCCL does not connect the ranks");
    if (now < next_look) return;
    next_look = now + kLook;
    if (agreement.somebody_failed()) fail(ErrorKind::kDevice, kFollows);
  };
  return std::make_unique<NcclCommunicator>(library, id, names.size, names.rank, give_up);
}

/// Returns nullptr on all ranks if one of them cannot use NCCL, and then sets `reason`.
std::unique_ptr<NcclCommunicator> connect(const NcclSettings& settings, c10d::Store& store, const RankNames& names,
                                          std::chrono::milliseconds timeout, std::string& reason) {
  Agreement agreement(store, names, timeout);
  agreement.publish("able", settings.use == NcclUse::kNever ? "off" : ability(settings));
  if (settings.use == NcclUse::kNever) {
    reason = "the option nccl is 0";
    return nullptr;
  }
  const std::vector<std::string> able = agreement.gather("able");
  reason = agreement.refusal(able);
  if (reason.empty()) reason = mismatch(able, names);
  if (!reason.empty()) {
    agreement.report(able, reason, settings.use);
    return nullptr;
  }
  const runtime::CudaContextGuard context(runtime::CudaDevice::of(aten::device_at(-1).info()));
  std::unique_ptr<NcclCommunicator> communicator;
  try {
    communicator = join(settings, store, names, agreement);
    agreement.publish("joined", "yes");
  } catch (...) {
    agreement.publish("joined", "no " + reason_now());
  }
  reason = agreement.refusal(agreement.gather("joined"));
  if (reason.empty()) return communicator;
  agreement.report(able, reason, settings.use);
  if (communicator) communicator->abort();
  return nullptr;
}

}  // namespace

NcclStart start_nccl(const NcclSettings& settings, const c10::intrusive_ptr<c10d::Store>& store, const RankNames& names,
                     std::chrono::milliseconds timeout) {
  if (names.size == 1 && settings.use != NcclUse::kRequested) return {nullptr, "a group of one rank does not communicate"};
  const int64_t group = store->add("ocl/nccl/groups/" + std::to_string(names.rank), 1);
  const auto own = c10::make_intrusive<c10d::PrefixStore>("ocl/nccl/" + std::to_string(group), store);
  std::string reason;
  std::unique_ptr<NcclCommunicator> communicator = connect(settings, *own, names, timeout, reason);
  if (!communicator) return {nullptr, reason};
  auto engine = std::make_shared<NcclEngine>(std::move(communicator), aten::device_at(-1), own, names, timeout);
  engine->start();
  return {engine, "NCCL " + nccl_version_text(nccl_library(settings.files).version)};
}

std::string nccl_ability(const std::vector<std::string>& files, const runtime::Device& device) {
  runtime::CudaDevice::of(device.info());
  return nccl_version_text(nccl_library(files).version);
}

}  // namespace ocl::distributed
