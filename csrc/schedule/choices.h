// csrc/schedule/choices.h: the decisions of a template's chooser that a measurement may overturn.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ocl::schedule {

/// The decisions ("knobs") of one use of a template. As text: "gemm_item tile=6x64 run=8", the template's row and what each
/// knob is set to; names and options hold neither spaces nor '='.
class Choices {
 public:
  struct Knob {
    std::string name;
    std::vector<std::string> options;  // the model's preference first
    size_t taken = 0;
  };
  Choices() = default;
  /// The knobs that `wanted` names are set so, where that is on offer, the others as the model prefers.
  explicit Choices(const std::string& wanted);
  /// Which of `options` to take; options[0] is what the chooser's model of cost prefers.
  size_t pick(const std::string& knob, const std::vector<std::string>& options);
  /// The same for numbers, equal ones once.
  int64_t pick(const std::string& knob, const std::vector<int64_t>& options);
  const std::vector<Knob>& knobs() const { return knobs_; }
  std::string text(const std::string& row) const;

 private:
  std::map<std::string, std::string> wanted_;
  std::vector<Knob> knobs_;
};

/// The row that a choice's text begins with.
std::string row_of(const std::string& choice);

/// What was measured on a device: choices by problem (tunable.h: problem_of), and choices that its driver gets wrong, whatever
/// the problem. A text that names nothing on offer is as good as none.
struct Measured {
  std::map<std::string, std::string> choices;
  std::string others;  // the choice for problems that have none of their own: how a candidate is tried
  std::set<std::string> disabled;
};

}  // namespace ocl::schedule
