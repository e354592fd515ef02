// csrc/torch/device_state.cpp: sets devices up at the first use, and keeps the current device and streams of each
// thread.
#include "csrc/torch/device_state.h"

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "csrc/checks/quick_check.h"
#include "csrc/support/os.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

constexpr int kMaxDevices = 64;

std::mutex g_device_mutex;
std::string g_selection, g_profile, g_library, g_fault;
std::vector<std::string> g_vendor_libraries;
std::atomic<int> g_count{0};
std::atomic<bool> g_ready{false}, g_other_threads{false};
std::array<std::atomic<bool>, kMaxDevices> g_no_fp64{};
const std::thread::id g_first_thread = std::this_thread::get_id();

thread_local int t_device = 0;
thread_local std::array<int, kMaxDevices> t_streams{};
thread_local bool t_shares_with_cuda = false;

/// Lists the devices at the first call. On failure, throws the error of configure_devices; the next call tries again.
void set_up() {
  if (g_ready.load(std::memory_order_acquire)) return;
  runtime::BinaryStore store = configured_build_context().first;  // Without the lock, because it may wait for Python.
  const std::lock_guard lock(g_device_mutex);
  if (g_ready.load(std::memory_order_relaxed)) return;
  if (!g_fault.empty()) fail(ErrorKind::kConfig, g_fault);
  runtime::configure_devices(g_selection, g_vendor_libraries, g_profile, g_library);
  runtime::set_known_faults([store = std::move(store)](const runtime::ListedDevice& device) {
    return checks::kept_faults(store, device.platform_name, device.name, device.driver);
  });
  g_count = std::min(runtime::Device::count(), kMaxDevices);
  os::watch_forks();
  g_ready.store(true, std::memory_order_release);
}

}  // namespace

bool set_device_sources(std::string selection, std::vector<std::string> vendor_libraries, std::string profile,
                        std::string library) {
  const std::lock_guard lock(g_device_mutex);
  if (g_ready) return false;
  g_selection = std::move(selection);
  g_vendor_libraries = std::move(vendor_libraries);
  g_profile = std::move(profile);
  g_library = std::move(library);
  return true;
}

void set_device_fault(std::string fault) {
  const std::lock_guard lock(g_device_mutex);
  g_fault = std::move(fault);
}

std::vector<std::string> device_problems() {
  device_count();
  {
    const std::lock_guard lock(g_device_mutex);
    if (!g_fault.empty()) return {g_fault};
  }
  return runtime::device_problems();
}

bool devices_ready() noexcept { return g_ready; }
bool in_bad_fork() noexcept { return os::is_forked_child(); }
bool used_by_other_threads() noexcept { return g_other_threads; }

void note_thread() noexcept {
  if (std::this_thread::get_id() != g_first_thread) g_other_threads = true;
}

int device_count() noexcept {
  if (in_bad_fork()) return 0;
  try {
    set_up();
    return g_count;
  } catch (const std::exception&) {
    // torch asks before it knows whether there is a device. device_at() reports what is wrong.
    return 0;
  }
}

runtime::Device& device_at(int index) {
  if (in_bad_fork())
    fail(ErrorKind::kDevice,
         "an ocl device was used in a forked process after its parent had used one; OpenCL does not survive a fork.\n"
         "  do: use the 'spawn' start method (torch.multiprocessing.set_start_method('spawn')), or keep ocl tensors out of "
         "worker processes");
  set_up();
  return runtime::Device::get(index < 0 ? t_device : index);
}

int current_device() noexcept { return t_device; }
void set_current_device(int index) noexcept {
  note_thread();
  if (index >= 0 && index < kMaxDevices) t_device = index;
}

int current_stream(int device) noexcept { return t_streams[device]; }
void set_current_stream(int device, int stream) noexcept { t_streams[device] = stream; }
runtime::Queue& current_queue(int device) {
  if (device < 0) device = t_device;
  return device_at(device).queue(t_streams[device]);
}

bool share_new_tensors_with_cuda(bool on) noexcept { return std::exchange(t_shares_with_cuda, on); }
bool shares_new_tensors_with_cuda() noexcept { return t_shares_with_cuda; }

bool has_fp64(int device) { return device_at(device).caps().fp64 && !g_no_fp64[device]; }
void pretend_no_fp64(int device, bool on) { g_no_fp64[device] = on; }

void check_dtype(int device, at::ScalarType dtype, const char* op) {
  if (dtype != at::kDouble && dtype != at::kComplexDouble) return;
  if (has_fp64(device)) return;
  fail(ErrorKind::kUnsupported, std::string(op) + ": ocl:" + std::to_string(device) + ", " + device_at(device).describe() +
                                    ", has no float64.\n  do: convert first, for example x.to(torch.float32).to('ocl'), or "
                                    "choose a device with float64 (torch.ocl.get_device_properties(i).has_fp64)");
}

}  // namespace ocl::aten
