// csrc/torch/formula.cpp: builds and evaluates the numbers that the host computes at each call of a plan.
#include "csrc/torch/formula.h"

#include <algorithm>
#include <cmath>

#include "csrc/support/error.h"

namespace ocl::aten {

namespace {

struct Function {
  Formula::Op op;
  const char* name;
  size_t args;
  double (*apply)(double a, double b);  // A function of one argument is given it as both.
};

using Op = Formula::Op;
// The names are those of the scalar operations (csrc/ir/ops.def).
constexpr Function kFunctions[] = {
    {Op::kAdd, "add", 2, [](double a, double b) { return a + b; }},
    {Op::kMul, "mul", 2, [](double a, double b) { return a * b; }},
    {Op::kDiv, "div", 2, [](double a, double b) { return a / b; }},
    {Op::kPow, "pow", 2, [](double a, double b) { return std::pow(a, b); }},
    {Op::kMaximum, "maximum", 2, [](double a, double b) { return std::max(a, b); }},
    {Op::kMinimum, "minimum", 2, [](double a, double b) { return std::min(a, b); }},
    {Op::kSqrt, "sqrt", 1, [](double a, double) { return std::sqrt(a); }},
    {Op::kExp, "exp", 1, [](double a, double) { return std::exp(a); }},
    {Op::kLog, "log", 1, [](double a, double) { return std::log(a); }},
    {Op::kLog2, "log2", 1, [](double a, double) { return std::log2(a); }},
    {Op::kSin, "sin", 1, [](double a, double) { return std::sin(a); }},
    {Op::kCos, "cos", 1, [](double a, double) { return std::cos(a); }},
    {Op::kTanh, "tanh", 1, [](double a, double) { return std::tanh(a); }},
};

const Function* function_of(Op op) {
  const Function* found =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& function) { return function.op == op; });
  return found == std::end(kFunctions) ? nullptr : found;
}

}  // namespace

Formula Formula::number(double value) {
  Formula made;
  made.steps_ = {{Op::kNumber, value}};
  return made;
}

Formula Formula::leaf(int leaf) {
  Formula made;
  made.steps_ = {{Op::kLeaf, 0, leaf}};
  return made;
}

Formula Formula::size(const ir::IndexExpr& size) {
  Formula made;
  made.steps_ = {{Op::kSize, 0, -1, size}};
  return made;
}

Formula Formula::apply(const std::string& name, const std::vector<Formula>& args) {
  const auto named = [&](const Function& function) { return function.name == name && function.args == args.size(); };
  const Function* function = std::find_if(std::begin(kFunctions), std::end(kFunctions), named);
  if (function == std::end(kFunctions))
    fail(ErrorKind::kInternal,
         "a formula of the host has no function " + name + " of " + std::to_string(args.size()) + " arguments");
  Formula made;
  for (const Formula& arg : args) made.steps_.insert(made.steps_.end(), arg.steps_.begin(), arg.steps_.end());
  made.steps_.push_back({function->op});
  return made;
}

double Formula::value(const std::function<double(int)>& leaf, const std::function<int64_t(ir::Symbol)>& symbol) const {
  std::vector<double> stack;
  for (const Step& step : steps_) {
    if (const Function* function = function_of(step.op)) {
      const double last = stack.back();
      if (function->args == 2) stack.pop_back();
      stack.back() = function->apply(stack.back(), last);
    } else {
      stack.push_back(step.op == Op::kLeaf   ? leaf(step.leaf)
                      : step.op == Op::kSize ? static_cast<double>(ir::evaluate(step.size, symbol))
                                             : step.number);
    }
  }
  return stack.back();
}

bool Formula::fits(const std::function<bool(int)>& leaf, const std::function<bool(const ir::IndexExpr&)>& size) const {
  size_t depth = 0;
  for (const Step& step : steps_) {
    const Function* function = function_of(step.op);
    if (function == nullptr && step.op > Op::kSize) return false;
    if (step.op == Op::kLeaf && !leaf(step.leaf)) return false;
    if (step.op == Op::kSize && !size(step.size)) return false;
    if (function != nullptr && depth < function->args) return false;
    depth += function == nullptr ? 1 : 1 - function->args;
  }
  return depth == 1;
}

}  // namespace ocl::aten
