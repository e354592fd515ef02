// csrc/checks/check_case.cpp: builds the program text of a check case, makes random operands and compares results.
#include "csrc/checks/check_case.h"

#include <cmath>
#include <cstring>

#include "csrc/codegen/kernel_files.h"
#include "csrc/support/error.h"

namespace ocl::checks {

ir::DType storage_of(KernelType type) {
  return type == KernelType::kBf16 ? ir::DType::kBF16 : type == KernelType::kFp16 ? ir::DType::kF16 : ir::DType::kF32;
}

const char* macro_of(KernelType type) {
  constexpr const char* kMacros[] = {"TERMS 1", "TERMS 3", "IN_BF16 1", "IN_HALF 1"};
  return kMacros[static_cast<size_t>(type)];
}

std::vector<CheckCase> check_cases(const KernelRow& row, KernelType type) {
  switch (row.operation) {
    case KernelOperation::k_attention:
      return attention_cases(row, type);
    case KernelOperation::k_attention_gradient:
      return attention_gradient_cases(row, type);
    case KernelOperation::k_pack:
      fail(ErrorKind::kInternal, std::string(row.name) + " is checked with the kernels that read what it packs");
    default:
      return product_cases(row, type);
  }
}

/// Returns random values in [-1, 1). Without `digits`, they are multiples of 1/256, which fp16 and bf16 hold exactly. With
/// `digits`, they have all digits of a float.
std::vector<float> random_values(size_t count, bool digits, uint32_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = digits ? static_cast<float>(seed >> 8) / 8388608.0f - 1.0f : static_cast<float>(seed >> 23) / 256.0f - 1.0f;
  }
  return values;
}

std::vector<unsigned char> stored(const std::vector<float>& values, ir::DType type) {
  const size_t element = static_cast<size_t>(ir::size_bytes(type));
  std::vector<unsigned char> bytes(values.size() * element);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], 4);
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    // All values are multiples of 1/256, so none is subnormal in fp16.
    if (type == ir::DType::kF16)
      half = values[i] == 0
                 ? 0
                 : static_cast<uint16_t>((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
    if (element == 4)
      std::memcpy(&bytes[i * 4], &bits, 4);
    else
      std::memcpy(&bytes[i * 2], &half, 2);
  }
  return bytes;
}

std::string CheckCase::text() const {
  // Plans store whole tiles with STOREA, which needs alignment. Here the results may be unaligned, so STOREA becomes
  // STOREV. WAIT_TRIES limits how long the kernel waits for a barrier, so that it always ends.
  std::string text =
      "#define KERNEL_NAME checked_kernel\n#define WAIT_TRIES 100000\n#define STORES_ALIGNED 1\n#define STOREA STOREV\n";
  text += "#define VW " + std::to_string(store_width) + "\n";
  for (const std::string& macro : defines) text += "#define " + macro + "\n";
  text += codegen::kernel_file("base/types");
  for (const char* file : kernel_row(kernel).files) text += std::string("\n") + codegen::kernel_file(file);
  return text;
}

bool is_right(const CheckCase& check, const std::vector<float>& results, size_t from, double tolerance) {
  for (size_t i = 0; i < check.results.exact.size(); ++i)
    if (!(std::fabs(results[from + i] - check.results.exact[i]) <= tolerance * check.results.sizes[i])) return false;
  return true;
}

}  // namespace ocl::checks
