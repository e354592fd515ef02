// tests/cpp/codegen_run.h: runs a fused group's kernel on a device, and evaluates the same group slowly in double
// precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "csrc/codegen/generate.h"
#include "csrc/ir/facts.h"
#include "csrc/ir/graph.h"
#include "csrc/ir/parse.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/program.h"
#include "csrc/runtime/queue.h"
#include "csrc/schedule/pipeline.h"
#include "tests/cpp/element_bytes.h"
#include "tests/cpp/runtime_devices.h"

namespace codegen_test {

using namespace ocl;
using ir::DType;
using ir::IndexExpr;
using ir::SymbolKind;

// The elements of each buffer, in storage order.
using Memory = std::vector<std::vector<double>>;
// The values of the symbols s*.
using Symbols = std::map<int, int64_t>;

/// Evaluates the nodes of a graph in double precision, one element at a time.
class Evaluator {
 public:
  Evaluator(const ir::Graph& graph, const Symbols& symbols) : graph_(graph), symbols_(symbols) {}

  int64_t number(const IndexExpr& e) const {
    return ir::evaluate(e, [&](ir::Symbol s) -> int64_t {
      switch (s.kind) {
        case SymbolKind::kSize:
          return symbols_.at(s.index);
        case SymbolKind::kLoop:
          return loops_.at(static_cast<size_t>(s.index));
        case SymbolKind::kReduce:
          return reduces_.at(static_cast<size_t>(s.index));
        case SymbolKind::kValue:
          return static_cast<int64_t>(values_.at(static_cast<size_t>(s.index)));
      }
      return 0;
    });
  }
  size_t elements(ir::BufferId id) const {
    const ir::Buffer& b = graph_.buffers[id];
    const ir::Shape strides = b.strides ? *b.strides : ir::contiguous_strides(b.sizes);
    int64_t last = 0;
    for (size_t d = 0; d < b.sizes.size(); ++d) last += (number(b.sizes[d]) - 1) * number(strides[d]);
    return static_cast<size_t>(last + 1);
  }
  size_t offset(ir::BufferId id, const std::vector<IndexExpr>& coords) const {
    const ir::Buffer& b = graph_.buffers[id];
    const ir::Shape strides = b.strides ? *b.strides : ir::contiguous_strides(b.sizes);
    int64_t at = 0;
    for (size_t d = 0; d < coords.size(); ++d) at += number(coords[d]) * number(strides[d]);
    return static_cast<size_t>(at);
  }

  void run(Memory& memory) {
    for (const ir::Node& node : graph_.nodes) {
      if (node.kind == ir::NodeKind::kContract) {
        for_each(node.sizes, loops_, 0, [&] {
          double sum = 0;
          const std::vector<int64_t> at = loops_;
          for (int64_t k = 0; k < number(node.reduce_sizes[0]); ++k) {
            loops_ = {at[0], at[1], k};
            const double a = memory[node.operands[0].buffer][offset(node.operands[0].buffer, node.operands[0].coords)];
            loops_ = {at[0], k, at[2]};
            sum += a * memory[node.operands[1].buffer][offset(node.operands[1].buffer, node.operands[1].coords)];
          }
          loops_ = at;
          put(memory, node.outputs[0], {IndexExpr::loop(0), IndexExpr::loop(1), IndexExpr::loop(2)}, sum);
        });
        continue;
      }
      for_each(node.sizes, loops_, 0, [&] {
        if (node.kind == ir::NodeKind::kMap) {
          body(node, memory);
          for (const ir::Store& s : node.stores) put_store(memory, s, values_[s.value]);
          return;
        }
        if (node.kind == ir::NodeKind::kScan) {
          std::vector<std::vector<double>> prefix(node.reduced.size());
          for_each(node.reduce_sizes, reduces_, 0, [&] {
            body(node, memory);
            for (size_t i = 0; i < node.reduced.size(); ++i) {
              if (node.reset != ir::kNone && values_[node.reset] != 0) prefix[i].clear();
              prefix[i].push_back(values_[node.reduced[i]]);
            }
            const std::vector<double> results = reduce(node, prefix);
            for (const ir::Store& s : node.stores) put_store(memory, s, results[s.value]);
          });
          return;
        }
        std::vector<std::vector<double>> inputs(node.reduced.size());
        for_each(node.reduce_sizes, reduces_, 0, [&] {
          body(node, memory);
          for (size_t i = 0; i < node.reduced.size(); ++i) inputs[i].push_back(values_[node.reduced[i]]);
        });
        const std::vector<double> results = reduce(node, inputs);
        for (const ir::Store& s : node.stores) put(memory, s.buffer, s.index, results[s.value]);
      });
    }
  }

 private:
  void for_each(const ir::Shape& sizes, std::vector<int64_t>& at, size_t depth, const std::function<void()>& run) {
    if (depth == 0) at.assign(sizes.size(), 0);
    if (depth == sizes.size()) {
      run();
      return;
    }
    const int64_t n = number(sizes[depth]);
    for (int64_t i = 0; i < n; ++i) {
      at[depth] = i;
      for_each(sizes, at, depth + 1, run);
    }
  }
  void put_store(Memory& memory, const ir::Store& s, double value) {
    if (s.mask != ir::kNone && values_[s.mask] == 0) return;
    if (s.mode == ir::StoreMode::kMaximum) value = std::max(value, memory[s.buffer][offset(s.buffer, s.index)]);
    put(memory, s.buffer, s.index, value);
  }
  void put(Memory& memory, ir::BufferId id, const std::vector<IndexExpr>& coords, double value) {
    memory[id][offset(id, coords)] = rounded(value, graph_.buffers[id].dtype);
  }
  void body(const ir::Node& node, const Memory& memory) {
    values_.assign(node.body.ops.size(), 0);
    for (size_t i = 0; i < node.body.ops.size(); ++i) {
      const ir::Op& op = node.body.ops[i];
      std::vector<double> a;
      for (const int arg : op.args) a.push_back(values_[arg]);
      double& v = values_[i];
      switch (op.code) {
        case ir::OpCode::kLoad:
          v = a.empty() || a[0] != 0 ? memory[op.buffer][offset(op.buffer, op.index)] : 0;
          break;
        case ir::OpCode::kConstant:
          v = op.constant.is_float ? op.constant.f : static_cast<double>(op.constant.i);
          break;
        case ir::OpCode::kIndex:
          v = static_cast<double>(number(op.index[0]));
          break;
        case ir::OpCode::kCast:
          v = rounded(a[0], op.dtype);
          break;
        default:
          v = rounded(apply(ir::facts(op.code).name, a), op.dtype == DType::kF32 ? DType::kF64 : op.dtype);
          break;
      }
    }
  }
  static double apply(const std::string& name, const std::vector<double>& a) {
    if (name == "add") return a[0] + a[1];
    if (name == "sub") return a[0] - a[1];
    if (name == "mul") return a[0] * a[1];
    if (name == "div") return a[0] / a[1];
    if (name == "neg") return -a[0];
    if (name == "floor") return std::floor(a[0]);
    if (name == "abs") return std::fabs(a[0]);
    if (name == "exp") return std::exp(a[0]);
    if (name == "log") return std::log(a[0]);
    if (name == "sqrt") return std::sqrt(a[0]);
    if (name == "rsqrt") return 1 / std::sqrt(a[0]);
    if (name == "reciprocal") return 1 / a[0];
    if (name == "relu") return a[0] < 0 ? 0 : a[0];
    if (name == "tanh") return std::tanh(a[0]);
    if (name == "sigmoid") return 1 / (1 + std::exp(-a[0]));
    if (name == "silu") return a[0] / (1 + std::exp(-a[0]));
    if (name == "gelu_erf") return a[0] / 2 * (1 + std::erf(a[0] / std::sqrt(2.0)));
    if (name == "gelu_erf_slope")
      return (1 + std::erf(a[0] / std::sqrt(2.0))) / 2 + a[0] * std::exp(-a[0] * a[0] / 2) / std::sqrt(2 * M_PI);
    if (name == "gelu_tanh") return a[0] / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (a[0] + 0.044715 * a[0] * a[0] * a[0])));
    if (name == "softplus") return std::log1p(std::exp(a[0]));
    if (name == "logaddexp") return std::log(std::exp(a[0]) + std::exp(a[1]));
    if (name == "maximum") return std::fmax(a[0], a[1]);
    if (name == "minimum") return std::fmin(a[0], a[1]);
    if (name == "sign") return (a[0] > 0) - (a[0] < 0);
    if (name == "pow") return std::pow(a[0], a[1]);
    if (name == "floordiv") return a[1] == 0 ? 0 : std::floor(a[0] / a[1]);
    if (name == "truncdiv") return a[1] == 0 ? 0 : std::trunc(a[0] / a[1]);
    if (name == "remainder") return a[1] == 0 ? 0 : a[0] - a[1] * std::floor(a[0] / a[1]);
    if (name == "fmod") return a[1] == 0 ? 0 : std::fmod(a[0], a[1]);
    if (name == "eq") return a[0] == a[1];
    if (name == "ne") return a[0] != a[1];
    if (name == "lt") return a[0] < a[1];
    if (name == "le") return a[0] <= a[1];
    if (name == "gt") return a[0] > a[1];
    if (name == "ge") return a[0] >= a[1];
    if (name == "logical_and") return a[0] != 0 && a[1] != 0;
    if (name == "logical_or") return a[0] != 0 || a[1] != 0;
    if (name == "logical_not") return a[0] == 0;
    if (name == "where") return a[0] != 0 ? a[1] : a[2];
    if (name == "erfinv") {
      // erfinv by Newton's method on erf.
      double x = 0;
      for (int i = 0; i < 60; ++i) x -= (std::erf(x) - a[0]) / (2 / std::sqrt(M_PI) * std::exp(-x * x)) * (i < 20 ? 0.5 : 1);
      return x;
    }
    if (name == "digamma") {
      const double h = 1e-5;
      return (std::lgamma(a[0] + h) - std::lgamma(a[0] - h)) / (2 * h);
    }
    if (name == "shift_left")
      return static_cast<double>(static_cast<int32_t>(static_cast<int64_t>(a[0]) << static_cast<int64_t>(a[1])));
    if (name == "shift_right") return static_cast<double>(static_cast<int64_t>(a[0]) >> static_cast<int64_t>(a[1]));
    fail(ErrorKind::kInternal, "the test's evaluator has no " + name);
  }
  static std::vector<double> reduce(const ir::Node& node, const std::vector<std::vector<double>>& in) {
    const std::string name = ir::facts(node.reduction).name;
    const std::vector<double>& x = in[0];
    if (node.stage == ir::ReductionStage::kPartial) {
      double sum = 0;
      for (const double v : x) sum += v;
      return {sum};
    }
    if (name == "sum" || name == "twosum") {
      double sum = 0;
      for (const double v : x) sum += v;
      return {sum};
    }
    if (name == "prod") {
      double product = 1;
      for (const double v : x) product *= v;
      return {product};
    }
    if (name == "any") return {std::any_of(x.begin(), x.end(), [](double v) { return v != 0; }) ? 1.0 : 0.0};
    if (name == "all") return {std::all_of(x.begin(), x.end(), [](double v) { return v != 0; }) ? 1.0 : 0.0};
    size_t best = 0;
    const bool least = name == "min" || name == "argmin";
    for (size_t i = 1; i < x.size(); ++i)
      if (least ? x[i] < x[best] : x[i] > x[best]) best = i;
    if (name == "max" || name == "min") return {x[best]};
    if (name == "argmax" || name == "argmin") return {in[1][best]};
    if (name == "last_max") {
      for (size_t i = 0; i < x.size(); ++i)
        if (x[i] >= x[best]) best = i;
      return {x[best], in[1][best]};
    }
    double mean = 0, m2 = 0, sum = 0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (const double v : x) m2 += (v - mean) * (v - mean);
    if (name == "welford") return {mean, m2};
    for (const double v : x) sum += std::exp(v - x[best]);
    if (name == "softmax" || name == "softmax_twosum") return {x[best], sum};
    fail(ErrorKind::kInternal, "the test's evaluator has no reduction " + name);
  }

  const ir::Graph& graph_;
  const Symbols& symbols_;
  std::vector<int64_t> loops_, reduces_;
  std::vector<double> values_;
};

/// Launches `source` on the device with `memory` as the contents of the schedule's buffers, and returns the contents
/// afterwards. Each buffer begins `shift` elements behind the start of its allocation.
inline Memory launch(runtime::Device& device, const schedule::Schedule& schedule, const codegen::KernelSource& source,
                     const Symbols& symbols, const Memory& memory, size_t shift = 3) {
  Memory result = memory;
  const auto number = [&](const IndexExpr& e) { return ir::evaluate(e, [&](ir::Symbol s) { return symbols.at(s.index); }); };
  const auto programs =
      runtime::build_programs(device, {{source.name, source.text, "test", source.local}}, {}, "/tmp/codegen_failed");
  const runtime::KernelHandle kernel = programs[0]->create_kernel(source.name);
  runtime::Queue& queue = device.queue();
  std::map<ir::BufferId, void*> addresses;
  std::map<ir::BufferId, runtime::Location> places;
  const auto bytes_of = [&](ir::BufferId id) { return static_cast<size_t>(ir::size_bytes(schedule.graph.buffers[id].dtype)); };
  const auto set = [&](int slot, size_t bytes, const void* value) {
    OCL_CHECK(clSetKernelArg(kernel.get(), static_cast<cl_uint>(slot), bytes, value), source.name);
  };
  for (const codegen::BufferArg& arg : source.buffers) {
    const size_t width = bytes_of(arg.buffer);
    if (!addresses.count(arg.buffer)) {
      const std::vector<char> data = pack(memory[arg.buffer], schedule.graph.buffers[arg.buffer].dtype);
      addresses[arg.buffer] = device.allocator().allocate(data.size() + (shift + 16) * width);
      places[arg.buffer] = device.allocator().resolve(addresses[arg.buffer]);
      queue.write(places[arg.buffer].mem, places[arg.buffer].offset_bytes + shift * width, data.data(), data.size(), true);
    }
    const runtime::Location& at = places[arg.buffer];
    const cl_ulong offset = at.offset_bytes / width + shift + static_cast<cl_ulong>(number(arg.offset));
    set(arg.slot, sizeof(cl_mem), &at.mem);
    set(arg.slot + 1, sizeof offset, &offset);
  }
  void* scratch = nullptr;
  if (source.scratch_elements > 0) {
    scratch = device.allocator().allocate(static_cast<size_t>(source.scratch_elements) * 4);
    const runtime::Location at = device.allocator().resolve(scratch);
    const cl_ulong offset = at.offset_bytes / 4;
    set(source.scratch_slot, sizeof(cl_mem), &at.mem);
    set(source.scratch_slot + 1, sizeof offset, &offset);
  }
  for (const codegen::IntArg& arg : source.ints) {
    const cl_long wide = number(arg.value);
    const cl_int narrow = static_cast<cl_int>(wide);
    if (arg.wide)
      set(arg.slot, sizeof wide, &wide);
    else
      set(arg.slot, sizeof narrow, &narrow);
  }
  std::array<size_t, 3> global{};
  for (size_t d = 0; d < 3; ++d) global[d] = static_cast<size_t>(number(source.groups[d])) * source.local[d];
  queue.launch(kernel.get(), 3, global, source.local);
  for (const codegen::BufferArg& arg : source.buffers) {
    const DType dtype = schedule.graph.buffers[arg.buffer].dtype;
    std::vector<char> data(memory[arg.buffer].size() * bytes_of(arg.buffer));
    const runtime::Location& at = places[arg.buffer];
    queue.read(at.mem, at.offset_bytes + shift * bytes_of(arg.buffer), data.data(), data.size(), true);
    unpack(data, dtype, result[arg.buffer]);
  }
  for (const auto& [id, address] : addresses) device.allocator().free(address);
  if (scratch) device.allocator().free(scratch);
  return result;
}

/// Returns memory with random inputs between `low` and `high`; the other buffers are zeros.
inline Memory fill(const schedule::Schedule& s, const Evaluator& evaluator, double low, double high) {
  Memory memory(s.graph.buffers.size());
  std::mt19937 random(11);
  std::uniform_real_distribution<double> real(low, high);
  for (size_t i = 0; i < memory.size(); ++i) {
    const ir::Buffer& b = s.graph.buffers[i];
    memory[i].resize(evaluator.elements(static_cast<int>(i)));
    if (b.role != ir::BufferRole::kInput) continue;
    for (double& v : memory[i])
      v = b.dtype == DType::kBool ? static_cast<double>(random() % 2)
          : ir::is_floating(b.dtype)
              ? rounded(real(random), b.dtype)
              : std::floor(real(random) * (b.dtype == DType::kU8 ? 0 : 3) + (b.dtype == DType::kU8 ? random() % 200 : 0));
  }
  return memory;
}

}  // namespace codegen_test
