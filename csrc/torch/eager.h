// csrc/torch/eager.h: an eager op without a kernel of its own, run as a compiled graph of one op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
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

/// What came of compiling one op.
struct CompiledOp {
  std::shared_ptr<const EagerPlan> plan = nullptr;  // null: there are no kernels for it
  std::string reason = "";                          // why there is no plan, or why PyTorch refuses the arguments
  std::string graph = "";                           // the ir::Graph of the plan as text
  bool lasting = false;                             // it follows from the key alone: the cache may keep it
};

/// Entries of the cache. Either may be empty.
struct EntryStore {
  std::function<std::string(const std::string& key)> find = {};  // "" when absent
  std::function<void(const std::string& key, const std::string& entry)> store = {};
};

/// What holds for calls on one device at this moment.
struct EagerContext {
  std::string identity;  // all that a stored plan depends on beside its call; "": plans are neither stored nor looked up
  exec::PlanOptions options;
  runtime::BinaryStore binaries;
  EntryStore entries;
};

struct EagerCompiler {
  /// Compiles one op. Throws what is wrong, unless it is that there are no kernels. May take the GIL.
  std::function<CompiledOp(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const EagerArguments& arguments,
                           KeyLevel level)>
      compile;
  /// Loads no compiler. May take the GIL.
  std::function<EagerContext(int device)> context;
};

/// Without a compiler (the start, and TORCH_OCL_EAGER=cpu) nothing is compiled.
void set_eager_compiler(EagerCompiler compiler);
/// Why ops could not be compiled, the latest reason of each.
std::map<std::string, std::string> eager_reasons();
/// How many plans eager ops keep: a thousand exact ones at most, and one for each class of calls.
int64_t eager_plan_count();
/// Since the start of the process.
struct EagerCounters {
  int64_t compiled = 0;    // calls of the compiler
  int64_t from_cache = 0;  // answers that the cache had
  int64_t stored = 0;
  int64_t rejected = 0;  // entries that could not be read: they were compiled anew
};
EagerCounters eager_counters();
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
