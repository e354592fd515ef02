// csrc/torch/eager_memory.cpp: finds written tensors of an eager op that overlap other arguments, and makes copies of these.
#include "csrc/torch/eager_memory.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace ocl::aten {
namespace {

bool is_written(const c10::OperatorHandle& op, int argument) {
  const c10::AliasInfo* alias = op.schema().arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

/// Returns the position of a leaf within its argument.
int list_position(const EagerArguments& arguments, int leaf) {
  int position = 0;
  while (position < leaf && arguments.argument[leaf - position - 1] == arguments.argument[leaf]) ++position;
  return position;
}

}  // namespace

bool memory_is_clear(const c10::OperatorHandle& op, const EagerArguments& arguments) {
  if (!op.schema().is_mutable()) return true;
  std::vector<std::pair<const void*, int>> storages;
  // Indexed by the first leaf with the same elements: in add.out(a, b, out=a), this marks the operand a as written.
  std::vector<bool> is_target(arguments.leaves.size());
  for (size_t i = 0; i < arguments.leaves.size(); ++i) {
    const c10::IValue& value = arguments.leaves[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const bool written = is_written(op, arguments.argument[i]);
    if (written) at::assert_no_internal_overlap(value.toTensor());
    if (written) is_target[arguments.same[i]] = true;
    if (const int same = arguments.same[i]; same != static_cast<int>(i)) {
      const int here = arguments.argument[i], there = arguments.argument[same];
      const bool in_lists = op.schema().arguments()[here].type()->kind() == c10::TypeKind::ListType;
      const bool at_one_place =
          here != there && list_position(arguments, static_cast<int>(i)) == list_position(arguments, same);
      if (in_lists && !at_one_place && (written || is_written(op, there))) return false;
      continue;
    }
    storages.emplace_back(value.toTensor().storage().unsafeGetStorageImpl(), static_cast<int>(i));
  }
  std::sort(storages.begin(), storages.end());
  for (size_t i = 0; i < storages.size(); ++i)
    for (size_t j = i + 1; j < storages.size() && storages[j].first == storages[i].first; ++j) {
      const int a = storages[i].second, b = storages[j].second;
      if (!is_target[a] && !is_target[b]) continue;
      if (at::get_overlap_status(arguments.leaves[a].toTensor(), arguments.leaves[b].toTensor()) != at::MemOverlapStatus::No)
        return false;
    }
  return true;
}

void keep_read_arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack, const at::Tensor& out) {
  const std::vector<c10::Argument>& declared = op.schema().arguments();
  for (size_t i = 0; i < declared.size(); ++i) {
    c10::IValue& value = stack[stack.size() - declared.size() + i];
    if (value.isTensor() && !declared[i].is_out() && value.toTensor().defined() && value.toTensor().is_alias_of(out))
      value = value.toTensor().clone();
  }
}

void separate_operands(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::vector<c10::Argument>& declared = op.schema().arguments();
  const auto value = [&](size_t i) -> c10::IValue& { return stack[stack.size() - declared.size() + i]; };
  const auto is_tensor = [&](size_t i) { return value(i).isTensor() && value(i).toTensor().defined(); };
  for (size_t w = 0; w < declared.size(); ++w) {
    if (!is_tensor(w) || !is_written(op, static_cast<int>(w))) continue;
    const at::Tensor& written = value(w).toTensor();
    for (size_t i = 0; i < declared.size(); ++i) {
      if (!is_tensor(i) || is_written(op, static_cast<int>(i)) || !value(i).toTensor().is_alias_of(written)) continue;
      const at::MemOverlapStatus status = at::get_overlap_status(written, value(i).toTensor());
      if (status == at::MemOverlapStatus::No || status == at::MemOverlapStatus::Full) continue;
      if (op.hasTag(at::Tag::pointwise)) at::assert_no_partial_overlap(written, value(i).toTensor());
      value(i) = value(i).toTensor().clone();
    }
  }
}

}  // namespace ocl::aten
