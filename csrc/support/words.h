// csrc/support/words.h: lists of words in one text.
#pragma once

#include <string_view>

namespace ocl {

/// True if `word` is one of `words`, which single blanks separate.
inline bool has_word(std::string_view words, std::string_view word) {
  const auto ends = [&](size_t at) { return at == words.size() || words[at] == ' '; };
  for (size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1))
    if ((at == 0 || words[at - 1] == ' ') && ends(at + word.size())) return !word.empty();
  return false;
}

}  // namespace ocl
