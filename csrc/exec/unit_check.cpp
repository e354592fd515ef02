// csrc/exec/unit_check.cpp: builds and runs the unit products in a context of their own, where a fault harms nothing else.
#include "csrc/exec/unit_check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "csrc/codegen/kernel_files.h"
#include "csrc/runtime/hidden_instructions.h"
#include "csrc/schedule/templates/wgmma_tiles.h"
#include "csrc/support/hash.h"
#include "csrc/support/log.h"

namespace ocl::exec {
namespace {

using runtime::ContextHandle;
using runtime::KernelHandle;
using runtime::MemHandle;
using runtime::ProgramHandle;
using runtime::QueueHandle;

constexpr char kGood[] = "right", kBad[] = "wrong";
constexpr size_t kGuard = 64;  // results in front and behind that nobody may write
constexpr std::chrono::seconds kLongest{5};

/// What the check of one type holds. Leaked when the device does not answer: releasing would wait for it.
struct Bench {
  cl_device_id device = nullptr;
  ContextHandle context;
  QueueHandle queue;
  std::vector<ProgramHandle> programs;
  std::vector<KernelHandle> kernels;
  std::vector<MemHandle> memory;
  bool stuck = false;
};

ProgramHandle build(Bench& bench, const std::string& source, const std::string& options) {
  const char* text = source.c_str();
  cl_int status = CL_SUCCESS;
  ProgramHandle covered(clCreateProgramWithSource(bench.context.get(), 1, &text, nullptr, &status));
  if (status != CL_SUCCESS || clBuildProgram(covered.get(), 1, &bench.device, options.c_str(), nullptr, nullptr) != CL_SUCCESS)
    return {};
  if (!runtime::hides_instructions(source)) return covered;
  return runtime::uncover_instructions(bench.context.get(), bench.device, covered.get(), options.c_str(), &status);
}

cl_mem buffer(Bench& bench, const void* bytes, size_t count) {
  cl_int status = CL_SUCCESS;
  bench.memory.emplace_back(
      clCreateBuffer(bench.context.get(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, count, const_cast<void*>(bytes), &status));
  return bench.memory.back().get();
}

using Programs = std::map<std::string, size_t>;  // text -> position in Bench::programs

void collect_texts(const UnitProduct& product, Programs& programs) {
  for (const UnitProduct& pack : product.packs) collect_texts(pack, programs);
  programs.emplace(product.text(), programs.size());
}

/// Enqueues a product behind its packs; its results, `count` floats between guards. nullptr if it cannot run.
cl_mem enqueue(Bench& bench, const Programs& programs, const UnitProduct& product, const std::vector<float>& before) {
  const cl_program program = bench.programs[programs.at(product.text())].get();
  if (program == nullptr) return nullptr;
  cl_int status = CL_SUCCESS;
  bench.kernels.emplace_back(clCreateKernel(program, "unit_check", &status));
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
      pair(buffer(bench, product.inputs[i].data(), product.inputs[i].size()), static_cast<cl_ulong>(product.offset));
  };
  inputs(0, product.packs_at);
  for (const UnitProduct& pack : product.packs) {
    const std::vector<float> nothing(pack.packed_floats + 2 * kGuard, NAN);
    const cl_mem packed = enqueue(bench, programs, pack, nothing);
    if (packed == nullptr) return nullptr;
    pair(packed, kGuard);
  }
  inputs(product.packs_at, product.inputs.size());
  for (const auto& value : product.arguments) std::visit(argument, value);
  cl_mem out = buffer(bench, before.data(), before.size() * sizeof(float));
  pair(out, kGuard);
  const std::array<size_t, 3> local = {product.local, 1, 1};
  const std::array<size_t, 3> global = {product.groups[0] * product.local, product.groups[1], product.groups[2]};
  set = set && clEnqueueNDRangeKernel(bench.queue.get(), kernel, 3, nullptr, global.data(), local.data(), 0, nullptr,
                                      nullptr) == CL_SUCCESS;
  return set ? out : nullptr;
}

/// The kernel's results, empty if it cannot run or does not end in time.
std::vector<float> results_of(Bench& bench, const Programs& programs, const UnitProduct& product) {
  std::vector<float> results(product.exact.size() + 2 * kGuard, NAN);
  const cl_mem out = enqueue(bench, programs, product, results);
  cl_event raw = nullptr;
  if (out == nullptr || clEnqueueReadBuffer(bench.queue.get(), out, CL_FALSE, 0, results.size() * sizeof(float), results.data(),
                                            0, nullptr, &raw) != CL_SUCCESS)
    return {};
  const runtime::EventHandle event(raw);
  clFlush(bench.queue.get());
  const runtime::Completion done = runtime::wait_within(raw, kLongest);
  if (done == runtime::Completion::kPending) {
    bench.stuck = true;
    static auto* kept = new std::vector<std::vector<float>>;  // the driver may still write there
    kept->push_back(std::move(results));
    return {};
  }
  if (done == runtime::Completion::kFailed) return {};
  const auto untouched = [](float x) { return std::isnan(x); };
  if (!std::all_of(results.begin(), results.begin() + kGuard, untouched) ||
      !std::all_of(results.end() - kGuard, results.end(), untouched))
    return {};
  return results;
}

/// "" if all is well, else what went wrong.
std::string fault_of(runtime::Device& device, const UnitType& type) {
  const std::vector<UnitProduct> products = unit_products(type);
  auto bench = std::make_unique<Bench>();
  bench->device = device.id();
  cl_int status = CL_SUCCESS;
  bench->context = ContextHandle(clCreateContext(nullptr, 1, &bench->device, nullptr, nullptr, &status));
  if (status == CL_SUCCESS) bench->queue = QueueHandle(clCreateCommandQueue(bench->context.get(), bench->device, 0, &status));
  if (status != CL_SUCCESS) return std::string("no context: ") + runtime::status_name(status);

  Programs programs;
  for (const UnitProduct& product : products) collect_texts(product, programs);
  bench->programs.resize(programs.size());
  std::vector<const std::string*> texts(programs.size());
  for (const auto& [text, position] : programs) texts[position] = &text;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < texts.size(); i = next++) bench->programs[i] = build(*bench, *texts[i], device.build_options());
  };
  std::vector<std::thread> workers;
  for (size_t i = 1; i < std::min<size_t>({texts.size(), 8, std::max(1u, std::thread::hardware_concurrency())}); ++i)
    workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();

  std::string fault;
  for (const UnitProduct& product : products) {
    const cl_program program = bench->programs[programs[product.text()]].get();
    const std::string name = product.file + " (" + product.defines[0] + ", " + product.defines[1] + ")";
    if (program == nullptr) fault = name + " does not build";
    if (!fault.empty()) break;
    const std::vector<float> results = results_of(*bench, programs, product);
    if (results.empty())
      fault = name + (bench->stuck ? " does not end" : " does not run");
    else if (!is_right(product, results, kGuard, type.error))
      fault = name + " gives wrong results";
  }
  if (bench->stuck) static_cast<void>(bench.release());
  return fault;
}

/// The verdict from this process, from the store, or from a check now.
bool is_trusted(runtime::Device& device, const runtime::BinaryStore& store, const UnitType& type) {
  static std::mutex mutex;
  static auto* verdicts = new std::map<std::pair<int, std::string>, bool>;
  const std::lock_guard lock(mutex);
  const std::pair<int, std::string> known{device.index(), type.name};
  if (const auto found = verdicts->find(known); found != verdicts->end()) return found->second;

  std::string key = "unit check 2";
  for (const std::string* part : {&device.name(), &device.platform_name(), &device.driver(), &device.build_options()})
    key += '\0' + *part;
  key += '\0' + std::string(type.name);
  for (const char* file : {"common",
                           "unit",
                           "wgmma",
                           "wgmma_store",
                           "attention",
                           "attention_scores",
                           "wgmma_attention",
                           "mma",
                           "mma_store",
                           "gemm_mma",
                           "conv_taps",
                           "conv_statistics",
                           "conv_mma",
                           "conv_weight_mma",
                           "gemm_wgmma",
                           "pack_wgmma",
                           "gemm_packed_wgmma",
                           "conv_wgmma",
                           "conv_weight_wgmma",
                           "attention_wgmma",
                           "attention_gradient_wgmma",
                           "mma_attention",
                           "attention_gradient_mma",
                           "attention_mma"})
    key += '\0' + std::string(codegen::kernel_file(file));
  key = "unit check " + hash_hex(key);
  const std::string stored = store.find ? store.find(key) : "";
  std::string fault = stored == kGood ? "" : stored == kBad ? "found earlier" : fault_of(device, type);
  if (store.store && stored.empty()) store.store(key, fault.empty() ? kGood : kBad);
  if (!fault.empty())
    log_message(LogLevel::kWarning, "exec",
                std::string("matrix units of ") + device.describe() + " are not used for " + type.name +
                    ", the portable kernels are: " + fault);
  (*verdicts)[known] = fault.empty();
  return fault.empty();
}

/// Whether a product or a convolution may be large enough to pack its operands.
bool is_large(const ir::Node& node) {
  int64_t count = 1;
  const bool convolution = node.kind == ir::NodeKind::kConvolve;
  for (const ir::Shape* sizes : {&node.sizes, convolution ? &node.operands[1].sizes : &node.reduce_sizes})
    for (const ir::IndexExpr& size : *sizes) {
      if (!size.is_const()) return true;
      count = std::min(count * std::min(size.constant(), schedule::kLeastPacked), schedule::kLeastPacked);
    }
  return count >= schedule::kLeastPacked;
}

/// float32 that may be rounded, and that may not.
struct Floats {
  bool Caps::*rounded, Caps::*exact;
};
Floats floats_of(UnitKernels kernels) {
  switch (kernels) {
    case UnitKernels::kAttention:
      return {&Caps::wgmma_attention_tf32, &Caps::wgmma_attention};
    case UnitKernels::kAttentionGradient:
      return {&Caps::wgmma_attention_gradient_tf32, &Caps::wgmma_attention_gradient};
    case UnitKernels::kWarpAttention:
      return {&Caps::mma_attention_tf32, &Caps::mma_attention};
    case UnitKernels::kWarpAttentionGradient:
      return {&Caps::mma_attention_gradient_tf32, &Caps::mma_attention_gradient};
    case UnitKernels::kWarps:
    case UnitKernels::kWarpStatistics:
      return {&Caps::mma_tf32, &Caps::mma};
    default:
      return {&Caps::wgmma_tf32, &Caps::wgmma};
  }
}

/// float32 that may be rounded is multiplied exactly where TF32 is wrong.
bool needs(const ir::Graph& graph, const UnitType& type, const Caps& caps) {
  const bool gradient = type.kernels == UnitKernels::kAttentionGradient || type.kernels == UnitKernels::kWarpAttentionGradient;
  const bool attention = gradient || type.kernels == UnitKernels::kAttention || type.kernels == UnitKernels::kWarpAttention;
  const bool packed = type.kernels == UnitKernels::kPacked,
             statistics = type.kernels == UnitKernels::kStatistics || type.kernels == UnitKernels::kWarpStatistics;
  const Floats floats = floats_of(type.kernels);
  const auto takes_statistics = [](const ir::Node& node) {
    return node.kind == ir::NodeKind::kReduce && node.reduction == ir::ReductionCode::k_welford;
  };
  if (statistics && std::none_of(graph.nodes.begin(), graph.nodes.end(), takes_statistics)) return false;
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const ir::Node& node) {
    if (attention && (node.attention.kind != ir::AttentionKind::kForward) != gradient) return false;
    if (attention ? node.kind != ir::NodeKind::kAttention
                  : node.kind != ir::NodeKind::kContract && node.kind != ir::NodeKind::kConvolve)
      return false;
    if (statistics && (node.kind != ir::NodeKind::kConvolve || node.convolve.kind != ir::ConvolveKind::kForward)) return false;
    if (graph.buffers[node.operands[0].buffer].dtype != type.storage) return false;
    if (packed) {
      const bool weight = node.kind == ir::NodeKind::kConvolve && node.convolve.kind == ir::ConvolveKind::kWeight;
      if (weight || !is_large(node)) return false;
      const bool rounds = node.reduced_precision && caps.wgmma_tf32;
      return type.storage != ir::DType::kF32 || rounds == (type.allowed == &Caps::wgmma_packed_tf32);
    }
    return type.allowed == floats.rounded ? node.reduced_precision
                                          : type.allowed != floats.exact || !node.reduced_precision || !(caps.*floats.rounded);
  });
}

}  // namespace

Caps checked_units(runtime::Device& device, const runtime::BinaryStore& store, const ir::Graph& graph, Caps caps) {
  for (const UnitType& type : unit_types()) {
    if (type.better != nullptr && caps.*type.better) caps.*type.allowed = false;
    if (!(caps.*type.allowed) || !needs(graph, type, caps)) continue;
    if ((type.base != nullptr && !(caps.*type.base)) || !is_trusted(device, store, type)) caps.*type.allowed = false;
  }
  return caps;
}

}  // namespace ocl::exec
