// csrc/torch/copy_kernel.cpp: builds and launches kernels/base/copy.cl, which copies within a device, with any strides and
// conversions of dtypes.
#include "csrc/torch/copy_kernel.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csrc/checks/quick_check.h"
#include "csrc/codegen/kernel_files.h"
#include "csrc/runtime/build/program.h"
#include "csrc/runtime/record/history.h"
#include "csrc/support/group_refused.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

constexpr int kMaxDims = 8;      // Limit of kernels/base/copy.cl.
constexpr uint64_t kLanes = 16;  // The elements of a vector on a CPU.

/// The struct `Shape` of kernels/base/copy.cl.
struct Shape {
  uint64_t size[kMaxDims], src_stride[kMaxDims], dst_stride[kMaxDims];
  uint64_t places, dims, rows;
  uint64_t chunk, step, value;
};

/// A type of elements: its macros SRC, SRC_T and SRC_KIND in kernels/base/copy.cl.
struct Element {
  at::ScalarType dtype;
  const char *name, *type, *kind;
};
constexpr at::ScalarType kBytes = at::ScalarType::Undefined;  // Bytes as they are.
constexpr Element kElements[] = {{at::kBool, "boolean", "uchar", "BOOL"},
                                 {at::kByte, "u8", "uchar", "INT"},
                                 {at::kChar, "i8", "char", "INT"},
                                 {at::kShort, "i16", "short", "INT"},
                                 {at::kInt, "i32", "int", "INT"},
                                 {at::kLong, "i64", "long", "INT"},
                                 {at::kUInt16, "u16", "ushort", "INT"},
                                 {at::kUInt32, "u32", "uint", "INT"},
                                 {at::kUInt64, "u64", "ulong", "NUMBER"},
                                 {at::kHalf, "f16", "half", "HALF"},
                                 {at::kBFloat16, "bf16", "ushort", "BFLOAT"},
                                 {at::kFloat, "f32", "float", "NUMBER"},
                                 {at::kDouble, "f64", "double", "NUMBER"},
                                 {at::kFloat8_e4m3fn, "f8e4m3", "uchar", "F8"},
                                 {at::kFloat8_e5m2, "f8e5m2", "uchar", "F8"},
                                 {at::kFloat8_e4m3fnuz, "f8e4m3fnuz", "uchar", "F8"},
                                 {at::kFloat8_e5m2fnuz, "f8e5m2fnuz", "uchar", "F8"},
                                 {kBytes, "raw1", "uchar", "NUMBER"},
                                 {kBytes, "raw2", "ushort", "NUMBER"},
                                 {kBytes, "raw4", "uint", "NUMBER"},
                                 {kBytes, "raw8", "ulong", "NUMBER"},
                                 {kBytes, "raw16", "ulong2", "NUMBER"}};

/// Defines the macros of an element type. side: SRC or DST.
std::string element_macros(const std::string& side, const std::string& name) {
  const auto* element = std::ranges::find(kElements, name, &Element::name);
  return "#define " + side + " " + name + "\n#define " + side + "_T " + element->type + "\n#define " + side + "_KIND " +
         element->kind + "\n";
}

/// Returns the names of both element types; ("", "") if the kernel cannot do this conversion.
std::pair<std::string, std::string> kernel_types(at::ScalarType src, at::ScalarType dst, int device) {
  if (src == dst) {
    const std::string raw = "raw" + std::to_string(at::elementSize(src));
    return {raw, raw};
  }
  const char *from = kernel_type(src), *to = kernel_type(dst);
  if (from == nullptr || to == nullptr) return {};
  if ((src == at::kDouble || dst == at::kDouble) && !has_fp64(device)) return {};
  return {from, to};
}

/// Which form of the kernel copies, and how many elements a work-item copies.
struct Form {
  bool rows = false, vectors = false, crossed = false;  // The macros ROWS, VECTORS and CROSSED.
  bool wide = false;                                    // The macro PLACE is ulong.
  bool lanes = false, tiled = false, runs = false;      // The macros LANES, TILED and RUNS.
  bool fill = false;                                    // The macro FILL.
  size_t chunk = 1;                                     // The macro CHUNK, with `rows` or `crossed`.
  size_t places = 1;                                    // Places of a work-group, if places have a dimension of their own.
  /// True if get_global_id(0) runs over the places, too.
  bool is_flat() const { return rows || crossed; }
  /// The number of work-items for a place.
  size_t width(const Shape& shape) const { return crossed ? shape.size[0] : (shape.size[0] + shape.chunk - 1) / shape.chunk; }
  auto operator<=>(const Form&) const = default;
};

struct CopyKernel {
  std::shared_ptr<runtime::Program> program;
  runtime::KernelHandle kernel;
  std::string name;
  std::array<size_t, 3> local;
  std::mutex mutex;  // Held from setting the arguments until the launch is enqueued.
};

/// Settings for building copy kernels.
struct BuildContext {
  std::mutex mutex;
  runtime::BinaryStore store;
  std::string failed_dir;
  std::function<void()> configure;  // Sets the other members.
};
BuildContext& build_context() {
  static auto* instance = new BuildContext;  // Never destroyed, because threads may outlive static destruction.
  return *instance;
}

/// Returns an OpenCL vector of `count` integers of `bytes` bytes.
std::string vector_type(size_t bytes, size_t count) {
  const char* const base = bytes == 1 ? "uchar" : bytes == 2 ? "ushort" : bytes == 4 ? "uint" : "ulong";
  return base + std::to_string(count);
}

/// Defines what kernels/base/copy.cl needs for the form.
std::string form_macros(const Form& form, size_t src_bytes, size_t dst_bytes) {
  std::string text;
  if (form.is_flat()) text += "#define CHUNK " + std::to_string(form.chunk) + "\n";
  if (form.wide) text += "#define PLACE ulong\n";
  if (form.rows) text += "#define ROWS\n";
  if (form.crossed) text += "#define CROSSED\n";
  if (form.vectors) text += "#define VECTORS\n";
  if (form.lanes) text += "#define LANES " + std::to_string(kLanes) + "\n";
  if (form.tiled) text += "#define TILED\n";
  if (form.runs) text += "#define RUNS\n";
  if (form.fill) text += "#define FILL\n";
  if (form.vectors || form.crossed)
    text += "#define SRC_VECTOR " + vector_type(src_bytes, form.chunk) + "\n#define DST_VECTOR " +
            vector_type(dst_bytes, form.chunk) + "\n";
  return text;
}

CopyKernel& copy_kernel(runtime::Device& device, const std::string& src, const std::string& dst, const Form& form,
                        size_t src_bytes, size_t dst_bytes) {
  static std::mutex mutex;
  static auto* kernels = new std::map<std::tuple<int, std::string, std::string, Form>, std::unique_ptr<CopyKernel>>;
  std::unique_lock lock(mutex);
  std::unique_ptr<CopyKernel>& entry = (*kernels)[{device.index(), src, dst, form}];
  if (entry) return *entry;
  lock.unlock();
  const auto [store, failed_dir] = configured_build_context();
  lock.lock();
  if (entry) return *entry;  // Another thread has built it.
  auto fresh = std::make_unique<CopyKernel>();
  fresh->name = (form.fill ? "fill_" : "copy_") + src + "_" + dst +
                (form.vectors   ? "_vectors"
                 : form.crossed ? "_crossed"
                 : form.rows    ? "_rows"
                 : form.tiled   ? "_tiled"
                 : form.runs    ? "_runs"
                 : form.lanes   ? "_lanes"
                                : "") +
                (form.wide ? "_wide" : "");
  fresh->local = form.is_flat()         ? std::array<size_t, 3>{128, 1, 1}
                 : device.caps().is_cpu ? std::array<size_t, 3>{1, form.places, 1}
                                        : std::array<size_t, 3>{32, 4, 1};
  std::string text = "#define NAME " + fresh->name + "\n" + element_macros("SRC", src) + element_macros("DST", dst) +
                     form_macros(form, src_bytes, dst_bytes);
  if (form.lanes) text += std::string("#define CELL ") + (src == "f16" ? "ushort" : "SRC_T") + "\n";
  if (src == "f64" || dst == "f64") text += "#define USES_F64\n";
  if (dst == "bf16") text += codegen::kernel_file("base/bfloat16");
  if (src == "f16" || dst == "f16") checks::QuickCheck(device, store, {}).finish();
  if ((src == "f16" || dst == "f16") && !checks::avoid_faults(device, device.caps()).fp16_convert)
    text += codegen::kernel_file("base/halves");
  if (src.starts_with("f8") || dst.starts_with("f8")) text += codegen::kernel_file("base/floats8");
  text += codegen::kernel_file("base/copy");
  const auto build = [&] {
    const std::string where = "aten::copy_ from " + src + " to " + dst;
    // The cache keeps a text for one local size.
    const std::string sized = text + "// " + std::to_string(fresh->local[0]) + " x " + std::to_string(fresh->local[1]) + "\n";
    fresh->program = runtime::build_programs(device, {{fresh->name, sized, where, fresh->local}}, store, failed_dir).front();
  };
  try {
    build();
  } catch (const GroupRefused& refused) {  // The kernel shares nothing between its work-items.
    fresh->local = {refused.most_items.at(0) >= 32 ? size_t{32} : size_t{1}, 1, 1};
    build();
  }
  fresh->kernel = fresh->program->create_kernel(fresh->name);
  entry = std::move(fresh);
  return *entry;
}

/// Drops dimensions of size 1, sorts the other dimensions from the innermost of `dst`, and merges neighbours where both strides
/// allow it. Returns false if more than kMaxDims dimensions remain.
bool merge_dims(const at::Tensor& src, const at::Tensor& dst, Shape& shape) {
  std::vector<int64_t> order;
  for (int64_t k = dst.dim() - 1; k >= 0; --k)
    if (dst.size(k) != 1) order.push_back(k);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return dst.stride(a) < dst.stride(b); });
  shape = {};
  int dims = 0;
  for (const int64_t k : order) {
    const uint64_t size = dst.size(k), s = src.stride(k), d = dst.stride(k);
    if (dims > 0) {
      const int last = dims - 1;
      if (s == shape.src_stride[last] * shape.size[last] && d == shape.dst_stride[last] * shape.size[last]) {
        shape.size[last] *= size;
        continue;
      }
    }
    if (dims == kMaxDims) return false;
    shape.size[dims] = size;
    shape.src_stride[dims] = s;
    shape.dst_stride[dims] = d;
    ++dims;
  }
  shape.step = 1;
  if (dims == 0) {
    shape.size[0] = 1;
    dims = 1;
  }
  for (int k = dims; k < kMaxDims; ++k) shape.size[k] = 1;
  shape.dims = dims;
  shape.places = 1;
  for (int k = 1; k < dims; ++k) shape.places *= shape.size[k];
  return true;
}

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

/// Describes a copy for recordings.
runtime::LaunchInfoPtr copy_info(const CopyKernel& copy, const at::Tensor& src, const at::Tensor& dst, const Shape& shape,
                                 const std::array<size_t, 3>& global) {
  auto info = std::make_shared<runtime::LaunchInfo>();
  info->kernel = copy.name, info->kind = "copy", info->origin = copy.name.starts_with("fill") ? "aten::fill_" : "aten::copy_";
  info->global = global, info->local = copy.local, info->ops = 1;
  info->bytes = static_cast<int64_t>(dst.numel() * (src.element_size() + dst.element_size()));
  info->title = "copy ";
  for (uint64_t k = shape.dims; k > 0; --k)
    info->title.append(std::to_string(k == 2 && shape.rows > 0 ? shape.rows : shape.size[k - 1]))
        .append(k > 1 ? "x" : " @ aten::copy_");
  info->title += ", " + runtime::amount(static_cast<double>(info->bytes), "B") + ": " + copy.name;
  return info;
}

/// True if all rows of a tensor with this offset and these strides (both in elements) begin at a multiple of `count` elements.
bool aligned_rows(uint64_t offset, const uint64_t* strides, uint64_t dims, size_t count) {
  if (offset % count != 0) return false;
  return std::all_of(strides + 1, strides + dims, [&](uint64_t stride) { return stride % count == 0; });
}

/// Makes dimension k the dimension 1, and counts it in steps of `count` elements.
void step_rows(Shape& shape, uint64_t k, uint64_t count) {
  for (uint64_t* const row : {shape.size, shape.src_stride, shape.dst_stride}) std::rotate(row + 1, row + k, row + k + 1);
  shape.places /= shape.size[1];
  shape.step = count;
  shape.rows = std::exchange(shape.size[1], (shape.size[1] + count - 1) / count);
  shape.places *= shape.size[1], shape.src_stride[1] *= count, shape.dst_stride[1] *= count;
}

/// For a transposition: makes dimension 1 the one in which src is contiguous, in steps of whole aligned vectors. Returns the
/// elements of a vector; 1 if there is none.
size_t cross(Shape& shape, size_t src_bytes, uint64_t src_offset) {
  constexpr size_t kTransferBytes = 32;  // What a GPU's caches pass on at once.
  const size_t count = std::min<size_t>(kTransferBytes / src_bytes, 16);
  if (src_bytes > 8 || shape.dst_stride[0] != 1 || src_offset % count != 0) return 1;
  for (uint64_t k = 1; k < shape.dims; ++k) {
    if (shape.src_stride[k] != 1 || shape.size[k] % count != 0) continue;
    for (uint64_t other = 0; other < shape.dims; ++other)
      if (other != k && shape.src_stride[other] % count != 0) return 1;
    step_rows(shape, k, count);
    return count;
  }
  return 1;
}

/// For a transposition on a CPU, as cross(). Returns whether there is a dimension in which src is contiguous.
bool tile(Shape& shape) {
  if (shape.dst_stride[0] != 1 || shape.src_stride[0] <= 1 || shape.size[0] < kLanes) return false;
  for (uint64_t k = 1; k < shape.dims; ++k)
    if (shape.src_stride[k] == 1 && shape.size[k] >= kLanes) return step_rows(shape, k, kLanes), true;
  return false;
}

/// True if kernels/base/copy.cl has vectors for these types on a CPU.
bool has_lanes(const std::string& src, const std::string& dst) {
  const auto lacks = [](const std::string& type) { return type == "raw16" || type == "u64" || type.starts_with("f8"); };
  return !lacks(src) && !lacks(dst);
}

/// For a CPU: chooses what a work-item copies. There are some work-groups for each compute unit, but none with less than a few
/// kilobytes: to start one takes as long as to copy that much.
void share_among_items(const runtime::Device& device, Shape& shape, Form& form, size_t bytes) {
  constexpr uint64_t kGroupsOfUnit = 8, kLeastBytes = 16384, kShortRow = 512, kMostPlaces = 16;
  const uint64_t groups = kGroupsOfUnit * device.caps().units;
  const uint64_t share = std::max(shape.size[0] * shape.places / groups, kLeastBytes / bytes);  // Elements of a work-group.
  form.tiled = form.lanes && tile(shape);
  if (form.tiled) {
    shape.chunk = 64, form.places = kMostPlaces;
    return;
  }
  form.runs =
      form.lanes && shape.size[0] <= kShortRow && shape.dims > 1;  // To find a longer row takes little beside copying it.
  if (form.runs) step_rows(shape, 1, std::clamp<uint64_t>(share / shape.size[0], 1, shape.size[1]));
  shape.chunk = std::min(round_up(share, kLanes), std::max<uint64_t>(shape.size[0], 1));
  const uint64_t of_place = shape.chunk * std::max<uint64_t>(shape.step, 1);
  // Two sizes of work-groups, because each has a program of its own.
  form.places = share >= kMostPlaces * of_place ? kMostPlaces : 1;
}

/// May change the order of the dimensions and their steps, see cross().
Form choose_form(const runtime::Device& device, Shape& shape, const std::pair<std::string, std::string>& types,
                 size_t src_bytes, size_t dst_bytes, uint64_t src_offset, uint64_t dst_offset) {
  Form form;
  const bool is_cpu = device.caps().is_cpu;
  form.rows = !is_cpu && shape.dst_stride[0] == 1 && shape.src_stride[0] <= 1;
  if (!is_cpu && shape.src_stride[0] > 1) {
    form.chunk = cross(shape, src_bytes, src_offset);
    form.crossed = form.chunk > 1;
  } else if (form.rows) {
    constexpr size_t kVectorBytes = 16;  // The widest access of a work-item.
    const size_t count = std::clamp<size_t>(kVectorBytes / std::max(src_bytes, dst_bytes), 1, 8);
    form.vectors = count > 1 && shape.src_stride[0] == 1 && shape.size[0] % count == 0 &&
                   aligned_rows(src_offset, shape.src_stride, shape.dims, count) &&
                   aligned_rows(dst_offset, shape.dst_stride, shape.dims, count);
    form.chunk = form.vectors ? count : std::max<size_t>(count, 4);
  } else if (is_cpu) {
    form.lanes = has_lanes(types.first, types.second);
    share_among_items(device, shape, form, std::max(src_bytes, dst_bytes));
  }
  if (!is_cpu) shape.chunk = form.chunk;
  const uint64_t items = form.is_flat() ? form.width(shape) * shape.places : shape.places;
  form.wide = items >= (uint64_t{1} << 32) - 128;
  return form;
}

/// Makes two neighbours one element, if both tensors have all pairs at even places, and rows still fill vectors. Offsets are
/// in elements.
bool pair_up(Shape& shape, uint64_t src_offset, uint64_t dst_offset) {
  const auto even = [](uint64_t stride) { return stride % 2 == 0; };
  for (uint64_t* const strides : {shape.src_stride, shape.dst_stride})
    if (strides[0] != 1 || !std::all_of(strides + 1, strides + kMaxDims, even)) return false;
  constexpr uint64_t kLongRow = 8 * kLanes;  // The rest beside whole vectors takes little.
  const uint64_t pairs = shape.size[0] / 2;
  if (!even(shape.size[0]) || !even(src_offset) || !even(dst_offset)) return false;
  if (pairs < kLanes || (pairs < kLongRow && pairs % kLanes != 0)) return false;
  shape.size[0] = pairs;
  for (uint64_t* const strides : {shape.src_stride, shape.dst_stride})
    std::for_each(strides + 1, strides + kMaxDims, [](uint64_t& stride) { stride /= 2; });
  return true;
}

void enqueue(runtime::Device& device, std::pair<std::string, std::string> types, const at::Tensor& src, const at::Tensor& dst,
             Shape shape, bool fill = false) {
  const runtime::Location from = location(src), to = location(dst);
  size_t src_bytes = src.element_size(), dst_bytes = dst.element_size();
  uint64_t src_offset = from.offset_bytes / src_bytes, dst_offset = to.offset_bytes / dst_bytes;
  // A CPU takes as long for a vector of 16 short elements as of 16 longer ones.
  while (device.caps().is_cpu && types.first.starts_with("raw") && src_bytes < 8 && pair_up(shape, src_offset, dst_offset)) {
    src_bytes *= 2, dst_bytes *= 2, src_offset /= 2, dst_offset /= 2;
    types.first = types.second = "raw" + std::to_string(src_bytes);
  }
  Form form = choose_form(device, shape, types, src_bytes, dst_bytes, src_offset, dst_offset);
  form.fill = fill;
  CopyKernel& copy = copy_kernel(device, types.first, types.second, form, src_bytes, dst_bytes);
  const size_t width = form.width(shape);
  const std::array<size_t, 3> global{round_up(form.is_flat() ? width * shape.places : width, copy.local[0]),
                                     form.is_flat() ? 1 : round_up(shape.places, copy.local[1]), 1};
  runtime::Queue& queue = current_queue(device.index());
  const std::lock_guard lock(copy.mutex);
  const auto set = [&](cl_uint slot, size_t bytes, const void* value) {
    OCL_CHECK(clSetKernelArg(copy.kernel.get(), slot, bytes, value), copy.name + " on " + device.describe());
  };
  set(0, sizeof(cl_mem), &from.mem);
  set(1, sizeof src_offset, &src_offset);
  set(2, sizeof(cl_mem), &to.mem);
  set(3, sizeof dst_offset, &dst_offset);
  set(4, sizeof shape, &shape);
  queue.launch(copy.kernel.get(), 2, global, copy.local, nullptr, 0,
               runtime::wanted() ? copy_info(copy, src, dst, shape, global) : nullptr);
}
/// Returns the dimension with the fewest elements, of those with more than one.
int64_t shortest_dim(const at::Tensor& t) {
  int64_t shortest = -1;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.size(d) > 1 && (shortest < 0 || t.size(d) < t.size(shortest))) shortest = d;
  return shortest;
}

}  // namespace

const char* kernel_type(at::ScalarType dtype) {
  const auto* found = std::ranges::find(kElements, dtype, &Element::dtype);
  return found == std::end(kElements) ? nullptr : found->name;
}

bool has_copy_kernel(at::ScalarType src, at::ScalarType dst, int device) {
  return !kernel_types(src, dst, device).first.empty();
}

void launch_copy(const at::Tensor& src, const at::Tensor& dst) {
  runtime::Device& device = device_at(dst.device().index());
  Shape shape;
  if (merge_dims(src, dst, shape))
    return enqueue(device, kernel_types(src.scalar_type(), dst.scalar_type(), device.index()), src, dst, shape);
  // More dimensions than the kernel has: one copy for each index of one dimension.
  const int64_t dim = shortest_dim(dst);
  for (int64_t i = 0; i < dst.size(dim); ++i) launch_copy(src.select(dim, i), dst.select(dim, i));
}

void launch_fill(const at::Tensor& memory, uint64_t value) {
  Shape shape{};
  for (int k = 0; k < kMaxDims; ++k) shape.size[k] = 1;
  const at::Tensor pieces = memory.as_strided({memory.numel()}, {1}, memory.storage_offset()).view(at::kComplexFloat);
  shape.size[0] = pieces.numel();
  shape.dst_stride[0] = shape.places = shape.dims = shape.step = 1;
  shape.value = value;
  enqueue(device_at(memory.device().index()), {"raw8", "raw8"}, pieces, pieces, shape, true);
}

std::pair<runtime::BinaryStore, std::string> configured_build_context() {
  BuildContext& context = build_context();
  std::unique_lock lock(context.mutex);  // Not held during `configure`, which may take the GIL.
  if (const std::function<void()> configure = context.configure) {
    lock.unlock();
    configure();
    lock.lock();
  }
  return {context.store, context.failed_dir};
}

void set_build_context(runtime::BinaryStore store, std::string failed_dir) {
  const std::lock_guard lock(build_context().mutex);
  build_context().store = std::move(store);
  build_context().failed_dir = std::move(failed_dir);
}

void set_configure(std::function<void()> configure) {
  const std::lock_guard lock(build_context().mutex);
  build_context().configure = std::move(configure);
}
}  // namespace ocl::aten
