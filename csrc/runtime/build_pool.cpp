// csrc/runtime/build_pool.cpp: starts build workers, sends each one program text at a time, and keeps them for the next
// call.
#include "csrc/runtime/build_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>

#include "csrc/runtime/device.h"
#include "csrc/support/child.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kWorkerName[] = "ocl_build_worker";
constexpr std::chrono::seconds kLongestStart{60};  // Time limit for a worker to find its device.
constexpr std::chrono::seconds kFresh{8};          // A worker that has been idle for longer may be about to end.
constexpr int64_t kHostBytesPerWorker = int64_t{1} << 30;
constexpr int64_t kDeviceBytesPerWorker = int64_t{1} << 31;  // A context on a GPU takes some of its memory.
// Fewer kernels than this share one worker on a CPU, because the start of a worker takes as long as some kernels. On a GPU they
// are compiled in this process: there a worker needs a context, which takes longer.
constexpr size_t kLeastOnCpu = 8, kLeastOnGpu = 3;

struct Worker {
  std::unique_ptr<os::Child> child;
  Clock::time_point last_used;
  bool used = false;
};

struct WorkerPool {
  std::mutex mutex;
  BuildPoolSettings settings;
  int process = os::process_id();
  std::map<int, std::vector<Worker>> idle;  // Device index -> idle workers.
  std::map<int, std::string> unusable;      // Device index -> why no worker can be started for it.
};

/// Returns the pool of this process. A forked child gets a pool of its own, because its parent's workers are not its children.
WorkerPool& worker_pool() {
  static std::mutex mutex;
  // Never destroyed. The workers end when this process does.
  static WorkerPool* current = new WorkerPool;
  const std::lock_guard lock(mutex);
  if (current->process != os::process_id()) {
    auto* own = new WorkerPool;
    own->settings = current->settings;
    current = own;
  }
  return *current;
}

std::optional<Worker> take_idle(const Device& device) {
  WorkerPool& all = worker_pool();
  const std::lock_guard lock(all.mutex);
  std::vector<Worker>& idle = all.idle[device.index()];
  std::erase_if(idle, [](const Worker& worker) { return Clock::now() - worker.last_used > kFresh; });
  if (idle.empty()) return std::nullopt;
  Worker worker = std::move(idle.back());
  idle.pop_back();
  return worker;
}

void give_back(const Device& device, Worker worker) {
  worker.last_used = Clock::now();
  worker.used = true;
  WorkerPool& all = worker_pool();
  const std::lock_guard lock(all.mutex);
  all.idle[device.index()].push_back(std::move(worker));
}

/// Notes that no worker can be started for the device. Returns whether this is the first device with this problem.
bool mark_unusable(const Device& device, const std::string& problem) {
  WorkerPool& all = worker_pool();
  const std::lock_guard lock(all.mutex);
  const bool known =
      std::any_of(all.unusable.begin(), all.unusable.end(), [&](const auto& row) { return row.second == problem; });
  all.unusable.emplace(device.index(), problem);
  return !known;
}

/// Starts a worker for the device. Returns nullptr if that fails, with one warning per reason.
std::unique_ptr<os::Child> start(const Device& device) {
  const BuildPoolSettings settings = build_pool_settings();
  const std::string path =
      settings.worker.empty() ? os::own_folder() + "/" + kWorkerName + os::kFileNames.program_suffix : settings.worker;
  std::string problem;
  std::unique_ptr<os::Child> child = os::Child::start(path, log_enabled(LogLevel::kDebug), problem);
  if (child) {
    os::Message message = {device.build_options(), device.platform_name(), device.name(), device.driver()};
    for (const std::string& library : vendor_libraries()) message.push_back(library);
    os::Message answer;
    if (!child->channel().send(message) || child->channel().receive(answer, kLongestStart) != os::Received::kMessage)
      problem = path + " does not start: " + child->end();
    else if (answer.size() != 1 || !answer[0].empty())
      problem = path + ": " + (answer.empty() ? "no answer" : answer[0]);
  }
  if (problem.empty()) return child;
  if (mark_unusable(device, problem))
    log_message(LogLevel::kWarning, "runtime",
                "kernels are compiled in this process, which can take several times as long: " + problem +
                    "\n  do: install the package again; TORCH_OCL_BUILD_WORKERS=0 hides this warning");
  return nullptr;
}

enum class Outcome { kAnswered, kDied, kNoWorker };

Outcome ask(Worker& worker, const os::Message& request, std::chrono::milliseconds longest, WorkerResult& result) {
  os::Message answer;
  os::Received state = os::Received::kEnded;
  if (worker.child->channel().send(request)) state = worker.child->channel().receive(answer, longest);
  if (state == os::Received::kMessage && answer.size() == 3) {
    result.answered = true;
    result.status = std::atoi(answer[0].c_str());
    result.log = std::move(answer[1]);
    result.binary = std::move(answer[2]);
    return Outcome::kAnswered;
  }
  const std::string end = worker.child->end();
  result.death = state == os::Received::kLate    ? "no answer for " + std::to_string(longest.count() / 1000) + " s"
                 : state == os::Received::kEnded ? end
                                                 : "an answer that is not one";
  return Outcome::kDied;
}

/// Compiles one text in an idle worker or a new one. If the worker dies, `worker` is empty afterwards.
Outcome build_one(const Device& device, std::optional<Worker>& worker, const os::Message& request,
                  std::chrono::milliseconds longest, WorkerResult& result) {
  for (;;) {
    if (!worker) worker = take_idle(device);
    if (!worker) {
      std::unique_ptr<os::Child> child = start(device);
      if (!child) return Outcome::kNoWorker;
      worker = Worker{std::move(child), Clock::now(), false};
    }
    const bool was_idle = worker->used;
    worker->used = false;
    const Outcome outcome = ask(*worker, request, longest, result);
    if (outcome == Outcome::kAnswered) return outcome;
    worker.reset();
    // The idle worker had ended before it got the request.
    if (was_idle && result.death.starts_with("exit status")) continue;
    return outcome;
  }
}

}  // namespace

void set_build_pool(const BuildPoolSettings& settings) {
  WorkerPool& all = worker_pool();
  std::map<int, std::vector<Worker>> ended;  // Destroyed after the lock is released.
  const std::lock_guard lock(all.mutex);
  if (settings == all.settings) return;
  all.settings = settings;
  all.unusable.clear();
  ended.swap(all.idle);
}

BuildPoolSettings build_pool_settings() {
  WorkerPool& all = worker_pool();
  const std::lock_guard lock(all.mutex);
  return all.settings;
}

size_t workers_for(const Device& device, size_t kernels) {
  WorkerPool& all = worker_pool();
  const std::lock_guard lock(all.mutex);
  if (all.settings.most_workers == 0 || all.unusable.count(device.index())) return 0;
  if (all.settings.most_workers > 0) return static_cast<size_t>(all.settings.most_workers);
  int64_t workers = std::max(1u, std::thread::hardware_concurrency());
  if (const int64_t free = os::available_memory_bytes()) workers = std::min(workers, free / kHostBytesPerWorker);
  if (!device.info().is_cpu) workers = std::min(workers, device.caps().global_bytes / kDeviceBytesPerWorker);
  if (device.info().is_cpu) return static_cast<size_t>(kernels < kLeastOnCpu ? std::min<int64_t>(workers, 1) : workers);
  return kernels >= kLeastOnGpu && workers > 1 ? static_cast<size_t>(workers) : 0;
}

bool is_caused_by_text(const std::string& death) { return !death.empty() && death != "signal 9"; }

std::vector<WorkerResult> build_in_workers(const Device& device, const std::vector<std::string>& sources, size_t workers,
                                           int tries, bool wants_log, const std::function<void(size_t)>& done) {
  std::vector<WorkerResult> results(sources.size());
  std::vector<size_t> longest_first(sources.size());
  std::iota(longest_first.begin(), longest_first.end(), size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  const std::chrono::milliseconds longest = build_pool_settings().longest;
  const std::string flags = std::string(wants_log ? "log " : "") + (device.info().is_cpu ? "" : "load");
  std::atomic<size_t> next{0};
  const auto work = [&] {
    try {
      std::optional<Worker> worker;
      for (size_t i = next++; i < sources.size(); i = next++) {
        WorkerResult& result = results[longest_first[i]];
        const os::Message request = {flags, sources[longest_first[i]]};
        Outcome outcome = Outcome::kDied;
        for (int attempt = 0; attempt < tries && outcome == Outcome::kDied && !is_caused_by_text(result.death); ++attempt)
          outcome = build_one(device, worker, request, longest, result);
        if (outcome != Outcome::kDied) result.death.clear();
        if (outcome == Outcome::kNoWorker) return;
        if (done && result.answered && result.status == CL_SUCCESS) done(longest_first[i]);
      }
      if (worker) give_back(device, std::move(*worker));
    } catch (const std::exception& error) {
      // Memory ran out. Texts without a result are compiled in this process.
      log_message(LogLevel::kWarning, "runtime", std::string("a build worker is given up: ") + error.what());
    }
  };
  std::vector<std::thread> threads;
  try {
    for (size_t t = 1; t < std::min(workers, sources.size()); ++t) threads.emplace_back(work);
  } catch (const std::system_error&) {  // No more threads can be started. Go on with the threads that run.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace ocl::runtime
