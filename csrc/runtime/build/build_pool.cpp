// csrc/runtime/build/build_pool.cpp: starts build workers, sends each one request at a time, and keeps them for the next call.
#include "csrc/runtime/build/build_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "csrc/runtime/build/build_places.h"
#include "csrc/runtime/build/build_worker.h"
#include "csrc/runtime/device/device.h"
#include "csrc/runtime/opencl/background.h"
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
// Drivers of GPUs make one context after the other, for all processes. More workers would only wait for their contexts, and let
// other processes wait for theirs.
constexpr size_t kMostOnGpu = 16;
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
  std::map<int, size_t> busy;               // Device index -> threads that have a worker or start one.
  std::condition_variable freed;            // A thread gave its worker back.
  std::set<os::Child*> asked;               // The workers that start or have a request.
  std::shared_ptr<BuildPlaces> places;      // Made when they are needed. nullptr if the settings name no file.
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

/// Kills the workers that are at work, because the process is ending. There are no new ones then.
void stop_workers() noexcept {
  WorkerPool& all = worker_pool();
  {
    const std::lock_guard lock(all.mutex);
    for (os::Child* child : all.asked) child->kill();
  }
  all.freed.notify_all();
}

/// While it lives, stop_workers kills the worker.
class StoppableWorker {
 public:
  explicit StoppableWorker(os::Child* child) : child_(child), pool_(worker_pool()) {
    set_stop(stop_workers);
    const std::lock_guard lock(pool_.mutex);
    pool_.asked.insert(child_);
    if (is_ending()) child_->kill();
  }
  ~StoppableWorker() {
    const std::lock_guard lock(pool_.mutex);
    pool_.asked.erase(child_);
  }
  StoppableWorker(const StoppableWorker&) = delete;
  StoppableWorker& operator=(const StoppableWorker&) = delete;

 private:
  os::Child* child_;
  WorkerPool& pool_;
};

/// Starts a worker for the device. Returns nullptr if that fails, with one warning per reason.
std::unique_ptr<os::Child> start(const Device& device) {
  const BuildPoolSettings settings = build_pool_settings();
  const std::string path =
      settings.worker.empty() ? os::own_folder() + "/" + kWorkerName + os::kFileNames.program_suffix : settings.worker;
  std::string problem;
  std::unique_ptr<os::Child> child = os::Child::start(path, log_enabled(LogLevel::kDebug), problem);
  if (child) {
    os::Message message = {device.build_options(), device.platform_name(), device.name(), device.driver(), opencl_library()};
    for (const std::string& library : vendor_libraries()) message.push_back(library);
    os::Message answer;
    const StoppableWorker stoppable(child.get());
    if (!child->channel().send(message) || child->channel().receive(answer, kLongestStart) != os::Received::kMessage)
      problem = path + " does not start: " + child->end();
    else if (answer.size() != 1 || !answer[0].empty())
      problem = path + ": " + (answer.empty() ? "no answer" : answer[0]);
  }
  if (problem.empty()) return child;
  if (is_ending()) return nullptr;  // stop_workers has killed it.
  if (mark_unusable(device, problem))
    log_message(LogLevel::kWarning, "runtime",
                "kernels are compiled in this process, which can take several times as long: " + problem +
                    "\n  do: install the package again; TORCH_OCL_BUILD_WORKERS=0 hides this warning");
  return nullptr;
}

/// A request's way through a worker.
struct Request {
  os::Message message;
  size_t answers = 0;  // The number of texts of an answer.
  std::chrono::milliseconds longest{};
  int tries = 1;
};

/// What became of a request. If there is no answer, `death` says how the worker ended; "": none could be started.
struct Reply {
  bool answered = false;
  os::Message answer;
  std::string death;
};

enum class Outcome { kAnswered, kDied, kNoWorker };

Outcome ask(Worker& worker, const Request& request, Reply& reply) {
  os::Received state = os::Received::kEnded;
  {
    const StoppableWorker stoppable(worker.child.get());
    if (worker.child->channel().send(request.message)) state = worker.child->channel().receive(reply.answer, request.longest);
  }
  reply.answered = state == os::Received::kMessage && reply.answer.size() == request.answers;
  if (reply.answered) return Outcome::kAnswered;
  const std::string end = worker.child->end();
  reply.death = state == os::Received::kLate    ? "no answer for " + std::to_string(request.longest.count() / 1000) + " s"
                : state == os::Received::kEnded ? end
                                                : "an answer that is not one";
  return Outcome::kDied;
}

/// Sends a request to an idle worker or a new one. If the worker dies, `worker` is empty afterwards.
Outcome ask_any(const Device& device, std::optional<Worker>& worker, const Request& request, Reply& reply) {
  for (;;) {
    if (is_ending()) return Outcome::kNoWorker;
    if (!worker) worker = take_idle(device);
    if (!worker) {
      std::unique_ptr<os::Child> child = start(device);
      if (!child) return Outcome::kNoWorker;
      worker = Worker{std::move(child), Clock::now(), false};
    }
    const bool was_idle = worker->used;
    worker->used = false;
    const Outcome outcome = ask(*worker, request, reply);
    if (outcome == Outcome::kAnswered) return outcome;
    worker.reset();
    // The idle worker had ended before it got the request.
    if (was_idle && reply.death.starts_with("exit status")) continue;
    return outcome;
  }
}

/// Tries a request again if the system killed its worker. Returns false if no worker can be started.
bool serve(const Device& device, std::optional<Worker>& worker, const Request& request, Reply& reply) {
  Outcome outcome = Outcome::kDied;
  for (int attempt = 0; attempt < request.tries && outcome == Outcome::kDied && !is_caused_by_text(reply.death); ++attempt)
    outcome = ask_any(device, worker, request, reply);
  if (outcome != Outcome::kDied) reply.death.clear();
  return outcome != Outcome::kNoWorker;
}

/// One of the places for workers of a device. The constructor waits for it, unless the place is `urgent`.
class Place {
 public:
  Place(const Device& device, bool urgent) : device_(device.index()), pool_(worker_pool()) {
    const size_t most = std::max<size_t>(most_workers(device), 1);
    std::unique_lock lock(pool_.mutex);
    pool_.freed.wait(lock, [&] { return urgent || pool_.busy[device_] < most || is_ending(); });
    ++pool_.busy[device_];
  }
  ~Place() {
    {
      const std::lock_guard lock(pool_.mutex);
      --pool_.busy[device_];
    }
    pool_.freed.notify_all();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  int device_;
  WorkerPool& pool_;
};

/// Returns the places that processes share, or nullptr.
std::shared_ptr<BuildPlaces> shared_places() {
  WorkerPool& all = worker_pool();
  const std::lock_guard lock(all.mutex);
  if (!all.places && !all.settings.places.empty())
    all.places = std::make_shared<BuildPlaces>(all.settings.places, all.settings.place_timeout);
  return all.places;
}

size_t places_for(const Device& device) { return device.info().is_cpu ? std::numeric_limits<size_t>::max() : kMostOnGpu; }

/// Serves `count` requests in up to `workers` threads. `make` makes a request by its number, `done` takes its reply; both run
/// in these threads. A worker whose answer `is_last` holds for is not used again.
void serve_all(const Device& device, size_t count, size_t workers, const std::function<Request(size_t)>& make,
               const std::function<void(size_t, Reply)>& done, const std::function<bool(const Reply&)>& is_last) {
  std::atomic<size_t> next{0};
  const bool urgent = std::min(workers, count) == 1 && is_awaited();
  const std::shared_ptr<BuildPlaces> places = shared_places();
  const auto work = [&] {
    try {
      const Place place(device, urgent);
      for (;;) {
        std::optional<BuildPlaces::Taken> shared;  // For one request, so that other processes take turns.
        if (places) shared.emplace(*places, places_for(device), [&] { return next >= count || is_ending(); });
        const size_t i = next++;
        if (i >= count) break;
        std::optional<Worker> worker;  // Not kept while this thread waits for its next place: a process has few at work then.
        Reply reply;
        if (!serve(device, worker, make(i), reply)) return;
        if (worker && !is_last(reply)) give_back(device, std::move(*worker));
        done(i, std::move(reply));
      }
    } catch (const std::exception& error) {
      // Memory ran out. Requests without a reply are done in this process.
      log_message(LogLevel::kWarning, "runtime", std::string("a build worker is given up: ") + error.what());
    }
  };
  std::vector<std::thread> threads;
  try {
    for (size_t t = 1; t < std::min(workers, count); ++t) threads.emplace_back(work);
  } catch (const std::system_error&) {  // No more threads can be started. Go on with the threads that run.
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void set_build_pool(const BuildPoolSettings& settings) {
  WorkerPool& all = worker_pool();
  std::map<int, std::vector<Worker>> ended;  // Destroyed after the lock is released.
  const std::lock_guard lock(all.mutex);
  if (settings == all.settings) return;
  all.settings = settings;
  all.places.reset();
  all.unusable.clear();
  ended.swap(all.idle);
}

BuildPoolSettings build_pool_settings() {
  WorkerPool& all = worker_pool();
  const std::lock_guard lock(all.mutex);
  return all.settings;
}

size_t most_workers(const Device& device) {
  WorkerPool& all = worker_pool();
  const std::lock_guard lock(all.mutex);
  if (all.settings.most_workers == 0 || all.unusable.count(device.index())) return 0;
  if (all.settings.most_workers > 0) return static_cast<size_t>(all.settings.most_workers);
  int64_t workers = std::max<int64_t>(1, static_cast<int64_t>(os::usable_cores().size()));
  if (const int64_t free = os::available_memory_bytes()) workers = std::min(workers, free / kHostBytesPerWorker);
  if (!device.info().is_cpu)
    workers = std::min({workers, static_cast<int64_t>(kMostOnGpu), device.caps().global_bytes / kDeviceBytesPerWorker});
  return static_cast<size_t>(std::max<int64_t>(workers, 0));
}

void start_workers(const Device& device, size_t count) {
  size_t idle = 0;
  {
    WorkerPool& all = worker_pool();
    const std::lock_guard lock(all.mutex);
    idle = all.idle[device.index()].size();
  }
  for (size_t i = idle; i < std::min(count, most_workers(device)); ++i)
    run_in_background([&device] {
      const Place place(device, false);
      const std::shared_ptr<BuildPlaces> places = shared_places();
      std::optional<BuildPlaces::Taken> shared;
      if (places) shared.emplace(*places, places_for(device));
      if (is_ending() || (shared && !*shared)) return;  // Other processes have work for all places.
      if (std::unique_ptr<os::Child> child = start(device)) give_back(device, Worker{std::move(child), Clock::now(), true});
    });
}

size_t workers_for(const Device& device, size_t kernels) {
  const size_t workers = most_workers(device);
  if (build_pool_settings().most_workers > 0) return workers;
  if (device.info().is_cpu) return kernels < kLeastOnCpu ? std::min<size_t>(workers, 1) : workers;
  return kernels >= kLeastOnGpu && workers > 1 ? workers : 0;
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
  const auto make = [&](size_t i) { return Request{{flags, sources[longest_first[i]]}, 3, longest, tries}; };
  const auto take = [&](size_t i, Reply reply) {
    WorkerResult& result = results[longest_first[i]];
    result.death = std::move(reply.death);
    result.answered = reply.answered;
    if (!reply.answered) return;
    result.status = std::atoi(reply.answer[0].c_str());
    result.log = std::move(reply.answer[1]);
    result.binary = std::move(reply.answer[2]);
    if (done && result.status == CL_SUCCESS) done(longest_first[i]);
  };
  serve_all(device, sources.size(), workers, make, take, [](const Reply&) { return false; });
  return results;
}

std::vector<TrialVerdict> try_in_workers(const Device& device, size_t count, const std::function<Trial(size_t)>& make,
                                         const std::function<void(size_t)>& done) {
  std::vector<TrialVerdict> verdicts(count);
  std::vector<std::string> names(count);
  const std::chrono::milliseconds longest = build_pool_settings().longest;
  const auto request = [&](size_t i) {
    const Trial trial = make(i);
    if (!trial.runs.empty()) names[i] = trial.runs[0].name;
    Request made{{kTryRequest}, 2, longest + kLongestLaunch * trial.runs.size(), 2};
    for (std::string& text : message_of(trial)) made.message.push_back(std::move(text));
    return made;
  };
  const auto take = [&](size_t i, Reply reply) {
    TrialVerdict& verdict = verdicts[i];
    verdict.known = reply.answered || is_caused_by_text(reply.death);
    verdict.death = reply.death;
    if (reply.answered)
      verdict.fault = reply.answer[0];
    else if (verdict.known)
      verdict.fault = "it, as " + names[i] + ", ends its process: " + reply.death;
    if (done) done(i);
  };
  serve_all(device, count, most_workers(device), request, take,
            [](const Reply& reply) { return reply.answered && !reply.answer[0].empty(); });
  return verdicts;
}

}  // namespace ocl::runtime
