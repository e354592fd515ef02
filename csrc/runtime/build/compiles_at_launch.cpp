// csrc/runtime/build/compiles_at_launch.cpp: see compiles_at_launch.h.
#include "csrc/runtime/build/compiles_at_launch.h"

#include <chrono>
#include <map>
#include <mutex>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/opencl/compile.h"
#include "csrc/support/hash.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

// In seconds of CPU time. If getting a binary takes longer, the kernel was compiled only then.
constexpr double kBinarySeconds = 0.002;
constexpr char kYes[] = "1", kNo[] = "0";

struct Verdicts {
  std::mutex mutex;
  std::map<int, bool> by_device;  // Device index -> verdict.
};

Verdicts& verdicts() {
  // Never destroyed, because threads may build kernels until the process ends.
  static auto* verdicts = new Verdicts;
  return *verdicts;
}

bool seen_to_compile_for_a_binary(Device& device) {
  // A new number makes this a kernel that no cache of the driver has.
  const auto number = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const std::string source = "__kernel void number(__global ulong* x) { x[0] = x[1] * " + std::to_string(number) + "UL + " +
                             std::to_string(os::process_id()) + "; }";
  const Built built = compile(device.context(), device.id(), device.build_options(), source, false);
  if (built.status != CL_SUCCESS) return false;
  const double begin = os::thread_seconds();  // CPU time, so that a busy machine does not matter.
  binary_of(built.handle.get());
  return os::thread_seconds() - begin > kBinarySeconds;
}

}  // namespace

bool compiles_at_launch(Device& device, const BinaryStore& store, const std::string& prefix) {
  Verdicts& known = verdicts();
  const std::lock_guard lock(known.mutex);
  if (const auto found = known.by_device.find(device.index()); found != known.by_device.end()) return found->second;
  const std::string key = prefix + hash_hex(std::string("compiles at launch") + '\0');
  const std::string stored = store.find ? store.find(key) : "";
  const bool verdict = stored.empty() ? seen_to_compile_for_a_binary(device) : stored == kYes;
  if (stored.empty() && store.store) store.store(key, verdict ? kYes : kNo);
  if (verdict)
    log_message(LogLevel::kInfo, "runtime",
                device.describe() + " compiles kernels when they are launched; its own cache keeps them");
  return known.by_device[device.index()] = verdict;
}

bool keeps_binaries(const Device& device) {
  Verdicts& known = verdicts();
  const std::lock_guard lock(known.mutex);
  const auto found = known.by_device.find(device.index());
  return found == known.by_device.end() || !found->second;
}

}  // namespace ocl::runtime
