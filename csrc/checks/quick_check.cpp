// csrc/checks/quick_check.cpp: see quick_check.h.
#include "csrc/checks/quick_check.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <mutex>

#include "csrc/checks/graph_cases.h"
#include "csrc/checks/probes.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/runtime/build/build_progress.h"
#include "csrc/runtime/build/program.h"
#include "csrc/runtime/opencl/background.h"
#include "csrc/runtime/opencl/wrong_runtimes.h"
#include "csrc/support/build_id.h"
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

/// The parts of the check by device and name: "" is what every device needs, and further ones are the cases of hand-written
/// kernels, which take longer.
struct DriverVerdicts {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, Verdict> parts;
};

DriverVerdicts& driver_verdicts() {
  static auto* all = new DriverVerdicts;  // Never destroyed, because threads may outlive static destruction.
  return *all;
}

/// Returns what is known to be wrong; nothing while the probes run.
Faults known_faults(const runtime::Device& device) {
  DriverVerdicts& all = driver_verdicts();
  const std::lock_guard lock(all.mutex);
  Faults faults;
  for (const auto& [part, verdict] : all.parts)
    if (part.first == device.index()) faults.insert(verdict.faults.begin(), verdict.faults.end());
  return faults;
}

bool has_check(const runtime::Device& device) {
  return runtime::tried_where(device.info()).empty() && !runtime::wrong_runtimes_allowed();
}

/// Runs trials, and what is left of them after the first wrong run again. Returns the wrong runs.
Faults faults_in(const runtime::Device& device, std::vector<runtime::Trial> pending) {
  Faults faults;
  while (!pending.empty()) {
    const auto make = [&](size_t i) { return pending[i]; };
    std::vector<runtime::TrialVerdict> found(pending.size());
    if (runtime::most_workers(device) > 0) found = runtime::try_in_workers(device, pending.size(), make);
    std::vector<runtime::Trial> left;
    for (size_t i = 0; i < pending.size(); ++i) {
      const std::string fault = found[i].known ? found[i].fault : try_here(device, pending[i]);
      if (fault.empty()) continue;
      std::vector<runtime::TrialRun>& runs = pending[i].runs;
      auto wrong = std::ranges::find_if(runs, [&](const auto& run) { return fault.starts_with("it, as " + run.name + ","); });
      const bool named = wrong != runs.end();
      // A fault of the whole program, such as a compiler that crashes, is that of its first run; the others are tried again.
      if (!named) wrong = runs.begin();
      faults[wrong->name] = named ? fault.substr(std::string("it, as " + wrong->name + ", ").size()) : fault;
      runs.erase(wrong);
      if (!runs.empty()) left.push_back(std::move(pending[i]));
    }
    pending = std::move(left);
    runtime::check_not_ending();
  }
  return faults;
}

bool has_word(const std::string& text, const std::string& word) {
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if ((at == 0 || !inside(text[at - 1])) && (at + word.size() == text.size() || !inside(text[at + word.size()]))) return true;
  return false;
}

/// Returns what a program uses of what the probes found wrong.
std::string wrong_word(const Faults& faults, const std::string& text) {
  for (const ProbeProgram& program : probe_programs())
    for (const Probe& probe : program.probes) {
      if (!faults.contains(probe.run.name)) continue;
      const auto in_text = [&](const std::string& word) { return has_word(text, word); };
      const bool uses = probe.words.empty() || std::ranges::any_of(probe.words, in_text);
      if (uses && (probe.unless.empty() || !in_text(probe.unless))) return probe.run.name;
    }
  return "";
}

Caps without(const Faults& faults, Caps caps) {
  const auto has = [&](const char* name) { return faults.contains(name); };
  if (has(kBarriers) || has(kLocalMemory) || has(kWorkGroups)) caps.is_cpu = true;  // Work-items share nothing.
  if (has(kHalves)) caps.fp16_convert = false;
  return caps;
}

/// Removes what is no fault of a kind of kernels: it uses what a probe found wrong, and a kernel that does not may be right.
void remove_explained(Faults& faults, const std::vector<runtime::Trial>& cases) {
  for (const runtime::Trial& each : cases)
    if (std::ranges::any_of(each.programs, [&](const std::string& text) { return !wrong_word(faults, text).empty(); }))
      faults.erase(each.runs[0].name);
}

std::vector<runtime::Trial> generated_cases(const Caps& caps) {
  std::vector<runtime::Trial> trials;
  for (const GraphCase& each : graph_cases())
    if (!each.hand_written) trials.push_back(trial_of(each, caps));
  return trials;
}

/// Runs the part of the check that every device needs.
Faults common_faults(const runtime::Device& device) {
  std::vector<runtime::Trial> cases = generated_cases(device.caps()), all = cases;
  for (const ProbeProgram& program : probe_programs()) {
    all.push_back({{program.text}, {}});
    for (const Probe& probe : program.probes) all.back().runs.push_back(probe.run);
  }
  Faults faults = faults_in(device, std::move(all));
  remove_explained(faults, cases);
  std::string wrong;
  for (const runtime::Trial& each : cases)
    if (faults.contains(each.runs[0].name)) wrong += (wrong.empty() ? "" : ", ") + each.runs[0].name;
  if (!wrong.empty() && !device.caps().is_cpu) faults[kWorkGroups] = "wrong results of " + wrong;
  const Caps caps = without(faults, device.caps());
  if (caps.is_cpu == device.caps().is_cpu) return faults;
  // Other kernels are used, which have not been tried yet.
  cases = generated_cases(caps);
  for (const runtime::Trial& each : cases) faults.erase(each.runs[0].name);
  faults.merge(faults_in(device, cases));
  remove_explained(faults, cases);
  return faults;
}

/// Runs a case of hand-written kernels. `faults`: what is known to be wrong.
Faults case_faults(const runtime::Device& device, const std::string& name, Faults faults) {
  const auto found = std::ranges::find(graph_cases(), name, [](const GraphCase& each) { return std::string(each.name); });
  const std::vector<runtime::Trial> cases = {trial_of(*found, without(faults, device.caps()))};
  faults.merge(faults_in(device, cases));
  remove_explained(faults, cases);
  std::erase_if(faults, [&](const auto& fault) { return fault.first != name; });
  return faults;
}

std::string key_of(const runtime::Device& device, const std::string& part) {
  static const std::string programs = [] {
    std::string all = build_id();  // Another build may generate other kernels.
    for (const ProbeProgram& program : probe_programs()) {
      all += '\0' + program.text;
      for (const Probe& probe : program.probes) all += ' ' + probe.run.name + ' ' + std::to_string(probe.run.tolerance);
    }
    return hash_hex(all);
  }();
  return runtime::store_prefix(device) + "quick-" + hash_hex(part + " of " + programs);
}

/// The key of the verdict by which devices are ordered. No device is open then, so it has less than key_of.
std::string order_key(const std::string& platform, const std::string& device, const std::string& driver) {
  return "order-" + hash_hex(platform + '\0' + device + '\0' + driver);
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

/// Returns the verdict of a part, of this process or from the store. The caller holds the lock.
Verdict& verdict_of(const runtime::Device& device, const runtime::BinaryStore& store, const std::string& part) {
  Verdict& verdict = driver_verdicts().parts[{device.index(), part}];
  if (verdict.known || verdict.running.valid()) return verdict;
  if (const std::string stored = store.find ? store.find(key_of(device, part)) : ""; !stored.empty()) {
    std::promise<void> done;
    done.set_value();
    verdict = {done.get_future().share(), true, false, faults_from(stored)};
  }
  return verdict;
}

/// Returns the verdict of a part, and starts the part if there is none. `after`: the part that runs first. The caller holds the
/// lock.
Verdict& started(const runtime::Device& device, const runtime::BinaryStore& store, const std::string& part,
                 const std::shared_future<void>& after) {
  Verdict& verdict = verdict_of(device, store, part);
  if (verdict.running.valid()) return verdict;
  verdict.running =
      runtime::run_in_background([&device, store, part, after] {
        if (after.valid()) after.get();
        Faults faults = part.empty() ? common_faults(device) : case_faults(device, part, known_faults(device));
        if (store.store) store.store(key_of(device, part), text_of(faults));
        {
          DriverVerdicts& all = driver_verdicts();
          const std::lock_guard lock(all.mutex);
          Verdict& own = all.parts[{device.index(), part}];
          own.faults = std::move(faults);
          own.known = true;
        }
        if (store.store)
          store.store(order_key(device.platform_name(), device.name(), device.driver()), text_of(known_faults(device)));
      }).share();
  return verdict;
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
  {
    const std::lock_guard lock(driver_verdicts().mutex);
    if (!verdict_of(device, store, "").known) return std::nullopt;
    for (const GraphCase& each : graph_cases())
      if (each.hand_written) verdict_of(device, store, each.name);
  }
  std::string names = "checked\t";
  for (const auto& [name, fault] : known_faults(device)) names += name + '\t';
  return names;
}

std::string kept_faults(const runtime::BinaryStore& store, const std::string& platform, const std::string& device,
                        const std::string& driver) {
  std::string names;
  if (store.find)
    for (const auto& [name, fault] : faults_from(store.find(order_key(platform, device, driver))))
      names += (names.empty() ? "" : ", ") + name;
  return names;
}

QuickCheck::QuickCheck(runtime::Device& device, const runtime::BinaryStore& store, const std::set<std::string>& kinds)
    : device_(device.index()), known_(true) {
  if (!has_check(device)) return;
  const std::lock_guard lock(driver_verdicts().mutex);
  parts_.emplace_back("");
  for (const GraphCase& each : graph_cases())
    if (each.hand_written && std::ranges::any_of(each.kinds, [&](const std::string& kind) { return kinds.contains(kind); }))
      parts_.emplace_back(each.name);
  for (const std::string& part : parts_) {
    const Verdict& verdict = started(device, store, part, running_.empty() ? std::shared_future<void>() : running_[0]);
    known_ = known_ && verdict.known;
    running_.push_back(verdict.running);
  }
}

bool QuickCheck::finish() {
  {
    const runtime::WaitsForBuilds waits;
    for (const std::shared_future<void>& each : running_) each.get();
  }
  Faults faults;
  bool says = false;
  {
    DriverVerdicts& all = driver_verdicts();
    const std::lock_guard lock(all.mutex);
    for (const std::string& part : parts_) {
      Verdict& verdict = all.parts[{device_, part}];
      faults.insert(verdict.faults.begin(), verdict.faults.end());
      says = says || (!verdict.faults.empty() && !std::exchange(verdict.said, true));
    }
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

Caps avoid_faults(const runtime::Device& device, Caps caps) { return without(known_faults(device), std::move(caps)); }

std::string faulty_use(const runtime::Device& device, const codegen::KernelSource& source) {
  const Faults faults = known_faults(device);
  if (faults.empty()) return "";  // Most devices: no probe is made for them.
  for (const GraphCase& each : graph_cases())
    if (faults.contains(each.name) && std::ranges::count(each.kinds, kind_of(source.kind, source.name)) > 0) return each.name;
  return wrong_word(faults, source.text);
}

std::vector<std::pair<std::string, std::string>> probe_driver(const runtime::Device& device) {
  Faults faults = common_faults(device);
  for (const GraphCase& each : graph_cases())
    if (each.hand_written) faults.merge(case_faults(device, each.name, faults));
  std::vector<std::pair<std::string, std::string>> found;
  const auto add = [&](const std::string& name) {
    const auto fault = faults.find(name);
    found.emplace_back(name, fault == faults.end() ? "" : fault->second);
  };
  for (const ProbeProgram& program : probe_programs())
    for (const Probe& probe : program.probes) add(probe.run.name);
  for (const GraphCase& each : graph_cases()) add(each.name);
  add(kWorkGroups);
  return found;
}

}  // namespace ocl::checks
