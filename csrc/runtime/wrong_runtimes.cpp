// csrc/runtime/wrong_runtimes.cpp: one row for each runtime that gave wrong results.
#include "csrc/runtime/wrong_runtimes.h"

#include <array>
#include <atomic>

#include "csrc/support/log.h"

namespace ocl::runtime {
namespace {

struct WrongRuntime {
  const char* platform;  // CL_PLATFORM_NAME
  const char* fault;
};

// A name, not a probe: thirteen small kernels with masked loads gave right results with rusticl, so a probe has to be large.
// Its build would delay the first tensor of each process: PoCL takes 0.1 s and more for a kernel of three lines.
constexpr std::array kWrongRuntimes = {
    WrongRuntime{"rusticl", "Mesa's rusticl gave wrong results where it was tried (Mesa 22.3 with llvmpipe)"},
};

std::atomic<bool> g_allowed{false};

}  // namespace

std::string known_fault(const DeviceInfo& device) {
  for (const WrongRuntime& row : kWrongRuntimes)
    if (device.platform_name == row.platform) return row.fault;
  return "";
}

void warn_of_known_fault(const DeviceInfo& device) {
  const std::string fault = known_fault(device);
  if (fault.empty() || g_allowed) return;
  log_message(LogLevel::kWarning, "runtime",
              "ocl:" + std::to_string(device.index) + " is " + device.describe() + ": " + fault +
                  "\n  do: use another device (TORCH_OCL_DEVICES), or check this one with `torch-ocl doctor`; "
                  "docs/troubleshooting.md says more; TORCH_OCL_UNTESTED=1 hides this warning");
}

void allow_wrong_runtimes(bool allowed) noexcept { g_allowed = allowed; }

}  // namespace ocl::runtime
