// csrc/torch/eager.h: an eager op without a kernel of its own, run as a compiled graph of one op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/exec/plan.h"
#include "csrc/torch/eager_key.h"

namespace ocl::aten {

/// Where one tensor of a plan comes from at a call.
struct EagerInput {
  enum class Kind : uint8_t {
    kTensor,   // leaf `leaf`
    kNumbers,  // several leaves (floats, scalars on the CPU) packed into one tensor of `dtype`
    kState,    // (seed, offset) of a generator: leaf `leaf`, or the device's if there is none; reserves `count` counters
  };
  Kind kind = Kind::kTensor;
  int leaf = -1;
  std::vector<int> leaves = {};
  at::ScalarType dtype = at::kFloat;
  uint64_t count = 0;
};

/// One value of the schema's returns: outputs of the plan, arguments that were written, or a number.
struct EagerReturn {
  bool is_list = false;
  std::vector<std::pair<bool, int>> tensors = {};  // (is an output of the plan, output or leaf); an index below 0: none
  std::optional<int64_t> number = std::nullopt;    // instead of tensors
};

/// What runs when an op is called with arguments of one key. Either a plan, or tensors to resize before the key is known, or
/// nothing because PyTorch refuses such arguments.
struct EagerPlan {
  std::shared_ptr<exec::Plan> plan;
  bool refused = false;
  std::vector<EagerInput> inputs;
  std::vector<std::pair<int, int>> symbols;  // (leaf, dimension) of each size symbol
  std::vector<EagerReturn> returns;
  std::vector<std::tuple<int, std::vector<int64_t>, std::vector<int64_t>>> resizes;  // leaf, sizes, strides
};

/// Compiles one op; null if there are no kernels for it. Throws what is wrong otherwise. May take the GIL.
using EagerCompiler = std::function<std::shared_ptr<const EagerPlan>(
    const c10::OperatorHandle& op, const torch::jit::Stack& stack, const EagerArguments& arguments, KeyLevel level)>;

/// Without a compiler (the start, and TORCH_OCL_EAGER=cpu) nothing is compiled.
void set_eager_compiler(EagerCompiler compiler);
/// How many plans eager ops keep: a thousand exact ones at most, and one for each class of calls.
int64_t eager_plan_count();
/// Drops them: each op is compiled anew when it is called next.
void forget_eager_plans();
/// The calling thread runs ops on the CPU from now: it is the one that compiles.
void never_compile_on_this_thread();

enum class Outcome : uint8_t {
  kRan,      // the results are on the stack; else nothing happened
  kNone,     // there are no kernels for the op with these arguments
  kRefused,  // PyTorch refuses the arguments: its kernel for the CPU says how
  kTracing,  // the op is part of a compilation
};
/// Runs the op if it can be compiled: takes the arguments from the stack and leaves the results there.
Outcome run_compiled(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace ocl::aten
