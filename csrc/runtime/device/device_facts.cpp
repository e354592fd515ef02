// csrc/runtime/device/device_facts.cpp: the queries, one row each.
#include "csrc/runtime/device/device_facts.h"

#include <cctype>
#include <cstring>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/probes/caps.h"

namespace ocl::runtime {
namespace {

enum class Form { kNumber, kText, kSizes };  // kNumber: of 4 or 8 bytes, as the device answers.

struct Query {
  cl_device_info what;
  const char* name;
  Form form;
};

#define OCL_FACT(name, form) \
  Query { CL_##name, #name, Form::form }
constexpr Query kQueries[] = {
    OCL_FACT(DEVICE_NAME, kText),
    OCL_FACT(DEVICE_VENDOR, kText),
    OCL_FACT(DEVICE_VENDOR_ID, kNumber),
    OCL_FACT(DEVICE_VERSION, kText),
    OCL_FACT(DRIVER_VERSION, kText),
    OCL_FACT(DEVICE_OPENCL_C_VERSION, kText),
    OCL_FACT(DEVICE_IL_VERSION, kText),
    OCL_FACT(DEVICE_PROFILE, kText),
    OCL_FACT(DEVICE_TYPE, kNumber),
    OCL_FACT(DEVICE_AVAILABLE, kNumber),
    OCL_FACT(DEVICE_COMPILER_AVAILABLE, kNumber),
    OCL_FACT(DEVICE_ENDIAN_LITTLE, kNumber),
    OCL_FACT(DEVICE_ADDRESS_BITS, kNumber),
    OCL_FACT(DEVICE_MAX_COMPUTE_UNITS, kNumber),
    OCL_FACT(DEVICE_MAX_CLOCK_FREQUENCY, kNumber),
    OCL_FACT(DEVICE_MAX_WORK_GROUP_SIZE, kNumber),
    OCL_FACT(DEVICE_MAX_WORK_ITEM_SIZES, kSizes),
    OCL_FACT(DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, kNumber),
    OCL_FACT(DEVICE_MAX_NUM_SUB_GROUPS, kNumber),
    OCL_FACT(DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, kNumber),
    OCL_FACT(DEVICE_NATIVE_VECTOR_WIDTH_CHAR, kNumber),
    OCL_FACT(DEVICE_NATIVE_VECTOR_WIDTH_SHORT, kNumber),
    OCL_FACT(DEVICE_NATIVE_VECTOR_WIDTH_INT, kNumber),
    OCL_FACT(DEVICE_NATIVE_VECTOR_WIDTH_LONG, kNumber),
    OCL_FACT(DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, kNumber),
    OCL_FACT(DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, kNumber),
    OCL_FACT(DEVICE_NATIVE_VECTOR_WIDTH_HALF, kNumber),
    OCL_FACT(DEVICE_HALF_FP_CONFIG, kNumber),
    OCL_FACT(DEVICE_SINGLE_FP_CONFIG, kNumber),
    OCL_FACT(DEVICE_DOUBLE_FP_CONFIG, kNumber),
    OCL_FACT(DEVICE_GLOBAL_MEM_SIZE, kNumber),
    OCL_FACT(DEVICE_GLOBAL_MEM_CACHE_TYPE, kNumber),
    OCL_FACT(DEVICE_GLOBAL_MEM_CACHE_SIZE, kNumber),
    OCL_FACT(DEVICE_GLOBAL_MEM_CACHELINE_SIZE, kNumber),
    OCL_FACT(DEVICE_MAX_MEM_ALLOC_SIZE, kNumber),
    OCL_FACT(DEVICE_MAX_CONSTANT_BUFFER_SIZE, kNumber),
    OCL_FACT(DEVICE_MAX_CONSTANT_ARGS, kNumber),
    OCL_FACT(DEVICE_MAX_PARAMETER_SIZE, kNumber),
    OCL_FACT(DEVICE_LOCAL_MEM_TYPE, kNumber),
    OCL_FACT(DEVICE_LOCAL_MEM_SIZE, kNumber),
    OCL_FACT(DEVICE_MEM_BASE_ADDR_ALIGN, kNumber),
    OCL_FACT(DEVICE_MIN_DATA_TYPE_ALIGN_SIZE, kNumber),
    OCL_FACT(DEVICE_HOST_UNIFIED_MEMORY, kNumber),
    OCL_FACT(DEVICE_ERROR_CORRECTION_SUPPORT, kNumber),
    OCL_FACT(DEVICE_SVM_CAPABILITIES, kNumber),
    OCL_FACT(DEVICE_ATOMIC_MEMORY_CAPABILITIES, kNumber),
    OCL_FACT(DEVICE_IMAGE_SUPPORT, kNumber),
    OCL_FACT(DEVICE_EXECUTION_CAPABILITIES, kNumber),
    OCL_FACT(DEVICE_QUEUE_PROPERTIES, kNumber),
    OCL_FACT(DEVICE_PROFILING_TIMER_RESOLUTION, kNumber),
    OCL_FACT(DEVICE_PREFERRED_INTEROP_USER_SYNC, kNumber),
    OCL_FACT(DEVICE_PRINTF_BUFFER_SIZE, kNumber),
    OCL_FACT(DEVICE_BUILT_IN_KERNELS, kText),
    OCL_FACT(DEVICE_EXTENSIONS, kText),
};
constexpr Query kPlatformQueries[] = {
    OCL_FACT(PLATFORM_NAME, kText),    OCL_FACT(PLATFORM_VENDOR, kText),     OCL_FACT(PLATFORM_VERSION, kText),
    OCL_FACT(PLATFORM_PROFILE, kText), OCL_FACT(PLATFORM_EXTENSIONS, kText),
};
#undef OCL_FACT

std::string lower_case(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

/// Returns the bytes of an answer; none if the device does not know the query.
std::vector<unsigned char> answer(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS) return {};
  std::vector<unsigned char> bytes(size);
  if (size > 0 && clGetDeviceInfo(device, what, size, bytes.data(), nullptr) != CL_SUCCESS) return {};
  return bytes;
}

std::string sizes_text(const std::vector<unsigned char>& bytes) {
  std::string text;
  for (size_t at = 0; at + sizeof(size_t) <= bytes.size(); at += sizeof(size_t)) {
    size_t size = 0;
    std::memcpy(&size, &bytes[at], sizeof size);
    text += (at > 0 ? " " : "") + std::to_string(size);
  }
  return text;
}

}  // namespace

std::vector<DeviceFact> device_facts(const Device& device) {
  std::vector<DeviceFact> facts;
  cl_platform_id platform = nullptr;
  const auto of_platform = answer(device.id(), CL_DEVICE_PLATFORM);
  if (of_platform.size() == sizeof platform) std::memcpy(&platform, of_platform.data(), sizeof platform);
  for (const Query& query : kPlatformQueries)
    if (platform != nullptr) facts.emplace_back(lower_case(query.name), platform_text(platform, query.what));
  for (const Query& query : kQueries) {
    const std::vector<unsigned char> bytes = answer(device.id(), query.what);
    if (bytes.empty()) continue;
    if (query.form == Form::kText) {
      facts.emplace_back(lower_case(query.name), device_text(device.id(), query.what));
    } else if (query.form == Form::kSizes) {
      facts.emplace_back(lower_case(query.name), sizes_text(bytes));
    } else if (bytes.size() == 4) {
      cl_uint number = 0;
      std::memcpy(&number, bytes.data(), sizeof number);
      facts.emplace_back(lower_case(query.name), static_cast<int64_t>(number));
    } else if (bytes.size() == 8) {
      cl_ulong number = 0;
      std::memcpy(&number, bytes.data(), sizeof number);
      facts.emplace_back(lower_case(query.name), static_cast<int64_t>(number));
    }
  }
  return facts;
}

}  // namespace ocl::runtime
