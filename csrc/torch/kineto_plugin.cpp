// csrc/torch/kineto_plugin.cpp: gives torch.profiler the events of our devices, through the plug-in interface of Kineto.
// A session records every command (runtime/record/history.h). When it ends, it gives Kineto two activities per command, the
// host's call and what the device did, with an arrow from the first to the second.
#ifdef OCL_HAS_KINETO
#define USE_KINETO
#define FMT_HEADER_ONLY
#include <libkineto.h>
#include <output_base.h>
#include <torch/headeronly/version.h>
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#define OCL_HAS_PROFILER_REGISTRY
#endif

#include <algorithm>
#include <map>
#include <optional>

#include "csrc/runtime/device/clock.h"
#include "csrc/runtime/record/history.h"
#include "csrc/support/log.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/profiler.h"

namespace ocl::aten {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using runtime::CommandRecord;
using runtime::CommandType;

constexpr int32_t kFirstId = 1 << 30;  // torch numbers its ops from 1. Our ids start here, so that they differ from torch's.

const std::set<ActivityType>& provided() {
  static const std::set<ActivityType> types = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                               ActivityType::GPU_MEMSET, ActivityType::GPU_USER_ANNOTATION,
                                               ActivityType::PRIVATEUSE1_RUNTIME};
  return types;
}

/// Replaces characters that would break the trace: Kineto puts names and values between quotes without escaping them.
std::string quotable(std::string text) {
  for (char& c : text) {
    if (c == '"') c = '\'';
    if (c == '\\') c = '/';
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

ActivityType activity_type(CommandType type) {
  switch (type) {
    case CommandType::kLaunch:
      return ActivityType::CONCURRENT_KERNEL;
    case CommandType::kFill:
      return ActivityType::GPU_MEMSET;
    case CommandType::kStreamWait:
      return ActivityType::GPU_USER_ANNOTATION;  // Shown in the trace, but not counted in sums of device time.
    default:
      return ActivityType::GPU_MEMCPY;
  }
}

/// Returns `amount` per `ns` as a text, in billions per second.
std::string rate(int64_t amount, int64_t ns) {
  return fmt::format("{:.3f}", static_cast<double>(amount) / static_cast<double>(ns));
}

/// Adds the metadata of a command: everything beyond its name and times.
void add_facts(GenericTraceActivity& activity, const CommandRecord& record) {
  activity.addMetadata("device", record.device);
  activity.addMetadata("stream", record.stream);
  const int64_t bytes = record.info ? record.info->bytes : record.bytes, took = record.end_ns - record.start_ns;
  if (bytes > 0) activity.addMetadata("bytes", bytes);
  if (bytes > 0 && took > 0) activity.addMetadata("memory bandwidth (GB/s)", rate(bytes, took));
  if (!record.info) return;
  const runtime::LaunchInfo& info = *record.info;
  activity.addMetadata("flops", info.flops);
  if (info.flops > 0 && took > 0) activity.addMetadata("GFLOP/s", rate(info.flops, took));
  activity.addMetadataQuoted("kernel", quotable(info.kernel));
  activity.addMetadataQuoted("kind", quotable(info.kind));
  activity.addMetadataQuoted("computes", quotable(info.origin));
  activity.addMetadata("ops", info.ops);
  const auto& [x, y, z] = info.local;
  activity.addMetadata("block", fmt::format("[{}, {}, {}]", x, y, z));
  activity.addMetadata("grid", fmt::format("[{}, {}, {}]", info.global[0] / x, info.global[1] / y, info.global[2] / z));
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(const std::set<ActivityType>& types) : active_(types.count(ActivityType::CONCURRENT_KERNEL) > 0) {}
  ~Session() override {
    if (recording_ != 0) runtime::end_recording(recording_);
  }

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    if (!active_ || in_bad_fork()) return;
    guarded([&] {
      for (runtime::Device* device : runtime::Device::in_use()) sample(*device, first_);
    });
    static std::atomic<uint64_t> sessions{0};
    number_.store(++sessions);
    recording_ = runtime::begin_recording(true, true);
  }

  void stop() override {
    status_ = libkineto::TraceStatus::PROCESSING;
    if (recording_ == 0) return;
    number_.store(0);
    guarded([&] { records_ = runtime::end_recording(std::exchange(recording_, 0)); });
    guarded([&] {
      std::set<int> devices;
      for (const CommandRecord& record : records_) devices.insert(record.device);
      for (const int index : devices) sample(device_at(index), last_);
    });
  }

  std::vector<std::string> errors() override { return errors_; }
  void processTrace(libkineto::ActivityLogger& logger) override { processTrace(logger, nullptr, 0, 0); }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t, int64_t) override {
    guarded([&] { hand_over(logger, linked); });
    status_ = libkineto::TraceStatus::READY;
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }  // hand_over reports the devices.
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { enter(id, false); }
  void popCorrelationId() override { leave(false); }
  void pushUserCorrelationId(uint64_t id) override { enter(id, true); }
  void popUserCorrelationId() override { leave(true); }

 private:
  using Clocks = std::map<int, runtime::ClockSample>;  // Device index -> sample.
  struct Span {
    int64_t start_ns = 0, end_ns = 0;
  };
  /// A range that the user named, on one stream: (id, device, stream).
  using RangeKey = std::tuple<uint64_t, int, int>;

  /// Kineto expects no exceptions. An exception of `action` becomes an error of the session, and a warning.
  template <typename Action>
  void guarded(const Action& action) noexcept {
    try {
      action();
    } catch (const std::exception& error) {
      errors_.push_back(error.what());
      log_message(LogLevel::kWarning, "profiler", std::string("torch.profiler lacks events of ocl devices: ") + error.what());
    }
  }

  void sample(runtime::Device& device, Clocks& clocks) {
    if (const auto sample = runtime::sample_clock(device)) clocks[device.index()] = *sample;
  }

  // All threads call these functions while the session runs.
  void enter(uint64_t id, bool by_user) {
    if (const uint64_t number = number_.load(std::memory_order_relaxed)) runtime::enter_range(number, id, by_user);
  }
  void leave(bool by_user) {
    if (const uint64_t number = number_.load(std::memory_order_relaxed)) runtime::leave_range(number, by_user);
  }

  GenericTraceActivity& add(ActivityType type, const std::string& name, Span span) {
    buffer_->emplace_activity(buffer_->span, type, quotable(name));
    GenericTraceActivity& activity = *buffer_->activities.back();
    activity.startTime = span.start_ns;
    activity.endTime = std::max(span.start_ns, span.end_ns);
    return activity;
  }

  /// Returns the clocks of the devices that have times.
  std::map<int, runtime::DeviceClock> clocks() const {
    std::map<int, runtime::DeviceClock> clocks;
    for (const auto& [device, last] : last_) {
      const auto first = first_.find(device);
      clocks.emplace(device, runtime::DeviceClock(first == first_.end() ? std::nullopt : std::optional(first->second), last));
    }
    std::map<int, int64_t> behind;  // Device -> how long commands seem to start before the call that enqueued them.
    for (const CommandRecord& record : records_)
      if (const auto clock = clocks.find(record.device); clock != clocks.end() && record.start_ns > 0)
        behind[record.device] = std::max(behind[record.device], record.called_ns - clock->second.unix_ns(record.start_ns));
    for (const auto& [device, ns] : behind) clocks.at(device).move(ns);
    return clocks;
  }

  /// Returns the innermost op or range of the program in which the command was enqueued, as far as Kineto knows it.
  static const libkineto::ITraceActivity* linked_to(const CommandRecord& record,
                                                    const libkineto::getLinkedActivityCallback& linked) {
    if (!linked) return nullptr;
    for (const runtime::ProgramRange* range = record.range.get(); range; range = range->outer.get())
      if (const auto* activity = linked(static_cast<int32_t>(range->id))) return activity;
    return nullptr;
  }

  void hand_over(libkineto::ActivityLogger& logger, const libkineto::getLinkedActivityCallback& linked) {
    if (records_.empty()) return;
    std::map<int, runtime::DeviceClock> device_clocks = clocks();
    int64_t first_ns = records_.front().called_ns, last_ns = first_ns;
    for (const CommandRecord& record : records_) last_ns = std::max(last_ns, record.returned_ns);
    buffer_->span = libkineto::TraceSpan(first_ns, last_ns, "ocl");
    name_rows(logger, first_ns);
    std::map<RangeKey, Span> ranges;
    std::map<std::pair<int, int>, int64_t> idle_since;  // (device, stream) -> end of the last command.
    int32_t id = kFirstId;
    for (const CommandRecord& record : records_) {
      ++id;
      const auto clock = device_clocks.find(record.device);
      const bool on_device = is_of_device(record.type) && record.end_ns > 0 && clock != device_clocks.end();
      const auto* link = linked_to(record, linked);
      GenericTraceActivity& call =
          add(ActivityType::PRIVATEUSE1_RUNTIME, function(record.type), {record.called_ns, record.returned_ns});
      call.device = os::process_id();
      call.resource = static_cast<int32_t>(record.thread);
      connect(call, id, link, on_device, true);
      logger.handleGenericActivity(call);
      if (!on_device) continue;
      Span span{clock->second.unix_ns(record.start_ns), clock->second.unix_ns(record.end_ns)};
      int64_t& idle = idle_since[{record.device, record.stream}];
      // A barrier itself takes no time. What it cost the stream is the time since the command before it.
      if (record.type == CommandType::kStreamWait) span.start_ns = std::max(idle, std::min(record.returned_ns, span.start_ns));
      idle = std::max(idle, span.end_ns);
      GenericTraceActivity& work = add(activity_type(record.type), title_of(record), span);
      work.device = record.device;
      work.resource = record.stream;
      connect(work, id, record.type == CommandType::kStreamWait ? nullptr : link, true, false);
      add_facts(work, record);
      logger.handleGenericActivity(work);
      if (record.type != CommandType::kStreamWait) extend(ranges, record, span);
    }
    for (const auto& [key, span] : ranges) add_range(logger, linked, key, span);
  }

  static void connect(GenericTraceActivity& activity, int32_t id, const libkineto::ITraceActivity* link, bool arrow,
                      bool start) {
    activity.id = id;
    activity.linked = link;
    activity.addMetadata("correlation", id);
    if (!arrow) return;
    activity.flow.id = static_cast<uint32_t>(id);
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = start;
  }

  void name_rows(libkineto::ActivityLogger& logger, int64_t time_ns) const {
    std::set<int> devices;
    std::set<std::pair<int, int>> streams;
    for (const CommandRecord& record : records_) {
      if (!is_of_device(record.type)) continue;
      devices.insert(record.device);
      streams.emplace(record.device, record.stream);
    }
    const auto label = [](int device) { return "ocl:" + std::to_string(device); };
    const auto title = [&](int device) { return quotable(label(device) + " " + device_at(device).name()); };
    for (const int device : devices)
      logger.handleDeviceInfo({device, device + libkineto::kExceedMaxPid, title(device), label(device)}, time_ns);
    for (const auto& [device, stream] : streams) {
      // Kineto also names processes 0 to 15 ("python" with a "GPU"), so the device's name is in the stream's name too.
      const std::string name = "stream " + std::to_string(stream) + " of " + title(device);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
      logger.handleResourceInfo({stream, stream, device, name}, time_ns);
#else
      logger.handleResourceInfo({device, stream, stream, name}, time_ns);
#endif
    }
  }

  /// Extends the ranges in which the command was enqueued and that the user named. On the device, such a range lasts from its
  /// first command to its last.
  static void extend(std::map<RangeKey, Span>& ranges, const CommandRecord& record, Span span) {
    for (const runtime::ProgramRange* range = record.range.get(); range; range = range->outer.get()) {
      if (!range->named_by_user) continue;
      const auto [row, added] = ranges.try_emplace({range->id, record.device, record.stream}, span);
      row->second.start_ns = std::min(row->second.start_ns, span.start_ns);
      row->second.end_ns = std::max(row->second.end_ns, span.end_ns);
    }
  }

  void add_range(libkineto::ActivityLogger& logger, const libkineto::getLinkedActivityCallback& linked, const RangeKey& key,
                 Span span) {
    const auto& [id, device, stream] = key;
    const auto* activity = linked ? linked(static_cast<int32_t>(id)) : nullptr;
    if (!activity) return;  // The range began before the session.
    // The activity is not linked to the range itself, because torch would count the range as a kernel of its own.
    GenericTraceActivity& range = add(ActivityType::GPU_USER_ANNOTATION, activity->name(), span);
    range.device = device;
    range.resource = stream;
    logger.handleGenericActivity(range);
  }

  const bool active_;
  int recording_ = 0;
  std::atomic<uint64_t> number_{0};  // Number of the session while it runs, otherwise 0.
  Clocks first_, last_;
  std::vector<CommandRecord> records_;
  std::vector<std::string> errors_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
};

class OclProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "ocl";
    return name;
  }
  const std::set<ActivityType>& availableActivities() const override { return provided(); }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    return std::make_unique<Session>(types);
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }
};

}  // namespace

void register_profiler() {
  const auto factory = []() -> std::unique_ptr<libkineto::IActivityProfiler> { return std::make_unique<OclProfiler>(); };
#ifdef OCL_HAS_PROFILER_REGISTRY
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(factory);
#else
  libkineto::api().registerProfilerFactory(factory);  // torch 2.11 has no registry, but exports Kineto itself
#endif
}

}  // namespace ocl::aten
#else
#include "csrc/torch/profiler.h"

namespace ocl::aten {
void register_profiler() {}  // This torch was built without Kineto, and its profiler says so.
}  // namespace ocl::aten
#endif
