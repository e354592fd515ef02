// csrc/schedule/offer/choices.cpp: parses, applies and prints choices.
#include "csrc/schedule/offer/choices.h"

#include <algorithm>

namespace ocl::schedule {

Choices::Choices(const std::string& wanted) {
  for (size_t begin = 0; begin < wanted.size();) {
    const size_t end = std::min(wanted.find(' ', begin), wanted.size());
    const std::string word = wanted.substr(begin, end - begin);
    if (const size_t at = word.find('='); at != std::string::npos) wanted_[word.substr(0, at)] = word.substr(at + 1);
    begin = end + 1;
  }
}

Choices Choices::exactly(const std::string& wanted) {
  Choices choices(wanted);
  choices.exact_ = true;
  return choices;
}

size_t Choices::pick(const std::string& knob, const std::vector<std::string>& options) {
  size_t taken = 0;
  if (const auto found = wanted_.find(knob); found != wanted_.end()) {
    const auto option = std::find(options.begin(), options.end(), found->second);
    if (option != options.end()) taken = static_cast<size_t>(option - options.begin());
  }
  if (options.size() > 1) knobs_.push_back({knob, options, taken});
  return taken;
}

int64_t Choices::pick(const std::string& knob, const std::vector<int64_t>& options) {
  if (const auto found = wanted_.find(knob); exact_ && found != wanted_.end()) return std::stoll(found->second);
  std::vector<int64_t> distinct;
  std::vector<std::string> names;
  for (const int64_t option : options)
    if (std::find(distinct.begin(), distinct.end(), option) == distinct.end()) {
      distinct.push_back(option);
      names.push_back(std::to_string(option));
    }
  return distinct[pick(knob, names)];
}

std::string Choices::text(const std::string& row) const {
  std::string text = row;
  for (const Knob& knob : knobs_) text += " " + knob.name + "=" + knob.options[knob.taken];
  return text;
}

std::string row_of(const std::string& choice) { return choice.substr(0, choice.find(' ')); }

}  // namespace ocl::schedule
