// csrc/runtime/opencl/hidden_instructions.cpp: builds a program again with its hidden instructions.
#include "csrc/runtime/opencl/hidden_instructions.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "csrc/runtime/opencl/binary.h"

namespace ocl::runtime {
namespace {

constexpr char kMark[] = "//@", kDeclaration[] = "//@@", kDirective[] = "//@@@", kEndOfHead[] = ".address_size 64";

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Moves directives to the head of the kernel in which they stand: behind its number of work-items.
void move_directives(std::string& text) {
  const std::string items = ".reqntid";
  for (size_t at = text.find(kDirective); at != std::string::npos; at = text.find(kDirective)) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string directive = text.substr(at + std::strlen(kDirective), end - at - std::strlen(kDirective));
    text.erase(at, end - at);
    const size_t head = text.rfind(items, at);
    if (head != std::string::npos) text.insert(text.find('\n', head), "\n" + directive);
  }
}

/// Moves declarations to the head of the program.
void move_declarations(std::string& text) {
  std::set<std::string> moved;
  for (size_t at = text.find(kDeclaration); at != std::string::npos; at = text.find(kDeclaration, at)) {
    const size_t end = std::min(text.find('\n', at), text.size());
    moved.insert(text.substr(at + std::strlen(kDeclaration), end - at - std::strlen(kDeclaration)));
    text.erase(at, end - at);
  }
  const size_t head = text.find(kEndOfHead);
  if (head == std::string::npos) return;
  for (const std::string& declaration : moved) text.insert(head + std::strlen(kEndOfHead), "\n" + declaration);
}

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
  std::string text = binary_of(program);
  const std::string target = ".target sm_90";
  const size_t at = text.find(target);
  // The binary is not assembler text that this function can edit.
  if (at == std::string::npos || text.find(kMark) == std::string::npos) {
    *status = CL_INVALID_BINARY;
    return {};
  }
  move_directives(text);
  move_declarations(text);
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

}  // namespace ocl::runtime
