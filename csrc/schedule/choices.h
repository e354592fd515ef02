// csrc/schedule/choices.h: the decisions of a template's chooser that a measurement may replace.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ocl::schedule {

/// The options that were chosen for the knobs (tunable decisions) of one use of a template. Its text is the template's
/// name and then knob=option for each knob: "gemm_item tile=6x64 run=8". Names and options contain no spaces and no '='.
class Choices {
 public:
  struct Knob {
    std::string name;
    std::vector<std::string> options;  // The cost model's preference is first.
    size_t taken = 0;
  };
  Choices() = default;
  /// Takes the options that `wanted` names, if they are offered, and the cost model's preference for other knobs.
  explicit Choices(const std::string& wanted);
  /// Returns the index of the option to take. options[0] is the cost model's preference.
  size_t pick(const std::string& knob, const std::vector<std::string>& options);
  /// Returns the number to take. Equal numbers count as one option.
  int64_t pick(const std::string& knob, const std::vector<int64_t>& options);
  const std::vector<Knob>& knobs() const { return knobs_; }
  std::string text(const std::string& row) const;

 private:
  std::map<std::string, std::string> wanted_;
  std::vector<Knob> knobs_;
};

/// The row at the beginning of a choice's text.
std::string row_of(const std::string& choice);

/// What was measured on a device: the choice for each problem (see problem_of in tunable.h), and choices that
/// failed with its driver, for whatever problem. A choice that is not offered is ignored.
struct Measured {
  std::map<std::string, std::string> choices;
  // The choice for problems without one of their own. Tuning uses it to try a candidate.
  std::string others;
  std::set<std::string> disabled;
};

}  // namespace ocl::schedule
