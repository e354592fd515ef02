// csrc/package/model.cpp: uploads the tensors of a package, makes the plans of its methods and calls them.
#include "csrc/package/model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "csrc/cache/kernel_cache.h"
#include "csrc/exec/binary_store.h"
#include "csrc/exec/stored_plan.h"
#include "csrc/package/arguments.h"
#include "csrc/runtime/build/program.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"

namespace ocl::package {
namespace {

runtime::BinaryStore store_of(cache::PackageFile& file, const runtime::Device& device, const ModelOptions& options) {
  // The budget is the default of the option cache_size_mb in Python.
  runtime::BinaryStore store = exec::binary_store(std::make_shared<cache::KernelCache>(options.cache, int64_t{1} << 30));
  store.complete = true;
  if (options.trust_binaries)
    store.find = [cached = store.find, trusted = file.kernels(runtime::store_prefix(device))](const std::string& key) {
      std::string found = cached(key);
      if (const auto row = trusted.find(key); found.empty() && row != trusted.end()) found = row->second;
      return found;
    };
  return store;
}

}  // namespace

Model::Model(const std::string& path, const ModelOptions& options)
    : device_(find_device(options.device)), options_(options), file_(path), contents_(read_contents(file_)) {
  binaries_ = store_of(file_, device_, options_);
  for (const Tensor& tensor : contents_.tensors) {
    std::shared_ptr<Memory>& memory = storages_[tensor.storage];
    if (!memory) memory = std::make_shared<Memory>(device_, static_cast<size_t>(file_.storage_bytes(tensor.storage)));
    tensors_.push_back({memory, tensor.first, tensor.dtype, tensor.sizes, tensor.strides});
  }
  for (size_t i = 0; i < contents_.methods.size(); ++i) prepared_.push_back(std::make_unique<Prepared>());
  uploading_ = std::async(std::launch::async, [this] { upload_all(); });
}

Model::~Model() {
  closing_ = true;
  uploading_.wait();
}

void Model::upload_all() {
  for (const auto& [storage, memory] : storages_)
    if (!closing_) upload(storage, memory);
}

void Model::upload(int64_t storage, const std::shared_ptr<Memory>& memory) {
  runtime::Queue& queue = device_.queue(kStream);
  file_.read_storage(storage, [&](int64_t first, const void* data, size_t bytes) {
    const runtime::Location at = device_.allocator().use(memory->address(), kStream);
    queue.write(at.mem, at.offset_bytes + static_cast<size_t>(first), data, bytes, /*blocking=*/true);
  });
  if (memory->address()) device_.allocator().wrote(memory->address(), kStream);
}

DeviceTensor Model::tensor(int number) const {
  uploading_.get();
  return tensors_.at(static_cast<size_t>(number));
}

void Model::reset() {
  uploading_.get();
  const std::lock_guard<std::mutex> lock(reset_mutex_);
  std::set<int64_t> written;
  for (const Tensor& tensor : contents_.tensors)
    if (tensor.written) written.insert(tensor.storage);
  for (const int64_t storage : written) upload(storage, storages_.at(storage));
}

void Model::synchronize() {
  uploading_.get();
  device_.synchronize();
}

void Model::seed(uint64_t seed) {
  const std::lock_guard<std::mutex> lock(random_mutex_);
  seed_ = seed;
  offset_ = 0;
}

int Model::find(const std::string& name) const {
  std::string names;
  for (size_t i = 0; i < contents_.methods.size(); ++i) {
    if (contents_.methods[i].name == name) return static_cast<int>(i);
    names += (i ? ", " : "") + contents_.methods[i].name;
  }
  fail(ErrorKind::kConfig, "the package " + file_.path() + " has no method '" + name + "'; it has " + names);
}

exec::Executor& Model::executor(int method) {
  if (method < 0 || static_cast<size_t>(method) >= prepared_.size())
    fail(ErrorKind::kConfig, "the package " + file_.path() + " has no method number " + std::to_string(method));
  Prepared& prepared = *prepared_[static_cast<size_t>(method)];
  const std::lock_guard<std::mutex> lock(prepared.mutex);
  if (!prepared.executor) {
    exec::PlanOptions options;
    const Method& made = contents_.methods[static_cast<size_t>(method)];
    options.label = made.name;
    options.most_kept_bytes = options_.most_kept_bytes;
    prepared.executor =
        std::make_unique<exec::Executor>(exec::find_or_make_plan(made.graph, made.graph_key, device_, binaries_, options));
  }
  return *prepared.executor;
}

void Model::prepare(int method) { executor(method); }

void* Model::random_state(uint64_t count, std::vector<std::shared_ptr<Memory>>& held) {
  uint64_t state[2];
  {
    const std::lock_guard<std::mutex> lock(random_mutex_);
    state[0] = seed_;
    state[1] = std::exchange(offset_, offset_ + count);
  }
  held.push_back(std::make_shared<Memory>(device_, sizeof state));
  const runtime::Location at = device_.allocator().use(held.back()->address(), kStream);
  device_.queue(kStream).fill(at.mem, at.offset_bytes, sizeof state, state, sizeof state);
  return held.back()->address();
}

std::vector<Value> Model::call(int number, const std::vector<Value>& arguments) {
  exec::Executor& executor = this->executor(number);
  uploading_.get();
  const Method& method = contents_.methods[static_cast<size_t>(number)];
  const std::vector<int64_t> symbols = check_arguments(method, arguments, device_);
  const exec::Plan& plan = *executor.plan;
  const ir::Graph& graph = plan.schedule.graph;
  // The tensor behind an input of the graph, which is no random state.
  const auto source = [&](const Input& input) -> const DeviceTensor& {
    return input.kind == Input::Kind::kTensor ? tensors_[static_cast<size_t>(input.number)]
                                              : std::get<DeviceTensor>(arguments[static_cast<size_t>(input.number)]);
  };

  std::vector<std::shared_ptr<Memory>> held, made;  // Alive until everything is enqueued; memory of the results.
  std::vector<void*> inputs, outputs;
  for (const Input& input : method.inputs)
    inputs.push_back(input.kind == Input::Kind::kRandomState ? random_state(static_cast<uint64_t>(input.number), held)
                                                             : source(input).address());
  const std::lock_guard<std::mutex> lock(executor.mutex);
  exec::bind_symbols(executor.state, symbols);
  for (size_t i = 0; i < plan.schedule.allocations.size(); ++i) {
    const exec::TensorShape& shape = executor.state.allocation_shapes[i];
    const ir::DType dtype = graph.buffers[plan.schedule.allocations[i]].dtype;
    made.push_back(
        std::make_shared<Memory>(device_, static_cast<size_t>(extent(shape.sizes, shape.strides) * ir::size_bytes(dtype))));
    outputs.push_back(made.back()->address());
  }
  exec::run(executor, inputs, outputs, {}, kStream);

  std::vector<DeviceTensor> tensors;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const exec::BufferSource& from = plan.output_sources[i];
    const exec::TensorShape& shape = executor.state.output_shapes[i];
    DeviceTensor& tensor = tensors.emplace_back();
    if (from.kind == exec::BufferSource::Kind::kInput)
      tensor = source(method.inputs[static_cast<size_t>(from.index)]);
    else
      tensor.memory = made[static_cast<size_t>(from.index)];
    tensor.offset += shape.offset;
    tensor.dtype = graph.buffers[graph.outputs[i].buffer].dtype;
    tensor.sizes = shape.sizes;
    tensor.strides = shape.strides;
  }
  return results_of(method, arguments, symbols, tensors);
}

std::vector<Value> Model::results_of(const Method& method, const std::vector<Value>& arguments,
                                     const std::vector<int64_t>& symbols, const std::vector<DeviceTensor>& outputs) const {
  const auto size_of = [&](ir::Symbol s) { return symbols[static_cast<size_t>(s.index)]; };
  const auto value_of = [&](const Result& result) -> Value {
    const auto number = static_cast<size_t>(result.number);
    switch (result.kind) {
      case Result::Kind::kOutput:
        return outputs[number];
      case Result::Kind::kArgument:
        return arguments[number];
      case Result::Kind::kTensor:
        return tensors_[number];
      case Result::Kind::kInteger:
        return ir::evaluate(result.integer, size_of);
      case Result::Kind::kReal:
        return result.real;
      case Result::Kind::kNone:
        break;
    }
    return {};
  };
  std::vector<Value> results;
  for (const Result& result : method.results) results.push_back(value_of(result));
  return results;
}

}  // namespace ocl::package
