// csrc/checks/device_check.cpp: builds and runs check cases in an OpenCL context of their own, where a fault harms
// nothing else.
#include "csrc/checks/device_check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "csrc/checks/check_text.h"
#include "csrc/runtime/build_pool.h"
#include "csrc/runtime/build_progress.h"
#include "csrc/runtime/compile.h"
#include "csrc/runtime/hidden_instructions.h"
#include "csrc/support/hash.h"
#include "csrc/support/log.h"

namespace ocl::checks {
namespace {

using runtime::ContextHandle;
using runtime::KernelHandle;
using runtime::MemHandle;
using runtime::ProgramHandle;
using runtime::QueueHandle;

constexpr char kGood[] = "right", kBad[] = "wrong";
// Number of floats in front of and behind the results that the kernel must not write.
constexpr size_t kGuard = 64;
constexpr std::chrono::seconds kLongest{5};

using Programs = std::map<std::string, size_t>;  // Program text -> the program's position in Bench::programs.

/// The OpenCL objects of one check. They are leaked if the device does not answer, because releasing them would wait
/// for it, and if a kernel failed, because a driver may then crash while it releases them.
struct Bench {
  cl_device_id device = nullptr;
  ContextHandle context;
  QueueHandle queue;
  std::vector<ProgramHandle> programs;
  std::vector<KernelHandle> kernels;
  std::vector<MemHandle> memory;
  // How the last kernel ended. If it is not done, the objects are never released.
  runtime::Completion completion = runtime::Completion::kDone;
};

/// Builds all programs of a check, in worker processes if the device uses any. A compiler that crashes or hangs then
/// ends only a worker, and the kernel counts as one that does not build.
void build_all(Bench& bench, const runtime::Device& device, const Programs& programs) {
  bench.programs.resize(programs.size());
  std::vector<std::string> texts(programs.size());
  for (const auto& [text, position] : programs) texts[position] = text;
  const std::string& options = device.build_options();
  std::vector<size_t> left;  // Programs that are compiled in this process.
  const size_t workers = runtime::workers_for(device, texts.size());
  runtime::BuildProgress progress("built for a check", texts.size(), std::min(workers, texts.size()));
  const auto done = [&](size_t) { progress.add(1); };
  if (workers > 0) {
    const std::vector<runtime::WorkerResult> results = runtime::build_in_workers(device, texts, workers, 2, false, done);
    for (size_t i = 0; i < texts.size(); ++i) {
      const runtime::WorkerResult& result = results[i];
      if (result.answered && result.status == CL_SUCCESS)
        bench.programs[i] = runtime::load_binary(bench.context.get(), bench.device, options, result.binary);
      const bool refused = result.answered ? result.status != CL_SUCCESS : runtime::is_caused_by_text(result.death);
      if (!bench.programs[i] && !refused) left.push_back(i);
    }
  } else {
    for (size_t i = 0; i < texts.size(); ++i) left.push_back(i);
  }
  std::vector<std::string> sources;
  for (const size_t i : left) sources.push_back(texts[i]);
  std::vector<runtime::Built> built =
      runtime::compile_all(bench.context.get(), bench.device, options, sources, runtime::kCompilerThreads, false, done);
  for (size_t k = 0; k < left.size(); ++k)
    if (built[k].status == CL_SUCCESS) bench.programs[left[k]] = std::move(built[k].handle);
}

cl_mem buffer(Bench& bench, const void* bytes, size_t count) {
  cl_int status = CL_SUCCESS;
  bench.memory.emplace_back(
      clCreateBuffer(bench.context.get(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, count, const_cast<void*>(bytes), &status));
  return bench.memory.back().get();
}

void collect_texts(const CheckCase& check, Programs& programs) {
  for (const CheckCase& pack : check.packs) collect_texts(pack, programs);
  programs.emplace(text_of(check), programs.size());
}

/// Enqueues the packs of a case, then the case itself. Returns the buffer of the case's results, with guards around them;
/// nullptr if a launch fails. `before` has the initial contents of that buffer.
cl_mem enqueue(Bench& bench, const Programs& programs, const CheckCase& check, const std::vector<float>& before) {
  const cl_program program = bench.programs[programs.at(text_of(check))].get();
  if (program == nullptr) return nullptr;
  cl_int status = CL_SUCCESS;
  bench.kernels.emplace_back(clCreateKernel(program, "checked_kernel", &status));
  cl_kernel kernel = bench.kernels.back().get();
  if (status != CL_SUCCESS) return nullptr;
  cl_uint slot = 0;
  bool set = true;
  const auto argument = [&](const auto& value) {
    set = set && clSetKernelArg(kernel, slot++, sizeof(value), &value) == CL_SUCCESS;
  };
  const auto pair = [&](cl_mem memory, cl_ulong offset) {
    argument(memory);
    argument(offset);
  };
  const auto inputs = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      pair(buffer(bench, check.inputs[i].data(), check.inputs[i].size()), static_cast<cl_ulong>(check.offset));
  };
  inputs(0, check.packs_at);
  for (const CheckCase& pack : check.packs) {
    const std::vector<float> nothing(pack.packed_floats + 2 * kGuard, NAN);
    const cl_mem packed = enqueue(bench, programs, pack, nothing);
    if (packed == nullptr) return nullptr;
    pair(packed, kGuard);
  }
  inputs(check.packs_at, check.inputs.size());
  for (const auto& value : check.arguments) std::visit(argument, value);
  cl_mem out = buffer(bench, before.data(), before.size() * sizeof(float));
  pair(out, kGuard);
  const std::array<size_t, 3> local = {check.local, 1, 1};
  const std::array<size_t, 3> global = {check.groups[0] * check.local, check.groups[1], check.groups[2]};
  set = set && clEnqueueNDRangeKernel(bench.queue.get(), kernel, 3, nullptr, global.data(), local.data(), 0, nullptr,
                                      nullptr) == CL_SUCCESS;
  return set ? out : nullptr;
}

/// Returns the results of a case, with guards. Empty if it cannot run, does not end in time, or writes to a guard.
std::vector<float> results_of(Bench& bench, const Programs& programs, const CheckCase& check) {
  std::vector<float> results(check.results.exact.size() + 2 * kGuard, NAN);
  const cl_mem out = enqueue(bench, programs, check, results);
  cl_event raw = nullptr;
  if (out == nullptr || clEnqueueReadBuffer(bench.queue.get(), out, CL_FALSE, 0, results.size() * sizeof(float), results.data(),
                                            0, nullptr, &raw) != CL_SUCCESS)
    return {};
  const runtime::EventHandle event(raw);
  clFlush(bench.queue.get());
  bench.completion = runtime::wait_within(raw, kLongest);
  if (bench.completion != runtime::Completion::kDone) {
    // The driver may still write into this memory, so it is never freed.
    static auto* kept = new std::vector<std::vector<float>>;
    kept->push_back(std::move(results));
    return {};
  }
  const auto untouched = [](float x) { return std::isnan(x); };
  if (!std::all_of(results.begin(), results.begin() + kGuard, untouched) ||
      !std::all_of(results.end() - kGuard, results.end(), untouched))
    return {};
  return results;
}

/// A kernel with one of its types.
struct KernelAndType {
  const KernelRow& row;
  KernelRow::Checked checked;
};

/// Runs all cases. Returns what went wrong, or "".
std::string fault_of(runtime::Device& device, const KernelAndType& subject, std::vector<CheckCase>& cases,
                     const Programs& programs) {
  auto bench = std::make_unique<Bench>();
  bench->device = device.id();
  cl_int status = CL_SUCCESS;
  bench->context = ContextHandle(clCreateContext(nullptr, 1, &bench->device, nullptr, nullptr, &status));
  if (status == CL_SUCCESS) bench->queue = QueueHandle(clCreateCommandQueue(bench->context.get(), bench->device, 0, &status));
  if (status != CL_SUCCESS) return std::string("no context: ") + runtime::status_name(status);

  build_all(*bench, device, programs);
  std::string fault;
  for (CheckCase& check : cases) {
    const std::string name = "it, as " + check.variant + ",";
    if (bench->programs[programs.at(text_of(check))].get() == nullptr) fault = name + " does not build";
    if (!fault.empty()) break;
    check.fill(check);
    const std::vector<float> results = results_of(*bench, programs, check);
    if (results.empty())
      fault = name + (bench->completion == runtime::Completion::kPending ? " does not end" : " does not run");
    else if (!is_right(check, results, kGuard, subject.checked.tolerance))
      fault = name + " gives wrong results";
  }
  if (bench->completion != runtime::Completion::kDone) static_cast<void>(bench.release());
  return fault;
}

/// Returns what the check of the kernel found, or "". It is known in this process, or stored, or comes from a check that runs
/// now. The key of a stored answer is a hash of the device and of the texts of all programs of the check.
std::string verdict_on(runtime::Device& device, const runtime::BinaryStore& store, const KernelAndType& subject) {
  static std::mutex mutex;
  static auto* verdicts = new std::map<std::tuple<int, KernelId, KernelType>, std::string>;
  const std::lock_guard lock(mutex);
  const std::tuple known{device.index(), subject.row.id, subject.checked.type};
  if (const auto found = verdicts->find(known); found != verdicts->end()) return found->second;

  std::vector<CheckCase> cases = schedule::check_cases(subject.row, subject.checked.type, device.caps().matrix);
  Programs programs;
  for (const CheckCase& check : cases) collect_texts(check, programs);
  std::string key = std::to_string(subject.checked.tolerance);
  for (const auto& [text, position] : programs) key += '\0' + text;
  key = runtime::store_prefix(device) + "check-" + hash_hex(key);
  const std::string stored = store.find ? store.find(key) : "";
  std::string fault = stored == kGood  ? ""
                      : stored == kBad ? "an earlier check found it wrong"
                                       : fault_of(device, subject, cases, programs);
  if (store.store && stored.empty()) store.store(key, fault.empty() ? kGood : kBad);
  if (!fault.empty())
    log_message(LogLevel::kWarning, "checks",
                std::string("kernel ") + subject.row.name + " is not used for " + name(subject.checked.type) + " on " +
                    device.describe() + ", other kernels are: " + fault);
  return (*verdicts)[known] = fault;
}

/// True if a product or convolution may be large enough to pack its operands.
bool is_large(const ir::Node& node) {
  int64_t count = 1;
  const bool convolution = node.kind == ir::NodeKind::kConvolve;
  for (const ir::Shape* sizes : {&node.sizes, convolution ? &node.operands[1].sizes : &node.reduce_sizes})
    for (const ir::IndexExpr& size : *sizes) {
      if (!size.is_const()) return true;
      count = std::min(count * std::min(size.constant(), schedule::kMinPackedProducts), schedule::kMinPackedProducts);
    }
  return count >= schedule::kMinPackedProducts;
}

/// True if the graph has a node for this kernel and type. An fp32 node that may use TF32 needs the fp32 kernel only if
/// the TF32 kernel failed.
bool needs(const ir::Graph& graph, const KernelAndType& subject, const Caps& caps) {
  const KernelRow& row = subject.row;
  const auto takes_statistics = [](const ir::Node& node) {
    return node.kind == ir::NodeKind::kReduce && node.reduction == ir::ReductionCode::k_welford;
  };
  if (row.operation == KernelOperation::k_conv_statistics &&
      std::none_of(graph.nodes.begin(), graph.nodes.end(), takes_statistics))
    return false;
  const bool packed = row.operation == KernelOperation::k_gemm_packed || row.operation == KernelOperation::k_conv_packed;
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const ir::Node& node) {
    if (!schedule::computes(row, node) || (packed && !is_large(node)) ||
        graph.buffers[node.operands[0].buffer].dtype != schedule::storage_of(subject.checked.type))
      return false;
    if (subject.checked.type == KernelType::kTf32) return node.reduced_precision;
    const bool rounds = node.reduced_precision && caps.kernels.has(row.base, KernelType::kTf32);
    return subject.checked.type != KernelType::kFp32 || !rounds;
  });
}

/// True if a warpgroup kernel computes the same operation. The warp kernel is then not used, so it needs no check.
bool is_surpassed(const KernelAndType& subject, const Caps& caps) {
  return subject.row.level == KernelLevel::k_warp &&
         std::any_of(kernel_rows().begin(), kernel_rows().end(), [&](const KernelRow& row) {
           return row.level == KernelLevel::k_warpgroup && row.operation == subject.row.operation &&
                  caps.kernels.has(row.id, subject.checked.type);
         });
}

}  // namespace

Caps checked_kernels(runtime::Device& device, const runtime::BinaryStore& store, const ir::Graph& graph, Caps caps) {
  // A kernel is checked before its variants, and warpgroup kernels before warp kernels.
  for (const bool form : {false, true})
    for (const KernelLevel level : {KernelLevel::k_warpgroup, KernelLevel::k_warp, KernelLevel::k_subgroup_matrix})
      for (const KernelRow& row : kernel_rows()) {
        if (row.level != level || (row.base != row.id) != form) continue;
        for (const KernelRow::Checked& checked : row.types) {
          const KernelAndType subject{row, checked};
          if (is_surpassed(subject, caps))
            caps.kernels.remove(row.id, checked.type, "this device has a warpgroup kernel for the same");
          if (!caps.kernels.has(row.id, checked.type) || !needs(graph, subject, caps)) continue;
          if (const std::string fault = verdict_on(device, store, subject); !fault.empty())
            caps.kernels.remove(row.id, checked.type, "its check on this device failed: " + fault);
        }
      }
  return caps;
}

std::vector<CheckedKernel> kernels_to_check(const runtime::Device& device) {
  std::vector<CheckedKernel> found;
  for (const KernelRow& row : kernel_rows())
    for (const KernelRow::Checked& checked : row.types)
      if (checked.tolerance > 0 && row.on_tensor_cores() && row.operation != KernelOperation::k_pack &&
          device.caps().kernels.has(row.id, checked.type))
        found.push_back({row.id, checked.type});
  return found;
}

std::string fault_of_kernel(runtime::Device& device, const runtime::BinaryStore& store, const CheckedKernel& kernel) {
  const KernelRow& row = kernel_row(kernel.id);
  for (const KernelRow::Checked& checked : row.types)
    if (checked.type == kernel.type) return verdict_on(device, store, {row, checked});
  fail(ErrorKind::kInternal, std::string("kernel ") + row.name + " is not checked for " + name(kernel.type));
}

}  // namespace ocl::checks
