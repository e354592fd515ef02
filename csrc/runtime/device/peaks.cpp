// csrc/runtime/device/peaks.cpp: see peaks.h.
#include "csrc/runtime/device/peaks.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/opencl/compile.h"
#include "csrc/runtime/opencl/create_queue.h"

namespace ocl::runtime {
namespace {

constexpr int kRuns = 5;
constexpr int kChains = 12;  // Independent sums that a work-item computes. They hide the latency of a multiply-add.
constexpr double kLongRunSeconds = 4e-3;   // A run of this many seconds is long enough that overheads do not matter.
constexpr size_t kMostCopied = 128 << 20;  // In bytes. Several times the caches of today's CPUs and GPUs.

constexpr const char* kSource = R"(
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define F JOIN(float, WIDTH)
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void multiply_add(__global float* y, const float scale, const int steps) {
  F sum[CHAINS];
  const F x = (F)(scale), add = (F)((float)get_global_id(0));
  __attribute__((opencl_unroll_hint)) for (int i = 0; i < CHAINS; ++i) sum[i] = (F)((float)i);
  for (int k = 0; k < steps; ++k)
    __attribute__((opencl_unroll_hint)) for (int i = 0; i < CHAINS; ++i) sum[i] = fma(sum[i], x, add);
  __attribute__((opencl_unroll_hint)) for (int i = 1; i < CHAINS; ++i) sum[0] += sum[i];
  JOIN(vstore, WIDTH)(sum[0], get_global_id(0), y);
}
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void copy(__global const float* x, __global float* y, const int steps) {
  const size_t group = get_group_id(0), item = get_local_id(0);
  for (int k = 0; k < steps; ++k) {
    const size_t at = (group * steps + k) * LOCAL + item;
    JOIN(vstore, WIDTH)(JOIN(vload, WIDTH)(at, x), at, y);
  }
}
)";

struct Bench {
  Device& device;
  int width, local;
  QueueHandle queue;
  ProgramHandle program;
  bool has_times = true;

  explicit Bench(Device& on)
      : device(on), width(on.caps().is_cpu ? on.caps().vector_floats : 4), local(on.caps().is_cpu ? 1 : 256) {
    CreatedQueue made = create_queue(device.context(), device.id());
    OCL_CHECK(made.status, "clCreateCommandQueue on " + device.describe());
    queue = std::move(made.handle);
    has_times = made.times;
    const std::string options = device.build_options() + " -DWIDTH=" + std::to_string(width) +
                                " -DLOCAL=" + std::to_string(local) + " -DCHAINS=" + std::to_string(kChains);
    Built built = compile(device.context(), device.id(), options, kSource, true);
    if (built.status != CL_SUCCESS)
      fail(ErrorKind::kBuild, "the kernels that measure the peaks of " + device.describe() + " do not build:\n" + built.log);
    program = std::move(built.handle);
  }

  MemHandle buffer(size_t bytes) const {
    cl_int status = CL_SUCCESS;
    MemHandle memory(clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &status));
    OCL_CHECK(status, "clCreateBuffer of " + std::to_string(bytes) + " bytes on " + device.describe());
    return memory;
  }
  KernelHandle kernel(const char* name) const {
    cl_int status = CL_SUCCESS;
    KernelHandle kernel(clCreateKernel(program.get(), name, &status));
    OCL_CHECK(status, name);
    return kernel;
  }
  /// Returns the seconds of the fastest of `runs` runs.
  double best(cl_kernel kernel, size_t groups, int runs) const {
    const size_t items = static_cast<size_t>(local), global = groups * items;
    double least = 1e9;
    for (int i = 0; i < runs; ++i) {
      cl_event raw = nullptr;
      const auto begin = std::chrono::steady_clock::now();
      OCL_CHECK(clEnqueueNDRangeKernel(queue.get(), kernel, 1, nullptr, &global, &items, 0, nullptr, &raw), device.describe());
      const EventHandle event(raw);
      OCL_CHECK(clWaitForEvents(1, &raw), device.describe());
      if (!has_times) {  // The time of the launch counts, too.
        least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        continue;
      }
      cl_ulong start = 0, end = 0;
      OCL_CHECK(clGetEventProfilingInfo(raw, CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr), device.describe());
      OCL_CHECK(clGetEventProfilingInfo(raw, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr), device.describe());
      if (end > start) least = std::min(least, static_cast<double>(end - start) * 1e-9);
    }
    return least;
  }
};

double measure_arithmetic(const Bench& bench) {
  const size_t groups = static_cast<size_t>(bench.device.caps().units) * 32;
  const size_t items = groups * static_cast<size_t>(bench.local), width = static_cast<size_t>(bench.width);
  const MemHandle memory = bench.buffer(items * width * sizeof(float));
  const KernelHandle kernel = bench.kernel("multiply_add");
  const cl_mem mem = memory.get();
  const float scale = 0.5f;
  OCL_CHECK(clSetKernelArg(kernel.get(), 0, sizeof mem, &mem), "multiply_add");
  OCL_CHECK(clSetKernelArg(kernel.get(), 1, sizeof scale, &scale), "multiply_add");
  double seconds = 0;
  cl_int steps = 512;
  for (;; steps *= 2) {
    OCL_CHECK(clSetKernelArg(kernel.get(), 2, sizeof steps, &steps), "multiply_add");
    seconds = bench.best(kernel.get(), groups, 1);
    if (seconds >= kLongRunSeconds || steps >= 1 << 24) break;
  }
  seconds = std::min(seconds, bench.best(kernel.get(), groups, kRuns));
  return 2.0 * kChains * static_cast<double>(width * items) * steps / seconds;
}

double measure_copy(const Bench& bench) {
  const Caps& caps = bench.device.caps();
  const size_t row = static_cast<size_t>(bench.width * bench.local) * sizeof(float);
  const cl_int steps = caps.is_cpu ? 1024 : 1;
  const size_t most = std::min<size_t>(kMostCopied, static_cast<size_t>(std::min(caps.max_alloc_bytes, caps.global_bytes / 8)));
  const size_t groups = most / (row * static_cast<size_t>(steps)), bytes = groups * row * static_cast<size_t>(steps);
  const MemHandle from = bench.buffer(bytes), to = bench.buffer(bytes);
  const cl_mem source = from.get(), target = to.get();
  const cl_uint zero = 0;  // Filling `from` makes each of its pages exist.
  OCL_CHECK(clEnqueueFillBuffer(bench.queue.get(), source, &zero, sizeof zero, 0, bytes, 0, nullptr, nullptr), "copy");
  const KernelHandle kernel = bench.kernel("copy");
  OCL_CHECK(clSetKernelArg(kernel.get(), 0, sizeof source, &source), "copy");
  OCL_CHECK(clSetKernelArg(kernel.get(), 1, sizeof target, &target), "copy");
  OCL_CHECK(clSetKernelArg(kernel.get(), 2, sizeof steps, &steps), "copy");
  return 2.0 * static_cast<double>(bytes) / bench.best(kernel.get(), groups, kRuns);
}

}  // namespace

Peaks measure_peaks(Device& device) {
  const Bench bench(device);
  return {measure_copy(bench), measure_arithmetic(bench)};
}

}  // namespace ocl::runtime
