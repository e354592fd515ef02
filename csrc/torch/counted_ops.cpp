// csrc/torch/counted_ops.cpp: eager ops whose result is a number, or whose size depends on the data: masks, nonzero, unique,
// equal, bincount, repeat_interleave. They call other eager ops, which compute everything on the device. Only the number or the
// size is read back.
#include <ATen/ATen.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "csrc/torch/device_state.h"
#include "csrc/torch/eager_op.h"
#include "csrc/torch/errors.h"

namespace ocl::aten {

namespace {

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected all tensors to have the same dtype, but got ", self.dtype(),
              " and ", other.dtype(), " in equal");
  TORCH_CHECK(self.device() == other.device(), "Expected all tensors to be on the same device, but got ", self.device(),
              " and ", other.device(), " in equal");
  return self.sizes() == other.sizes() && (self.numel() == 0 || at::eq(self, other).all().item<bool>());
}

at::Tensor call_ours(const char* name, const at::Tensor& x) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<at::Tensor(const at::Tensor&)>().call(x);
}

/// Returns, of numbers that begin with 0 or 1 and rise by 0 or 1, where those from 1 on are first. The last number is read
/// back.
at::Tensor places(const at::Tensor& numbers) {
  const int64_t n = numbers.numel();
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ocl::places", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  const int64_t count = n == 0 ? 0 : numbers[n - 1].item<int64_t>();
  const at::Tensor made = at::empty({count}, numbers.options().dtype(at::kLong));
  if (count == 0) return made;
  const at::AutoDispatchBelowADInplaceOrView guard;
  return op.call(numbers, made);
}

/// Returns the indices at which the flat tensor is not 0, in order.
at::Tensor positions(const at::Tensor& flat) {
  if (flat.numel() == 0) return at::empty({0}, flat.options().dtype(at::kLong));
  return places(call_ours("ocl::numbers_of_true", flat));
}

at::Tensor column(const std::vector<int64_t>& values, const at::Tensor& like) {
  return at::tensor(values, at::kLong).to(like.device()).unsqueeze(1);
}

/// Returns the indices of nonzero elements, shape [count, dimensions]. In memory, one column follows the other, as on the CPU.
at::Tensor nonzero(const at::Tensor& self) {
  const at::Tensor found = positions(self.reshape({-1}));
  if (self.dim() == 0) return at::empty({found.numel(), 0}, found.options());
  std::vector<int64_t> strides(self.dim(), 1);
  for (int64_t d = self.dim() - 2; d >= 0; --d) strides[d] = strides[d + 1] * std::max<int64_t>(self.size(d + 1), 1);
  const at::Tensor row = found.unsqueeze(0);
  if (self.dim() == 1) return row.t();
  std::vector<int64_t> sizes = self.sizes().vec();
  for (int64_t& size : sizes) size = std::max<int64_t>(size, 1);
  return at::remainder(at::floor_divide(row, column(strides, self)), column(sizes, self)).t();
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(self.device() == mask.device(), "masked_select: expected self and mask on one device, but got ", self.device(),
              " and ", mask.device());
  const std::vector<at::Tensor> both = at::broadcast_tensors({self, mask});
  return both[0].reshape({-1}).index_select(0, positions(both[1].reshape({-1})));
}

at::Tensor take(const at::Tensor& self, const at::Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "take(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK(self.device() == index.device(),
              "take(): self, index and out expected to be in the same device, but got self on ", self.device(),
              " and index on ", index.device());
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0, "take(): tried to take from an empty tensor");
  const at::Tensor wrapped = at::where(index < 0, index + self.numel(), index);
  return self.reshape({-1}).index_select(0, wrapped.reshape({-1})).view(index.sizes());
}

bool has_mask(const OptionalTensors& indices) {
  for (const std::optional<at::Tensor> index : indices)
    if (index.has_value() && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte))
      return true;
  return false;
}

bool all_on(at::Device device, const OptionalTensors& tensors) {
  for (const std::optional<at::Tensor> t : tensors)
    if (t.has_value() && t->defined() && t->device() != device) return false;
  return true;
}

/// Returns the indices on `device`. Those on the CPU are copied there, as for CUDA tensors. ConfigError for other devices.
OptionalTensors moved(const c10::OperatorHandle& op, at::Device device, const OptionalTensors& indices) {
  OptionalTensors here;
  for (const std::optional<at::Tensor> index : indices) {
    if (!index.has_value() || !index->defined() || index->device() == device) {
      here.push_back(index);
      continue;
    }
    if (!index->is_cpu() || !device.is_privateuseone())
      at_boundary([&] {
        fail(ErrorKind::kConfig, c10::toString(op.operator_name()) + ": the indexed tensor is on " + device.str() +
                                     ", an index on " + index->device().str() +
                                     ".\n  do: move the index, for example index.to('" + device.str() +
                                     "'). Only an index on the CPU is moved by itself");
      });
    here.push_back(index->to(device));
  }
  return here;
}

/// Runs the op with its indices on the device of the indexed tensor, and with masks replaced by the indices of their true
/// elements. For a mask on the CPU, these are found there.
void with_places(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor self = (*stack)[first].toTensor();
  OptionalTensors indices = (*stack)[first + 1].toOptionalTensorList();
  if (has_mask(indices)) {
    OptionalTensors places;
    for (at::Tensor& place : at::native::expandTensors(self, at::IOptTensorListRef(indices)))
      places.push_back(place.defined() ? std::optional(std::move(place)) : std::nullopt);
    indices = std::move(places);
    (*stack)[first + 1] = indices;
  }
  if (!all_on(self.device(), indices)) (*stack)[first + 1] = moved(op, self.device(), indices);
  run_eager_op(op, stack);
}

/// Writes values at indices. A number on the CPU that is written where a mask is true may have any dtype, as on all devices.
/// A number may be on any device.
void index_put(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  at::Tensor self = (*stack)[first].toTensor();
  const OptionalTensors indices = (*stack)[first + 1].toOptionalTensorList();
  const at::Tensor values = (*stack)[first + 2].toTensor();
  if (values.dim() == 0 && values.device() != self.device() && !values.is_cpu()) {
    (*stack)[first + 2] = values.to(self.device());
    if (self.is_cpu() && all_on(self.device(), indices)) return op.callBoxed(stack);
    return with_places(op, stack);
  }
  const bool accumulate = (*stack)[first + 3].toBool();
  const auto [is_fill, mask] = at::native::canDispatchToMaskedFill(self, indices, values);
  if (accumulate || !is_fill) return with_places(op, stack);
  self.masked_fill_(mask, values.item());
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, std::move(self));
}

// Unique elements: sort, then keep the first element of each run of equal ones.

using Unique = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Returns the first slice of each run of equal slices of `x` along `dim`. `rows` has the slices as rows. If they were sorted,
/// `order` has their numbers before sorting; otherwise it is undefined.
Unique unique_of(const at::Tensor& x, int64_t dim, const at::Tensor& rows, const at::Tensor& order, bool inverse, bool count) {
  const int64_t n = rows.size(0);
  const at::TensorOptions whole = rows.options().dtype(at::kLong);
  at::Tensor number = at::empty({0}, whole), times = number;
  const at::Tensor numbers = n == 0 ? number : call_ours("ocl::numbers_of_runs", rows);
  const at::Tensor first = places(numbers);
  if (inverse) {
    number = numbers.to(at::kLong) - 1;
    if (order.defined()) number = at::empty({n}, whole).scatter_(0, order, number);
  }
  if (count) times = at::cat({first, at::full({1}, n, whole)}).narrow(0, 1, first.numel()) - first;
  return {x.index_select(dim, first), number, times};
}

at::Tensor as_rows(const at::Tensor& x, int64_t dim) {
  const at::Tensor moved = x.movedim(dim, 0);
  return moved.numel() == 0 ? moved.reshape({moved.size(0), 0}) : moved.reshape({moved.size(0), -1});
}

Unique unique2(const at::Tensor& self, bool, bool inverse, bool count) {
  const at::Tensor flat = self.reshape({-1});
  const auto [values, order] = at::sort(flat, /*stable=*/true, 0, /*descending=*/false);
  auto [made, number, times] = unique_of(values, 0, values, order, inverse, count);
  return {made, inverse ? number.view(self.sizes()) : number, times};
}

std::tuple<at::Tensor, at::Tensor> unique(const at::Tensor& self, bool sorted, bool inverse) {
  auto [values, number, times] = unique2(self, sorted, inverse, false);
  return {values, number};
}

Unique unique_consecutive(const at::Tensor& self, bool inverse, bool count, std::optional<int64_t> dim) {
  if (dim.has_value()) {
    const int64_t d = at::maybe_wrap_dim(*dim, self.dim());
    return unique_of(self, d, as_rows(self, d), {}, inverse, count);
  }
  const at::Tensor flat = self.reshape({-1});
  auto [made, number, times] = unique_of(flat, 0, flat, {}, inverse, count);
  return {made, inverse ? number.view(self.sizes()) : number, times};
}

/// Sorts rows in lexicographic order: by the last column first, each time with a stable sort.
Unique unique_dim(const at::Tensor& self, int64_t dim, bool, bool inverse, bool count) {
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor rows = as_rows(self, d);
  at::Tensor order = at::arange(rows.size(0), self.options().dtype(at::kLong));
  for (int64_t column = rows.size(1) - 1; column >= 0; --column) {
    const at::Tensor keys = rows.select(1, column).index_select(0, order);
    order = order.index_select(0, std::get<1>(at::sort(keys, /*stable=*/true, 0, /*descending=*/false)));
  }
  return unique_of(self.index_select(d, order), d, rows.index_select(0, order), order, inverse, count);
}

/// Counts equal numbers, or adds up their weights. The largest number and whether one is negative are read back.
void bincount(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor self = (*stack)[first].toTensor();
  const auto weights = (*stack)[first + 1].toOptional<at::Tensor>();
  const int64_t least_length = (*stack)[first + 2].toInt();
  const bool is_weighted = weights.has_value() && weights->defined();
  const bool in_double = is_weighted && weights->scalar_type() != at::kFloat;
  const bool elsewhere = is_weighted && weights->device() != self.device();
  // The CPU also reports wrong arguments.
  if (!at::isIntegralType(self.scalar_type(), false) || self.dim() != 1 || least_length < 0 || elsewhere ||
      (is_weighted && weights->sizes() != self.sizes()) || (in_double && !has_fp64(self.device().index())))
    return run_eager_op(op, stack);
  int64_t length = least_length;
  if (self.numel() > 0) {
    const auto [least, most] = at::aminmax(self.to(at::kLong));
    const at::Tensor range = at::stack({least, most}).to(at::kCPU);
    TORCH_CHECK(range[0].item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
    length = std::max(length, range[1].item<int64_t>() + 1);
  }
  const at::ScalarType dtype = !is_weighted ? at::kLong : in_double ? at::kDouble : at::kFloat;
  at::Tensor counts = at::zeros({length}, self.options().dtype(dtype));
  if (self.numel() > 0) {
    const at::Tensor added = is_weighted ? weights->to(dtype) : at::ones({1}, counts.options()).expand(self.sizes());
    counts.scatter_add_(0, self.to(at::kLong), added);
  }
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, std::move(counts));
}

/// Returns each position as often as `repeats` says. The sum is read back, and whether a number is negative.
at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> length) {
  const at::ScalarType type = repeats.scalar_type();
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(type == at::kLong || type == at::kInt, "repeats has to be Long or Int tensor");
  if (repeats.size(0) == 0) return at::empty_like(repeats);
  const at::Tensor ends = repeats.cumsum(0, at::kLong);
  const at::Tensor read = at::stack({repeats.min().to(at::kLong), ends.select(0, -1)}).to(at::kCPU);
  TORCH_CHECK(read[0].item<int64_t>() >= 0, "repeats can not be negative");
  const int64_t total = read[1].item<int64_t>();
  TORCH_CHECK(length.value_or(total) == total, "allocated size does not match required size");
  return at::searchsorted(ends, at::arange(total, ends.options()), /*out_int32=*/false, /*right=*/true).to(type);
}

}  // namespace

// eager/forms.py computes the first two, lowering/movement/scatter.py the third.
TORCH_LIBRARY_FRAGMENT(ocl, m) {
  m.def("numbers_of_true(Tensor x) -> Tensor");
  m.def("numbers_of_runs(Tensor rows) -> Tensor");
  m.def("places(Tensor numbers, Tensor like) -> Tensor");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("equal", equal);
  m.impl("nonzero", nonzero);
  m.impl("masked_select", masked_select);
  m.impl("take", take);
  m.impl("index.Tensor", torch::CppFunction::makeFromBoxedFunction<&with_places>());
  m.impl("index.Tensor_out", torch::CppFunction::makeFromBoxedFunction<&with_places>());
  m.impl("_index_put_impl_", torch::CppFunction::makeFromBoxedFunction<&index_put>());
  m.impl("_unique", unique);
  m.impl("_unique2", unique2);
  m.impl("unique_consecutive", unique_consecutive);
  m.impl("unique_dim", unique_dim);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
  m.impl("bincount", torch::CppFunction::makeFromBoxedFunction<&bincount>());
}

}  // namespace ocl::aten
