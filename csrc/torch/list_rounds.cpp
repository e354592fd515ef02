// csrc/torch/list_rounds.cpp: runs an in-place op over lists in several calls, so that the entries of each call share no
// memory that is written.
#include "csrc/torch/list_rounds.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace ocl::aten {
namespace {

struct Entry {
  std::vector<at::Tensor> written, read;
};

bool share(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  return std::ranges::any_of(some, [&](const at::Tensor& a) {
    return std::ranges::any_of(others, [&](const at::Tensor& b) {
      return a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl() || at::get_overlap_status(a, b) != at::MemOverlapStatus::No;
    });
  });
}

/// Returns the elements of a list at the given positions. Returns `value` itself if it is no list of that length.
c10::IValue part_of(const c10::IValue& value, size_t length, const std::vector<size_t>& positions) {
  if (!value.isList() || value.toListRef().size() != length) return value;
  c10::impl::GenericList part(value.toList().elementType());
  for (const size_t i : positions) part.push_back(value.toListRef()[i]);
  return part;
}

}  // namespace

bool run_overlapping_lists(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  if (!op.schema().returns().empty() || std::string_view(op.schema().name()).rfind("aten::_foreach_", 0) != 0) return false;
  const size_t first = stack->size() - arguments.size();
  if (!(*stack)[first].isTensorList()) return false;
  std::vector<Entry> entries((*stack)[first].toTensorVector().size());
  for (size_t a = 0; a < arguments.size(); ++a) {
    const c10::IValue& value = (*stack)[first + a];
    if (!value.isTensorList() || value.toTensorVector().size() != entries.size()) continue;
    const bool is_written = arguments[a].alias_info() != nullptr && arguments[a].alias_info()->isWrite();
    const std::vector<at::Tensor> tensors = value.toTensorVector();
    for (size_t i = 0; i < entries.size(); ++i) (is_written ? entries[i].written : entries[i].read).push_back(tensors[i]);
  }
  std::vector<std::vector<size_t>> rounds;  // For each round, the positions of its entries.
  std::vector<size_t> round(entries.size(), 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Entry &now = entries[i], &before = entries[j];
      if (share(now.written, before.written) || share(now.written, before.read) || share(now.read, before.written))
        round[i] = std::max(round[i], round[j] + 1);
    }
    if (round[i] == rounds.size()) rounds.emplace_back();
    rounds[round[i]].push_back(i);
  }
  if (rounds.size() < 2) return false;
  const torch::jit::Stack given(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  torch::jit::drop(*stack, arguments.size());
  const at::AutoDispatchBelowADInplaceOrView guard;
  for (const std::vector<size_t>& positions : rounds) {
    torch::jit::Stack call;
    for (const c10::IValue& value : given) call.push_back(part_of(value, entries.size(), positions));
    op.callBoxed(&call);
  }
  return true;
}

}  // namespace ocl::aten
