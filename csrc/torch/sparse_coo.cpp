// csrc/torch/sparse_coo.cpp: ops on COO tensors whose kernels in torch need the memory of a CPU or of CUDA. They call ops on
// dense tensors, which compute everything on the device. Only the number of elements of a result is read back.
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>
#include <ATen/native/SparseTensorUtils.h>
#include <torch/library.h>

#include <limits>
#include <tuple>
#include <vector>

#include "csrc/torch/eager_op.h"
#include "csrc/torch/sparse.h"
#include "csrc/torch/sparse_kernel.h"

namespace ocl::aten {

namespace {

using at::sparse::get_sparse_impl;

std::vector<int64_t> joined(at::IntArrayRef a, at::IntArrayRef b) {
  std::vector<int64_t> all = a.vec();
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

at::IntArrayRef dense_sizes(const at::Tensor& t) { return t.sizes().slice(t.sparse_dim()); }
at::Tensor flat_indices(const at::Tensor& t) { return ocl::aten::flat_indices(t._indices(), t.sizes()); }

/// Adds up elements with equal indices, and sorts by index.
at::Tensor coalesce(const at::Tensor& self) {
  const at::Tensor indices = self._indices(), values = self._values();
  const int64_t n = self._nnz();
  if (self.is_coalesced()) return self;
  if (n < 2) return coo_tensor(indices.clone(), values.clone(), self.sizes(), true);
  const auto [keys, order] = sorted_below(flat_indices(self), c10::multiply_integers(self.sizes().slice(0, self.sparse_dim())));
  const at::Tensor differs = keys.narrow(0, 1, n - 1).ne(keys.narrow(0, 0, n - 1));
  const at::Tensor starts = at::cat({at::ones({1}, differs.options()), differs});
  const at::Tensor first = starts.nonzero().reshape({-1});
  const bool distinct = first.numel() == n;
  at::Tensor sums;
  if (distinct) {
    sums = values.index_select(0, order);
  } else if (has_sparse_kernel(values.scalar_type(), values.device().index()) && values.numel() > 0) {
    // Each sum is a row of a product: of a matrix that has ones where an element belongs to the sum, and the values.
    const at::Tensor begins = at::cat({first, at::full({1}, n, first.options())});
    const at::Tensor rows = row_sums({begins, order, at::ones({n}, values.options())}, values.reshape({n, -1}));
    sums = rows.view(joined({first.numel()}, dense_sizes(self)));
  } else {
    sums = sums_at(starts.cumsum(0, at::kLong) - 1, values.index_select(0, order), first.numel());
  }
  const at::Tensor places = distinct ? order : order.index_select(0, first);
  return coo_tensor(indices.index_select(1, places), sums, self.sizes(), true);
}

/// Stores rows at places of which no two are equal.
void put_distinct(const at::Tensor& rows, const at::Tensor& place, const at::Tensor& values) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ocl::put_distinct_", "")
                             .typed<void(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  const at::AutoDispatchBelowADInplaceOrView guard;
  op.call(rows, place, values);
}

/// Adds alpha * sparse to `dense`, which it writes.
void add_to_dense(const at::Tensor& dense, const at::Tensor& sparse, const at::Scalar& alpha) {
  if (sparse._nnz() == 0 || dense.numel() == 0) return;
  const at::Tensor values = sparse._values().to(dense.scalar_type());
  const at::Tensor terms = alpha.equal(1) ? values : values.mul(alpha);
  if (sparse.sparse_dim() == 0) {
    dense.add_(terms.sum(0));
    return;
  }
  // One row for each place among the sparse dimensions.
  const at::Tensor whole = dense.contiguous();
  const at::Tensor rows = whole.view(joined({-1}, dense_sizes(sparse)));
  if (dense.is_complex()) {
    rows.index_add_(0, flat_indices(sparse), terms);
  } else {
    const at::Tensor sums = coalesce(coo_tensor(sparse._indices(), terms, sparse.sizes(), sparse.is_coalesced()));
    const at::Tensor place = flat_indices(sums), old = rows.index_select(0, place);
    put_distinct(rows, place, dense.scalar_type() == at::kBool ? old.logical_or(sums._values()) : old.add(sums._values()));
  }
  if (!whole.is_same(dense)) dense.copy_(whole);
}

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  TORCH_CHECK(other.layout() == at::kSparse, "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.device() == other.device() || (self.is_cpu() && self.dim() == 0),
              "add: expected both tensors on one device, got ", self.device(), " and ", other.device());
  const at::ScalarType type = at::promote_types(self.scalar_type(), other.scalar_type());
  TORCH_CHECK(at::canCast(type, out.scalar_type()), "Can't convert result type ", type, " to output ", out.scalar_type(),
              " in add operation");
  if (self.layout() != at::kSparse) {
    TORCH_CHECK(self.sizes() == other.sizes(), "add: expected 'self' and 'other' to have same size, but self has size ",
                self.sizes(), " while other has size ", other.sizes(), " (FYI: op=sparse does not support broadcasting)");
    at::native::resize_output(out, self.sizes());
    if (type == out.scalar_type()) {
      if (!out.is_same(self)) out.copy_(self);
      add_to_dense(out, other, alpha);
    } else {
      const at::Tensor sum = self.to(type, /*non_blocking=*/false, /*copy=*/true);
      add_to_dense(sum, other, alpha);
      out.copy_(sum);
    }
    return out;
  }
  TORCH_CHECK(self.sizes() == other.sizes(), "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(),
              " != ", other.sizes());
  const auto values = [&](const at::Tensor& t, const at::Scalar& factor) {
    const at::Tensor v = t._values().to(type);
    return factor.equal(1) ? v : v.mul(factor);
  };
  if (other._nnz() == 0 || self._nnz() == 0) {
    const bool is_self = other._nnz() == 0;
    const at::Tensor& kept = is_self ? self : other;
    const at::Tensor kept_values = values(kept, is_self ? at::Scalar(1) : alpha);
    set_coo(out, kept._indices().clone(), kept_values.is_same(kept._values()) ? kept_values.clone() : kept_values, self.sizes(),
            kept.is_coalesced());
    return out;
  }
  TORCH_CHECK(at::sparse::is_same_density(self, other),
              "add: expected 'self' and 'other' to have same density, but 'self' has ", self.sparse_dim(),
              " sparse dimensions while 'other' has ", other.sparse_dim(), " sparse dimensions");
  const at::Tensor both = coo_tensor(at::cat({self._indices(), other._indices()}, 1),
                                     at::cat({values(self, 1), values(other, alpha)}, 0), self.sizes(), false);
  // As on the CPU, a sum of coalesced tensors is coalesced. Otherwise it is so only if it would be longer than a dense tensor.
  const bool coalesces = (self.is_coalesced() && other.is_coalesced()) || both._values().numel() > self.numel();
  const at::Tensor sum = coalesces ? coalesce(both) : both;
  set_coo(out, sum._indices(), sum._values(), self.sizes(), coalesces);
  return out;
}

/// Returns the elements of `dense` at the indices of `sparse`, which has the same sizes: [nnz, dense dimensions ...].
at::Tensor elements_at(const at::Tensor& dense, const at::Tensor& sparse) {
  if (sparse.sparse_dim() == 0) return dense.unsqueeze(0).expand(joined({sparse._nnz()}, dense.sizes()));
  c10::List<std::optional<at::Tensor>> places;
  for (int64_t d = 0; d < sparse.sparse_dim(); ++d) places.push_back(sparse._indices().select(0, d));
  return at::index(dense, places);
}

struct Matches {
  at::Tensor place;  // For each element of `of`, where `in` has an element with the same index. Any place if it has none.
  at::Tensor found;  // Whether it has one.
};

/// Looks up the indices of `of` in `in`, which is coalesced and has elements.
Matches matches(const at::Tensor& of, const at::Tensor& in) {
  const at::Tensor keys = flat_indices(in), wanted = flat_indices(of);
  const at::Tensor place = at::searchsorted(keys, wanted).clamp_max(in._nnz() - 1);
  return {place, keys.index_select(0, place).eq(wanted)};
}

void mul_sparse(const at::Tensor& left, const at::Tensor& right, at::ScalarType type, const at::Tensor& out) {
  const at::Tensor a = coalesce(left), b = coalesce(right);
  TORCH_CHECK(at::sparse::is_same_density(a, b), "mul: expected 'self' and 'other' to have same sparse_dim, but 'self' has ",
              a.sparse_dim(), " sparse dimensions while 'other' has ", b.sparse_dim(), " sparse dimensions");
  if (a._nnz() == 0 || b._nnz() == 0) {
    const at::Tensor& none = a._nnz() == 0 ? a : b;
    set_coo(out, none._indices().clone(), none._values().to(type), a.sizes(), true);
    return;
  }
  const auto [place, found] = matches(a, b);
  const at::Tensor chosen = found.nonzero().reshape({-1});
  const at::Tensor factors = b._values().index_select(0, place.index_select(0, chosen));
  set_coo(out, a._indices().index_select(1, chosen), a._values().index_select(0, chosen).mul(factors), a.sizes(), true);
}

at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const at::ScalarType type = at::result_type(self, other);
  TORCH_CHECK(at::canCast(type, out.scalar_type()), "mul: result type ", type, " cannot be cast to ", out.scalar_type());
  const bool is_first = self.layout() == at::kSparse;
  const at::Tensor &sparse = is_first ? self : other, &factor = is_first ? other : self;
  TORCH_CHECK(sparse.device() == factor.device() || (factor.is_cpu() && factor.dim() == 0),
              "mul: expected both tensors on one device, got ", self.device(), " and ", other.device());
  if (factor.dim() == 0) {
    const at::Tensor number = factor.layout() == at::kSparse ? factor.to_dense() : factor;
    set_coo(out, sparse._indices().clone(), sparse._values().mul(number), sparse.sizes(), sparse.is_coalesced());
    return out;
  }
  const std::vector<int64_t> sizes = at::infer_size(self.sizes(), other.sizes());
  const at::Tensor s = sparse.sizes() == sizes ? sparse : at::_sparse_broadcast_to(sparse, sizes);
  if (factor.layout() == at::kSparse) {
    mul_sparse(s, factor.sizes() == sizes ? factor : at::_sparse_broadcast_to(factor, sizes), type, out);
    return out;
  }
  set_coo(out, s._indices().clone(), s._values().mul(elements_at(factor.expand(sizes), s)), sizes, s.is_coalesced());
  return out;
}

/// Returns the elements of `self`, dense or sparse, at the indices of `mask`.
at::Tensor sparse_mask(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.layout() == at::kSparse, "sparse_mask: expected a sparse COO mask, got ", mask.layout());
  TORCH_CHECK(self.sizes() == mask.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ", self.sizes(),
              " but mask has size ", mask.sizes());
  TORCH_CHECK(self.device() == mask.device(), "sparse_mask: expected both tensors on one device, got ", self.device(), " and ",
              mask.device());
  at::Tensor values;
  if (self.layout() != at::kSparse) {
    values = elements_at(self, mask);
  } else {
    TORCH_CHECK(at::sparse::is_same_density(self, mask), "sparse_mask(): expected the same number of sparse dimensions, got ",
                self.sparse_dim(), " and ", mask.sparse_dim());
    if (self._nnz() == 0) {
      values = at::zeros(mask._values().sizes(), self._values().options());
    } else {
      const at::Tensor summed = coalesce(self);
      const auto [place, found] = matches(mask, summed);
      values = summed._values().index_select(0, place);
      std::vector<int64_t> column(values.dim(), 1);
      column[0] = -1;
      values = at::where(found.view(column), values, at::zeros({}, values.options()));
    }
  }
  return coo_tensor(mask._indices().clone(), values, mask.sizes(), mask.is_coalesced());
}

at::Tensor mask_projection(const at::Tensor& self, const at::Tensor& mask, bool) { return sparse_mask(self, mask); }

/// The gradient of a sum over `dims` of a COO tensor.
at::Tensor sum_backward(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef dims) {
  std::vector<bool> summed(input.dim(), false);
  for (const int64_t d : dims) summed[at::maybe_wrap_dim(d, input.dim())] = true;
  const at::Tensor dense = grad.layout() == at::kSparse ? grad.to_dense() : grad;
  at::Tensor spread = dense;
  for (int64_t d = 0; d < input.dim(); ++d)
    if (summed[d]) spread = spread.unsqueeze(d);
  const at::Tensor values = elements_at(spread.expand(input.sizes()), input);
  return coo_tensor(input._indices().clone(), values.contiguous(), input.sizes(), input.is_coalesced());
}

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() == 1 && at::isIntegralType(index.scalar_type(), false),
                    "index_select() argument index must be 1-D long-tensor.");
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[d] = index.size(0);
  if (d >= self.sparse_dim())
    return coo_tensor(self._indices().clone(), self._values().index_select(d - self.sparse_dim() + 1, index), sizes,
                      self.is_coalesced());
  // Elements sorted by this dimension; each index chooses a range of them.
  const auto [keys, order] = sorted_below(self._indices().select(0, d), self.size(d));
  const at::Tensor wrapped = at::where(index < 0, index + self.size(d), index).to(keys.scalar_type());
  const at::Tensor begins = at::searchsorted(keys, wrapped);
  const at::Tensor counts = at::searchsorted(keys, wrapped, /*out_int32=*/false, /*right=*/true) - begins;
  const auto [number, within] = ranges(counts);
  const at::Tensor chosen = order.index_select(0, begins.index_select(0, number) + within);
  const at::Tensor indices = self._indices().index_select(1, chosen);
  indices.select(0, d).copy_(number);
  return coo_tensor(indices, self._values().index_select(0, chosen), sizes, false);
}

/// The gradient of embedding_bag. A sparse one has an element for each index.
void embedding_bag_backward(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  constexpr size_t kSparse = 9;
  if (!(*stack)[stack->size() - op.schema().arguments().size() + kSparse].toBool()) return run_eager_op(op, stack);
  using Kernel = c10::impl::WrapFunctionIntoFunctor<TORCH_FN_TYPE(at::native::_embedding_bag_backward_symint)>::type;
  static Kernel kernel;
  c10::impl::make_boxed_from_unboxed_functor<Kernel, false>::call(&kernel, op, keys, stack);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> ranges(const at::Tensor& lengths) {
  const at::Tensor ends = lengths.cumsum(0);
  const int64_t total = lengths.numel() == 0 ? 0 : ends.select(0, -1).item<int64_t>();
  const at::Tensor place = at::arange(total, lengths.options());
  const at::Tensor range = at::searchsorted(ends, place, /*out_int32=*/false, /*right=*/true);
  return {range, place - (ends - lengths).index_select(0, range)};
}

at::Tensor flat_indices(const at::Tensor& indices, at::IntArrayRef sizes) {
  at::Tensor flat;
  int64_t stride = 1;
  for (int64_t d = indices.size(0) - 1; d >= 0; --d) {
    const at::Tensor term = stride == 1 ? indices.select(0, d) : indices.select(0, d).mul(stride);
    flat = flat.defined() ? flat.add(term) : term;
    stride *= sizes[d];
  }
  return flat.defined() ? flat : at::zeros({indices.size(1)}, indices.options());
}

std::tuple<at::Tensor, at::Tensor> sorted_below(const at::Tensor& numbers, int64_t end) {
  const at::ScalarType type = end <= std::numeric_limits<int16_t>::max()   ? at::kShort
                              : end <= std::numeric_limits<int32_t>::max() ? at::kInt
                                                                           : numbers.scalar_type();
  return at::sort(numbers.to(type), /*stable=*/true, 0, /*descending=*/false);
}

at::Tensor sums_at(const at::Tensor& place, const at::Tensor& values, int64_t places) {
  const at::ScalarType type = values.scalar_type();
  const bool is_half = type == at::kHalf || type == at::kBFloat16;
  const at::Tensor terms = is_half ? values.to(at::kFloat) : type == at::kBool ? values.to(at::kInt) : values;
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = places;
  const at::Tensor sums = at::zeros(sizes, terms.options()).index_add_(0, place, terms);
  return type == at::kBool ? sums.ne(0) : sums.to(type);
}

at::Tensor coo_tensor(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes, bool coalesced) {
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(at::kSparse))._coalesced_(coalesced);
}

void set_coo(const at::Tensor& out, const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes,
             bool coalesced) {
  const int64_t sparse_dim = indices.size(0);
  get_sparse_impl(out)->raw_resize_(sparse_dim, static_cast<int64_t>(sizes.size()) - sparse_dim, sizes);
  get_sparse_impl(out)->set_indices_and_values_unsafe(indices, values.to(out.scalar_type()));
  out._coalesced_(coalesced);
}

// eager/forms.py computes it.
TORCH_LIBRARY_FRAGMENT(ocl, m) {
  m.def("put_distinct_(Tensor(a!) rows, Tensor place, Tensor values) -> ()");
  m.def("put_distinct(Tensor rows, Tensor place, Tensor values) -> Tensor");
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_coalesce", coalesce);
  m.impl("add.out", add_out);
  m.impl("mul.out", mul_out);
  m.impl("sparse_mask", sparse_mask);
  m.impl("_sparse_mask_projection", mask_projection);
  m.impl("_sparse_sum_backward", sum_backward);
  m.impl("index_select", index_select);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag_backward", torch::CppFunction::makeFromBoxedFunction<&embedding_bag_backward>());
}

}  // namespace ocl::aten
