// csrc/torch/refusals.cpp: the one table of refused ops. Python and C++ count in it and read it.
#include "csrc/torch/refusals.h"

#include <ATen/ATen.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <atomic>
#include <mutex>

namespace ocl::aten {

namespace {

struct Row {
  int64_t count = 0;
  uint64_t latest = 0;  // When it was counted last: greater is later.
};
std::mutex g_mutex;
std::map<Refused, Row> g_rows;
uint64_t g_clock = 0;
std::atomic<bool> g_warn{true};
std::atomic<bool> g_forbidden{false};

/// Returns dtype and sizes of a tensor, such as "float32[2, 3]".
std::string describe(const at::Tensor& t) {
  std::string text = std::string(c10::getDtypeNames(t.scalar_type()).first) + "[";
  for (int64_t d = 0; d < t.dim(); ++d) text += (d ? ", " : "") + std::to_string(t.size(d));
  return text + "]";
}

bool is_outside(const Refused& refused) { return refused.place == Refused::Place::kOutside; }

/// Returns whether two refusals are of the same op: "aten::sort.stable" outside is "aten.sort.stable" in a graph, and
/// "aten::relu" is "aten.relu.default". A graph's refusal is told by its compiler, before the op runs.
bool is_same_op(const Refused& outside, const Refused& other) {
  if (is_outside(other)) return other.op == outside.op;
  std::string name = outside.op;
  if (const size_t colons = name.find("::"); colons != std::string::npos) name.replace(colons, 2, ".");
  return other.op == name || other.op == name + ".default";
}

}  // namespace

int64_t count(const Refused& refused) {
  int64_t times = 0;
  bool warns = g_warn && is_outside(refused);
  {
    const std::lock_guard lock(g_mutex);
    if (warns)
      for (const auto& [other, row] : g_rows) warns &= !is_same_op(refused, other);
    Row& row = g_rows[refused];
    row.latest = ++g_clock;
    times = ++row.count;
  }
  if (warns)
    TORCH_WARN(refused.op, " cannot be compiled for ocl on its own (", refused.reason,
               ") and runs on the CPU, with copies both ways (said once per op; torch.ocl.fallback_counts() counts them; "
               "TORCH_OCL_WARN_FALLBACK=0 silences this).");
  return times;
}

std::map<Refused, int64_t> refusals() {
  const std::lock_guard lock(g_mutex);
  std::map<Refused, int64_t> counts;
  for (const auto& [refused, row] : g_rows) counts[refused] = row.count;
  return counts;
}

std::map<std::string, int64_t> fallback_counts() {
  std::map<std::string, int64_t> counts;
  for (const auto& [refused, times] : refusals())
    if (is_outside(refused)) counts[refused.op] += times;
  return counts;
}

std::map<std::string, std::string> eager_reasons() {
  const std::lock_guard lock(g_mutex);
  std::map<std::string, std::pair<uint64_t, std::string>> latest;
  for (const auto& [refused, row] : g_rows)
    if (is_outside(refused)) latest[refused.op] = std::max(latest[refused.op], std::pair(row.latest, refused.reason));
  std::map<std::string, std::string> reasons;
  for (const auto& [op, reason] : latest) reasons[op] = reason.second;
  return reasons;
}

void reset_fallback_counts() {
  const std::lock_guard lock(g_mutex);
  std::erase_if(g_rows, [](const auto& row) { return is_outside(row.first); });
}

void set_fallback_warnings(bool on) { g_warn = on; }
void set_fallback_forbidden(bool on) { g_forbidden = on; }
bool fallback_is_forbidden() { return g_forbidden; }

void forbid(const Refused& refused, const std::string& tensors, const std::string& remedy) {
  const std::string message = refused.op + " on (" + tensors +
                              ") would run on the CPU, which the option fallback=error (TORCH_OCL_FALLBACK) forbids.\n" +
                              "  why:   " + refused.reason + "\n" + "  do:    leave the option out, " + remedy;
  const pybind11::gil_scoped_acquire gil;
  const pybind11::object cls = pybind11::module_::import("torch_ocl_compile.errors").attr("FallbackError");
  PyErr_SetString(cls.ptr(), message.c_str());
  python_error raised;
  raised.persist();
  throw raised;
}

std::string describe_tensors(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::string text;
  const auto add = [&](const at::Tensor& t) {
    if (t.defined()) text.append(text.empty() ? "" : ", ").append(describe(t));
  };
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      add(stack[i].toTensor());
    } else if (stack[i].isTensorList()) {
      for (const at::Tensor& t : stack[i].toTensorVector()) add(t);
    }
  }
  return text;
}

void count_host_copy(const std::string& op, const at::Tensor& src) {
  const Refused refused{op, "no kernel does this copy, so it goes through the host"};
  if (g_forbidden) forbid(refused, describe(src), "or convert the tensor on the CPU, before it is moved to the device");
  count(refused);
}

}  // namespace ocl::aten
