// csrc/torch/recipe.h: how a call of an eager op runs: the plan, where its inputs and the op's results come from, and for which
// calls it holds. Python makes it (torch_ocl_compile/eager/compile.py), the cache keeps it.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/exec/executor.h"
#include "csrc/exec/plan_options.h"
#include "csrc/ir/graph.h"
#include "csrc/ir/index_expr.h"
#include "csrc/torch/eager_key.h"

namespace ocl::aten {

/// What runs when an op is called with arguments of one key.
struct Recipe {
  enum class Kind : uint8_t {
    kPlan,
    kResizes,       // It resizes tensors, after which the call has another key.
    kNoKernels,     // Nothing runs: there are no kernels for such arguments.
    kBadArguments,  // Nothing runs: PyTorch raises an error for such arguments.
  };

  /// Says where an input tensor of the plan comes from at a call.
  struct Source {
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
  struct Result {
    bool is_list = false;
    // Each tensor is (true, number of an output of the plan) or (false, leaf). If the number is below 0, there is no tensor.
    std::vector<std::pair<bool, int>> tensors = {};
    std::optional<int64_t> number = std::nullopt;  // Set instead of `tensors`.
  };

  /// A trace that decides something by a size or a float holds for some values only. Its recipe serves the calls for which all
  /// of these conditions hold.
  struct Conditions {
    std::vector<std::pair<int, int>> symbols;    // (leaf, dimension) of the size s0, s1, ... of `sizes`.
    std::vector<ir::IndexExpr> sizes;            // Each must be at least 0.
    std::vector<std::pair<int, double>> floats;  // (leaf, the value that it must have).

    bool empty() const { return sizes.empty() && floats.empty(); }
    bool hold(const EagerArguments& arguments) const;
  };

  Kind kind = Kind::kNoKernels;
  std::string reason;  // Why nothing runs.
  std::vector<Source> sources;
  std::vector<std::pair<int, int>> symbols;  // (leaf, dimension) of each size symbol.
  std::vector<Result> results;
  std::vector<std::tuple<int, std::vector<int64_t>, std::vector<int64_t>>> resizes;  // (leaf, sizes, strides) of each tensor.
  Conditions conditions;
  bool lasting = false;                      // True if it depends on the key alone, so that the cache may keep it.
  int device = -1;                           // The index of the plan's device.
  std::string label;                         // The plan's name in dumps.
  ir::Graph graph;                           // Empty once the plan is made.
  std::shared_ptr<exec::Executor> executor;  // Set by make_plan.

  bool runs() const { return kind == Kind::kPlan || kind == Kind::kResizes; }
};

/// Makes the plan of a recipe that has a graph. If the driver's compiler ends on its kernels, the recipe becomes kNoKernels.
/// Throws all other errors. `op`: "aten::add.out".
void make_plan(Recipe& recipe, const std::string& op, const runtime::BinaryStore& binaries, exec::PlanOptions options);

/// Returns the entry of the cache for a recipe whose plan has not been made.
std::string entry_of(const Recipe& recipe);
/// Reads an entry for a call. Its graph is scheduled again by make_plan, so that current options and measured choices apply.
/// Throws std::exception if the entry is damaged.
std::shared_ptr<Recipe> recipe_from(const std::string& entry, const EagerArguments& arguments);

}  // namespace ocl::aten
