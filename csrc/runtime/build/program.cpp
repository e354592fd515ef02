// csrc/runtime/build/program.cpp: finds programs in memory or in the binary store, and builds programs that are in neither.
#include "csrc/runtime/build/program.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "csrc/runtime/build/batches.h"
#include "csrc/runtime/build/build_error.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/runtime/build/build_progress.h"
#include "csrc/runtime/build/claims.h"
#include "csrc/runtime/build/compiler_crash.h"
#include "csrc/runtime/build/compiles_at_launch.h"
#include "csrc/runtime/build/known_programs.h"
#include "csrc/runtime/build/large_groups.h"
#include "csrc/runtime/device/device.h"
#include "csrc/runtime/opencl/background.h"
#include "csrc/runtime/opencl/compile.h"
#include "csrc/runtime/opencl/profile_limits.h"
#include "csrc/support/hash.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

constexpr char kAbi[] = "kernels 2";  // Change this when the meaning of a stored entry changes.
constexpr size_t kPrefixDigits = 16;
// With 8 to 32 kernels per program, building costs the same per kernel. Smaller programs distribute better over
// threads.
constexpr size_t kMaxKernelsPerProgram = 16;
// An entry of a kernel that begins with this character contains the key of its program.
constexpr char kReference[] = "@";

using Clock = std::chrono::steady_clock;
// A process that has claimed a kernel may be suspended. Other processes build the kernel themselves if they see no progress for
// this long.
constexpr std::chrono::seconds kMostWait{120};

struct Shared {
  KnownPrograms programs;
  std::mutex mutex;  // Guards `counters`.
  BuildCounters counters;
  std::mutex building;  // Held while this process compiles: a driver serialises that anyway.
};

Shared& shared() {
  // Never destroyed, because programs do not survive the driver at exit.
  static auto* shared = new Shared;
  return *shared;
}

Built compile_for(Device& device, const std::string& source) {
  return compile(device.context(), device.id(), device.build_options(), source, log_enabled(LogLevel::kDebug));
}

bool has_kernel(cl_program program, const std::string& name) {
  cl_int status = CL_SUCCESS;
  KernelHandle kernel(clCreateKernel(program, name.c_str(), &status));
  return status == CL_SUCCESS;
}

std::shared_ptr<Program> load_program(Device& device, const std::string& binary) {
  ProgramHandle handle = load_binary(device.context(), device.id(), device.build_options(), binary);
  return handle ? std::make_shared<Program>(device, std::move(handle)) : nullptr;
}

/// One call of build_programs.
class Build {
 public:
  Build(Device& device, const std::vector<KernelText>& texts, std::vector<std::string> keys, const BinaryStore& store,
        const std::string& failed_dir)
      : device_(device),
        texts_(texts),
        store_(store),
        failed_dir_(failed_dir),
        prefix_(store_prefix(device)),
        programs_(texts.size()),
        keys_(std::move(keys)),
        claims_(device.index(), store),
        crashes_(device, texts, keys_, store),
        groups_(device, texts, keys_, store) {}
  Build(const Build&) = delete;
  Build& operator=(const Build&) = delete;

  std::vector<std::shared_ptr<Program>> run() {
    if (!find_in_memory()) {
      load_stored(missing());
      build_missing();
    }
    crashes_.raise(failed_dir_);
    groups_.raise();
    if (store_.complete) store_found();
    return result();
  }

  /// Returns the programs without building any; none if one is missing.
  std::vector<std::shared_ptr<Program>> find() {
    if (!find_in_memory()) load_stored(missing());
    std::vector<std::shared_ptr<Program>> found = result();
    return std::ranges::count(found, nullptr) == 0 ? found : decltype(found)();
  }

 private:
  std::vector<std::shared_ptr<Program>> result() {
    for (size_t i = 0; i < programs_.size(); ++i)
      if (!programs_[i]) programs_[i] = programs_[first_[keys_[i]]];
    return std::move(programs_);
  }

  /// Returns whether all programs are in memory.
  bool find_in_memory() {
    for (size_t i = 0; i < keys_.size(); ++i)
      if (std::shared_ptr<Program> known = shared().programs.find(device_.index(), keys_[i])) programs_[i] = std::move(known);
    return std::ranges::count(programs_, nullptr) == 0;
  }

  /// Returns, for each key that has no program yet, the index of the first text with that key.
  Indices missing() {
    Indices indices;
    for (size_t i = 0; i < keys_.size(); ++i)
      if (!programs_[i] && !is_given_up(i) && (first_.try_emplace(keys_[i], i).first->second == i)) indices.push_back(i);
    return indices;
  }

  /// True if a kernel gets no program, because the compiler crashes or its work-groups are too large.
  bool is_given_up(size_t i) const { return crashes_.contains(i) || groups_.contains(i); }

  void load_stored(const Indices& wanted) {
    if (!store_.find) return;
    std::map<std::string, Indices> stored;  // Key of a program -> its kernels.
    for (size_t i : wanted) {
      const std::string entry = store_.find(keys_[i]);
      if (!crashes_.is_crash(i, entry) && !groups_.is_refused(i, entry) && entry.starts_with(kReference))
        stored[entry.substr(1)].push_back(i);
    }
    for (const auto& [program_key, indices] : stored) {
      const std::string binary = store_.find(program_key);
      if (binary.empty()) continue;
      std::shared_ptr<Program> program = load_program(device_, binary);
      for (size_t i : indices)
        if (program && !has_kernel(program->get(), texts_[i].name)) program = nullptr;
      std::lock_guard lock(shared().mutex);
      if (!program) {
        shared().counters.rejected += static_cast<int64_t>(indices.size());
        log_message(LogLevel::kInfo, "runtime",
                    "a cached binary of " + std::to_string(indices.size()) + " kernels does not load on " + device_.describe() +
                        " and is built anew");
        continue;
      }
      shared().counters.from_binary += static_cast<int64_t>(indices.size());
      for (size_t i : indices) keep(i, program);
    }
  }

  /// Builds what is missing. Waits for the kernels that another thread or process is building. Threads and processes that start
  /// at the same time thus build each kernel once.
  void build_missing() {
    Indices pending = missing();
    if (pending.empty()) return;
    const bool asks_processes = store_.find && store_.claim && store_.release && !compiles_at_launch();
    auto deadline = Clock::now() + kMostWait;
    while (!pending.empty()) {
      Indices claimed;
      const bool waits = Clock::now() < deadline;
      for (size_t i : pending)
        if (claims_.claim(keys_[i], asks_processes) || !waits) claimed.push_back(i);
      find_in_memory();  // Others may have built them before they ended their claims.
      const auto is_found = [&](size_t i) { return programs_[i] != nullptr || is_given_up(i); };
      std::erase_if(claimed, is_found);
      if (asks_processes) load_stored(claimed);
      std::erase_if(claimed, is_found);
      build(claimed);
      claims_.release_all();
      check_not_ending();
      const Indices left = missing();
      if (left.size() < pending.size())
        deadline = Clock::now() + kMostWait;
      else
        Claims::wait();
      pending = left;
    }
  }

  void build(const Indices& pending) {
    if (pending.empty()) return;
    const auto begin = Clock::now();
    const auto count = static_cast<int64_t>(pending.size());
    const size_t workers = workers_for(device_, pending.size());
    if (workers > 0 && !compiles_at_launch())
      build_with_workers(pending, workers);
    else
      build_here(make_batches(texts_, pending, kMaxKernelsPerProgram));
    std::lock_guard lock(shared().mutex);
    shared().counters.built += count;
    shared().counters.build_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  }

  static size_t count_of(const std::vector<Indices>& batches) {
    return std::accumulate(batches.begin(), batches.end(), size_t{0},
                           [](size_t sum, const Indices& b) { return sum + b.size(); });
  }

  void build_here(const std::vector<Indices>& batches) {
    const std::lock_guard lock(shared().building);
    std::vector<std::string> sources;
    for (const Indices& batch : batches) sources.push_back(batch_source(texts_, batch));
    // CPU compilers serialise threads. A GPU's compiler gains a little from threads.
    const size_t threads = device_.info().is_cpu ? 1 : kCompilerThreads;
    BuildProgress progress("built", count_of(batches), 0);
    std::vector<Built> built = compile_all(device_.context(), device_.id(), device_.build_options(), sources, threads,
                                           log_enabled(LogLevel::kDebug), [&](size_t b) { progress.add(batches[b].size()); });
    for (size_t b = 0; b < batches.size(); ++b) finish_batch(batches[b], std::move(built[b]));
  }

  void build_with_workers(const Indices& pending, size_t workers) {
    // Kernels of one program pay for the start of the compiler once. Equal shares keep all workers busy to the end.
    const size_t share = (pending.size() + workers - 1) / workers;
    std::exception_ptr error;
    Indices alone;
    finish_workers(make_batches(texts_, pending, std::clamp<size_t>(share, 1, kMaxKernelsPerProgram)), workers, alone, error);
    std::vector<Indices> single;
    for (size_t i : alone) single.push_back({i});
    if (!single.empty()) finish_workers(single, workers, alone, error);
    build_unoptimised(workers, error);
    // The error is thrown last, so that everything else that was built is kept.
    if (error) std::rethrow_exception(error);
  }

  /// Builds the batches in worker processes. If a batch of several kernels fails, they are added to `alone`. If a
  /// single kernel fails, `error` is set to the first such error.
  void finish_workers(const std::vector<Indices>& batches, size_t workers, Indices& alone, std::exception_ptr& error) {
    std::vector<std::string> sources;
    for (const Indices& batch : batches) sources.push_back(batch_source(texts_, batch));
    const bool singles = std::all_of(batches.begin(), batches.end(), [](const Indices& batch) { return batch.size() == 1; });
    BuildProgress progress("built", count_of(batches), std::min(workers, batches.size()));
    std::vector<WorkerResult> results =
        build_in_workers(device_, sources, workers, singles ? 2 : 1, log_enabled(LogLevel::kDebug),
                         [&](size_t b) { progress.add(batches[b].size()); });
    check_not_ending();
    for (size_t b = 0; b < batches.size(); ++b) {
      WorkerResult& result = results[b];
      const bool here = !result.answered && result.death.empty();  // No worker could be started.
      const bool good = result.answered && result.status == CL_SUCCESS;
      if (!here && !good && (batches[b].size() > 1 || (!result.death.empty() && !singles))) {
        alone.insert(alone.end(), batches[b].begin(), batches[b].end());
        continue;
      }
      try {
        if (here)
          finish_batch(batches[b], compile_for(device_, sources[b]));
        else if (!result.answered)
          crashes_.first(batches[b][0], result.death, failed_dir_);
        else
          finish_worker_batch(batches[b], sources[b], result);
      } catch (const Error&) {
        if (!error) error = std::current_exception();
      }
    }
  }

  void finish_worker_batch(const Indices& batch, const std::string& source, const WorkerResult& result) {
    if (result.status != CL_SUCCESS) return fail_build(batch[0], result.status, result.log);
    std::shared_ptr<Program> program = result.binary.empty() ? nullptr : load_program(device_, result.binary);
    // The driver does not load binaries of another process.
    if (!program || !has_all(batch, program->get())) {
      finish_batch(batch, compile_for(device_, source));
      return;
    }
    if (!result.log.empty()) log_message(LogLevel::kDebug, "runtime", texts_[batch[0]].name + ": " + result.log);
    store_entry(batch, result.binary);
    std::lock_guard lock(shared().mutex);
    shared().counters.by_workers += static_cast<int64_t>(batch.size());
    for (size_t i : batch) keep(i, program);
  }

  /// Builds the kernels on which the compiler's process ended a second time, without optimisation.
  void build_unoptimised(size_t workers, std::exception_ptr& error) {
    const std::map<size_t, std::string> again = crashes_.take_first();
    if (again.empty()) return;
    std::vector<std::string> sources;
    for (const auto& [i, how] : again) sources.push_back(without_optimisation(texts_[i].text));
    const std::vector<WorkerResult> results = build_in_workers(device_, sources, workers, 2, log_enabled(LogLevel::kDebug));
    size_t next = 0;
    for (const auto& [i, how] : again) {
      const std::string& source = sources[next];
      const WorkerResult& result = results[next++];
      if (!result.answered) {
        crashes_.second(i, how, result.death);
        continue;
      }
      try {
        if (result.status == CL_SUCCESS) crashes_.warn(i, how);
        finish_worker_batch({i}, source, result);
      } catch (const Error&) {
        if (!error) error = std::current_exception();
      }
    }
  }

  void finish_batch(const Indices& batch, Built built) {
    // Find out which kernel fails, or whether they only fail together.
    if (batch.size() > 1 && !succeeded(batch, built)) {
      for (size_t i : batch) finish_batch({i}, compile_for(device_, texts_[i].text));
      log_message(LogLevel::kInfo, "runtime",
                  "kernels " + texts_[batch[0]].name + " and " + std::to_string(batch.size() - 1) +
                      " more build alone but not together: " + built.log);
      return;
    }
    const KernelText& text = texts_[batch[0]];
    if (built.status != CL_SUCCESS) return fail_build(batch[0], built.status, built.log);
    if (batch.size() == 1 && !has_kernel(built.handle.get(), text.name))
      raise_build_error(device_, text, CL_INVALID_KERNEL_NAME, "the text defines no kernel " + text.name, failed_dir_);
    if (!built.log.empty() && log_enabled(LogLevel::kDebug))
      log_message(LogLevel::kDebug, "runtime", text.name + ": " + built.log);
    auto program = std::make_shared<Program>(device_, std::move(built.handle));
    const std::string binary = store_binary(batch, *program);
    // A program built from source keeps the compiler's data on CPUs: 2.5 MB per kernel with Intel's runtime, against
    // 0.5 MB when loaded from its binary. Loading takes a twentieth of the build time. Binaries of GPUs may have to be
    // compiled again.
    if (device_.info().is_cpu && !binary.empty())
      if (std::shared_ptr<Program> loaded = load_program(device_, binary); loaded && has_all(batch, loaded->get()))
        program = std::move(loaded);
    for (size_t i : batch) keep(i, program);
  }

  bool succeeded(const Indices& batch, const Built& built) const {
    return built.status == CL_SUCCESS && has_all(batch, built.handle.get());
  }

  bool has_all(const Indices& batch, cl_program program) const {
    return std::all_of(batch.begin(), batch.end(), [&](size_t i) { return has_kernel(program, texts_[i].name); });
  }

  bool compiles_at_launch() { return runtime::compiles_at_launch(device_, store_, prefix_); }

  /// Stores the kernels that were in memory.
  void store_found() {
    if (!store_.find || compiles_at_launch()) return;
    std::map<const Program*, Indices> found;
    for (size_t i = 0; i < programs_.size(); ++i)
      if (programs_[i] && store_.find(keys_[i]).empty()) found[programs_[i].get()].push_back(i);
    for (const auto& [program, indices] : found) store_binary(indices, *program);
  }

  /// Stores the binary of a batch and returns it. Returns "" if none is stored.
  std::string store_binary(const Indices& batch, const Program& program) {
    if (!store_.store) return "";
    if (compiles_at_launch()) {
      std::lock_guard lock(shared().mutex);
      shared().counters.unkept += static_cast<int64_t>(batch.size());
      return "";
    }
    const std::string binary = binary_of(program.get());
    if (binary.empty()) return "";
    store_entry(batch, binary);
    return binary;
  }

  void store_entry(const Indices& batch, const std::string& binary) {
    if (!store_.store) return;
    std::string all_keys;
    for (size_t i : batch) all_keys += keys_[i];
    const std::string program_key = prefix_ + hash_hex(all_keys);
    store_.store(program_key, binary);
    for (size_t i : batch) store_.store(keys_[i], kReference + program_key);
  }

  /// A kernel does not build. Throws, unless its work-group is the reason.
  void fail_build(size_t index, cl_int status, const std::string& log) {
    if (!groups_.explains_failure(index)) raise_build_error(device_, texts_[index], status, log, failed_dir_);
  }

  void keep(size_t index, const std::shared_ptr<Program>& program) {
    if (!groups_.refuses(index, program->get())) {
      programs_[index] = program;
      shared().programs.keep(device_.index(), keys_[index], program);
    }
    claims_.release(keys_[index]);  // Who waits for this kernel goes on.
  }

  Device& device_;
  const std::vector<KernelText>& texts_;
  const BinaryStore& store_;
  const std::string& failed_dir_;
  const std::string prefix_;  // Beginning of all keys.
  std::vector<std::shared_ptr<Program>> programs_;
  std::vector<std::string> keys_;
  Claims claims_;
  std::unordered_map<std::string, size_t> first_;  // Key -> index of the first text with that key.
  CompilerCrashes crashes_;
  LargeGroups groups_;
};

}  // namespace

std::string store_prefix(const Device& device) {
  std::string all = kAbi;
  if (device.profile()) all += std::string(" ") + device.profile()->name;
  for (const std::string* part : {&device.name(), &device.platform_name(), &device.driver(), &device.build_options()}) {
    all += '\0';
    all += *part;
  }
  return hash_hex(all).substr(0, kPrefixDigits) + "-";
}

std::string kernel_key(const std::string& prefix, const std::string& name, const std::string& text) {
  return prefix + hash_hex(name + '\0' + text);
}

KernelHandle Program::create_kernel(const std::string& name, ErrorKind blame) const {
  cl_int status = CL_SUCCESS;
  KernelHandle kernel(clCreateKernel(handle_.get(), name.c_str(), &status));
  OCL_CHECK(status, "clCreateKernel of " + name + " on " + device_.describe());
  if (device_.profile()) check_kernel(device_.info(), kernel.get(), name, blame);
  return kernel;
}

BuildCounters build_counters() {
  std::lock_guard lock(shared().mutex);
  return shared().counters;
}

void forget_programs() { shared().programs.forget(); }

std::vector<std::shared_ptr<Program>> build_programs(Device& device, const std::vector<KernelText>& texts,
                                                     const BinaryStore& store, const std::string& failed_dir) {
  const auto limited = device.profile() ? restricted(*device.profile(), texts) : std::vector<KernelText>();
  const std::vector<KernelText>& used = device.profile() ? limited : texts;
  const std::string prefix = store_prefix(device);
  std::vector<std::string> keys;
  for (const KernelText& text : used) keys.push_back(kernel_key(prefix, text.name, text.text));
  return Build(device, used, std::move(keys), store, failed_dir).run();
}

std::vector<std::shared_ptr<Program>> find_programs(Device& device, const std::vector<std::string>& names,
                                                    const std::vector<std::string>& keys, const BinaryStore& store) {
  std::vector<KernelText> texts;
  for (const std::string& name : names) texts.emplace_back().name = name;
  if (keys.size() != names.size()) return {};
  return Build(device, texts, keys, store, "").find();
}

}  // namespace ocl::runtime
