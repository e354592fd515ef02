// csrc/runtime/build/batches.cpp: combines kernels with equal preludes into programs.
#include "csrc/runtime/build/batches.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace ocl::runtime {
namespace {

size_t marker_at(const std::string& text) {
  for (size_t at = text.find(kKernelMarker); at != std::string::npos; at = text.find(kKernelMarker, at + 1))
    if (at == 0 || text[at - 1] == '\n') return at;
  return std::string::npos;
}

}  // namespace

std::vector<Indices> make_batches(const std::vector<KernelText>& texts, const Indices& pending, size_t most_per_program) {
  std::vector<Indices> batches;
  std::map<std::string_view, std::vector<size_t>> open;  // Prelude -> its batches that may have room.
  for (size_t i : pending) {
    const std::string& text = texts[i].text;
    const size_t marker = marker_at(text);
    if (marker == std::string::npos || text.find("#define", marker) != std::string::npos) {
      batches.push_back({i});
      continue;
    }
    std::vector<size_t>& candidates = open[std::string_view(text).substr(0, marker)];
    const auto fits = [&](size_t batch) {
      return batches[batch].size() < most_per_program && std::none_of(
                                                             batches[batch].begin(), batches[batch].end(),
                                                             [&](size_t other) { return texts[other].name == texts[i].name; });
    };
    const auto found = std::find_if(candidates.begin(), candidates.end(), fits);
    if (found != candidates.end()) {
      batches[*found].push_back(i);
    } else {
      candidates.push_back(batches.size());
      batches.push_back({i});
    }
  }
  return batches;
}

std::string batch_source(const std::vector<KernelText>& texts, const Indices& batch) {
  std::string source = texts[batch[0]].text;
  for (size_t i = 1; i < batch.size(); ++i) {
    const std::string& text = texts[batch[i]].text;
    source += "\n";
    source.append(text, marker_at(text) + sizeof(kKernelMarker) - 1);
  }
  return source;
}

}  // namespace ocl::runtime
