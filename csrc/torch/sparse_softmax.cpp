// csrc/torch/sparse_softmax.cpp: softmax and log_softmax of COO tensors, and their gradients. Elements that are not stored
// count as -inf.
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

#include <limits>
#include <tuple>
#include <vector>

#include "csrc/torch/sparse.h"

namespace ocl::aten {

namespace {

/// The elements of a COO tensor that differ in their index of one sparse dimension alone are one row of the softmax.
class Rows {
 public:
  Rows(const at::Tensor& sparse, int64_t dim) : count_(sparse._nnz()) {
    const at::Tensor indices = sparse._indices();
    std::vector<at::Tensor> others;
    std::vector<int64_t> sizes;
    for (int64_t d = 0; d < sparse.sparse_dim(); ++d) {
      if (d == dim) continue;
      others.push_back(indices[d]);
      sizes.push_back(sparse.size(d));
    }
    if (others.empty()) {
      row_ = at::zeros({count_}, indices.options());
      return;
    }
    // Rows are numbered by the sorted place among the other dimensions. That there are fewer rows than elements is not read
    // back.
    const auto [keys, order] = sorted_below(ocl::aten::flat_indices(at::stack(others), sizes), c10::multiply_integers(sizes));
    const at::Tensor differs = keys.narrow(0, 1, count_ - 1).ne(keys.narrow(0, 0, count_ - 1));
    const at::Tensor number = at::cat({at::zeros({1}, order.options()), differs.cumsum(0, at::kLong)});
    row_ = at::empty_like(order).index_copy_(0, order, number);
  }

  /// Returns, for each element, the sum over its row.
  at::Tensor sums(const at::Tensor& values) const { return sums_at(row_, values, count_).index_select(0, row_); }
  /// Returns, for each element, the largest element of its row.
  at::Tensor largest(const at::Tensor& values) const {
    const at::Tensor start = at::full_like(values, -std::numeric_limits<double>::infinity());
    return at::index_reduce(start, 0, row_, values, "amax").index_select(0, row_);
  }

 private:
  int64_t count_;
  at::Tensor row_;  // Of each element.
};

template <bool is_log>
at::Tensor softmax(const at::Tensor& self, int64_t dim, bool half_to_float) {
  TORCH_CHECK(!half_to_float, "softmax with half to float conversion is not supported for sparse tensors");
  dim = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor input = self.coalesce(), values = input._values();
  at::Tensor made;
  if (values.numel() == 0) {
    made = values.clone();
  } else if (dim >= input.sparse_dim()) {
    const int64_t inner = dim - input.sparse_dim() + 1;
    made = is_log ? at::_log_softmax(values, inner, false) : at::_softmax(values, inner, false);
  } else {
    const Rows rows(input, dim);
    const at::Tensor shifted = values - rows.largest(values), powers = shifted.exp(), sums = rows.sums(powers);
    made = is_log ? shifted - sums.log() : powers / sums;
  }
  return coo_tensor(input._indices().clone(), made, input.sizes(), true);
}

/// Returns the values of `grad` at the elements of `output`: 0 where `grad` has none.
at::Tensor values_at(const at::Tensor& grad, const at::Tensor& output) {
  const at::Tensor have = ocl::aten::flat_indices(grad._indices(), grad.sizes()),
                   want = ocl::aten::flat_indices(output._indices(), output.sizes());
  if (have.size(0) == 0) return at::zeros_like(output._values());
  const at::Tensor place = at::searchsorted(have, want).clamp_max(have.size(0) - 1);
  std::vector<int64_t> shape(output._values().dim(), 1);
  shape[0] = -1;
  const at::Tensor found = have.index_select(0, place).eq(want).view(shape);
  return at::where(found, grad._values().index_select(0, place), at::zeros({}, grad._values().options()));
}

template <bool is_log>
at::Tensor softmax_backward(const at::Tensor& given, const at::Tensor& result, int64_t dim, const at::Tensor& self) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor output = result.coalesce(), values = output._values();
  at::Tensor made;
  if (values.numel() == 0) {
    made = values.clone();
  } else {
    const at::Tensor grad = values_at(given.coalesce(), output);
    const int64_t inner = dim - output.sparse_dim() + 1;
    const auto sums = [&](const at::Tensor& x) {
      return inner > 0 ? x.sum(inner, /*keepdim=*/true) : Rows(output, dim).sums(x);
    };
    made = is_log ? grad - values.exp() * sums(grad) : values * (grad - sums(values * grad));
  }
  return coo_tensor(output._indices().clone(), made, output.sizes(), true);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_softmax", softmax<false>);
  m.impl("_sparse_log_softmax", softmax<true>);
  m.impl("_sparse_softmax_backward_data", softmax_backward<false>);
  m.impl("_sparse_log_softmax_backward_data", softmax_backward<true>);
}

}  // namespace ocl::aten
