// csrc/torch/sparse.h: what the kernels of sparse tensors share.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <tuple>

namespace ocl::aten {

/// Runs the op on the CPU, with copies both ways, and counts that (refusals.h). Arguments may be sparse or dense. FallbackError
/// if that is forbidden.
void run_sparse_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason);

// COO tensors: `indices` [sparse dimensions, nnz], `values` [nnz, dense dimensions ...].

/// Returns the position of each element among the sparse dimensions, as one number: [nnz].
at::Tensor flat_indices(const at::Tensor& indices, at::IntArrayRef sizes);
/// Sorts numbers from 0 to `end`. The numbers come back in a narrower type if there is one, because each of their bytes is a
/// pass.
std::tuple<at::Tensor, at::Tensor> sorted_below(const at::Tensor& numbers, int64_t end);
at::Tensor coo_tensor(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes, bool coalesced);
/// Makes `out` refer to these indices and values, converted to the dtype of `out`.
void set_coo(const at::Tensor& out, const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes, bool coalesced);
/// Returns the sums of the rows of `values` with equal `place`: one row for each of `places`. Halves are added up as floats.
at::Tensor sums_at(const at::Tensor& place, const at::Tensor& values, int64_t places);
/// Returns, for ranges of these lengths one after the other, the range of each place and the place within that range.
std::tuple<at::Tensor, at::Tensor> ranges(const at::Tensor& lengths);

// Compressed rows: `rows` [m + 1] has where each row begins among the elements.

/// Returns how often each number below `size` stands before each number: the compressed form of sorted `indices`.
at::Tensor compressed(const at::Tensor& indices, int64_t size);
/// Returns the row of each of `nnz` elements: the inverse of compressed(). Leading dimensions are a batch.
at::Tensor expanded(const at::Tensor& rows, int64_t nnz);

}  // namespace ocl::aten
