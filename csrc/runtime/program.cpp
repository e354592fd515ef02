// csrc/runtime/program.cpp: memory cache -> binary store -> compiler.
#include "csrc/runtime/program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "csrc/runtime/device.h"
#include "csrc/runtime/hidden_instructions.h"
#include "csrc/support/hash.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

constexpr char kAbi[] = "kernels 1";          // changes with the meaning of a stored entry
constexpr size_t kMaxKernelsPerProgram = 16;  // 8 to 32 cost the same per kernel; fewer spread better over threads
constexpr char kReference[] = "@";            // a kernel's entry: this, then the key of the program that holds it
constexpr double kBinarySeconds = 0.015;      // of CPU a kernel; longer, and the answer was compiled: others take microseconds

using Clock = std::chrono::steady_clock;
using Indices = std::vector<size_t>;  // into the texts of one call

constexpr size_t kRecent = 64;   // programs that stay though no plan uses them
constexpr size_t kSweepAt = 64;  // rows of `programs` from which on those of programs that are gone are dropped

struct Shared {
  std::mutex mutex;  // guards `programs`, `recent` and `counters`
  /// By key. A process that compiles on and on would keep every kernel's code (some MB each on CPU runtimes), so a program
  /// lives as long as a plan uses it or it is recent. The kernel cache has the binaries of the others.
  std::unordered_map<std::string, std::weak_ptr<Program>> programs;
  std::deque<std::shared_ptr<Program>> recent;  // the latest last, each once
  size_t sweep_at = kSweepAt;
  BuildCounters counters;
  std::set<int> compile_at_launch;  // indices of devices; guarded by `building`
  std::mutex building;              // one call builds at a time, so that equal texts of two threads are built once
};

Shared& shared() {
  static auto* shared = new Shared;  // leaked: programs do not survive the driver at exit
  return *shared;
}

std::string key_of(const Device& device, const std::string& name, const std::string& text) {
  std::string all = kAbi;
  for (const std::string* part :
       {&device.name(), &device.platform_name(), &device.driver(), &device.build_options(), &name, &text}) {
    all += '\0';
    all += *part;
  }
  return hash_hex(all);
}

std::string build_log(cl_program program, cl_device_id device) {
  size_t bytes = 0;
  if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return "";
  std::string log(bytes, '\0');
  if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr) != CL_SUCCESS) return "";
  log.resize(std::min(log.find('\0'), log.size()));
  return log;
}

/// The lines that say what is wrong, indented for the message; the rest is in the saved log.
std::string log_excerpt(const std::string& log) {
  constexpr size_t kLines = 8;
  std::vector<std::string> lines, errors;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back(line);
    if (line.find("error") != std::string::npos || line.find("Error") != std::string::npos) errors.push_back(line);
  }
  const std::vector<std::string>& chosen = errors.empty() ? lines : errors;
  std::string text;
  for (size_t i = 0; i < std::min(chosen.size(), kLines); ++i) text += (i ? "\n         " : "") + chosen[i].substr(0, 300);
  if (chosen.size() > kLines) text += "\n         ... and " + std::to_string(chosen.size() - kLines) + " more";
  return text.empty() ? "(the driver's log is empty)" : text;
}

/// Kernel names are ours, but a folder name must not depend on that.
std::string file_name(const std::string& kernel) {
  std::string name = kernel;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') c = '_';
  return name.empty() ? "unnamed" : name;
}

/// Where source and log were saved; "" when they could not be, or the folder is not this user's alone.
std::string save_failure(const std::string& failed_dir, const KernelText& text, const std::string& log) {
  if (failed_dir.empty()) return "";
  const std::string folder = failed_dir + "/" + file_name(text.name);
  if (!os::private_folder(folder).problem.empty()) return "";
  const bool saved =
      os::write_private_file(folder + "/source.cl", text.text) && os::write_private_file(folder + "/log.txt", log);
  return saved ? folder + "/" : "";
}

[[noreturn]] void raise_build_error(const Device& device, const KernelText& text, cl_int status, const std::string& log,
                                    const std::string& failed_dir) {
  const std::string saved = save_failure(failed_dir, text, log);
  std::string message = "kernel " + text.name + " does not build on " + device.describe() + " (" + status_name(status) + ", " +
                        std::to_string(status) + ")";
  if (!text.where.empty()) message += "\n  where: " + text.where;
  message += "\n  log:   " + log_excerpt(log);
  message += saved.empty() ? "\n  do:    " : "\n  do:    source and full log are in " + saved + "; ";
  message += "`python -m torch_ocl_compile doctor` checks this driver";
  fail(ErrorKind::kBuild, message);
}

/// A program with what went wrong while it was made, if anything.
struct Built {
  ProgramHandle handle;
  cl_int status = CL_SUCCESS;
  std::string log;
};

Built compile(Device& device, const std::string& source) {
  Built built;
  const char* text = source.data();
  const size_t bytes = source.size();
  built.handle = ProgramHandle(clCreateProgramWithSource(device.context(), 1, &text, &bytes, &built.status));
  if (built.status != CL_SUCCESS) return built;
  const cl_device_id id = device.id();
  built.status = clBuildProgram(built.handle.get(), 1, &id, device.build_options().c_str(), nullptr, nullptr);
  if (built.status == CL_SUCCESS && hides_instructions(source)) {
    cl_int status = CL_SUCCESS;
    ProgramHandle whole =
        uncover_instructions(device.context(), id, built.handle.get(), device.build_options().c_str(), &status);
    built.status = status;
    if (whole) built.handle = std::move(whole);
  }
  if (built.status != CL_SUCCESS || log_enabled(LogLevel::kDebug)) built.log = build_log(built.handle.get(), id);
  return built;
}

bool has_kernel(cl_program program, const std::string& name) {
  cl_int status = CL_SUCCESS;
  KernelHandle kernel(clCreateKernel(program, name.c_str(), &status));
  return status == CL_SUCCESS;
}

std::shared_ptr<Program> load_binary(Device& device, const std::string& binary) {
  const auto* data = reinterpret_cast<const unsigned char*>(binary.data());
  const size_t bytes = binary.size();
  const cl_device_id id = device.id();
  cl_int status = CL_SUCCESS, loaded = CL_SUCCESS;
  ProgramHandle handle(clCreateProgramWithBinary(device.context(), 1, &id, &bytes, &data, &loaded, &status));
  if (status != CL_SUCCESS || loaded != CL_SUCCESS) return nullptr;
  if (clBuildProgram(handle.get(), 1, &id, device.build_options().c_str(), nullptr, nullptr) != CL_SUCCESS) return nullptr;
  return std::make_shared<Program>(device, std::move(handle));
}

std::string binary_of(const Program& program) {
  size_t bytes = 0;
  if (clGetProgramInfo(program.get(), CL_PROGRAM_BINARY_SIZES, sizeof(bytes), &bytes, nullptr) != CL_SUCCESS || bytes == 0)
    return "";
  std::string binary(bytes, '\0');
  auto* data = reinterpret_cast<unsigned char*>(binary.data());
  if (clGetProgramInfo(program.get(), CL_PROGRAM_BINARIES, sizeof(data), &data, nullptr) != CL_SUCCESS) return "";
  return binary;
}

size_t marker_at(const std::string& text) {
  for (size_t at = text.find(kKernelMarker); at != std::string::npos; at = text.find(kKernelMarker, at + 1))
    if (at == 0 || text[at - 1] == '\n') return at;
  return std::string::npos;
}

/// Groups texts into programs: equal preludes and distinct kernel names share one.
std::vector<Indices> make_batches(const std::vector<KernelText>& texts, const Indices& pending) {
  std::vector<Indices> batches;
  std::map<std::string_view, std::vector<size_t>> open;  // prelude -> its batches that may have room
  for (size_t i : pending) {
    const std::string& text = texts[i].text;
    const size_t marker = marker_at(text);
    if (marker == std::string::npos || text.find("#define", marker) != std::string::npos) {
      batches.push_back({i});
      continue;
    }
    std::vector<size_t>& candidates = open[std::string_view(text).substr(0, marker)];
    const auto fits = [&](size_t batch) {
      return batches[batch].size() < kMaxKernelsPerProgram &&
             std::none_of(
                 batches[batch].begin(), batches[batch].end(),
                 [&](size_t other) { return texts[other].name == texts[i].name; });
    };
    const auto found = std::find_if(candidates.begin(), candidates.end(), fits);
    if (found != candidates.end()) {
      batches[*found].push_back(i);
    } else {
      candidates.push_back(batches.size());
      batches.push_back({i});
    }
  }
  return batches;
}

std::string batch_source(const std::vector<KernelText>& texts, const Indices& batch) {
  std::string source = texts[batch[0]].text;
  for (size_t i = 1; i < batch.size(); ++i) {
    const std::string& text = texts[batch[i]].text;
    source += "\n";
    source.append(text, marker_at(text) + sizeof(kKernelMarker) - 1);
  }
  return source;
}

/// One call of build_programs.
class Build {
 public:
  Build(Device& device, const std::vector<KernelText>& texts, const BinaryStore& store, const std::string& failed_dir)
      : device_(device), texts_(texts), store_(store), failed_dir_(failed_dir), programs_(texts.size()), keys_(texts.size()) {
    for (size_t i = 0; i < texts.size(); ++i) keys_[i] = key_of(device, texts[i].name, texts[i].text);
  }

  std::vector<std::shared_ptr<Program>> run() {
    if (!find_in_memory()) {
      std::lock_guard lock(shared().building);
      if (!find_in_memory()) {
        load_stored();
        build_missing();
      }
    }
    for (size_t i = 0; i < programs_.size(); ++i)
      if (!programs_[i]) programs_[i] = programs_[first_[keys_[i]]];
    return std::move(programs_);
  }

 private:
  bool find_in_memory() {
    Shared& all = shared();
    std::lock_guard lock(all.mutex);
    bool complete = true;
    for (size_t i = 0; i < keys_.size(); ++i) {
      const auto row = all.programs.find(memory_key(keys_[i]));
      if (row != all.programs.end()) programs_[i] = row->second.lock();
      if (programs_[i]) make_recent(programs_[i]);
      complete = complete && programs_[i];
    }
    return complete;
  }

  /// Two equal boards have equal keys, and contexts of their own.
  std::string memory_key(const std::string& key) const { return std::to_string(device_.index()) + ":" + key; }

  /// One index per missing key.
  Indices missing() {
    Indices indices;
    for (size_t i = 0; i < keys_.size(); ++i)
      if (!programs_[i] && (first_.try_emplace(keys_[i], i).first->second == i)) indices.push_back(i);
    return indices;
  }

  void load_stored() {
    if (!store_.find) return;
    std::map<std::string, Indices> stored;  // key of a program -> the kernels that are in it
    for (size_t i : missing()) {
      const std::string reference = store_.find(keys_[i]);
      if (reference.compare(0, 1, kReference) == 0) stored[reference.substr(1)].push_back(i);
    }
    for (const auto& [program_key, indices] : stored) {
      const std::string binary = store_.find(program_key);
      if (binary.empty()) continue;
      std::shared_ptr<Program> program = load_binary(device_, binary);
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

  void build_missing() {
    const Indices pending = missing();
    if (pending.empty()) return;
    const auto begin = Clock::now();
    const std::vector<Indices> batches = make_batches(texts_, pending);
    std::vector<Built> built(batches.size());
    // CPU compilers serialise threads. A GPU's gain a little.
    const size_t threads =
        device_.caps().is_cpu ? 1 : std::min<size_t>({batches.size(), 8, std::max(1u, std::thread::hardware_concurrency())});
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t b = next++; b < batches.size(); b = next++) built[b] = compile(device_, batch_source(texts_, batches[b]));
    };
    std::vector<std::thread> workers;
    for (size_t t = 1; t < threads; ++t) workers.emplace_back(work);
    work();
    for (std::thread& worker : workers) worker.join();
    Indices smallest_first(batches.size());  // so that little is lost where the first binary tells not to ask for others
    std::iota(smallest_first.begin(), smallest_first.end(), size_t{0});
    std::stable_sort(smallest_first.begin(), smallest_first.end(),
                     [&](size_t a, size_t b) { return batches[a].size() < batches[b].size(); });
    for (size_t b : smallest_first) finish_batch(batches[b], std::move(built[b]));
    std::lock_guard lock(shared().mutex);
    shared().counters.built += static_cast<int64_t>(pending.size());
    shared().counters.build_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  }

  void finish_batch(const Indices& batch, Built built) {
    if (batch.size() > 1 && !succeeded(batch, built)) {  // which of them is it? Or do they only not go together?
      for (size_t i : batch) finish_batch({i}, compile(device_, texts_[i].text));
      log_message(LogLevel::kInfo, "runtime",
                  "kernels " + texts_[batch[0]].name + " and " + std::to_string(batch.size() - 1) +
                      " more build alone but not together: " + built.log);
      return;
    }
    const KernelText& text = texts_[batch[0]];
    if (built.status != CL_SUCCESS) raise_build_error(device_, text, built.status, built.log, failed_dir_);
    if (batch.size() == 1 && !has_kernel(built.handle.get(), text.name))
      raise_build_error(device_, text, CL_INVALID_KERNEL_NAME, "the text defines no kernel " + text.name, failed_dir_);
    if (!built.log.empty() && log_enabled(LogLevel::kDebug))
      log_message(LogLevel::kDebug, "runtime", text.name + ": " + built.log);
    auto program = std::make_shared<Program>(device_, std::move(built.handle));
    const std::string binary = store_binary(batch, *program);
    // With a program from source, CPU compilers keep what they built it of: 2.5 MB a kernel with Intel's, 0.5 from its binary,
    // which takes a twentieth of the time to load. GPUs' binaries may have to be compiled again.
    if (device_.caps().is_cpu && !binary.empty())
      if (std::shared_ptr<Program> loaded = load_binary(device_, binary); loaded && has_all(batch, loaded->get()))
        program = std::move(loaded);
    std::lock_guard lock(shared().mutex);
    for (size_t i : batch) keep(i, program);
  }

  bool succeeded(const Indices& batch, const Built& built) const {
    return built.status == CL_SUCCESS && has_all(batch, built.handle.get());
  }

  bool has_all(const Indices& batch, cl_program program) const {
    return std::all_of(batch.begin(), batch.end(), [&](size_t i) { return has_kernel(program, texts_[i].name); });
  }

  /// Some runtimes compile a kernel when it is first launched. Asked for a binary before that, they compile every kernel once
  /// more, in a general form that the launch does not use: twice the time, for a binary that spares none. They have caches of
  /// their own, by source, so no binaries of theirs are kept. What was seen once is stored.
  bool compiles_at_launch() {
    std::set<int>& known = shared().compile_at_launch;
    if (known.count(device_.index()) == 0 && store_.find && !store_.find(at_launch_key()).empty())
      known.insert(device_.index());
    return known.count(device_.index()) > 0;
  }

  std::string at_launch_key() const { return key_of(device_, "compiles at launch", ""); }

  /// Returns the binary, "" if none is kept.
  std::string store_binary(const Indices& batch, const Program& program) {
    if (!store_.store) return "";
    const auto leave_to_runtime = [&] {
      std::lock_guard lock(shared().mutex);
      shared().counters.unkept += static_cast<int64_t>(batch.size());
      return std::string();
    };
    if (compiles_at_launch()) return leave_to_runtime();
    const std::clock_t begin = std::clock();  // CPU time: a busy machine does not count
    const std::string binary = binary_of(program);
    if (static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC > kBinarySeconds * static_cast<double>(batch.size())) {
      shared().compile_at_launch.insert(device_.index());
      store_.store(at_launch_key(), "1");
      log_message(LogLevel::kInfo, "runtime",
                  device_.describe() + " compiles kernels when they are launched; its own cache keeps them");
      return leave_to_runtime();
    }
    if (binary.empty()) return "";
    std::string all_keys;
    for (size_t i : batch) all_keys += keys_[i];
    const std::string program_key = hash_hex(all_keys);
    store_.store(program_key, binary);
    for (size_t i : batch) store_.store(keys_[i], kReference + program_key);
    return binary;
  }

  void keep(size_t index, const std::shared_ptr<Program>& program) {  // needs shared().mutex
    programs_[index] = program;
    Shared& all = shared();
    all.programs[memory_key(keys_[index])] = program;
    make_recent(program);
    if (all.programs.size() < all.sweep_at) return;
    std::erase_if(all.programs, [](const auto& row) { return row.second.expired(); });
    all.sweep_at = std::max(kSweepAt, 2 * all.programs.size());
  }

  static void make_recent(const std::shared_ptr<Program>& program) {  // needs shared().mutex
    std::deque<std::shared_ptr<Program>>& recent = shared().recent;
    std::erase(recent, program);
    recent.push_back(program);
    if (recent.size() > kRecent) recent.pop_front();
  }

  Device& device_;
  const std::vector<KernelText>& texts_;
  const BinaryStore& store_;
  const std::string& failed_dir_;
  std::vector<std::shared_ptr<Program>> programs_;
  std::vector<std::string> keys_;
  std::unordered_map<std::string, size_t> first_;  // key -> the first text that has it
};

}  // namespace

KernelHandle Program::create_kernel(const std::string& name) const {
  cl_int status = CL_SUCCESS;
  KernelHandle kernel(clCreateKernel(handle_.get(), name.c_str(), &status));
  OCL_CHECK(status, "clCreateKernel of " + name + " on " + device_.describe());
  return kernel;
}

bool keeps_binaries(const Device& device) {
  std::lock_guard lock(shared().building);
  return shared().compile_at_launch.count(device.index()) == 0;
}

BuildCounters build_counters() {
  std::lock_guard lock(shared().mutex);
  return shared().counters;
}

void forget_programs() {
  std::lock_guard lock(shared().mutex);
  shared().programs.clear();
  shared().recent.clear();
}

std::vector<std::shared_ptr<Program>> build_programs(Device& device, const std::vector<KernelText>& texts,
                                                     const BinaryStore& store, const std::string& failed_dir) {
  return Build(device, texts, store, failed_dir).run();
}

}  // namespace ocl::runtime
