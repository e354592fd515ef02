// csrc/checks/device_check.cpp: makes trials of check cases, runs them in build workers, and keeps their verdicts.
#include "csrc/checks/device_check.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "csrc/checks/check_text.h"
#include "csrc/checks/quick_check.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/runtime/build/build_progress.h"
#include "csrc/runtime/opencl/background.h"
#include "csrc/support/error.h"
#include "csrc/support/hash.h"
#include "csrc/support/log.h"

namespace ocl::checks {

/// Cases of one kernel and type that run the same program.
struct CheckJob {
  CheckedKernel kernel;
  std::string key;  // In the store: a hash of the device and of the texts of all programs.
  std::vector<CheckCase> cases;
  std::string fault;
  bool stays = true;  // Whether the verdict may be stored. It may not if memory ran out.
};

namespace {

using Job = CheckJob;

constexpr char kGood[] = "right", kBad[] = "wrong";

struct Verdicts {
  std::mutex mutex;
  std::condition_variable ended;             // A job has left `running`.
  std::set<std::string> right, running;      // Keys of jobs.
  std::map<std::string, std::string> wrong;  // Key of a job -> its fault.
  // The first fault of each kernel and type, by the device's index.
  std::map<std::tuple<int, KernelId, KernelType>, std::string> faults;
};

Verdicts& verdicts() {
  static auto* all = new Verdicts;  // Never destroyed, because threads may outlive static destruction.
  return *all;
}

double tolerance_of(const CheckedKernel& kernel) {
  for (const KernelRow::Checked& checked : kernel_row(kernel.id).types)
    if (checked.type == kernel.type) return checked.tolerance;
  return 0;
}

/// Appends to `texts` the text of each program that a case runs and that is not there yet: first the programs that pack its
/// operands, then its own.
void collect_texts(const CheckCase& check, std::vector<std::string>& texts) {
  for (const CheckCase::Input& input : check.inputs)
    if (!input.pack.empty()) collect_texts(input.pack[0], texts);
  std::string text = text_of(check);
  if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
}

/// Returns one job per program.
std::vector<Job> jobs_of(const runtime::Device& device, const CheckedKernel& kernel, std::vector<CheckCase> cases) {
  std::map<std::string, Job> by_program;
  for (CheckCase& check : cases) {
    Job& job = by_program.try_emplace(text_of(check), Job{kernel, "", {}, "", true}).first->second;
    job.cases.push_back(std::move(check));
  }
  std::vector<Job> jobs;
  for (auto& [program, job] : by_program) {
    std::vector<std::string> texts;
    std::string key = std::to_string(tolerance_of(kernel));
    for (const CheckCase& check : job.cases) {
      collect_texts(check, texts);
      key += ' ' + std::to_string(check.offset);
    }
    for (const std::string& text : texts) key += '\0' + text;
    job.key = runtime::store_prefix(device) + "check-" + hash_hex(key);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

runtime::TrialLaunch launch_of(const CheckCase& check, const std::vector<std::string>& texts) {
  runtime::TrialLaunch launch;
  launch.program = static_cast<size_t>(std::ranges::find(texts, text_of(check)) - texts.begin());
  for (const CheckCase::Input& input : check.inputs) {
    launch.inputs.push_back({{input.bytes.begin(), input.bytes.end()}, input.offset, {}});
    if (!input.pack.empty()) launch.inputs.back().pack.push_back(launch_of(input.pack[0], texts));
  }
  launch.integers = check.arguments;
  launch.last = check.last;
  launch.groups = check.groups;
  launch.local = check.local;
  launch.results = check.written();
  return launch;
}

/// Computes the operands and the expected results of a job.
runtime::Trial trial_of(const Job& job) {
  runtime::Trial trial;
  for (CheckCase check : job.cases) {
    collect_texts(check, trial.programs);
    check.fill(check);
    trial.runs.push_back({check.variant, launch_of(check, trial.programs), check.results.exact, check.results.sizes,
                          check.tolerance, check.parts, check.block, check.integers});
  }
  return trial;
}

/// Runs the jobs and sets their faults.
void run(const runtime::Device& device, std::vector<Job>& jobs) {
  if (jobs.empty()) return;
  const size_t workers = std::min(runtime::most_workers(device), jobs.size());
  runtime::BuildProgress progress("checked", jobs.size(), workers);
  const auto done = [&](size_t) { progress.add(1); };
  std::vector<runtime::TrialVerdict> found(jobs.size());
  if (workers > 0) found = runtime::try_in_workers(device, jobs.size(), [&](size_t i) { return trial_of(jobs[i]); }, done);
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].fault = found[i].fault;
    if (found[i].known) continue;
    runtime::check_not_ending();
    if (found[i].death.empty()) {
      jobs[i].fault = try_here(device, trial_of(jobs[i]));
      done(i);
      continue;
    }
    jobs[i].fault = "it cannot be checked, because the system ended the process: " + found[i].death;
    jobs[i].stays = false;
  }
}

/// Notes what is wrong with a kernel, with one warning.
void add_fault(const runtime::Device& device, const Job& job) {
  Verdicts& all = verdicts();
  {
    const std::lock_guard lock(all.mutex);
    if (!all.faults.try_emplace({device.index(), job.kernel.id, job.kernel.type}, job.fault).second) return;
  }
  log_message(LogLevel::kWarning, "checks",
              std::string("kernel ") + kernel_row(job.kernel.id).name + " is not used for " + name(job.kernel.type) + " on " +
                  device.describe() + ", other kernels are: " + job.fault);
}

/// Removes the jobs that are known to be right. Sets the fault of a job whose verdict is bad.
void take_known(const runtime::BinaryStore& store, std::vector<Job>& jobs) {
  Verdicts& all = verdicts();
  const std::lock_guard lock(all.mutex);
  std::erase_if(jobs, [&](Job& job) {
    if (all.right.count(job.key)) return true;
    const std::string stored = store.find ? store.find(job.key) : "";
    if (stored == kBad) job.fault = "an earlier check found it wrong";
    if (const auto wrong = all.wrong.find(job.key); stored.empty() && wrong != all.wrong.end()) job.fault = wrong->second;
    if (stored == kGood) all.right.insert(job.key);
    return stored == kGood;
  });
}

void keep(const runtime::BinaryStore& store, const std::vector<Job>& jobs) {
  Verdicts& all = verdicts();
  const std::lock_guard lock(all.mutex);
  for (const Job& job : jobs) {
    if (job.fault.empty())
      all.right.insert(job.key);
    else
      all.wrong[job.key] = job.fault;
    if (store.store && job.stays) store.store(job.key, job.fault.empty() ? kGood : kBad);
  }
}

/// Splits off the jobs that another thread runs. The others count as running until end_running.
std::vector<Job> take_running(std::vector<Job>& jobs) {
  Verdicts& all = verdicts();
  const std::lock_guard lock(all.mutex);
  std::vector<Job> own, others;
  for (Job& job : jobs) (all.running.insert(job.key).second ? own : others).push_back(std::move(job));
  jobs = std::move(own);
  return others;
}

void end_running(const std::vector<Job>& jobs) {
  Verdicts& all = verdicts();
  {
    const std::lock_guard lock(all.mutex);
    for (const Job& job : jobs) all.running.erase(job.key);
  }
  all.ended.notify_all();
}

/// Waits until no other thread runs one of the jobs.
void wait_for_others(const std::vector<Job>& jobs) {
  Verdicts& all = verdicts();
  std::unique_lock lock(all.mutex);
  all.ended.wait(lock,
                 [&] { return std::ranges::none_of(jobs, [&](const Job& job) { return all.running.contains(job.key); }); });
}

bool is_checked(const CheckedKernel& kernel) { return tolerance_of(kernel) > 0; }

/// Calls `visit` for each hand-written kernel that a group launches.
void for_each_launch(const schedule::Group& group, const std::function<void(const schedule::TemplateLaunch&)>& visit) {
  if (group.kind == schedule::GroupKind::kTemplate) visit(group.launch);
  for (const schedule::Group& member : group.members) for_each_launch(member, visit);
}

std::set<std::string> hand_written_kinds(const schedule::Schedule& schedule) {
  std::set<std::string> kinds;
  for (const schedule::Group& group : schedule.groups)
    for_each_launch(group, [&](const schedule::TemplateLaunch& launch) { kinds.insert(launch.kind); });
  return kinds;
}

/// Returns the checks of all tensor core kernels of a schedule, with its tiles.
std::vector<Job> jobs_of(const runtime::Device& device, const schedule::Schedule& schedule) {
  using Which = std::pair<KernelId, KernelType>;
  const MatrixInstructions matrix = device.caps().matrix;
  std::map<Which, std::vector<CheckCase>> cases;
  std::map<Which, std::set<size_t>> wanted;
  std::set<Which> sampled;  // A launch of these is like no case.
  const auto visit = [&](const schedule::TemplateLaunch& launch) {
    const KernelRow& launched = kernel_row(launch.kernel);
    // Convolutions on CPUs use the instruction that this kernel has a check for.
    if (launched.operation == KernelOperation::k_conv &&
        std::ranges::count(launch.defines, std::pair<std::string, std::string>("PAIRS", "1")) > 0)
      sampled.insert({KernelId::k_gemm_pairs_item, KernelType::kBf16});
    if (!launched.is_checked()) return;
    const KernelType type = schedule::type_of(launch);
    bool any = false;
    for (const KernelRow& row : kernel_rows()) {  // The row itself, and forms of it that other macros select.
      if (row.base != launched.base || !is_checked({row.id, type})) continue;
      const Which which{row.id, type};
      const auto [found, added] = cases.try_emplace(which);
      if (added) found->second = schedule::check_cases(row, type, matrix, schedule::CaseSet::kTiles);
      for (size_t i = 0; i < found->second.size(); ++i)
        if (is_like(found->second[i], launch)) {
          wanted[which].insert(i);
          any = true;
        }
    }
    if (!any && is_checked({launched.id, type})) sampled.insert({launched.id, type});
  };
  for (const schedule::Group& group : schedule.groups) for_each_launch(group, visit);
  std::map<Which, std::vector<CheckCase>> chosen;
  for (const auto& [which, numbers] : wanted)
    for (const size_t i : numbers) chosen[which].push_back(std::move(cases[which][i]));
  for (const Which& which : sampled)
    for (CheckCase& check : schedule::check_cases(kernel_row(which.first), which.second, matrix))
      chosen[which].push_back(std::move(check));
  std::vector<Job> jobs;
  for (auto& [which, list] : chosen)
    for (Job& job : jobs_of(device, {which.first, which.second}, std::move(list))) jobs.push_back(std::move(job));
  return jobs;
}

/// True if a warpgroup kernel computes the same operation. The warp kernel is then not used, so it needs no check.
bool is_surpassed(const KernelRow& subject, KernelType type, const Caps& caps) {
  return subject.level == KernelLevel::k_warp &&
         std::any_of(kernel_rows().begin(), kernel_rows().end(), [&](const KernelRow& row) {
           return row.level == KernelLevel::k_warpgroup && row.operation == subject.operation && row.form == subject.form &&
                  caps.kernels.has(row.id, type);
         });
}

}  // namespace

Caps unfailed_kernels(const runtime::Device& device, Caps caps) {
  caps = avoid_faults(device, std::move(caps));
  // All its cases are right on CPUs. On an H200 (driver 580) two, in which filters reach beyond the image, were wrong.
  if (caps.is_cpu && !device.caps().is_cpu && caps.kernels.has(KernelId::k_conv_image_statistics_item))
    caps.kernels.remove(KernelId::k_conv_image_statistics_item, KernelType::kFp32, "its results were wrong on a GPU");
  {
    Verdicts& all = verdicts();
    const std::lock_guard lock(all.mutex);
    for (const auto& [which, fault] : all.faults) {
      const auto& [index, id, type] = which;
      if (index == device.index() && caps.kernels.has(id, type))
        caps.kernels.remove(id, type, "its check on this device failed: " + fault);
    }
  }
  for (const KernelRow& row : kernel_rows())
    for (const KernelRow::Checked& checked : row.types)
      if (is_surpassed(row, checked.type, caps))
        caps.kernels.remove(row.id, checked.type, "this device has a warpgroup kernel for the same");
  return caps;
}

size_t fault_count() {
  Verdicts& all = verdicts();
  const std::lock_guard lock(all.mutex);
  return all.faults.size();
}

struct LaunchChecks::Work {
  runtime::Device& device;
  runtime::BinaryStore store;
  std::vector<CheckJob> jobs, others;  // `others`: what the checks of another schedule run.
  QuickCheck driver;

  void run_jobs() {
    struct End {
      const std::vector<CheckJob>& jobs;
      ~End() { end_running(jobs); }
    } end{jobs};
    run(device, jobs);
    keep(store, jobs);
  }
};

LaunchChecks::LaunchChecks(runtime::Device& device, const runtime::BinaryStore& store, const schedule::Schedule& schedule)
    : work_(new Work{device, store, jobs_of(device, schedule), {}, {device, store, hand_written_kinds(schedule)}}) {
  take_known(store, work_->jobs);
  const bool failed = std::ranges::any_of(work_->jobs, [](const Job& job) { return !job.fault.empty(); });
  // Where a check failed earlier, the graph is scheduled again, and may need other kernels.
  if (failed) return;
  work_->others = take_running(work_->jobs);
  if (!work_->jobs.empty()) running_ = runtime::run_in_background([work = work_] { work->run_jobs(); });
}

bool LaunchChecks::passed() {
  const runtime::WaitsForBuilds waits;
  if (running_.valid()) running_.get();
  if (!work_->others.empty()) {
    wait_for_others(work_->others);
    take_known(work_->store, work_->others);
    // A check without a verdict was given up, for example because memory ran out.
    std::vector<Job> again;
    for (Job& job : work_->others) (job.fault.empty() ? again : work_->jobs).push_back(std::move(job));
    work_->others.clear();
    run(work_->device, again);
    keep(work_->store, again);
    for (Job& job : again) work_->jobs.push_back(std::move(job));
  }
  bool passed = work_->driver.finish();
  for (const Job& job : work_->jobs)
    if (!job.fault.empty()) {
      add_fault(work_->device, job);
      passed = false;
    }
  return passed;
}

std::vector<CheckedKernel> kernels_to_check(const runtime::Device& device) {
  std::vector<CheckedKernel> found;
  for (const KernelRow& row : kernel_rows())
    for (const KernelRow::Checked& checked : row.types) {
      const CheckedKernel kernel{row.id, checked.type};
      if (is_checked(kernel) && device.caps().kernels.has(row.id, checked.type)) found.push_back(kernel);
    }
  return found;
}

std::string fault_of_kernel(runtime::Device& device, const runtime::BinaryStore& store, const CheckedKernel& kernel) {
  const KernelRow& row = kernel_row(kernel.id);
  if (tolerance_of(kernel) == 0)
    fail(ErrorKind::kInternal, std::string("kernel ") + row.name + " is not checked for " + name(kernel.type));
  std::vector<Job> jobs = jobs_of(device, kernel, schedule::check_cases(row, kernel.type, device.caps().matrix));
  take_known(store, jobs);
  const auto fault = [](const Job& job) { return !job.fault.empty(); };
  if (std::ranges::none_of(jobs, fault)) {
    run(device, jobs);
    keep(store, jobs);
  }
  const auto found = std::ranges::find_if(jobs, fault);
  if (found == jobs.end()) return "";
  add_fault(device, *found);
  return found->fault;
}

std::string fault_of_case(const runtime::Device& device, CheckCase check, bool in_worker) {
  if (!device.caps().prefetch) std::erase_if(check.defines, [](const std::string& s) { return s.starts_with("PREFETCH"); });
  if (device.caps().thread_items == 0)  // It builds no kernels for threads, but runs what they run.
    for (std::string& define : check.defines)
      if (define.starts_with("THREAD_ITEMS ")) define = "FIXED_THREADS 1";
  const Job job{{check.kernel, KernelType::kFp32}, "", {check}, "", true};
  if (!in_worker) return try_here(device, trial_of(job));
  const runtime::TrialVerdict verdict =
      runtime::try_in_workers(device, 1, [&](size_t) { return trial_of(job); }, [](size_t) {})[0];
  return verdict.known ? verdict.fault : "no build worker ran it " + verdict.death;
}

}  // namespace ocl::checks
