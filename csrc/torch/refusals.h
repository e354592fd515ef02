// csrc/torch/refusals.h: which ops got no kernel and why, how often that happened, and whether it is forbidden.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace ocl::aten {

/// An op without a kernel.
struct Refused {
  enum class Place : uint8_t {
    kOutside,  // Outside of compiled functions, or called by a plan. It is counted each time that it runs on the CPU.
    kGraph,    // A node of a compiled graph. It is counted when the graph is compiled, or loaded from the cache.
  };
  std::string op;  // "aten::linalg_eig"; in a graph "aten.linalg_eig.default".
  std::string reason;
  Place place = Place::kOutside;

  auto operator<=>(const Refused&) const = default;
};

/// Counts an op. Returns how often it was counted for this reason. Warns of the first op of each name that ran on the CPU.
int64_t count(const Refused& refused);
/// Returns all refusals with their counts since the start of the process; those of kOutside since reset_fallback_counts().
std::map<Refused, int64_t> refusals();
/// Returns how often each op ran on the CPU outside of compiled functions, and its latest reason.
std::map<std::string, int64_t> fallback_counts();
std::map<std::string, std::string> eager_reasons();
void reset_fallback_counts();
void set_fallback_warnings(bool on);

/// Whether an op outside of compiled functions must not run on the CPU (option `fallback`).
void set_fallback_forbidden(bool on);
bool fallback_is_forbidden();
/// Throws FallbackError. `tensors`: the operands as a text. `remedy`: what the user can do instead.
[[noreturn]] void forbid(const Refused& refused, const std::string& tensors, const std::string& remedy = "or use other ops");
/// Returns the tensors among the arguments as a text, such as "float32[2, 3], float32[3]".
std::string describe_tensors(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

/// Counts a copy of `src` within its device that goes through the host, under the name `op`. FallbackError if that is
/// forbidden.
void count_host_copy(const std::string& op, const at::Tensor& src);

}  // namespace ocl::aten
