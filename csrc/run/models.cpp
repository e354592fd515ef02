// csrc/run/models.cpp: the C functions of ocl_run.h for models, calls and tensors.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "csrc/package/arguments.h"
#include "csrc/run/handles.h"
#include "csrc/run/ocl_run.h"
#include "csrc/runtime/queues/queue.h"

using ocl::package::Argument;
using ocl::package::DeviceTensor;
using ocl::package::Method;
using ocl::package::Model;
using ocl::package::Result;
using ocl::package::Value;
using ocl::run::Described;
using ocl::run::DescribedMethod;
using ocl::run::expect;
using ocl::run::guarded;

namespace {

static_assert(OCL_F64 == static_cast<int>(ocl::ir::DType::kF64) && OCL_BOOL == static_cast<int>(ocl::ir::DType::kBool),
              "ocl_dtype has the order of ir::DType");

/// Checks what `function` got for a copy of all elements of a tensor.
void expect_bytes(const std::string& function, const ocl_tensor* tensor, const void* data, size_t bytes) {
  if (!tensor || (!data && bytes > 0)) ocl::fail(ocl::ErrorKind::kConfig, function + ": a pointer is NULL");
  const size_t own = tensor->tensor.bytes();
  if (bytes != own)
    ocl::fail(ocl::ErrorKind::kConfig,
              function + ": the tensor has " + std::to_string(own) + " bytes, not " + std::to_string(bytes));
}

Described described(const Argument& argument) {
  Described d;
  d.name = argument.name;
  d.kind = argument.is_tensor ? OCL_TENSOR : OCL_INTEGER;
  d.dtype = static_cast<ocl_dtype>(argument.dtype);
  d.sizes = argument.is_tensor ? ocl::package::describe_sizes(argument.sizes) : argument.sizes[0].str();
  return d;
}

Described described(const Result& result, const Method& method, const Model& model) {
  Described d;
  if (result.kind == Result::Kind::kArgument) d = described(method.arguments[static_cast<size_t>(result.number)]);
  d.name = result.name;
  switch (result.kind) {
    case Result::Kind::kArgument:
      break;
    case Result::Kind::kOutput: {
      const ocl::ir::Output& output = method.graph.outputs[static_cast<size_t>(result.number)];
      d.kind = OCL_TENSOR;
      d.dtype = static_cast<ocl_dtype>(method.graph.buffers[static_cast<size_t>(output.buffer)].dtype);
      d.sizes = ocl::package::describe_sizes(output.sizes);
      break;
    }
    case Result::Kind::kTensor: {
      const ocl::package::Tensor& tensor = model.tensors()[static_cast<size_t>(result.number)];
      d.kind = OCL_TENSOR;
      d.dtype = static_cast<ocl_dtype>(tensor.dtype);
      d.sizes = ocl::package::describe_sizes(ocl::ir::Shape(tensor.sizes.begin(), tensor.sizes.end()));
      break;
    }
    case Result::Kind::kInteger:
      d.kind = OCL_INTEGER;
      d.sizes = result.integer.str();
      break;
    case Result::Kind::kReal:
      d.kind = OCL_REAL;
      break;
    case Result::Kind::kNone:
      break;
  }
  return d;
}

const DescribedMethod* method_of(const ocl_model* model, int method) {
  if (model == nullptr || method < 0 || static_cast<size_t>(method) >= model->methods.size()) return nullptr;
  return &model->methods[static_cast<size_t>(method)];
}

ocl_status info_of(const std::vector<Described>* described, int position, ocl_info* info) {
  return guarded([&] {
    expect(described != nullptr && info != nullptr && position >= 0 && static_cast<size_t>(position) < described->size(),
           "there is no such method, argument or result");
    const Described& d = (*described)[static_cast<size_t>(position)];
    *info = {d.name.c_str(), d.kind, d.dtype, d.sizes.c_str()};
  });
}

ocl_status find_in(const char* what, const std::vector<Described>* described, const char* name, int* number) {
  return guarded([&] {
    expect(described && name && number, "there is no such method, or a pointer is NULL");
    const auto row = std::ranges::find(*described, name, &Described::name);
    if (row != described->end()) {
      *number = static_cast<int>(row - described->begin());
      return;
    }
    std::string names;
    for (const Described& d : *described) names += (names.empty() ? "" : ", ") + d.name;
    ocl::fail(ocl::ErrorKind::kConfig, std::string("the method has no ") + what + " '" + name + "'; it has " + names);
  });
}

Value value_of(const ocl_value& value) {
  switch (value.kind) {
    case OCL_TENSOR:
      expect(value.tensor != nullptr, "an argument is a tensor, but its pointer is NULL");
      return value.tensor->tensor;
    case OCL_INTEGER:
      return value.integer;
    case OCL_REAL:
      return value.real;
    case OCL_NOTHING:
      break;
  }
  return {};
}

ocl_value value_of(Value&& value, std::vector<std::unique_ptr<ocl_tensor>>& made) {
  ocl_value result{};
  if (auto* tensor = std::get_if<DeviceTensor>(&value)) {
    made.push_back(std::make_unique<ocl_tensor>(ocl_tensor{std::move(*tensor)}));
    result.kind = OCL_TENSOR;
    result.tensor = made.back().get();
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    result.kind = OCL_INTEGER;
    result.integer = *integer;
  } else if (const auto* real = std::get_if<double>(&value)) {
    result.kind = OCL_REAL;
    result.real = *real;
  }
  return result;
}

/// Returns the options that a program has given. It may have been compiled with a header that has more members or fewer.
ocl_options options_of(const ocl_options* given) {
  ocl_options options{};
  if (!given) return options;
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  expect(given->size > 0, "ocl_options: the member size is 0; set it to sizeof(ocl_options)");
  const size_t known = std::min(given->size, sizeof options);
  expect(std::all_of(bytes + known, bytes + given->size, [](unsigned char byte) { return byte == 0; }),
         "ocl_options: an option is set that this version of the library does not have");
  std::memcpy(&options, given, known);
  return options;
}

/// Makes exit() wait for kernels that still run. It must come after the runtimes have registered what they do at exit, so after
/// kernels were built.
void wait_at_exit() {
  static std::once_flag once;
  std::call_once(once, [] { std::atexit([] { ocl::runtime::end_devices(); }); });
}

}  // namespace

extern "C" {

const char* ocl_version(void) { return OCL_VERSION; }

const char* ocl_error(void) { return ocl::run::last_error(); }

ocl_status ocl_add_runtime(const char* path) {
  return guarded([&] {
    expect(path, "ocl_add_runtime needs a path");
    std::vector<std::string> libraries = ocl::runtime::vendor_libraries();
    libraries.emplace_back(path);
    ocl::runtime::configure_devices("", libraries);
  });
}

int ocl_device_count(void) {
  int count = 0;
  guarded([&] { count = ocl::runtime::Device::count(); });
  return count;
}

const char* ocl_device_name(int device) {
  static std::mutex mutex;
  static auto* names = new std::vector<std::string>;
  const char* name = nullptr;
  guarded([&] {
    const std::lock_guard<std::mutex> lock(mutex);
    if (names->empty())
      for (const ocl::runtime::DeviceSummary& found : ocl::runtime::list_devices())
        names->push_back(found.platform_name + " / " + found.name);
    if (device >= 0 && static_cast<size_t>(device) < names->size()) name = (*names)[static_cast<size_t>(device)].c_str();
  });
  return name;
}

ocl_status ocl_open(const char* path, const ocl_options* options, ocl_model** model) {
  return guarded([&] {
    expect(path != nullptr && model != nullptr, "ocl_open needs a path and a place for the model");
    const ocl_options given = options_of(options);
    ocl::package::ModelOptions model_options;
    model_options.device = given.device ? given.device : "";
    model_options.cache = given.cache ? given.cache : "";
    model_options.trust_binaries = given.trust_binaries != 0;
    model_options.most_kept_bytes = given.kept_bytes == 0 ? int64_t{4} << 30 : std::max<int64_t>(given.kept_bytes, 0);
    auto opened = std::unique_ptr<ocl_model>(new ocl_model{Model(path, model_options), {}});
    for (const Method& method : opened->model.methods()) {
      DescribedMethod& entry = opened->methods.emplace_back();
      for (const Argument& argument : method.arguments) entry.arguments.push_back(described(argument));
      for (const Result& result : method.results) entry.results.push_back(described(result, method, opened->model));
    }
    *model = opened.release();
  });
}

void ocl_close(ocl_model* model) { delete model; }

int ocl_method_count(const ocl_model* model) { return model ? static_cast<int>(model->methods.size()) : 0; }

const char* ocl_method_name(const ocl_model* model, int method) {
  return method_of(model, method) ? model->model.methods()[static_cast<size_t>(method)].name.c_str() : nullptr;
}

ocl_status ocl_method_find(const ocl_model* model, const char* name, int* method) {
  return guarded([&] {
    expect(model && name && method, "ocl_method_find needs a model, a name and a place for the number");
    *method = model->model.find(name);
  });
}

int ocl_argument_count(const ocl_model* model, int method) {
  const DescribedMethod* found = method_of(model, method);
  return found ? static_cast<int>(found->arguments.size()) : -1;
}

int ocl_result_count(const ocl_model* model, int method) {
  const DescribedMethod* found = method_of(model, method);
  return found ? static_cast<int>(found->results.size()) : -1;
}

ocl_status ocl_argument_info(const ocl_model* model, int method, int argument, ocl_info* info) {
  const DescribedMethod* found = method_of(model, method);
  return info_of(found ? &found->arguments : nullptr, argument, info);
}

ocl_status ocl_result_info(const ocl_model* model, int method, int result, ocl_info* info) {
  const DescribedMethod* found = method_of(model, method);
  return info_of(found ? &found->results : nullptr, result, info);
}

ocl_status ocl_argument_find(const ocl_model* model, int method, const char* name, int* argument) {
  const DescribedMethod* found = method_of(model, method);
  return find_in("argument", found ? &found->arguments : nullptr, name, argument);
}

ocl_status ocl_result_find(const ocl_model* model, int method, const char* name, int* result) {
  const DescribedMethod* found = method_of(model, method);
  return find_in("result", found ? &found->results : nullptr, name, result);
}

int ocl_condition_count(const ocl_model* model, int method) {
  return method_of(model, method) ? static_cast<int>(model->model.methods()[static_cast<size_t>(method)].conditions.size())
                                  : -1;
}

const char* ocl_condition_text(const ocl_model* model, int method, int condition) {
  if (condition < 0 || condition >= ocl_condition_count(model, method)) return nullptr;
  return model->model.methods()[static_cast<size_t>(method)].conditions[static_cast<size_t>(condition)].message.c_str();
}

const char* ocl_result_structure(const ocl_model* model, int method) {
  return method_of(model, method) ? model->model.methods()[static_cast<size_t>(method)].structure.c_str() : nullptr;
}

ocl_status ocl_prepare(ocl_model* model, int method) {
  return guarded([&] {
    expect(model, "ocl_prepare needs a model");
    model->model.prepare(method);
    wait_at_exit();
  });
}

ocl_status ocl_call(ocl_model* model, int method, const ocl_value* arguments, int argument_count, ocl_value* results,
                    int result_count) {
  return guarded([&] {
    const DescribedMethod* found = method_of(model, method);
    expect(found, "ocl_call: there is no such method");
    expect(argument_count >= 0 && (arguments || argument_count == 0), "ocl_call: arguments are missing");
    expect(result_count == static_cast<int>(found->results.size()) && (results || result_count == 0),
           "ocl_call: result_count is not the method's number of results");
    std::vector<Value> values;
    for (int i = 0; i < argument_count; ++i) values.push_back(value_of(arguments[i]));
    std::vector<Value> returned = model->model.call(method, values);
    wait_at_exit();
    std::vector<std::unique_ptr<ocl_tensor>> made;
    std::vector<ocl_value> given;
    for (Value& value : returned) given.push_back(value_of(std::move(value), made));
    for (size_t i = 0; i < given.size(); ++i) results[i] = given[i];
    for (auto& tensor : made) (void)tensor.release();
  });
}

ocl_status ocl_reset(ocl_model* model) {
  return guarded([&] {
    expect(model, "ocl_reset needs a model");
    model->model.reset();
  });
}

ocl_status ocl_seed(ocl_model* model, uint64_t seed) {
  return guarded([&] {
    expect(model, "ocl_seed needs a model");
    model->model.seed(seed);
  });
}

ocl_status ocl_synchronize(ocl_model* model) {
  return guarded([&] {
    expect(model, "ocl_synchronize needs a model");
    model->model.synchronize();
  });
}

ocl_status ocl_tensor_create(ocl_model* model, ocl_dtype dtype, int dims, const int64_t* sizes, const void* data,
                             ocl_tensor** tensor) {
  return guarded([&] {
    expect(model && tensor && dims >= 0 && (sizes || dims == 0), "ocl_tensor_create: a pointer is NULL");
    expect(dtype >= OCL_BOOL && dtype <= OCL_F64, "ocl_tensor_create: the dtype is unknown");
    auto made = std::make_unique<ocl_tensor>();
    made->tensor = ocl::package::make_tensor(model->model.device(), static_cast<ocl::ir::DType>(dtype),
                                             std::vector<int64_t>(sizes, sizes + dims), data);
    *tensor = made.release();
  });
}

ocl_dtype ocl_tensor_dtype(const ocl_tensor* tensor) {
  return tensor ? static_cast<ocl_dtype>(tensor->tensor.dtype) : OCL_BOOL;
}
int ocl_tensor_dims(const ocl_tensor* tensor) { return tensor ? static_cast<int>(tensor->tensor.sizes.size()) : -1; }
const int64_t* ocl_tensor_sizes(const ocl_tensor* tensor) { return tensor ? tensor->tensor.sizes.data() : nullptr; }
size_t ocl_tensor_bytes(const ocl_tensor* tensor) { return tensor ? tensor->tensor.bytes() : 0; }

ocl_status ocl_tensor_write(ocl_tensor* tensor, const void* data, size_t bytes) {
  return guarded([&] {
    expect_bytes("ocl_tensor_write", tensor, data, bytes);
    if (bytes > 0 && !(tensor->tensor.is_dense() && tensor->tensor.memory.use_count() == 1))
      ocl::fail(ocl::ErrorKind::kConfig, "ocl_tensor_write: the tensor shares its memory; make one with ocl_tensor_create");
    ocl::package::write_tensor(tensor->tensor, data);
  });
}

ocl_status ocl_tensor_read(const ocl_tensor* tensor, void* data, size_t bytes) {
  return guarded([&] {
    expect_bytes("ocl_tensor_read", tensor, data, bytes);
    ocl::package::read_tensor(tensor->tensor, data);
  });
}

void ocl_tensor_release(ocl_tensor* tensor) { delete tensor; }

}  // extern "C"
