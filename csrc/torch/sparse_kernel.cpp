// csrc/torch/sparse_kernel.cpp: see sparse_kernel.h.
#include "csrc/torch/sparse_kernel.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/codegen/kernel_files.h"
#include "csrc/exec/user_kernel.h"
#include "csrc/torch/copy_kernel.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

constexpr at::ScalarType kSparseTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong};

/// A kernel as it is built: one for each type and form.
struct Variant {
  std::string what;  // "sum", "max", "min" or "dot"
  at::ScalarType type, index;
  int width = 1;  // Neighbouring columns of a work-item.

  std::string name() const {
    return "sparse_" + what + "_" + kernel_type(type) + (index == at::kInt ? "_i32_" : "_i64_") + std::to_string(width);
  }
  std::string text(const runtime::Device& device) const {
    std::string text = "#define NAME " + name() + "\n#define TYPE_" + kernel_type(type) + "\n#define INDEX " +
                       (index == at::kInt ? "int" : "long") + "\n#define WIDTH " + std::to_string(width) + "\n#define KIND " +
                       (what == "sum"   ? "0"
                        : what == "dot" ? "2"
                                        : "1") +
                       "\n";
    // A NaN is better than any number. Integers are added up without sign.
    const std::string sign = what == "max" ? ">" : "<";
    const bool is_float = at::isFloatingType(type);
    const std::string signed_type = type == at::kInt ? "int" : "long";
    if (is_float)
      text += "#define IS_BETTER(x, best) ((x) " + sign + " (best) || (isnan(x) && !isnan(best)))\n";
    else
      text += "#define IS_BETTER(x, best) ((" + signed_type + ")(x) " + sign + " (" + signed_type + ")(best))\n";
    if (type == at::kHalf && !device.caps().fp16_convert) text += codegen::kernel_file("base/halves");
    if (type == at::kBFloat16) text += codegen::kernel_file("base/bfloat16");
    return text + codegen::kernel_file("base/sparse");
  }
};

exec::UserKernel& kernel_of(runtime::Device& device, const Variant& variant) {
  static std::mutex mutex;
  static auto* kernels = new std::map<std::pair<int, std::string>, std::unique_ptr<exec::UserKernel>>;
  std::unique_lock lock(mutex);
  std::unique_ptr<exec::UserKernel>& entry = (*kernels)[{device.index(), variant.name()}];
  if (entry) return *entry;
  lock.unlock();
  const auto [store, failed_dir] = configured_build_context();
  lock.lock();
  if (!entry)
    entry = std::make_unique<exec::UserKernel>(
        device, runtime::KernelText{variant.name(), variant.text(device), "a product with a sparse matrix", {0, 0, 0}}, store,
        failed_dir);
  return *entry;
}

/// Returns how many neighbouring columns of `width` a work-item takes.
int columns_per_item(const runtime::Device& device, at::ScalarType type, int64_t width) {
  if (type == at::kHalf && !device.caps().fp16_convert) return 1;
  const int most = device.caps().is_cpu ? 16 : width % 4 == 0 && width >= 128 ? 4 : 1;
  return width >= most ? most : width >= 8 && most > 8 ? 8 : width >= 4 && most > 4 ? 4 : 1;
}

size_t rounded_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

void launch(runtime::Device& device, const Variant& variant, const std::vector<at::Tensor>& tensors, size_t first_result,
            const std::vector<uint64_t>& numbers, size_t columns, size_t rows) {
  std::vector<exec::UserArgument> arguments;
  for (const at::Tensor& tensor : tensors) {
    runtime::Location at = location(tensor);
    at.remaining_bytes = tensor.nbytes();
    arguments.emplace_back(at);
  }
  for (const uint64_t number : numbers)
    arguments.emplace_back(std::string(reinterpret_cast<const char*>(&number), sizeof number));
  size_t across = 1;  // Work-items of a group along the columns.
  const size_t items = device.caps().is_cpu ? 32 : 128;
  while (across < columns && across < (device.caps().is_cpu ? 1 : 32)) across *= 2;
  std::array<size_t, 3> local{across, items / across, 1};
  if (rows == 1) local = {items, 1, 1};
  const int stream = current_stream(device.index());
  kernel_of(device, variant)
      .launch(stream, arguments, {rounded_up(columns, local[0]), rounded_up(rows, local[1]), 1}, local, variant.name());
  for (size_t i = first_result; i < tensors.size(); ++i) device.allocator().wrote(tensors[i].const_data_ptr(), stream);
}

uint64_t size_of(const at::Tensor& t, int64_t dim) { return static_cast<uint64_t>(t.size(dim)); }

struct Operands {
  at::Tensor rows, columns, values, dense, out;
};

/// Returns contiguous operands and a new result.
Operands operands_of(const Rows& sparse, const at::Tensor& dense) {
  const at::Tensor out = at::empty({sparse.rows.size(0) - 1, dense.size(1)}, dense.options());
  return {sparse.rows.contiguous(), sparse.columns.to(sparse.rows.scalar_type()).contiguous(), sparse.values.contiguous(),
          dense.contiguous(), out};
}

}  // namespace

bool has_sparse_kernel(at::ScalarType dtype, int device) {
  return std::ranges::count(kSparseTypes, dtype) > 0 && (dtype != at::kDouble || has_fp64(device));
}

at::Tensor row_sums(const Rows& sparse, const at::Tensor& dense) {
  const Operands o = operands_of(sparse, dense);
  if (o.out.numel() == 0) return o.out;
  if (o.values.numel() == 0) return o.out.zero_();
  return at_boundary([&] {
    runtime::Device& device = device_at(dense.device().index());
    const int width = columns_per_item(device, dense.scalar_type(), dense.size(1));
    launch(device, {"sum", dense.scalar_type(), o.rows.scalar_type(), width}, {o.rows, o.columns, o.values, o.dense, o.out}, 4,
           {size_of(o.values, 0), size_of(o.out, 0), size_of(o.dense, 0), size_of(o.dense, 1)},
           (size_of(o.dense, 1) + width - 1) / width, size_of(o.out, 0));
    return o.out;
  });
}

std::tuple<at::Tensor, at::Tensor> row_extremes(const Rows& sparse, const at::Tensor& dense, bool largest) {
  const Operands o = operands_of(sparse, dense);
  const at::Tensor places = at::empty(o.out.sizes(), o.out.options().dtype(at::kLong));
  if (o.out.numel() == 0) return {o.out, places};
  if (o.values.numel() == 0) return {o.out.zero_(), places.zero_()};
  return at_boundary([&]() -> std::tuple<at::Tensor, at::Tensor> {
    launch(device_at(dense.device().index()), {largest ? "max" : "min", dense.scalar_type(), o.rows.scalar_type()},
           {o.rows, o.columns, o.values, o.dense, o.out, places}, 4,
           {size_of(o.values, 0), size_of(o.out, 0), size_of(o.dense, 0), size_of(o.dense, 1)}, size_of(o.dense, 1),
           size_of(o.out, 0));
    return {o.out, places};
  });
}

at::Tensor row_products(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor out = at::empty({rows.size(0)}, a.options());
  if (out.numel() == 0) return out;
  if (a.size(1) == 0) return out.zero_();
  const at::Tensor i = rows.contiguous(), j = columns.to(rows.scalar_type()).contiguous(), x = a.contiguous(),
                   y = b.contiguous();
  return at_boundary([&] {
    runtime::Device& device = device_at(a.device().index());
    const int width = device.caps().is_cpu ? columns_per_item(device, a.scalar_type(), a.size(1)) : 1;
    launch(device, {"dot", a.scalar_type(), i.scalar_type(), width}, {i, j, x, y, out}, 4,
           {size_of(out, 0), size_of(x, 0), size_of(y, 0), size_of(x, 1)}, size_of(out, 0), 1);
    return out;
  });
}

}  // namespace ocl::aten
