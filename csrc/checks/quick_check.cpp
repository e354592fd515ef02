// csrc/checks/quick_check.cpp: see quick_check.h.
#include "csrc/checks/quick_check.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <mutex>

#include "csrc/checks/probes.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/runtime/build/build_progress.h"
#include "csrc/runtime/build/program.h"
#include "csrc/runtime/opencl/background.h"
#include "csrc/runtime/opencl/wrong_runtimes.h"
#include "csrc/support/error.h"
#include "csrc/support/hash.h"
#include "csrc/support/log.h"

namespace ocl::checks {
namespace {

using Faults = std::map<std::string, std::string>;  // Name of a probe -> what is wrong.

struct Verdict {
  std::shared_future<void> running;
  bool known = false, said = false;
  Faults faults;
};

struct DriverVerdicts {
  std::mutex mutex;
  std::map<int, Verdict> of_device;
};

DriverVerdicts& driver_verdicts() {
  static auto* all = new DriverVerdicts;  // Never destroyed, because threads may outlive static destruction.
  return *all;
}

/// Returns what is known to be wrong; nothing while the probes run.
Faults known_faults(const runtime::Device& device) {
  DriverVerdicts& all = driver_verdicts();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of_device.find(device.index());
  return found == all.of_device.end() ? Faults{} : found->second.faults;
}

bool has_check(const runtime::Device& device) {
  return runtime::tried_where(device.info()).empty() && !runtime::wrong_runtimes_allowed();
}

/// Runs the probes of each program; those that are left after the first wrong one run again.
Faults faults_of(const runtime::Device& device) {
  struct Pending {
    const ProbeProgram* program;
    std::vector<const Probe*> probes;
  };
  std::vector<Pending> pending;
  for (const ProbeProgram& program : probe_programs()) {
    pending.push_back({&program, {}});
    for (const Probe& probe : program.probes) pending.back().probes.push_back(&probe);
  }
  Faults faults;
  while (!pending.empty()) {
    const auto make = [&](size_t i) {
      runtime::Trial trial{{pending[i].program->text}, {}};
      for (const Probe* probe : pending[i].probes) trial.runs.push_back(probe->run);
      return trial;
    };
    std::vector<runtime::TrialVerdict> found(pending.size());
    if (runtime::most_workers(device) > 0) found = runtime::try_in_workers(device, pending.size(), make);
    std::vector<Pending> left;
    for (size_t i = 0; i < pending.size(); ++i) {
      const std::string fault = found[i].known ? found[i].fault : try_here(device, make(i));
      if (fault.empty()) continue;
      auto& probes = pending[i].probes;
      const auto wrong =
          std::ranges::find_if(probes, [&](const Probe* p) { return fault.starts_with("it, as " + p->name + ","); });
      // A fault of the whole program, such as a compiler that crashes, is that of its first probe; the others are tried again.
      const Probe* named = wrong == probes.end() ? probes.front() : *wrong;
      faults[named->name] = wrong == probes.end() ? fault : fault.substr(std::string("it, as " + named->name + ", ").size());
      std::erase(probes, named);
      if (!probes.empty()) left.push_back(std::move(pending[i]));
    }
    pending = std::move(left);
    runtime::check_not_ending();
  }
  return faults;
}

std::string key_of(const runtime::Device& device) {
  std::string all = "quick check";
  for (const ProbeProgram& program : probe_programs()) {
    all += '\0' + program.text;
    for (const Probe& probe : program.probes) all += ' ' + probe.name + ' ' + std::to_string(probe.run.tolerance);
  }
  return runtime::store_prefix(device) + "quick-" + hash_hex(all);
}

std::string text_of(const Faults& faults) {
  std::string text = "checked\n";
  for (const auto& [name, fault] : faults) text += name + '\t' + fault + '\n';
  return text;
}

Faults faults_from(const std::string& text) {
  Faults faults;
  for (size_t begin = text.find('\n') + 1; begin < text.size();) {
    const size_t tab = text.find('\t', begin), end = text.find('\n', begin);
    if (tab == std::string::npos || end == std::string::npos || tab > end) break;
    faults[text.substr(begin, tab - begin)] = text.substr(tab + 1, end - tab - 1);
    begin = end + 1;
  }
  return faults;
}

void set_verdict(const runtime::Device& device, Faults faults) {
  DriverVerdicts& all = driver_verdicts();
  const std::lock_guard lock(all.mutex);
  Verdict& verdict = all.of_device[device.index()];
  verdict.faults = std::move(faults);
  verdict.known = true;
}

bool has_word(const std::string& text, const std::string& word) {
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if ((at == 0 || !inside(text[at - 1])) && (at + word.size() == text.size() || !inside(text[at + word.size()]))) return true;
  return false;
}

}  // namespace

std::string try_here(const runtime::Device& device, const runtime::Trial& trial) {
  cl_device_id id = device.id();
  cl_int status = CL_SUCCESS;
  auto context = std::make_unique<runtime::ContextHandle>(clCreateContext(nullptr, 1, &id, nullptr, nullptr, &status));
  if (status != CL_SUCCESS) return std::string("no context: ") + runtime::status_name(status);
  const runtime::TrialResult result = runtime::run_trial(context->get(), id, device.build_options(), trial);
  if (result.broken) static_cast<void>(context.release());
  return result.fault;
}

std::optional<std::string> known_verdict(const runtime::Device& device, const runtime::BinaryStore& store) {
  if (!has_check(device)) return "";
  DriverVerdicts& all = driver_verdicts();
  const std::lock_guard lock(all.mutex);
  Verdict& verdict = all.of_device[device.index()];
  if (!verdict.known && !verdict.running.valid())
    if (const std::string stored = store.find ? store.find(key_of(device)) : ""; !stored.empty()) {
      std::promise<void> done;
      done.set_value();
      verdict = {done.get_future().share(), true, false, faults_from(stored)};
    }
  if (!verdict.known) return std::nullopt;
  std::string names;
  for (const auto& [name, fault] : verdict.faults) names += name + '\t';
  return names;
}

QuickCheck::QuickCheck(runtime::Device& device, const runtime::BinaryStore& store) : device_(device.index()), known_(true) {
  if (!has_check(device)) return;
  DriverVerdicts& all = driver_verdicts();
  const std::lock_guard lock(all.mutex);
  Verdict& verdict = all.of_device[device_];
  known_ = verdict.known;
  if (!verdict.known && !verdict.running.valid())
    verdict.running = runtime::run_in_background([&device, store] {
                        const std::string key = key_of(device), stored = store.find ? store.find(key) : "";
                        Faults faults = stored.empty() ? faults_of(device) : faults_from(stored);
                        if (stored.empty() && store.store) store.store(key, text_of(faults));
                        set_verdict(device, std::move(faults));
                      }).share();
  running_ = verdict.running;
}

bool QuickCheck::finish() {
  if (!running_.valid()) return true;
  {
    const runtime::WaitsForBuilds waits;
    running_.get();
  }
  Faults faults;
  bool says = false;
  {
    DriverVerdicts& all = driver_verdicts();
    const std::lock_guard lock(all.mutex);
    faults = all.of_device[device_].faults;
    says = !std::exchange(all.of_device[device_].said, true);
  }
  if (faults.empty()) return true;
  std::string list;
  for (const auto& [name, fault] : faults) list += (list.empty() ? "" : "; ") + name + ": " + fault;
  const std::string where =
      "the driver of ocl:" + std::to_string(device_) + ", " + runtime::Device::get(device_).describe() + ", ";
  const std::string next =
      "\n  do: send a report (`torch-ocl doctor --report`), or use another device; docs/troubleshooting.md says more; "
      "TORCH_OCL_UNTESTED=1 skips this check";
  if (faults.contains(kPlain)) fail(ErrorKind::kUnsupported, where + "computes wrongly: " + list + next);
  if (says)
    log_message(LogLevel::kWarning, "checks",
                where + "which nobody has tried, gets some things wrong: " + list +
                    ". Other kernels are used, and where there are none, ops run on the CPU" + next);
  return known_;
}

Caps avoid_faults(const runtime::Device& device, Caps caps) {
  const Faults faults = known_faults(device);
  if (faults.contains(kBarriers) || faults.contains(kLocalMemory)) caps.is_cpu = true;  // Work-items share nothing.
  if (faults.contains(kHalves)) caps.fp16_convert = false;
  return caps;
}

std::string faulty_use(const runtime::Device& device, const std::string& text) {
  const Faults faults = known_faults(device);
  if (faults.empty()) return "";  // Most devices: no probe is made for them.
  for (const ProbeProgram& program : probe_programs())
    for (const Probe& probe : program.probes) {
      if (!faults.contains(probe.name)) continue;
      const auto in_text = [&](const std::string& word) { return has_word(text, word); };
      const bool uses = probe.words.empty() || std::ranges::any_of(probe.words, in_text);
      if (uses && (probe.unless.empty() || !in_text(probe.unless))) return probe.name;
    }
  return "";
}

std::vector<std::pair<std::string, std::string>> probe_driver(const runtime::Device& device) {
  const Faults faults = faults_of(device);
  std::vector<std::pair<std::string, std::string>> found;
  for (const ProbeProgram& program : probe_programs())
    for (const Probe& probe : program.probes) {
      const auto fault = faults.find(probe.name);
      found.emplace_back(probe.name, fault == faults.end() ? "" : fault->second);
    }
  return found;
}

}  // namespace ocl::checks
