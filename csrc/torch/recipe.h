// csrc/torch/recipe.h: how a compiled graph or an eager op runs: the plan, where its inputs and the results of a call come
// from, and for which calls it holds. Python makes it (torch_ocl_compile/lowering/graphs/graph.py), the cache keeps it.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/exec/executor.h"
#include "csrc/exec/plan_options.h"
#include "csrc/ir/graph.h"
#include "csrc/ir/index_expr.h"
#include "csrc/torch/eager_key.h"
#include "csrc/torch/formula.h"
#include "csrc/torch/plan_runner.h"

namespace ocl::aten {

/// The values of a call: the arguments of a graph and what Python computes from them, or the leaves of an op's arguments.
using Leaves = std::vector<c10::IValue>;

struct Recipe {
  /// What runs when an op is called with arguments of one key. Graphs always have a plan.
  enum class Kind : uint8_t {
    kPlan,
    kResizes,       // It resizes tensors, after which the call has another key.
    kNoKernels,     // Nothing runs: there are no kernels for such arguments.
    kBadArguments,  // Nothing runs: PyTorch raises an error for such arguments.
  };

  /// Says where a size symbol of the graph comes from at a call.
  struct Symbol {
    int leaf = -1;
    int dim = -1;            // Below 0: the leaf is the integer itself.
    bool is_stride = false;  // Whether it is the stride of the dimension instead of its size.

    int64_t value(const Leaves& leaves) const;
  };

  /// How a tensor stands for the numbers in its memory.
  struct Form {
    bool is_complex = false;  // The last dimension of the memory are the real and the imaginary part.
    bool is_conj = false, is_neg = false;
  };

  /// Says where an input tensor of the plan comes from at a call.
  struct Source {
    enum class Kind : uint8_t {
      kTensor,    // Leaf `index`.
      kMoved,     // Leaf `index`, moved to the plan's device.
      kConstant,  // Constant `index`.
      kNumbers,   // Several leaves (floats, CPU scalars), packed into one tensor of `dtype`. -1 - i stands for `formulas[i]`.
      // (seed, offset) of the generator in leaf `generator`, or of the device's generator. Reserves `count` counters.
      kState,
      kFault,  // A word in which a kernel notes a mistake of the user's, which `faults[index]` describes.
    };
    Kind kind = Kind::kTensor;
    int index = -1;
    std::vector<int> leaves = {};
    at::ScalarType dtype = at::kFloat;
    uint64_t count = 0;
    Form form = {};  // That the plan expects of a kTensor or kMoved.
  };

  /// Says where one result of a call comes from.
  struct Result {
    enum class Kind : uint8_t {
      kNone,    // There is none.
      kOutput,  // Output `index` of the plan.
      kInput,   // Input `index` of the plan.
      kLeaf,    // Leaf `index`.
      kSize,    // `size`.
    };
    Kind kind = Kind::kNone;
    int index = -1;
    ir::IndexExpr size = {};
    Form form = {};  // Of a kOutput.
  };

  /// A trace that decides something by a size or a float holds for some values only. Its recipe serves the calls for which all
  /// of these conditions hold.
  struct Conditions {
    enum class Relation : uint8_t { kEqual, kNotEqual, kBelow, kAtMost, kAbove, kAtLeast };

    std::vector<Symbol> symbols;       // s0, s1, ... of `sizes` and `floats`.
    std::vector<ir::IndexExpr> sizes;  // Each must be at least 0.
    std::vector<std::tuple<Formula, Relation, Formula>> floats;

    bool empty() const { return sizes.empty() && floats.empty(); }
    bool hold(const Leaves& leaves) const;
  };

  Kind kind = Kind::kNoKernels;
  std::string reason;  // Why nothing runs.
  std::vector<Source> sources;
  std::vector<Symbol> symbols;    // s0, s1, ... of the graph.
  std::vector<Formula> formulas;  // Numbers that the host computes at each call.
  std::vector<Result> results;
  std::vector<at::Tensor> constants;    // On the plan's device. No part of an entry.
  std::vector<std::string> faults;      // Messages (runtime/queues/fault_words.h), in which "{}" stands for the wrong index.
  std::vector<at::Tensor> fault_words;  // A word for each fault. Set by bind_faults.
  std::vector<EagerCall> calls;         // What runs in the middle of an eager op's plan. The cache keeps no recipe with calls.
  // The values that an op returns, in order: (whether it is a list, how many of the results it has). A graph returns `results`.
  std::vector<std::pair<bool, int>> returned;
  int generator = -1;                                                                // The leaf of an op's generator.
  std::vector<std::tuple<int, std::vector<int64_t>, std::vector<int64_t>>> resizes;  // (leaf, sizes, strides) of each tensor.
  Conditions conditions;
  bool lasting = false;                      // True if it depends on the key alone, so that the cache may keep it.
  int device = -1;                           // The index of the plan's device.
  std::string label;                         // The plan's name in dumps.
  ir::Graph graph;                           // Empty once make_plan has made the plan.
  std::shared_ptr<exec::Executor> executor;  // Set by make_plan.

  bool runs() const { return kind == Kind::kPlan || kind == Kind::kResizes; }
};

/// What a plan is called with.
struct PlanInputs {
  std::vector<int64_t> symbols;
  std::vector<at::Tensor> tensors;
};
/// Returns the inputs of the plan for a call. `device`: the index of the plan's device. Below 0, an interpreter runs the graph
/// on the CPU.
PlanInputs inputs_of(const Recipe& recipe, const Leaves& leaves, int device);
/// Returns a result of a call. `outputs`: those of the plan.
c10::IValue value_of(const Recipe::Result& result, const Leaves& leaves, const PlanInputs& inputs,
                     const std::vector<at::Tensor>& outputs);

/// Makes the plan of an eager op's recipe that has a graph. If the driver's compiler ends on its kernels, the recipe becomes
/// kNoKernels. Throws all other errors. `op`: "aten::add.out".
void make_plan(Recipe& recipe, const std::string& op, const runtime::BinaryStore& binaries, exec::PlanOptions options);

/// Gives the recipe the words for its faults. Does nothing if it has them.
void bind_faults(Recipe& recipe, runtime::Device& device);
/// Call when the recipe's plan has been enqueued on the current stream, so that the next wait looks for faults. A plan with
/// guard zones (the option debug) is waited for at once. Throws kIndex if a fault is found.
void look_for_faults(const Recipe& recipe, const exec::Plan& plan);

/// Returns the entry of the cache for a recipe whose plan has not been made.
std::string entry_of(const Recipe& recipe);
/// Reads an entry. Its graph is scheduled again when the plan is made, so that current options and measured choices apply.
/// Throws std::exception if the entry is damaged.
std::shared_ptr<Recipe> recipe_from(const std::string& entry);
/// Returns whether the parts of an op's recipe fit together and fit the call. This keeps a damaged entry from replacing an op.
bool fits(const Recipe& recipe, const EagerArguments& arguments);

}  // namespace ocl::aten
