// csrc/support/kernels.h: the rows of kernels/kernels.def, one per hand-written kernel, and sets of them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ocl {

/// One value per row: KernelId::k_gemm_item.
enum class KernelId : uint8_t {
#define OCL_KERNEL(name, ...) k_##name,
#include "kernels/kernels.def"
#undef OCL_KERNEL
};

/// What owns a tile of the output.
enum class KernelLevel : uint8_t { k_item, k_group, k_warp, k_warpgroup };

/// What a kernel computes. conv: forward and the input's gradient. Of a further form of a kernel: with tiles of 256 columns
/// (wide), of packed operands, or with the statistics of the output's channels.
enum class KernelOperation : uint8_t {
  k_gemm,
  k_gemm_wide,
  k_gemm_packed,
  k_conv,
  k_conv_wide,
  k_conv_packed,
  k_conv_statistics,
  k_conv_weight,
  k_attention,
  k_attention_gradient,
  k_pack
};

/// How a kernel multiplies: fp32 operands rounded to TF32, fp32, bf16, fp16.
enum class KernelType : uint8_t { kTf32, kFp32, kBf16, kFp16 };
inline constexpr int kKernelTypes = 4;
const char* name(KernelType type);  // "bf16"
const char* name(KernelLevel level);
const char* name(KernelOperation operation);

struct KernelArgument {
  std::string name;
  bool is_buffer = false, wide = false, optional = false;  // wide: a long integer
};

/// A row of kernels/kernels.def, which explains the columns.
struct KernelRow {
  struct Checked {
    KernelType type;
    double tolerance;  // largest relative error of the check's sums; 0: not checked
  };
  KernelId id, base;
  const char *name, *family;
  KernelLevel level;
  KernelOperation operation;
  std::vector<Checked> types;
  std::vector<const char*> files;
  std::vector<KernelArgument> arguments;
  bool on_tensor_cores() const { return level == KernelLevel::k_warp || level == KernelLevel::k_warpgroup; }
  /// Portable kernels of attention and packs: nothing else computes what they do.
  bool is_required() const;
};

const std::vector<KernelRow>& kernel_rows();
const KernelRow& kernel_row(KernelId id);
/// The kernel that computes `operation` at that level of tensor cores. InternalError if there is none.
KernelId tensor_core_kernel(KernelOperation operation, KernelLevel level);

/// Which kernels may be used, for which types.
class KernelSet {
 public:
  /// All kernels at a level.
  void add(KernelLevel level);
  /// A row, all rows at a level or all rows of an operation: "gemm_warp", "warpgroup", "conv_statistics", each for all types or
  /// with one of them: "gemm_warp:bf16". ConfigError for a name that is none of these, and for a removed row that is required.
  void add(std::string_view term);
  void remove(std::string_view term);
  void remove(KernelId id, KernelType type) { of(type) &= ~bit(id); }
  /// Whether the kernel and the row of which it is a form may be used.
  bool has(KernelId id, KernelType type) const;
  bool has(KernelId id) const;  // for any type
  bool has(KernelLevel level) const;

 private:
  static uint64_t bit(KernelId id) { return uint64_t{1} << static_cast<int>(id); }
  uint64_t& of(KernelType type) { return bits_[static_cast<size_t>(type)]; }
  std::array<uint64_t, kKernelTypes> bits_{};
};

/// Those that every device can run.
const KernelSet& portable_kernels();
/// The names of a list with commas, as the option `disable` takes it.
std::vector<std::string> names_of(const std::string& list);

}  // namespace ocl
