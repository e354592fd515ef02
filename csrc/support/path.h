// csrc/support/path.h: paths as the core has them, UTF-8 in a std::string, and as std::filesystem has them.
#pragma once

#include <filesystem>
#include <string>

namespace ocl {

inline std::filesystem::path path_of(const std::string& text) { return {std::u8string(text.begin(), text.end())}; }

inline std::string text_of(const std::filesystem::path& path) {
  const std::u8string text = path.u8string();
  return {text.begin(), text.end()};
}

}  // namespace ocl
