// csrc/torch/sparse_compressed.cpp: compressed tensors (CSR, CSC): their indices, and ops that torch computes on the CPU or
// CUDA.
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "csrc/torch/sparse.h"

namespace ocl::aten {

namespace {

at::Tensor convert_to_compressed(const at::Tensor& self, int64_t size, bool out_int32) {
  return compressed(self, size).to(out_int32 ? at::kInt : at::kLong);
}

at::Tensor& convert_to_compressed_out(const at::Tensor& self, int64_t size, bool out_int32, at::Tensor& out) {
  at::native::resize_output(out, {size + 1});
  return out.copy_(convert_to_compressed(self, size, out_int32));
}

/// Returns the indices of all elements of a compressed tensor as COO stores them. Row d has the indices in dimension d; the
/// batch dimensions come first.
at::Tensor convert_to_indices(const at::Tensor& rows, const at::Tensor& columns, bool out_int32, bool transpose) {
  const at::ScalarType type = out_int32 ? at::kInt : at::kLong;
  const int64_t n = columns.size(-1);
  const at::Tensor row = expanded(rows, n).reshape({1, -1}), column = columns.reshape({1, -1});
  std::vector<at::Tensor> parts;
  if (rows.dim() > 1) {
    const at::Tensor batch = at::ones(rows.sizes().slice(0, rows.dim() - 1), rows.options()).nonzero().t();
    parts.push_back(batch.unsqueeze(2).expand({batch.size(0), batch.size(1), n}).reshape({batch.size(0), -1}).to(type));
  }
  parts.push_back((transpose ? column : row).to(type));
  parts.push_back((transpose ? row : column).to(type));
  return at::cat(parts, 0);
}

at::Tensor& convert_to_indices_out(const at::Tensor& rows, const at::Tensor& columns, bool out_int32, bool transpose,
                                   at::Tensor& out) {
  const at::Tensor made = convert_to_indices(rows, columns, out_int32, transpose);
  at::native::resize_output(out, made.sizes());
  return out.copy_(made);
}

/// Checks the indices of a compressed tensor. Only whether they are right is read back; PyTorch's check on the CPU has the
/// errors.
void validate(bool is_row, const at::Tensor& compressed_indices, const at::Tensor& plain, int64_t compressed_size, int64_t size,
              int64_t count) {
  const at::Tensor first = compressed_indices.select(-1, 0), last = compressed_indices.select(-1, -1);
  at::Tensor right = first.eq(0).all().logical_and(last.eq(count).all());
  if (compressed_size > 0) {
    const at::Tensor lengths =
        compressed_indices.narrow(-1, 1, compressed_size) - compressed_indices.narrow(-1, 0, compressed_size);
    right = right.logical_and(lengths.ge(0).logical_and(lengths.le(size)).all());
  }
  if (count > 0) right = right.logical_and(plain.ge(0).logical_and(plain.lt(size)).all());
  if (right.item<bool>() && count > 1) {
    // Within a row, the indices increase.
    const at::Tensor row = expanded(compressed_indices, count);
    const at::Tensor same = row.narrow(-1, 1, count - 1).eq(row.narrow(-1, 0, count - 1));
    const at::Tensor increases = plain.narrow(-1, 1, count - 1).gt(plain.narrow(-1, 0, count - 1));
    right = increases.logical_or(same.logical_not()).all();
  }
  if (!right.item<bool>())
    at::_validate_compressed_sparse_indices(is_row, compressed_indices.cpu(), plain.cpu(), compressed_size, size, count);
}

/// Changes CSR to CSC and CSC to CSR. torch's kernel does the rest.
void flip(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor self = (*stack)[first].toTensor();
  const bool to_columns = op.schema().name() == "aten::_to_sparse_csc";
  const bool flips = self.layout() == (to_columns ? at::kSparseCsr : at::kSparseCsc);
  if (!flips) return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::SparseCsrCPU), stack);
  if (self.dim() - self.dense_dim() != 2) return run_sparse_on_cpu(op, stack, "the tensor is a batch of matrices");
  const at::Tensor rows = to_columns ? self.crow_indices() : self.ccol_indices();
  const at::Tensor columns = to_columns ? self.col_indices() : self.row_indices();
  const int64_t size = self.size(to_columns ? 1 : 0);
  const auto [sorted, order] = sorted_below(columns, size);
  const at::Tensor row = expanded(rows, columns.size(0)).index_select(0, order).to(columns.scalar_type());
  const at::Tensor begins = compressed(sorted, size).to(columns.scalar_type());
  const at::Layout layout = to_columns ? at::kSparseCsc : at::kSparseCsr;
  const at::Tensor values = self.values().index_select(0, order);
  const at::Tensor made =
      at::_sparse_compressed_tensor_unsafe(begins, row, values, self.sizes(), values.options().layout(layout));
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, made);
}

/// self + alpha * other, where `other` is compressed and `self` is compressed or dense.
void add_compressed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor self = (*stack)[first].toTensor(), other = (*stack)[first + 1].toTensor();
  const at::Scalar alpha = (*stack)[first + 2].toScalar();
  at::Tensor out = (*stack)[first + 3].toTensor();
  const bool matrices = self.dim() == 2 && other.dim() == 2 && self.sizes() == other.sizes() && self.device() == other.device();
  const bool dense_sum = self.layout() == at::kStrided && out.layout() == at::kStrided;
  if (!matrices || other.layout() == at::kStrided ||
      (!dense_sum && (self.layout() != other.layout() || out.layout() != self.layout())))
    return run_sparse_on_cpu(op, stack, "its operands are not two matrices of one layout");
  const at::Tensor terms = other.to_sparse();
  if (dense_sum) {
    at::add_out(out, self, terms, alpha);
  } else {
    const at::Tensor sum = at::add(self.to_sparse().coalesce(), terms.coalesce(), alpha).to_sparse(self.layout());
    out.resize_as_sparse_(sum).copy_(sum);
  }
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, out);
}

/// Sums a CSR matrix over its rows, its columns or both. Only how many sums there are is read back.
at::Tensor sum_compressed(const at::Tensor& self, at::IntArrayRef dims, bool keepdim, std::optional<at::ScalarType> dtype) {
  TORCH_CHECK(self.layout() == at::kSparseCsr, "_sparse_csr_sum: expected a CSR tensor, got ", self.layout());
  TORCH_CHECK(keepdim, "reduction operations on CSR tensors with keepdim=False is unsupported");
  TORCH_CHECK(self.dim() == 2 && self.dense_dim() == 0, "_sparse_csr_sum: expected a matrix");
  bool over[2] = {dims.empty(), dims.empty()};
  for (const int64_t d : dims) over[at::maybe_wrap_dim(d, 2)] = true;
  const at::ScalarType usual = at::isIntegralType(self.scalar_type(), /*includeBool=*/true) ? at::kLong : self.scalar_type();
  const at::Tensor values = self.values().to(dtype.value_or(usual)), columns = self.col_indices();
  const int64_t rows = over[0] ? 1 : self.size(0);
  const at::Tensor place = over[1] && over[0] ? at::zeros_like(columns)
                           : over[1]          ? expanded(self.crow_indices(), columns.size(0))
                                              : columns;
  const int64_t places = over[1] ? rows : self.size(1);
  const at::Tensor sums = coo_tensor(place.to(at::kLong).unsqueeze(0), values, {places}, false).coalesce();
  const at::Tensor kept = sums._indices()[0].to(columns.scalar_type());
  const at::Tensor begins = over[1] ? compressed(kept, rows) : at::arange(2, columns.options()) * kept.size(0);
  return at::_sparse_compressed_tensor_unsafe(begins.to(columns.scalar_type()), over[1] ? at::zeros_like(kept) : kept,
                                              sums._values(), {rows, over[1] ? 1 : self.size(1)},
                                              values.options().layout(at::kSparseCsr));
}

}  // namespace

at::Tensor compressed(const at::Tensor& indices, int64_t size) {
  return at::searchsorted(indices.contiguous(), at::arange(size + 1, indices.options()));
}

at::Tensor expanded(const at::Tensor& rows, int64_t nnz) {
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes.back() = nnz;
  const at::Tensor place = at::arange(nnz, rows.options()).expand(sizes).contiguous();
  const bool is_int = rows.scalar_type() == at::kInt;
  return at::searchsorted(rows.contiguous(), place, is_int, /*right=*/true) - 1;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_convert_indices_from_coo_to_csr", convert_to_compressed);
  m.impl("_convert_indices_from_coo_to_csr.out", convert_to_compressed_out);
  m.impl("_convert_indices_from_csr_to_coo", convert_to_indices);
  m.impl("_convert_indices_from_csr_to_coo.out", convert_to_indices_out);
  m.impl("_validate_compressed_sparse_indices", validate);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  for (const char* op : {"_to_sparse_csr", "_to_sparse_csc"}) m.impl(op, torch::CppFunction::makeFromBoxedFunction<&flip>());
  m.impl("add.out", torch::CppFunction::makeFromBoxedFunction<&add_compressed>());
  m.impl("_sparse_csr_sum.dim_dtype", sum_compressed);
}

}  // namespace ocl::aten
