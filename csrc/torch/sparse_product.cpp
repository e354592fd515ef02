// csrc/torch/sparse_product.cpp: products of sparse and dense matrices, and their gradients. A COO matrix is first sorted by
// row.
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/torch/sparse.h"
#include "csrc/torch/sparse_kernel.h"

namespace ocl::aten {

namespace {

bool is_dense(const at::Tensor& t) { return t.layout() == at::kStrided; }

/// Returns the rows of a sparse matrix that has any layout.
Rows rows_of(const at::Tensor& matrix) {
  if (matrix.layout() == at::kSparseCsr) return {matrix.crow_indices(), matrix.col_indices(), matrix.values()};
  const at::Tensor coo = matrix.layout() == at::kSparse ? matrix : matrix.to_sparse();
  const at::Tensor row = coo._indices().select(0, 0), column = coo._indices().select(0, 1);
  if (coo.is_coalesced()) return {compressed(row, coo.size(0)), column, coo._values()};
  const auto [sorted, order] = sorted_below(row, coo.size(0));
  return {compressed(sorted, coo.size(0)), column.index_select(0, order), coo._values().index_select(0, order)};
}

/// Returns sparse times dense.
at::Tensor times_dense(const Rows& sparse, const at::Tensor& dense) {
  if (has_sparse_kernel(dense.scalar_type(), dense.device().index())) return row_sums(sparse, dense);
  const at::Tensor row = expanded(sparse.rows, sparse.columns.size(0));
  const at::Tensor terms = sparse.values.unsqueeze(1) * dense.index_select(0, sparse.columns);
  return sums_at(row.to(at::kLong), terms, sparse.rows.size(0) - 1);
}

void check_sizes(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x", a.size(1), " and ",
              b.size(0), "x", b.size(1), ")");
}

/// Returns the product of two COO matrices, coalesced: each element of `a` meets a row of `b`.
at::Tensor sparse_times_sparse(const at::Tensor& a, const at::Tensor& b) {
  check_sizes(a, b);
  const at::Tensor left = a.coalesce();
  const Rows right = rows_of(b);
  const at::Tensor middle = left._indices().select(0, 1), begins = right.rows.index_select(0, middle);
  const auto [element, within] = ranges(right.rows.index_select(0, middle + 1) - begins);
  const at::Tensor match = begins.index_select(0, element) + within;
  const at::Tensor indices =
      at::stack({left._indices().select(0, 0).index_select(0, element), right.columns.index_select(0, match)});
  const at::Tensor values = left._values().index_select(0, element) * right.values.index_select(0, match);
  return coo_tensor(indices, values, {a.size(0), b.size(1)}, false).coalesce();
}

at::Tensor as_coo(const at::Tensor& t) { return t.layout() == at::kSparse ? t : t.to_sparse(); }

/// Returns the product of two matrices of which at least one is sparse. It is a COO matrix if both are.
at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  check_sizes(a, b);
  if (is_dense(b)) return times_dense(rows_of(a), b);
  if (is_dense(a)) return product(b.t(), a.t()).t();
  return sparse_times_sparse(as_coo(a), as_coo(b));
}

/// Returns why the matrices of a product cannot be multiplied here; "" if they can.
std::string refusal(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, int64_t vector_dim) {
  const auto is_matrix = [](const at::Tensor& t) { return t.dim() == 2 && (is_dense(t) || t.dense_dim() == 0); };
  if (!is_matrix(a) || (b.dim() != vector_dim) || (vector_dim == 2 && !is_matrix(b)))
    return "an operand is no matrix of numbers";
  if (a.device() != b.device() || (self.device() != a.device() && self.dim() > 0))
    return "its operands are on different devices";
  if (a.scalar_type() != b.scalar_type() || self.scalar_type() != a.scalar_type()) return "its operands have different dtypes";
  const bool sparse_sum = !is_dense(self);
  if (sparse_sum != (!is_dense(a) && !is_dense(b))) return "it adds a sparse and a dense matrix";
  if (is_dense(a) && is_dense(b)) return "no operand of the product is sparse";
  return "";
}

/// Stores a result in the argument that the op writes.
void store(const at::Tensor& result, const at::Tensor& out) {
  if (is_dense(out)) {
    at::native::resize_output(out, result.sizes());
    out.copy_(result);
  } else if (out.layout() == at::kSparse) {
    const at::Tensor coo = as_coo(result);
    set_coo(out, coo._indices(), coo._values(), coo.sizes(), coo.is_coalesced());
  } else {
    const at::Tensor made = as_coo(result).to_sparse(out.layout());
    out.resize_as_sparse_(made).copy_(made);
  }
}

/// self * beta + alpha * (a @ b), and its form for a vector. The arguments: self, a, b, beta, alpha, maybe out.
void add_product(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size(), first = stack->size() - count;
  const at::Tensor self = (*stack)[first].toTensor(), a = (*stack)[first + 1].toTensor(), b = (*stack)[first + 2].toTensor();
  const at::Scalar beta = (*stack)[first + 3].toScalar(), alpha = (*stack)[first + 4].toScalar();
  const bool is_vector = op.schema().name() == "aten::addmv";
  if (const std::string reason = refusal(self, a, b, is_vector ? 1 : 2); !reason.empty())
    return run_sparse_on_cpu(op, stack, reason);
  at::Tensor sum = product(a, is_vector ? b.unsqueeze(1) : b);
  if (is_vector) sum = sum.squeeze(1);
  if (!alpha.equal(1)) sum = sum.mul(alpha);
  if (!beta.equal(0)) sum = is_dense(self) ? sum.add(self, beta) : as_coo(self).mul(beta).add(sum);
  TORCH_CHECK(is_dense(self) || self.sizes() == sum.sizes(), "expected a sparse matrix of the size ", sum.sizes(), ", got ",
              self.sizes());
  at::Tensor out = count > 5 ? (*stack)[first + 5].toTensor() : op.schema().name().ends_with('_') ? self : at::Tensor();
  torch::jit::drop(*stack, count);
  if (out.defined())
    store(sum, out);
  else
    out = is_dense(sum) || self.layout() == at::kSparse ? sum : sum.to_sparse(self.layout());
  torch::jit::push(*stack, out);
}

/// Products of the matrices of a batch: rows and columns of all matrices become those of one.
at::Tensor batch_product(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(
      self.layout() == at::kSparse && self.sparse_dim() == 3 && self.dense_dim() == 0 && is_dense(other) && other.dim() == 3,
      "bmm: expected a sparse COO tensor and a dense tensor of three dimensions each");
  TORCH_CHECK(self.size(0) == other.size(0) && self.size(2) == other.size(1), "bmm: the sizes ", self.sizes(), " and ",
              other.sizes(), " cannot be multiplied");
  const int64_t batch = self.size(0), height = self.size(1), depth = self.size(2);
  const at::Tensor places = self._indices();
  const at::Tensor number = places.select(0, 0);
  const at::Tensor indices = at::stack({number * height + places.select(0, 1), number * depth + places.select(0, 2)});
  const at::Tensor whole = coo_tensor(indices, self._values(), {batch * height, batch * depth}, self.is_coalesced());
  return product(whole, other.reshape({batch * depth, other.size(2)})).view({batch, height, other.size(2)});
}

at::Tensor& batch_product_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  store(batch_product(self, other), out);
  return out;
}

at::Tensor with_values(const at::Tensor& like, const at::Tensor& values) {
  return at::_sparse_csr_tensor_unsafe(like.crow_indices(), like.col_indices(), values, like.sizes(),
                                       values.options().layout(at::kSparseCsr));
}

/// Returns, for each element of `pattern`, the dot product of a row of `a` and a row of `b`.
at::Tensor products_at(const at::Tensor& pattern, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor columns = pattern.col_indices(), rows = expanded(pattern.crow_indices(), columns.size(0));
  if (has_sparse_kernel(a.scalar_type(), a.device().index())) return row_products(rows, columns, a, b);
  return (a.index_select(0, rows) * b.index_select(0, columns)).sum(1);
}

/// beta * self + alpha * (a @ b), only at the elements of `self`. The arguments: self, a, b, beta, alpha, maybe out.
void sampled_addmm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size(), first = stack->size() - count;
  const at::Tensor self = (*stack)[first].toTensor(), a = (*stack)[first + 1].toTensor(), b = (*stack)[first + 2].toTensor();
  const at::Scalar beta = (*stack)[first + 3].toScalar(), alpha = (*stack)[first + 4].toScalar();
  const bool fits = self.layout() == at::kSparseCsr && self.dim() == 2 && self.dense_dim() == 0 && is_dense(a) && is_dense(b) &&
                    a.dim() == 2 && b.dim() == 2 && a.scalar_type() == self.scalar_type() &&
                    b.scalar_type() == self.scalar_type() && a.size(0) == self.size(0) && b.size(1) == self.size(1) &&
                    a.size(1) == b.size(0) && a.device() == self.device() && b.device() == self.device();
  if (!fits) return run_sparse_on_cpu(op, stack, "its operands are not matrices that fit");
  at::Tensor values = products_at(self, a, b.t());
  if (!alpha.equal(1)) values = values.mul(alpha);
  if (!beta.equal(0)) values = values.add(self.values(), beta);
  at::Tensor result = with_values(self, values);
  if (count > 5) {
    const at::Tensor out = (*stack)[first + 5].toTensor();
    out.resize_as_sparse_(result).copy_(result);
    result = out;
  }
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, result);
}

// torch.sparse.mm with a reduction: sums, means, largest or smallest products of the elements of a row.

/// Returns the number of elements of each row, at least 1: [m, 1].
at::Tensor row_counts(const at::Tensor& self, at::ScalarType type) {
  const at::Tensor rows = self.crow_indices();
  return (rows.narrow(0, 1, self.size(0)) - rows.narrow(0, 0, self.size(0))).clamp_min(1).to(type).unsqueeze(1);
}

void check_reduced(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(
      self.layout() == at::kSparseCsr && self.dim() == 2 && self.dense_dim() == 0 && is_dense(other) && other.dim() == 2,
      "torch.sparse.mm with a reduction: expected a CSR matrix and a dense matrix");
  TORCH_CHECK(self.size(1) == other.size(0), "torch.sparse.mm: the sizes ", self.sizes(), " and ", other.sizes(),
              " cannot be multiplied");
  TORCH_CHECK(self.scalar_type() == other.scalar_type() && self.device() == other.device() &&
                  has_sparse_kernel(self.scalar_type(), self.device().index()),
              "torch.sparse.mm with a reduction: expected two matrices of one floating point type on one device, got ",
              self.scalar_type(), " and ", other.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> mm_reduce(const at::Tensor& self, const at::Tensor& other, std::string_view reduce) {
  check_reduced(self, other);
  const Rows rows = rows_of(self);
  if (reduce == "amax" || reduce == "amin") return row_extremes(rows, other, reduce == "amax");
  TORCH_CHECK(reduce == "sum" || reduce == "mean", "torch.sparse.mm: unknown reduction ", std::string(reduce));
  const at::Tensor sums = row_sums(rows, other);
  return {reduce == "sum" ? sums : sums / row_counts(self, sums.scalar_type()), at::Tensor()};
}

/// The gradients with respect to the elements of `self` and to `other`. `places`: the element of each result of amax and amin.
std::tuple<at::Tensor, at::Tensor> mm_reduce_backward(const at::Tensor& self, const at::Tensor& grad, const at::Tensor& other,
                                                      std::string_view reduce, const at::Tensor& places,
                                                      std::array<bool, 2> wanted) {
  check_reduced(self, other);
  at::Tensor for_self, for_other;
  const at::Tensor columns = self.col_indices(), values = self.values();
  const int64_t count = columns.size(0);
  if (reduce == "sum" || reduce == "mean") {
    const at::Tensor scaled = reduce == "sum" ? grad : grad / row_counts(self, grad.scalar_type());
    if (wanted[0]) for_self = with_values(self, products_at(self, scaled, other));
    if (wanted[1]) for_other = product(self.t(), scaled);
    return {for_self, for_other};
  }
  if (count == 0) return {with_values(self, values.clone()), at::zeros_like(other)};
  const at::Tensor found = places.lt(count), place = places.clamp_max(count - 1).reshape({-1});
  const at::Tensor g = at::where(found, grad, 0).to(grad.scalar_type());
  const at::Tensor row = columns.index_select(0, place).to(at::kLong).view(places.sizes());  // The row of `other`.
  if (wanted[0]) {
    const at::Tensor terms = (g * other.gather(0, row)).reshape({-1});
    for_self = with_values(self, sums_at(place, terms, count));
  }
  if (wanted[1]) {
    const at::Tensor terms = (g * values.index_select(0, place).view(places.sizes())).reshape({-1});
    const at::Tensor target = row * other.size(1) + at::arange(other.size(1), row.options());
    for_other = sums_at(target.reshape({-1}), terms, other.numel()).view(other.sizes());
  }
  return {for_self, for_other};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  for (const char* op : {"addmm", "addmm.out", "addmm_"}) m.impl(op, torch::CppFunction::makeFromBoxedFunction<&add_product>());
  m.impl("bmm", batch_product);
  m.impl("bmm.out", batch_product_out);
  m.impl("_sparse_sparse_matmul", sparse_times_sparse);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  for (const char* op : {"addmm.out", "addmv.out"}) m.impl(op, torch::CppFunction::makeFromBoxedFunction<&add_product>());
  for (const char* op : {"sparse_sampled_addmm", "sparse_sampled_addmm.out"})
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&sampled_addmm>());
  m.impl("_sparse_mm_reduce_impl", mm_reduce);
  m.impl("_sparse_mm_reduce_impl_backward", mm_reduce_backward);
}

}  // namespace ocl::aten
