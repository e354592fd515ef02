// csrc/runtime/device/device.cpp: lists, orders and selects devices, and creates a Device at its first use.
#include "csrc/runtime/device/device.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>

#include "csrc/kernels/profile.h"
#include "csrc/runtime/device/device_list.h"
#include "csrc/runtime/device/own_objects.h"
#include "csrc/runtime/memory/address_range.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/opencl/background.h"
#include "csrc/runtime/opencl/wrong_runtimes.h"
#include "csrc/runtime/probes/caps.h"
#include "csrc/runtime/queues/event.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

constexpr int kMaxDevices = 64;

using Listed = ListedDevice;

// How to get a runtime for the CPU. pip has one for x86-64 only.
#if defined(__x86_64__) || defined(_M_X64)
constexpr char kCpuRuntime[] = "pip install torch-ocl-compile[cpu]";
#else
constexpr char kCpuRuntime[] = "apt install pocl-opencl-icd";
#endif

constexpr std::chrono::seconds kPatience{20};  // How long an ending process waits for enqueued work.

void CL_CALLBACK context_message(const char* text, const void*, size_t, void*) {
  if (text) log_message(LogLevel::kInfo, "runtime", std::string("OpenCL: ") + text);
}

}  // namespace

/// All devices of the process. Never destroyed, because drivers do not survive destructors at exit.
class DeviceTable {
 public:
  static DeviceTable& instance() {
    static auto* table = new DeviceTable;
    return *table;
  }

  void configure(const std::string& selection, const std::vector<std::string>& vendor_libraries, const std::string& profile,
                 const std::string& library) {
    const Profile* wanted = profile.empty() ? nullptr : &profile_named(profile);
    std::lock_guard lock(mutex_);
    if (selection == selection_ && vendor_libraries == vendor_libraries_ && wanted == profile_ && library == library_) return;
    for (const auto& device : devices_)
      if (device.load() != nullptr)
        fail(ErrorKind::kConfig, "devices cannot be selected anew once one is in use (first used: " +
                                     device.load()->describe() + "); set TORCH_OCL_DEVICES before the first use of a device");
    selection_ = selection;
    vendor_libraries_ = vendor_libraries;
    profile_ = wanted;
    library_ = library;
    listed_ = false;
  }

  void set_known_faults(FaultsOf faults_of) {
    const std::lock_guard lock(mutex_);
    faults_of_ = std::move(faults_of);
  }

  std::vector<Listed> list() {
    std::lock_guard lock(mutex_);
    list_locked();
    return selected_;
  }

  std::vector<std::string> problems() {
    std::lock_guard lock(mutex_);
    try {
      list_locked();
    } catch (const Error& error) {
      // A selection that matches nothing becomes one more line for `doctor`.
      std::vector<std::string> lines = problems_;
      lines.emplace_back(error.what());
      return lines;
    }
    return problems_;
  }

  std::vector<std::string> vendor_libraries() {
    std::lock_guard lock(mutex_);
    return vendor_libraries_;
  }

  std::string library() {
    std::lock_guard lock(mutex_);
    return library_;
  }

  void finish_before(std::chrono::steady_clock::time_point deadline) noexcept {
    for (const auto& slot : devices_)
      if (Device* device = slot.load(std::memory_order_acquire)) device->finish_before(deadline);
  }

  int use_own(const OwnObjects& own) {
    const std::lock_guard lock(mutex_);
    list_locked();
    check_own_objects(own);
    const auto listed = std::ranges::find(selected_, own.device, &Listed::id);
    if (listed == selected_.end())
      fail(ErrorKind::kConfig, "the device that the program shares is not among the devices; there are " + names(selected_));
    const auto index = static_cast<int>(listed - selected_.begin());
    if (const Device* device = devices_[index].load()) {
      if (device->context() == own.context && device->info().own_queue.get() == own.queue) return index;
      fail(ErrorKind::kConfig, device->describe() +
                                   " is in use with another context or queue; share yours before the first model is opened on "
                                   "it");
    }
    own_.insert_or_assign(own.device, Shared{retained(own.context), own.queue ? retained(own.queue) : QueueHandle()});
    return index;
  }

  std::vector<Device*> in_use() const {
    std::vector<Device*> devices;
    for (const auto& slot : devices_)
      if (Device* device = slot.load(std::memory_order_acquire)) devices.push_back(device);
    return devices;
  }

  /// Returns a device that is in use.
  Device* in_use(int index) const noexcept { return devices_[index].load(std::memory_order_acquire); }

  Device& get(int index) {
    if (index >= 0 && index < kMaxDevices)
      if (Device* device = devices_[index].load(std::memory_order_acquire); device && !os::is_forked_child()) return *device;
    return create(index);
  }

 private:
  void list_locked() {
    if (os::is_forked_child())
      fail(ErrorKind::kDevice,
           "OpenCL cannot be used in a forked child of a process that has used it; start workers with "
           "multiprocessing.set_start_method('spawn'), or use the device only in the parent");
    if (listed_) return;
    problems_.clear();
    selected_.clear();
    std::vector<Listed> all = find_devices(library_, vendor_libraries_, problems_);
    if (all.size() > 1 && faults_of_)
      put_in_order(all, [&](const Listed& device) {
        DeviceInfo info;
        info.platform_name = device.platform_name;
        info.driver = device.driver;
        info.is_cpu = device.type == DeviceType::kCpu;
        return tried_where(info).empty() ? faults_of_(device) : "";
      });
    selected_ = select(all);
    if (selected_.size() > kMaxDevices) selected_.resize(kMaxDevices);
    listed_ = true;
    os::watch_forks();
  }

  bool is_selection() const { return selection_.find_first_not_of(" ,") != std::string::npos; }

  std::vector<Listed> select(const std::vector<Listed>& all) {
    std::vector<Listed> ordinary;
    for (const Listed& device : all)
      if (!device.emulator) ordinary.push_back(device);
    if (!is_selection()) return ordinary;
    std::vector<Listed> chosen;
    std::vector<std::string> unmatched;
    const auto add = [&](const Listed& device) {
      if (std::none_of(chosen.begin(), chosen.end(), [&](const Listed& other) { return other.id == device.id; }))
        chosen.push_back(device);
    };
    for (size_t begin = 0; begin <= selection_.size();) {
      const size_t end = std::min(selection_.find(',', begin), selection_.size());
      std::string part = selection_.substr(begin, end - begin);
      begin = end + 1;
      const size_t first = part.find_first_not_of(' ');
      if (first == std::string::npos) continue;
      part = lower(part.substr(first, part.find_last_not_of(' ') - first + 1));
      bool matched = false;
      if (part.find_first_not_of("0123456789") == std::string::npos && part.size() < 4) {
        if (const size_t index = std::stoul(part); index < ordinary.size()) {
          add(ordinary[index]);
          matched = true;
        }
      } else {
        for (const Listed& device : all)
          if (lower(device.label()).find(part) != std::string::npos) {
            add(device);
            matched = true;
          }
      }
      if (!matched) unmatched.push_back(part);
    }
    if (chosen.empty())
      fail(ErrorKind::kConfig, "TORCH_OCL_DEVICES='" + selection_ + "' matches no device; there are " + names(all) +
                                   "; give indices or parts of these names, or unset it");
    for (const std::string& part : unmatched)
      log_message(LogLevel::kWarning, "runtime", "TORCH_OCL_DEVICES: no device matches '" + part + "'");
    return chosen;
  }

  std::string names(const std::vector<Listed>& devices) const {
    std::string text;
    for (size_t i = 0; i < devices.size(); ++i) text += (i ? ", " : "") + std::to_string(i) + ": '" + devices[i].label() + "'";
    return (devices.empty() ? "none" : text) + problem_lines();
  }

  std::string problem_lines() const {
    std::string text;
    for (const std::string& problem : problems_) text += "\n  problem: " + problem;
    return text;
  }

  Device& create(int index) {
    std::lock_guard lock(mutex_);
    list_locked();
    if (index < 0 || index >= static_cast<int>(selected_.size())) {
      if (selected_.empty())
        fail(ErrorKind::kConfig, std::string("no OpenCL device was found; install a runtime: ") + kCpuRuntime +
                                     ", or your GPU's driver" + problem_lines());
      fail(ErrorKind::kConfig, "device ocl:" + std::to_string(index) + " does not exist; there are " + names(selected_));
    }
    if (Device* device = devices_[index].load()) return *device;
    const Listed& listed = selected_[index];
    // Leaked on failure too, because a half-constructed device cannot be destroyed safely.
    auto* device = new Device;
    DeviceInfo& info = device->info_;
    info.index = index;
    info.name = listed.name;
    info.platform_name = listed.platform_name;
    info.driver = listed.driver;
    info.id = listed.id;
    info.order = is_selection() ? "TORCH_OCL_DEVICES decides" : listed.order;
    cl_int status = CL_SUCCESS;
    if (const auto own = own_.find(info.id); own != own_.end()) {
      info.context = retained(own->second.context.get());
      if (own->second.queue) info.own_queue = retained(own->second.queue.get());
    } else {
      info.context = ContextHandle(clCreateContext(nullptr, 1, &info.id, context_message, nullptr, &status));
      OCL_CHECK(status, "clCreateContext on " + info.describe());
    }
    info.caps = probe_caps(info.id, info.context.get());
    info.is_cpu = info.caps.is_cpu;
    info.profile = profile_;
    if (profile_) info.caps = limited(info.caps, *profile_);
    // Division and square root round as in IEEE 754, like on the CPU. Without this option, OpenCL allows errors of 2.5
    // and 3 ulp.
    cl_device_fp_config fp32 = 0;
    clGetDeviceInfo(info.id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(fp32), &fp32, nullptr);
    info.build_options = "-w";  // Some compilers print a count of their warnings to the terminal.
    if ((fp32 & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) && (!profile_ || profile_->exact_division))
      info.build_options += " -cl-fp32-correctly-rounded-divide-sqrt";
    if (info.caps.unrestricted_buffers) info.build_options += std::string(" ") + kUnrestrictedOption;
    if (profile_) info.build_options += " -cl-std=CL1.2";  // No functions of later versions.
    device->allocator_ = std::make_unique<Allocator>(info, device->queues_);
    info.caps.queue_times = device->queue().has_times();
    info.caps.marker_times = markers_have_times(device->queue());
    devices_[index].store(device, std::memory_order_release);
    if (log_enabled(LogLevel::kInfo))
      log_message(LogLevel::kInfo, "runtime", "ocl:" + std::to_string(index) + " is " + info.describe());
    warn_of_known_fault(info);
    return *device;
  }

  std::mutex mutex_;
  std::string selection_, library_;
  std::vector<std::string> vendor_libraries_;
  const Profile* profile_ = nullptr;
  FaultsOf faults_of_;
  struct Shared {
    ContextHandle context;
    QueueHandle queue;
  };
  std::map<cl_device_id, Shared> own_;  // What use_own_objects() got, for devices that are made later.
  bool listed_ = false;
  std::vector<Listed> selected_;
  std::vector<std::string> problems_;
  std::array<std::atomic<Device*>, kMaxDevices> devices_{};
};

namespace {

void wait_for_all() noexcept {
  if (!runtimes_usable()) return;
  end_background(std::chrono::steady_clock::now() + kPatience);
  DeviceTable::instance().finish_before(std::chrono::steady_clock::now() + kPatience);
}

}  // namespace

Device::Device() = default;
int Device::count() { return static_cast<int>(DeviceTable::instance().list().size()); }
Device& Device::get(int index) { return DeviceTable::instance().get(index); }
int use_own_objects(const OwnObjects& own) { return DeviceTable::instance().use_own(own); }
std::vector<Device*> Device::in_use() { return DeviceTable::instance().in_use(); }

void* Device::fault_word(const std::string& message) {
  return faults_.word(message, [this] {
    const MemoryPurpose purpose(std::make_shared<const std::string>("notes of wrong indices"));
    void* address = allocator().allocate(FaultWords::kChunkBytes);
    const Location at = allocator().resolve(address);
    const uint8_t zero = 0;
    cl_event event = nullptr;
    queue().fill(at.mem, at.offset_bytes, FaultWords::kChunkBytes, &zero, sizeof zero, &event);
    const EventHandle done(event);
    OCL_CHECK(clWaitForEvents(1, &event), "memory for notes of wrong indices");
    return FaultWords::Chunk{address, at};
  });
}

Device* device_of(const void* address) noexcept {
  const int index = device_index_of(address);
  return index < 0 ? nullptr : DeviceTable::instance().in_use(index);
}

void end_devices() noexcept {
  wait_for_all();
  std::atexit([] {
    wait_for_all();
    os::set_ending();
  });
}

void configure_devices(const std::string& selection, const std::vector<std::string>& vendor_libraries,
                       const std::string& profile, const std::string& library) {
  DeviceTable::instance().configure(selection, vendor_libraries, profile, library);
}

void set_known_faults(FaultsOf faults_of) { DeviceTable::instance().set_known_faults(std::move(faults_of)); }

std::vector<std::string> vendor_libraries() { return DeviceTable::instance().vendor_libraries(); }

std::string opencl_library() { return DeviceTable::instance().library(); }

std::vector<std::string> device_problems() { return DeviceTable::instance().problems(); }

std::vector<DeviceSummary> list_devices() {
  std::vector<DeviceSummary> summaries;
  for (const Listed& device : DeviceTable::instance().list())
    summaries.push_back({device.name, device.platform_name, device.driver,
                         device.type == DeviceType::kGpu           ? "GPU"
                         : device.type == DeviceType::kAccelerator ? "accelerator"
                                                                   : "CPU"});
  return summaries;
}

}  // namespace ocl::runtime
