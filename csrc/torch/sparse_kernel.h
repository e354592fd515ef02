// csrc/torch/sparse_kernel.h: the kernels of kernels/base/sparse.cl, on tensors.
#pragma once

#include <ATen/ATen.h>

#include <tuple>

namespace ocl::aten {

/// A sparse matrix in compressed rows: the elements of row r are those from rows[r] to rows[r + 1].
struct Rows {
  at::Tensor rows, columns, values;
};

/// True if kernels compute with elements of this dtype on the device.
bool has_sparse_kernel(at::ScalarType dtype, int device);

/// Returns the product with a dense matrix. has_sparse_kernel() must be true for the dtype of both.
at::Tensor row_sums(const Rows& sparse, const at::Tensor& dense);
/// Returns the largest of the products that row_sums() adds up, or the smallest, and the element that it comes from. For a row
/// without elements, 0 and the number of elements.
std::tuple<at::Tensor, at::Tensor> row_extremes(const Rows& sparse, const at::Tensor& dense, bool largest);
/// Returns, for each element, the dot product of row `rows` of `a` and row `columns` of `b`.
at::Tensor row_products(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& a, const at::Tensor& b);

}  // namespace ocl::aten
