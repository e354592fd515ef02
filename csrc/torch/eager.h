// csrc/torch/eager.h: runs an eager op that has no kernel of its own as a compiled graph of one op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <string>

#include "csrc/exec/executor.h"
#include "csrc/exec/plan_options.h"
#include "csrc/torch/eager_key.h"
#include "csrc/torch/recipe.h"

namespace ocl::aten {

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
  /// Compiles one op to a graph. If there are no kernels for it, the recipe says so; all other errors are thrown. May take the
  /// GIL.
  std::function<std::shared_ptr<Recipe>(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                                        const EagerArguments& arguments, KeyLevel level)>
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
