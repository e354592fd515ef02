// csrc/runtime/hidden_instructions.cpp: the second build of a program, and the probe that decides whether to rely on it.
#include "csrc/runtime/hidden_instructions.h"

#include <thread>
#include <vector>

namespace ocl::runtime {
namespace {

constexpr char kMark[] = "//@";

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// One row of 8 threes in A, eight rows of ones in B, all of the 128-byte swizzle: every element of the product is 8 * 3.
constexpr char kProbe[] = R"CL(
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void k(__global float* out) {
  __local float b[8 * 32] __attribute__((aligned(1024)));
  const int t = get_local_id(0);
  b[t] = b[t + 128] = 1.0f;
  uint a[4];
  for (int i = 0; i < 4; ++i) a[i] = as_uint(3.0f);
  float d[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  asm volatile("fence.proxy.async;" ::: "memory");
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong at = ((ulong)1 << 16) | ((ulong)64 << 32) | ((ulong)1 << 62) | (((uint)(size_t)b & 0x3FFFF) >> 4);
  asm volatile("//@wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(at));
  asm volatile("//@wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("//@wgmma.wait_group.sync.aligned 0;" ::: "memory");
  asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]));
  for (int i = 0; i < 4; ++i) out[4 * t + i] = d[i];
})CL";
constexpr size_t kProbeValues = 512;

}  // namespace

Completion wait_within(cl_event event, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    cl_int state = CL_QUEUED;
    if (clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state, nullptr) != CL_SUCCESS || state < 0)
      return Completion::kFailed;
    if (state == CL_COMPLETE) return Completion::kDone;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return Completion::kPending;
}

bool hides_instructions(const std::string& source) { return source.find("\"" + std::string(kMark)) != std::string::npos; }

ProgramHandle uncover_instructions(cl_context context, cl_device_id device, cl_program program, const char* options,
                                   cl_int* status) {
  size_t bytes = 0;
  *status = clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(bytes), &bytes, nullptr);
  if (*status != CL_SUCCESS) return {};
  std::string text(bytes, '\0');
  auto* data = reinterpret_cast<unsigned char*>(text.data());
  *status = clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(data), &data, nullptr);
  if (*status != CL_SUCCESS) return {};
  const std::string target = ".target sm_90";
  const size_t at = text.find(target);
  if (at == std::string::npos || text.find(kMark) == std::string::npos) {  // not the text this was written for
    *status = CL_INVALID_BINARY;
    return {};
  }
  replace_all(text, kMark, "   ");
  if (text.compare(at + target.size(), 1, "a") != 0) text.insert(at + target.size(), "a");
  const auto* edited = reinterpret_cast<const unsigned char*>(text.data());
  const size_t length = text.size();
  cl_int loaded = CL_SUCCESS;
  ProgramHandle result(clCreateProgramWithBinary(context, 1, &device, &length, &edited, &loaded, status));
  if (*status == CL_SUCCESS) *status = loaded;
  if (*status == CL_SUCCESS) *status = clBuildProgram(result.get(), 1, &device, options, nullptr, nullptr);
  return result;
}

bool probe_wgmma(cl_context context, cl_device_id device, const char* options) {
  cl_int status = CL_SUCCESS;
  const char* text = kProbe;
  ProgramHandle covered(clCreateProgramWithSource(context, 1, &text, nullptr, &status));
  if (status != CL_SUCCESS || clBuildProgram(covered.get(), 1, &device, options, nullptr, nullptr) != CL_SUCCESS) return false;
  ProgramHandle program = uncover_instructions(context, device, covered.get(), options, &status);
  if (status != CL_SUCCESS) return false;
  KernelHandle kernel(clCreateKernel(program.get(), "k", &status));
  if (status != CL_SUCCESS) return false;
  MemHandle out(clCreateBuffer(context, CL_MEM_READ_WRITE, kProbeValues * sizeof(float), nullptr, &status));
  if (status != CL_SUCCESS) return false;
  QueueHandle queue(clCreateCommandQueue(context, device, 0, &status));
  if (status != CL_SUCCESS) return false;
  cl_mem memory = out.get();
  const size_t items = 128;
  if (clSetKernelArg(kernel.get(), 0, sizeof(memory), &memory) != CL_SUCCESS ||
      clEnqueueNDRangeKernel(queue.get(), kernel.get(), 1, nullptr, &items, &items, 0, nullptr, nullptr) != CL_SUCCESS)
    return false;
  std::vector<float> values(kProbeValues);
  cl_event raw = nullptr;
  if (clEnqueueReadBuffer(queue.get(), memory, CL_FALSE, 0, kProbeValues * sizeof(float), values.data(), 0, nullptr, &raw) !=
          CL_SUCCESS ||
      clFlush(queue.get()) != CL_SUCCESS)
    return false;
  const EventHandle event(raw);
  if (wait_within(raw, std::chrono::seconds(2)) != Completion::kDone) return false;
  for (const float value : values)
    if (value != 24.0f) return false;
  return true;
}

}  // namespace ocl::runtime
