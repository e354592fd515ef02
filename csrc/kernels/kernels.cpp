// csrc/kernels/kernels.cpp: builds the rows of kernels/kernels.def, and finds rows by name.
#include "csrc/kernels/kernels.h"

#include <algorithm>
#include <utility>

#include "csrc/support/error.h"

namespace ocl {
namespace {

/// Parses the argument list of a row, such as "*x, *float sums, batch, long x_n, parts?".
std::vector<KernelArgument> parse_arguments(std::string_view text) {
  std::vector<KernelArgument> arguments;
  while (!text.empty()) {
    const size_t end = std::min(text.find(", "), text.size());
    std::string_view word = text.substr(0, end);
    KernelArgument argument;
    const size_t space = word.find(' ');
    argument.is_buffer = word.starts_with('*');
    argument.wide = !argument.is_buffer && space != std::string_view::npos;
    if (argument.is_buffer && space != std::string_view::npos) argument.type = word.substr(1, space - 1);
    word.remove_prefix(space != std::string_view::npos ? space + 1 : argument.is_buffer ? 1 : 0);
    if ((argument.optional = word.ends_with('?'))) word.remove_suffix(1);
    argument.name = word;
    arguments.push_back(std::move(argument));
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  return arguments;
}

constexpr const char* kTypeNames[] = {"tf32", "fp32", "bf16", "fp16", "int8"};
constexpr const char* kLevelNames[] = {"item", "group", "subgroup_matrix", "warp", "warpgroup"};
constexpr const char* kOperationNames[] = {
#define OCL_OPERATION(name, ...) #name,
#include "kernels/operations.def"
#undef OCL_OPERATION
};
constexpr const char* kFormNames[] = {
    "",
#define OCL_FORM_NAME(name) "_" #name,
#include "kernels/forms.def"
#undef OCL_FORM_NAME
};

/// What a name selects: rows of kernels/kernels.def, and types (one bit per KernelType).
struct Named {
  std::vector<const KernelRow*> rows;
  unsigned types = (1u << kKernelTypes) - 1;
  bool is_row = false;  // True if the name names a single row.
};

Named find(std::string_view term) {
  Named named;
  const size_t colon = term.find(':');
  const std::string_view word = term.substr(0, colon);
  if (colon != std::string_view::npos) {
    const auto type = std::find(std::begin(kTypeNames), std::end(kTypeNames), term.substr(colon + 1));
    if (type == std::end(kTypeNames))
      fail(ErrorKind::kConfig, "'" + std::string(term) + "' ends in no type; there are tf32, fp32, bf16, fp16, int8");
    named.types = 1u << (type - std::begin(kTypeNames));
  }
  for (const KernelRow& row : kernel_rows())
    if (word == row.name) {
      named.rows = {&row};
      named.is_row = true;
      return named;
    }
  for (const KernelRow& row : kernel_rows())
    if (word == name(row.level) || word == row.operation_name()) named.rows.push_back(&row);
  if (!named.rows.empty()) return named;
  std::string known;
  for (const char* word_of : kLevelNames) known += std::string(word_of) + ", ";
  std::set<std::string> operations;
  for (const KernelRow& row : kernel_rows()) operations.insert(row.operation_name() + ", ");
  for (const std::string& operation : operations) known += operation;
  for (const KernelRow& row : kernel_rows()) known += std::string(row.name) + ", ";
  known.resize(known.size() - 2);
  fail(ErrorKind::kConfig, "'" + std::string(term) + "' is no execution level, operation or kernel; there are " + known);
}

// The column `types`.
using enum KernelType;
using Types = std::vector<KernelRow::Checked>;
constexpr std::initializer_list<KernelRow::Checked> FP32 = {{kFp32, 0}}, FLOATS = {{kFp32, 0}, {kBf16, 0}, {kFp16, 0}};
Types HALVES(double bf16, double fp16) { return {{kBf16, bf16}, {kFp16, fp16}}; }
Types WORDS(double bf16, double int8) { return {{kBf16, bf16}, {kInt8, int8}}; }
Types MATRIX(double fp32, double bf16, double fp16) { return {{kFp32, fp32}, {kBf16, bf16}, {kFp16, fp16}}; }
Types TENSOR_FP32(double tf32, double fp32) { return {{kTf32, tf32}, {kFp32, fp32}}; }
Types TENSOR(double tf32, double fp32, double bf16, double fp16) {
  return {{kTf32, tf32}, {kFp32, fp32}, {kBf16, bf16}, {kFp16, fp16}};
}

/// Gives forms what they have from their bases.
const std::vector<KernelRow>* completed(std::vector<KernelRow>* rows) {
  for (KernelRow& row : *rows) {
    const KernelRow& base = (*rows)[static_cast<size_t>(row.base)];
    row.family = base.family, row.level = base.level, row.operation = base.operation;
    if (!row.arguments.empty()) continue;
    row.arguments = base.arguments;
    row.files.insert(row.files.begin(), base.files.begin(), base.files.end() - 1);
    row.files.push_back(base.files.back());
  }
  return rows;
}

}  // namespace

int64_t chirp_length(int64_t n) {
  int64_t least = 0;
  for (int64_t length : {1, 3, 5, 9}) {
    while (length < 2 * n - 1) length *= 2;
    if (least == 0 || length < least) least = length;
  }
  return least;
}

const char* name(KernelType type) { return kTypeNames[static_cast<size_t>(type)]; }
const char* name(KernelLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

std::string KernelRow::operation_name() const {
  return std::string(kOperationNames[static_cast<size_t>(operation)]) + kFormNames[static_cast<size_t>(form)];
}

bool KernelRow::is_required() const {
  return operation == KernelOperation::k_pack || operation == KernelOperation::k_fft || operation == KernelOperation::k_sort ||
         (operation == KernelOperation::k_attention && !on_tensor_cores());
}

bool KernelRow::is_checked() const {
  return std::any_of(types.begin(), types.end(), [](const Checked& checked) { return checked.tolerance > 0; });
}

std::string KernelRow::parameters(const std::set<std::string>& given) const {
  const char* operand = on_tensor_cores() ? "OPERAND_T" : "IN_T";
  std::string text;
  for (const KernelArgument& argument : arguments) {
    const std::string& name = argument.name;
    if (!given.contains(name)) continue;
    text += text.empty() ? "" : ", ";
    if (argument.is_buffer)
      text += std::string("__global ") + (name == "scratch" ? "" : "const ") +
              (argument.type.empty() ? operand : argument.type) + (level == KernelLevel::k_item ? "* restrict " : "* ") + name +
              ", const ulong " + name + "_offset";
    else
      text += (argument.wide ? "const long " : "const int ") + name;
  }
  return text;
}

const std::vector<KernelRow>& kernel_rows() {
#define FILES(...) {__VA_ARGS__}
#define OCL_KERNEL(name, family, level, operation, offer, types, files, arguments) \
  {KernelId::k_##name,                                                             \
   KernelId::k_##name,                                                             \
   #name,                                                                          \
   #family,                                                                        \
   KernelLevel::k_##level,                                                         \
   KernelOperation::k_##operation,                                                 \
   types,                                                                          \
   files,                                                                          \
   parse_arguments(arguments)},
#define OCL_FORM(name, base, form, macro, offer, types, files, arguments)             \
  {KernelId::k_##name,         KernelId::k_##base,   #name, "", {}, {}, types, files, \
   parse_arguments(arguments), KernelForm::k_##form, macro},
  static const auto* rows = completed(new std::vector<KernelRow>{
#include "kernels/kernels.def"
  });
#undef OCL_FORM
#undef OCL_KERNEL
#undef FILES
  OCL_ASSERT(rows->size() <= 64, "KernelSet has a bit for each of 64 kernels");
  return *rows;
}

const KernelRow& kernel_row(KernelId id) { return kernel_rows()[static_cast<size_t>(id)]; }

KernelId tensor_core_kernel(KernelOperation operation, KernelLevel level) {
  for (const KernelRow& row : kernel_rows())
    if (row.on_tensor_cores() && row.level == level && row.operation == operation && row.base == row.id) return row.id;
  const char* of = kOperationNames[static_cast<size_t>(operation)];
  fail(ErrorKind::kInternal, std::string("kernels.def has no kernel for ") + of + " at level " + name(level));
}

std::optional<KernelId> kernel_of_form(KernelId base, KernelForm form) {
  for (const KernelRow& row : kernel_rows())
    if (row.base == base && row.form == form) return row.id;
  return std::nullopt;
}

void KernelSet::add(KernelLevel level) { add(name(level)); }

void KernelSet::add(std::string_view term) {
  const Named named = find(term);
  for (const KernelRow* row : named.rows)
    for (const KernelRow::Checked& checked : row->types)
      if (named.types >> static_cast<int>(checked.type) & 1) of(checked.type) |= bit(row->id);
}

void KernelSet::remove(std::string_view term) {
  const Named named = find(term);
  if (named.is_row && named.rows[0]->is_required())
    fail(ErrorKind::kConfig, "'" + std::string(term) + "' cannot be disabled: no other kernel computes what it does");
  bool any = false;
  for (const KernelRow* row : named.rows)
    for (const KernelRow::Checked& checked : row->types)
      if (!row->is_required() && (named.types >> static_cast<int>(checked.type) & 1)) {
        remove(row->id, checked.type, "it is disabled, by the option disable or because the driver's compiler crashed on it");
        any = true;
      }
  if (!any)
    fail(ErrorKind::kConfig,
         "'" + std::string(term) + "' disables nothing: no kernel that can be disabled has this name and type");
}

void KernelSet::remove(KernelId id, KernelType type, const std::string& reason) {
  if (has(id, type)) removed_.emplace(std::pair(id, type), reason);
  of(type) &= ~bit(id);
}

bool KernelSet::has(KernelId id, KernelType type) const {
  const uint64_t bits = bits_[static_cast<size_t>(type)];
  return (bits & bit(id)) != 0 && (bits & bit(kernel_row(id).base)) != 0;
}

bool KernelSet::has(KernelId id) const {
  for (int type = 0; type < kKernelTypes; ++type)
    if (has(id, static_cast<KernelType>(type))) return true;
  return false;
}

std::string KernelSet::why_removed(KernelId id, KernelType type) const {
  for (const KernelId kernel : {id, kernel_row(id).base})
    if (const auto found = removed_.find({kernel, type}); found != removed_.end()) return found->second;
  return "";
}

std::string KernelSet::why_not(KernelId id) const {
  for (const KernelRow::Checked& checked : kernel_row(id).types)
    if (std::string reason = why_removed(id, checked.type); !reason.empty()) return reason;
  return "this device or its driver lacks the matrix instructions";
}

bool KernelSet::has(KernelLevel level) const {
  return std::any_of(kernel_rows().begin(), kernel_rows().end(),
                     [&](const KernelRow& row) { return row.level == level && has(row.id); });
}

const KernelSet& portable_kernels() {
  static const KernelSet set = [] {
    KernelSet portable;
    for (const KernelRow& row : kernel_rows())
      if (!row.on_tensor_cores() && !row.is_checked()) portable.add(row.name);
    return portable;
  }();
  return set;
}

std::vector<std::string> names_of(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace ocl
