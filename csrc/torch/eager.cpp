// csrc/torch/eager.cpp: finds the plan of an eager op by its key, and calls it. At first, plans are compiled for exact
// sizes and numbers, which gives faster kernels. After a few plans that differ only in these, sizes or floats become
// arguments of a plan.
#include "csrc/torch/eager.h"

#include <ATen/native/Resize.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

#include "csrc/support/hash.h"
#include "csrc/support/log.h"
#include "csrc/torch/eager_memory.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/number_checks.h"
#include "csrc/torch/plan_runner.h"
#include "csrc/torch/recipe.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

// The calls of an op that differ only in numbers, or only in numbers and sizes, form a class (struct Class). After this
// many plans of a class that differ only in numbers, numbers become arguments of a plan.
constexpr int kExactNumbers = 3;
constexpr int kExactSizes = 4;  // After this many plans that differ in sizes, sizes become arguments.
// If no single plan can serve a whole class without conditions, the class gets at most this many exact plans. Its
// further calls run on the CPU.
constexpr int kMostExact = 48;
constexpr int kMostConditional = 8;  // A class of calls gets at most this many plans with conditions.
// After this many failed compilations without a success, no more calls of the class are compiled.
constexpr int kMostFailures = 4;
// At most this many exact plans are kept, because each takes up to a few MB on CPUs. When there are more, the older half is
// forgotten.
constexpr size_t kMostPlans = 1 << 10;

using RecipePointer = std::shared_ptr<const Recipe>;

/// The calls of one op that have the same key at level kAnyNumbers or kAnySizes. They differ only in what that level ignores.
struct Class {
  std::vector<RecipePointer> plans;  // One plan that serves all calls of the class, or plans with conditions.
  bool failed = false;               // True if a call was found for which no such plan can be made.
  int compiled = 0, failures = 0;    // Number of exact plans that were compiled, and of failures among them.
  RecipePointer failure;             // The latest of them.

  bool is_full() const { return failed || plans.size() >= static_cast<size_t>(kMostConditional); }
  RecipePointer find(const EagerArguments& arguments) const {
    for (const RecipePointer& plan : plans)
      if (plan->conditions.empty() || plan->conditions.hold(arguments.leaves)) return plan;
    return nullptr;
  }
  /// Adds a plan for this call, if there is one.
  void add(const RecipePointer& plan, const EagerArguments& arguments) {
    if (!plan->runs())
      failed = true;
    else if (!find(arguments))  // Another thread may have added one.
      plans.push_back(plan);
  }
};

struct Exact {
  RecipePointer plan;
  uint64_t used = 0;
};

struct Cache {
  std::mutex mutex;
  EagerCompiler compiler;
  uint64_t clock = 0;  // Number of calls so far.
  std::unordered_map<std::string, Exact> exact;
  std::unordered_map<std::string, Class> classes;
  EagerCounters counters;

  /// Returns a plan of a class for this call. Null if there is none, or no class.
  RecipePointer find(const std::string& key, const EagerArguments& arguments) const {
    const auto found = key.empty() ? classes.end() : classes.find(key);
    return found == classes.end() ? nullptr : found->second.find(arguments);
  }
  void add(const std::string& key, const RecipePointer& plan) {
    if (exact.size() >= kMostPlans) forget_older_half();
    exact[key] = {plan, ++clock};
  }
  void forget_older_half() {
    std::vector<uint64_t> used;
    for (const auto& [key, row] : exact) used.push_back(row.used);
    const auto middle = used.begin() + static_cast<ptrdiff_t>(used.size() / 2);
    std::nth_element(used.begin(), middle, used.end());
    std::erase_if(exact, [&](const auto& entry) { return entry.second.used < *middle; });
  }
};
Cache& cache() {
  // Never destroyed, because threads may outlive static destruction.
  static Cache* instance = new Cache;
  return *instance;
}

thread_local bool t_never = false;

/// Handles a call whose plan is not in this process.
class CacheMiss {
 public:
  /// `lock` holds the mutex of the cache before and after each call. It is released while other code runs.
  CacheMiss(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const EagerArguments& arguments,
            EagerCompiler compiler, std::unique_lock<std::mutex>& lock)
      : op_(op), stack_(stack), arguments_(arguments), compiler_(std::move(compiler)), lock_(lock) {}

  /// Returns what an earlier process has stored. Null if there is nothing.
  RecipePointer stored(KeyLevel level) {
    std::shared_ptr<Recipe> found;
    bool rejected = false;
    without_lock([&] {
      // Recipes with conditions have the same key and a number each.
      for (int& number = number_in_store(level) = 0; number < kMostConditional; ++number) {
        const std::string entry = find(level, number);
        if (entry.empty()) return;
        try {
          found = recipe_from(entry);
          if (!fits(*found, arguments_)) fail(ErrorKind::kInternal, "its parts do not fit");
        } catch (const std::exception& error) {
          log_message(LogLevel::kInfo, "eager", "a stored plan of " + name() + " is made anew: " + error.what());
          rejected = true;  // The op is compiled, and the result replaces the entry.
          return;
        }
        if (found->conditions.hold(arguments_.leaves)) break;
        found = nullptr;
      }
      if (!found) return;
      found->device = device_;
      found->label = "eager_" + std::string(c10::Symbol::fromQualString(op_.operator_name().name).toUnqualString());
      plan(*found);
    });
    cache().counters.rejected += rejected;
    cache().counters.from_cache += found != nullptr;
    return found;
  }

  RecipePointer compiled(KeyLevel level) {
    std::shared_ptr<Recipe> recipe;
    bool is_stored = false;
    without_lock([&] {
      recipe = compiler_.compile(op_, stack_, arguments_, level);
      at_boundary([&] { OCL_ASSERT(recipe->conditions.hold(arguments_.leaves), "a plan excludes its call"); });
      if (level != KeyLevel::kExact && recipe->kind == Recipe::Kind::kBadArguments)
        bad_arguments_.emplace_back(level, recipe);
      else
        is_stored = plan_and_store(level, *recipe);
    });
    ++cache().counters.compiled;
    cache().counters.stored += is_stored;
    return recipe;
  }

  /// Call after the search for an exact plan. If there is one, PyTorch's earlier error was only about varying sizes or
  /// numbers, not about these arguments. It then holds for the whole class and is stored.
  void exact_is(const RecipePointer& plan) {
    if (!plan->runs()) return;
    int64_t stored = 0;
    without_lock([&] {
      for (const auto& [level, recipe] : bad_arguments_) stored += plan_and_store(level, *recipe);
    });
    cache().counters.stored += stored;
  }

 private:
  template <class Body>
  void without_lock(const Body& body) {
    lock_.unlock();
    // If body() throws, the lock stays free. Nobody uses it afterwards.
    body();
    lock_.lock();
  }

  /// Returns the number of the entry that `stored` read last. If it found no plan, a new plan gets this number.
  int& number_in_store(KeyLevel level) { return numbers_[static_cast<size_t>(level)]; }

  const EagerContext& context() {
    if (!context_) context_ = compiler_.context(device_);
    return *context_;
  }

  /// Returns the key of the recipe in the cache. "" if it must not be stored.
  std::string key_in_store(KeyLevel level, int number) {
    const std::string& identity = context().identity;
    const std::string call = identity.empty() ? "" : portable_key_of(op_, arguments_, level, device_);
    return call.empty() ? "" : hash_hex(identity + call + (number > 0 ? "#" + std::to_string(number) : ""));
  }

  std::string name() const { return c10::toString(op_.operator_name()); }

  void plan(Recipe& recipe) {
    if (recipe.kind != Recipe::Kind::kPlan || recipe.executor) return;
    const EagerContext here = recipe.device == device_ ? context() : compiler_.context(recipe.device);
    at_boundary([&] { make_plan(recipe, name(), here.binaries, here.options); });
  }

  /// Makes the plan of a recipe. Returns whether the recipe is stored.
  bool plan_and_store(KeyLevel level, Recipe& recipe) {
    const int number = number_in_store(level);
    const bool elsewhere = recipe.kind == Recipe::Kind::kPlan && recipe.device != device_;
    const bool can_store = recipe.lasting && recipe.calls.empty() && !elsewhere && number < kMostConditional;
    const std::string key = can_store ? key_in_store(level, number) : "";
    const std::string entry = key.empty() ? "" : entry_of(recipe);
    plan(recipe);
    if (key.empty() || !recipe.lasting || !context().entries.store) return false;
    context().entries.store(key, entry);
    return true;
  }

  std::string find(KeyLevel level, int number) {
    const std::string key = key_in_store(level, number);
    return key.empty() || !context().entries.find ? "" : context().entries.find(key);
  }

  const c10::OperatorHandle& op_;
  const torch::jit::Stack& stack_;
  const EagerArguments& arguments_;
  const EagerCompiler compiler_;
  std::unique_lock<std::mutex>& lock_;
  const int device_ = device_of(arguments_);
  std::optional<EagerContext> context_;
  std::array<int, 3> numbers_{};  // For each key level.
  // PyTorch's errors for whole classes of calls, with their key level.
  std::vector<std::pair<KeyLevel, std::shared_ptr<Recipe>>> bad_arguments_;
};

RecipePointer without_plan(std::string reason) {
  auto recipe = std::make_shared<Recipe>();
  recipe->reason = std::move(reason);
  return recipe;
}

RecipePointer find_or_compile(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const EagerArguments& arguments) {
  Cache& c = cache();
  // Numbers that change with every call are arguments from the first call on. Then no key of these numbers is needed.
  const bool varies = arguments.has_numbers && arguments.varies;
  std::string by_number = varies ? key_of(op, arguments, KeyLevel::kAnyNumbers) : "",
              exact = varies ? "" : key_of(op, arguments, KeyLevel::kExact);
  std::unique_lock lock(c.mutex);
  if (!c.compiler.compile) return without_plan("the option eager=cpu runs ops on the CPU");
  if (varies) {
    check_numbers(op, stack);
    if (RecipePointer plan = c.find(by_number, arguments)) return plan;
    exact = key_of(op, arguments, KeyLevel::kExact);
  }
  if (const auto found = c.exact.find(exact); found != c.exact.end()) {
    found->second.used = ++c.clock;
    return found->second.plan;
  }

  if (!varies) {
    check_numbers(op, stack);
    if (arguments.has_numbers) by_number = key_of(op, arguments, KeyLevel::kAnyNumbers);
    if (RecipePointer plan = c.find(by_number, arguments)) return plan;
  }
  std::string by_size = key_of(op, arguments, KeyLevel::kAnySizes);
  CacheMiss miss(op, stack, arguments, c.compiler, lock);
  std::optional<RecipePointer> looked_up;
  const auto stored_exact = [&] {
    if (!looked_up) looked_up = miss.stored(KeyLevel::kExact);
    return *looked_up;
  };
  const auto generalise = [&](const std::string& key, KeyLevel level, int after) -> RecipePointer {
    const Class& known = c.classes[key];
    if (RecipePointer plan = known.find(arguments)) return plan;
    if (known.is_full() || known.compiled < after) return nullptr;
    RecipePointer plan = miss.stored(level);
    if (!plan) {
      if (stored_exact()) return nullptr;  // It serves this call without a compilation.
      plan = miss.compiled(level);
    }
    c.classes[key].add(plan, arguments);
    // That there is no plan for the class says nothing about these sizes and numbers.
    return plan->runs() ? plan : nullptr;
  };
  if (arguments.has_numbers)
    if (RecipePointer plan = generalise(by_number, KeyLevel::kAnyNumbers, arguments.varies ? 0 : kExactNumbers)) return plan;
  if (RecipePointer plan = generalise(by_size, KeyLevel::kAnySizes, kExactSizes)) return plan;
  {
    const Class& known = c.classes[by_size];
    if (known.failures >= kMostFailures && known.compiled == known.failures) return known.failure;
    if (known.is_full() && known.compiled >= kMostExact)
      return without_plan("it has been compiled for " + std::to_string(known.compiled) +
                          " calls that differ only in sizes or numbers, and no plan serves all of them");
  }
  RecipePointer plan = stored_exact();
  if (!plan) {
    // An earlier process may have had so many calls of the class that it stored a plan for all of them.
    for (const auto& [key, level] : {std::pair(&by_number, KeyLevel::kAnyNumbers), std::pair(&by_size, KeyLevel::kAnySizes)}) {
      if (key->empty() || c.classes[*key].is_full()) continue;
      const RecipePointer found = miss.stored(level);
      if (!found || !found->executor) continue;
      c.classes[*key].add(found, arguments);
      return found;
    }
    plan = miss.compiled(KeyLevel::kExact);
  }
  miss.exact_is(plan);
  c.add(exact, plan);
  // A plan that only resizes tensors says nothing about whether the op can be compiled.
  if (!plan->resizes.empty()) return plan;
  for (const std::string* key : {&by_number, &by_size}) {
    if (key->empty()) continue;
    Class& known = c.classes[*key];
    ++known.compiled;
    if (plan->kind != Recipe::Kind::kNoKernels) continue;
    ++known.failures;
    known.failure = plan;
  }
  return plan;
}

/// Replaces the arguments on the stack by the results.
void call(const Recipe& recipe, const c10::OperatorHandle& op, const EagerArguments& arguments, torch::jit::Stack& stack) {
  const PlanInputs inputs = inputs_of(recipe, arguments.leaves, recipe.executor->plan->device->index());
  const std::vector<at::Tensor> outputs = run_plan(*recipe.executor, recipe.calls, inputs.symbols, inputs.tensors);
  look_for_faults(recipe, *recipe.executor->plan);
  torch::jit::drop(stack, op.schema().arguments().size());
  auto next = recipe.results.begin();
  for (const auto& [is_list, count] : recipe.returned) {
    if (!is_list) {
      stack.push_back(value_of(*next++, arguments.leaves, inputs, outputs));
      continue;
    }
    c10::List<at::Tensor> list;
    for (int i = 0; i < count; ++i) list.push_back(value_of(*next++, arguments.leaves, inputs, outputs).toTensor());
    stack.emplace_back(std::move(list));
  }
}

}  // namespace

void set_eager_compiler(EagerCompiler compiler) {
  const std::lock_guard lock(cache().mutex);
  cache().compiler = std::move(compiler);
}

EagerCounters eager_counters() {
  const std::lock_guard lock(cache().mutex);
  return cache().counters;
}

int64_t eager_plan_count() {
  Cache& c = cache();
  const std::lock_guard lock(c.mutex);
  int64_t count = 0;
  for (const auto& [key, row] : c.exact) count += row.plan->executor != nullptr;
  for (const auto& [key, known] : c.classes) count += static_cast<int64_t>(known.plans.size());
  return count;
}

void forget_eager_plans() {
  Cache& c = cache();
  const std::lock_guard lock(c.mutex);
  c.exact.clear();
  c.classes.clear();
}

void never_compile_on_this_thread() { t_never = true; }

Attempt run_compiled(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (t_never) return {Outcome::kTracing, ""};
  integers_to_floats(op, *stack);
  EagerArguments arguments = flatten(op, *stack);
  if (!arguments.unsupported.empty()) return {Outcome::kNone, arguments.unsupported};
  if (!memory_is_clear(op, arguments)) {
    separate_operands(op, *stack);
    arguments = flatten(op, *stack);
    if (!memory_is_clear(op, arguments)) return {Outcome::kNone, "tensors that it writes share memory"};
  }
  RecipePointer recipe = find_or_compile(op, *stack, arguments);
  if (!recipe->resizes.empty()) {
    for (const auto& [leaf, sizes, strides] : recipe->resizes) {
      const at::Tensor& out = arguments.leaves[leaf].toTensor();
      keep_read_arguments(op, *stack, out);
      if (at::native::resize_output(out, sizes)) out.as_strided_(sizes, strides);
    }
    arguments = flatten(op, *stack);
    recipe = find_or_compile(op, *stack, arguments);
  }
  if (!recipe->executor)
    return {recipe->kind == Recipe::Kind::kBadArguments ? Outcome::kBadArguments : Outcome::kNone, recipe->reason};
  at_boundary([&] { call(*recipe, op, arguments, *stack); });
  return {};
}

}  // namespace ocl::aten
