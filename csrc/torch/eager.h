// csrc/torch/eager.h: runs an eager op that has no kernel of its own as a compiled graph of one op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/exec/executor.h"
#include "csrc/exec/plan_options.h"
#include "csrc/torch/eager_conditions.h"
#include "csrc/torch/eager_key.h"

namespace ocl::aten {

/// Says where an input tensor of a plan comes from at a call.
struct EagerInput {
  enum class Kind : uint8_t {
    kTensor,   // Leaf `leaf`.
    kNumbers,  // Several leaves (floats, CPU scalars), packed into one tensor of `dtype`.
    // (seed, offset) of the generator in leaf `leaf`, or of the device's generator. Reserves `count` counters.
    kState,
  };
  Kind kind = Kind::kTensor;
  int leaf = -1;
  std::vector<int> leaves = {};
  at::ScalarType dtype = at::kFloat;
  uint64_t count = 0;
};

/// Says where one returned value of the op comes from: outputs of the plan, arguments that were written, or a number.
struct EagerReturn {
  bool is_list = false;
  // Each tensor is (true, number of an output of the plan) or (false, leaf). If the number is below 0, there is no tensor.
  std::vector<std::pair<bool, int>> tensors = {};
  std::optional<int64_t> number = std::nullopt;  // Set instead of `tensors`.
};

/// What runs when an op is called with arguments of one key. It is a plan; or a resize of tensors, after which the call has
/// another key; or nothing, because there are no kernels, or because PyTorch raises an error for such arguments.
struct EagerPlan {
  std::shared_ptr<exec::Executor> executor;
  bool bad_arguments = false;
  std::string reason;  // Why there is no plan.
  std::vector<EagerInput> inputs;
  std::vector<std::pair<int, int>> symbols;  // (leaf, dimension) of each size symbol.
  std::vector<EagerReturn> returns;
  // (leaf, sizes, strides) of each tensor to resize.
  std::vector<std::tuple<int, std::vector<int64_t>, std::vector<int64_t>>> resizes;
  EagerConditions conditions;  // What a call of the key must fulfil so that the plan serves it.

  /// True if the op has no kernels for such arguments.
  bool has_no_kernels() const { return !executor && !bad_arguments && resizes.empty(); }
};

/// The result of compiling one op.
struct CompiledOp {
  std::shared_ptr<const EagerPlan> plan = nullptr;
  std::string graph = "";  // The ir::Graph of the plan as text.
  bool lasting = false;    // True if the result depends on the key alone, so that the cache may keep it.
};

/// Functions of the cache. Either may be empty.
struct EntryStore {
  std::function<std::string(const std::string& key)> find = {};  // Returns "" if there is no entry.
  std::function<void(const std::string& key, const std::string& entry)> store = {};
};

/// The state that plans for one device depend on at this moment.
struct EagerContext {
  // Everything that a stored plan depends on besides its call. "": plans are neither stored nor looked up.
  std::string identity;
  exec::PlanOptions options;
  runtime::BinaryStore binaries;
  EntryStore entries;
};

struct EagerCompiler {
  /// Compiles one op. If there are no kernels for it, the result says so; all other errors are thrown. May take the
  /// GIL.
  std::function<CompiledOp(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const EagerArguments& arguments,
                           KeyLevel level)>
      compile;
  /// Returns the context without importing the compiler. May take the GIL.
  std::function<EagerContext(int device)> context;
};

/// Sets the compiler. Without one (at the start, and with TORCH_OCL_EAGER=cpu), nothing is compiled.
void set_eager_compiler(EagerCompiler compiler);
/// Returns the number of plans that eager ops keep: at most a thousand exact ones, and a few per class of calls.
int64_t eager_plan_count();
/// Counters since the start of the process.
struct EagerCounters {
  int64_t compiled = 0;    // Calls of the compiler.
  int64_t from_cache = 0;  // Results found in the cache.
  int64_t stored = 0;
  int64_t rejected = 0;  // Entries that could not be read, so that the op was compiled again.
};
EagerCounters eager_counters();
/// Drops all plans. Each op is compiled again at its next call.
void forget_eager_plans();
/// Makes the calling thread run ops on the CPU from now on. Used for the thread that compiles.
void never_compile_on_this_thread();

enum class Outcome : uint8_t {
  kRan,           // The results are on the stack. With all other outcomes, nothing was changed.
  kNone,          // There are no kernels for the op with these arguments.
  kBadArguments,  // PyTorch raises an error for the arguments. Its CPU kernel gives the message.
  kTracing,       // The op is part of a compilation.
};
struct Attempt {
  Outcome outcome = Outcome::kRan;
  std::string reason = "";  // Why it did not run.
};
/// Runs the op if it can be compiled. It then replaces the arguments on the stack by the results.
Attempt run_compiled(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace ocl::aten
