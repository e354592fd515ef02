// csrc/kernels/kernels.h: the rows of kernels/kernels.def, one per hand-written kernel, and sets of rows.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ocl {

/// One value per row of kernels/kernels.def, such as KernelId::k_gemm_item.
enum class KernelId : uint8_t {
#define OCL_KERNEL(name, ...) k_##name,
#define OCL_FORM OCL_KERNEL
#include "kernels/kernels.def"
#undef OCL_FORM
#undef OCL_KERNEL
};

/// Who computes a tile of the output: a work-item, a work-group, a subgroup with matrix instructions, a warp or a warpgroup.
enum class KernelLevel : uint8_t { k_item, k_group, k_subgroup_matrix, k_warp, k_warpgroup };

/// What a kernel computes: one value per row of kernels/operations.def, such as KernelOperation::k_gemm.
enum class KernelOperation : uint8_t {
#define OCL_OPERATION(name, ...) k_##name,
#include "kernels/operations.def"
#undef OCL_OPERATION
};

/// A special form of a kernel: one value per row of kernels/forms.def. Other kernels are plain.
enum class KernelForm : uint8_t {
  k_plain,
#define OCL_FORM_NAME(name) k_##name,
#include "kernels/forms.def"
#undef OCL_FORM_NAME
};

/// The largest head size that the portable kernels of attention take: a work-group or work-item holds a whole row. Attention
/// with larger heads runs unfused.
inline constexpr int64_t kLargestHeadSize = 512;

/// The longest line that the kernels of Fourier transforms take in one launch: with it, pairs of floats fill the 32 KiB of
/// local memory that every device has.
inline constexpr int64_t kLongestFft = 4096;
/// Kernels of Fourier transforms take lengths whose prime factors are at most this. The work of a prime p is p numbers squared.
inline constexpr int kLargestFftPrime = 61;
/// Returns the length of the transforms by which a line of n numbers with a larger prime factor is transformed: the least of at
/// least 2 n - 1 that is a power of two, or 3, 5 or 9 times one.
int64_t chirp_length(int64_t n);

/// How a kernel multiplies. kTf32: fp32 operands are rounded to TF32. The others multiply in the type of their
/// operands.
enum class KernelType : uint8_t { kTf32, kFp32, kBf16, kFp16, kInt8 };
inline constexpr int kKernelTypes = 5;
const char* name(KernelType type);
const char* name(KernelLevel level);

struct KernelArgument {
  std::string name, type;                                  // type: of a buffer's elements; "": the type of the operands.
  bool is_buffer = false, wide = false, optional = false;  // wide: the argument is a 64-bit integer.
};

/// A row of kernels/kernels.def, which explains the columns.
struct KernelRow {
  struct Checked {
    KernelType type;
    double tolerance;  // Largest relative error that the kernel's check allows. 0: the kernel is not checked.
  };
  KernelId id, base;
  const char *name, *family;
  KernelLevel level;
  KernelOperation operation;
  std::vector<Checked> types;
  std::vector<const char*> files;
  std::vector<KernelArgument> arguments;
  KernelForm form = KernelForm::k_plain;
  std::string macro = "";  // What a launch in this form defines as 1; "" if nothing.
  /// The operation and the form, as in `disable=`: "conv_statistics".
  std::string operation_name() const;
  bool on_tensor_cores() const { return level != KernelLevel::k_item && level != KernelLevel::k_group; }
  /// True if the kernel needs instructions that not every device has. Then it is checked on the device before its first use.
  bool is_checked() const;
  /// True for the portable kernels of attention, for ffts, sorts and packs. They cannot be disabled, because no other kernel
  /// computes the same.
  bool is_required() const;
  /// Returns the parameters of the kernel in OpenCL C, without those of the epilogue. given: names of the launch's arguments.
  std::string parameters(const std::set<std::string>& given) const;
};

const std::vector<KernelRow>& kernel_rows();
const KernelRow& kernel_row(KernelId id);
/// Returns the plain kernel that computes `operation` at a level of tensor cores. InternalError if there is none.
KernelId tensor_core_kernel(KernelOperation operation, KernelLevel level);
/// Returns the kernel of a form of `base`; nullopt if there is none.
std::optional<KernelId> kernel_of_form(KernelId base, KernelForm form);

/// The kernels that may be used, each with the types for which it may be used.
class KernelSet {
 public:
  /// Adds all kernels of a level.
  void add(KernelLevel level);
  /// Adds or removes the rows that `term` names: a row ("gemm_warp"), a level ("warpgroup") or an operation
  /// ("conv_statistics"). A type may follow ("gemm_warp:bf16"); otherwise all types are meant. ConfigError if the name
  /// is unknown, if a required row would be removed, or if it means nothing that can be removed.
  void add(std::string_view term);
  void remove(std::string_view term);
  /// Removes a kernel for one type. `reason` is a sentence: "it gives wrong results on this device".
  void remove(KernelId id, KernelType type, const std::string& reason);
  /// True if both the kernel and its base are in the set. The base of a special form of a kernel is the row of the plain form;
  /// any other row is its own base.
  bool has(KernelId id, KernelType type) const;
  bool has(KernelId id) const;  // True if the kernel may be used for at least one type.
  bool has(KernelLevel level) const;
  /// Returns why a kernel is not in the set, in a sentence. why_removed: for one type; "" if the kernel never was in the set.
  std::string why_not(KernelId id) const;
  std::string why_removed(KernelId id, KernelType type) const;

 private:
  static uint64_t bit(KernelId id) { return uint64_t{1} << static_cast<int>(id); }
  uint64_t& of(KernelType type) { return bits_[static_cast<size_t>(type)]; }
  std::array<uint64_t, kKernelTypes> bits_{};
  std::map<std::pair<KernelId, KernelType>, std::string> removed_;  // With the first reason.
};

/// Returns the kernels that every device can run.
const KernelSet& portable_kernels();
/// Splits a comma-separated list of names, as the option `disable` takes it.
std::vector<std::string> names_of(const std::string& list);

}  // namespace ocl
