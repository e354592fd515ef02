// csrc/schedule/offer/choices.h: the decisions of a kernel's offer that a measurement may replace.
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
  /// Takes the options that `wanted` names, even if the cost model would not offer them. For check cases.
  static Choices exactly(const std::string& wanted);
  bool exact() const { return exact_; }
  /// Returns the index of the option to take. options[0] is the cost model's preference.
  size_t pick(const std::string& knob, const std::vector<std::string>& options);
  /// Returns the number to take. Equal numbers count as one option.
  int64_t pick(const std::string& knob, const std::vector<int64_t>& options);
  const std::vector<Knob>& knobs() const { return knobs_; }
  std::string text(const std::string& row) const;

 private:
  std::map<std::string, std::string> wanted_;
  bool exact_ = false;
  std::vector<Knob> knobs_;
};

/// Returns the name of the template (its row in kernels.def), with which a choice's text begins.
std::string row_of(const std::string& choice);

/// What was measured on a device. A choice that no row offers is ignored.
struct Measured {
  // The choice for each problem (see problem_of in tunable.h).
  std::map<std::string, std::string> choices;
  // The choice for problems that `choices` does not list. Tuning uses it to try a candidate.
  std::string default_choice;
  // Choices that failed with the device's driver. They are not used for any problem.
  std::set<std::string> disabled;
};

}  // namespace ocl::schedule
