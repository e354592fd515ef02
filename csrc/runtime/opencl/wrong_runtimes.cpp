// csrc/runtime/opencl/wrong_runtimes.cpp: one row for each runtime that was tried.
#include "csrc/runtime/opencl/wrong_runtimes.h"

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

struct TriedRuntime {
  const char* platform;  // CL_PLATFORM_NAME
  const char* driver;    // The beginning of CL_DRIVER_VERSION. "": any.
  bool is_cpu;
  const char* where;
};

// The tests of this project, `make test` at least, pass on these.
constexpr std::array kTriedRuntimes = {
    TriedRuntime{"NVIDIA CUDA", "", false, "H100 and H200, drivers 570 and 580"},
    TriedRuntime{"Intel(R) OpenCL", "20", true, "x86-64, 2026.22 and the releases of pip before it"},
    TriedRuntime{"Portable Computing Language", "3.1", true, "x86-64, Debian 12"},
};

std::atomic<bool> g_allowed{false};

}  // namespace

std::string known_fault(const std::string& platform_name) {
  for (const WrongRuntime& row : kWrongRuntimes)
    if (platform_name == row.platform) return row.fault;
  return "";
}

std::string tried_where(const DeviceInfo& device) {
  for (const TriedRuntime& row : kTriedRuntimes)
    if (device.platform_name == row.platform && device.driver.starts_with(row.driver) && device.is_cpu == row.is_cpu)
      return row.where;
  return "";
}

void warn_of_known_fault(const DeviceInfo& device) {
  const std::string fault = known_fault(device.platform_name);
  if (fault.empty() || g_allowed) return;
  log_message(LogLevel::kWarning, "runtime",
              "ocl:" + std::to_string(device.index) + " is " + device.describe() + ": " + fault +
                  "\n  do: use another device (TORCH_OCL_DEVICES), or check this one with `torch-ocl doctor`; "
                  "docs/troubleshooting.md says more; TORCH_OCL_UNTESTED=1 hides this warning");
}

void allow_wrong_runtimes(bool allowed) noexcept { g_allowed = allowed; }
bool wrong_runtimes_allowed() noexcept { return g_allowed; }

}  // namespace ocl::runtime
