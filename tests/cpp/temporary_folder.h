// tests/cpp/temporary_folder.h: makes a new folder that only this user can change.
#pragma once

#include <filesystem>
#include <string>

#include "csrc/support/os.h"
#include "csrc/support/path.h"

/// Returns the path of a new, empty folder whose name begins with `name`.
inline std::string new_folder(const std::string& name) {
  namespace fs = std::filesystem;
  static int count = 0;
  const fs::path temporary = fs::canonical(fs::temp_directory_path());
  fs::path folder;
  do folder = temporary / (name + "_" + std::to_string(ocl::os::process_id()) + "_" + std::to_string(++count));
  while (!fs::create_directory(folder));
  fs::permissions(folder, fs::perms::owner_all);
  return ocl::text_of(folder);
}
