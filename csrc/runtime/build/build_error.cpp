// csrc/runtime/build/build_error.cpp: the message of a build error, and the files with source and log.
#include "csrc/runtime/build/build_error.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "csrc/runtime/opencl/profile_limits.h"
#include "csrc/support/error.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

/// Returns the lines of the log that have an error, indented for the message. The whole log is in the saved file.
std::string log_excerpt(const std::string& log) {
  constexpr size_t kLines = 8;
  std::vector<std::string> lines, errors;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back(line);
    if (line.find("error") != std::string::npos || line.find("Error") != std::string::npos) errors.push_back(line);
  }
  const std::vector<std::string>& chosen = errors.empty() ? lines : errors;
  std::string text;
  for (size_t i = 0; i < std::min(chosen.size(), kLines); ++i) text += (i ? "\n         " : "") + chosen[i].substr(0, 300);
  if (chosen.size() > kLines) text += "\n         ... and " + std::to_string(chosen.size() - kLines) + " more";
  return text.empty() ? "(the driver's log is empty)" : text;
}

/// Returns a kernel's name as a folder name. Unusual characters become '_'.
std::string file_name(const std::string& kernel) {
  std::string name = kernel;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') c = '_';
  return name.empty() ? "unnamed" : name;
}

/// Saves source and log and returns the folder. Returns "" if that fails, or if the folder is not private to this user.
std::string save_failure(const std::string& failed_dir, const KernelText& text, const std::string& log) {
  if (failed_dir.empty()) return "";
  const std::string folder = failed_dir + "/" + file_name(text.name);
  if (!os::private_folder(folder).problem.empty()) return "";
  const bool saved =
      os::write_private_file(folder + "/source.cl", text.text) && os::write_private_file(folder + "/log.txt", log);
  return saved ? folder + "/" : "";
}

}  // namespace

std::string build_error_message(const Device& device, const KernelText& text, cl_int status, const std::string& log,
                                const std::string& failed_dir) {
  const std::string saved = save_failure(failed_dir, text, log);
  std::string message = "kernel " + text.name + " does not build on " + device.describe() + " (" + status_name(status) + ", " +
                        std::to_string(status) + ")";
  if (!text.where.empty()) message += "\n  where: " + text.where;
  if (device.profile()) message += lacking(*device.profile(), log);
  message += "\n  log:   " + log_excerpt(log);
  message += saved.empty() ? "\n  do:    " : "\n  do:    source and full log are in " + saved + "; ";
  message += "`python -m torch_ocl_compile doctor` checks this driver";
  return message;
}

void raise_build_error(const Device& device, const KernelText& text, cl_int status, const std::string& log,
                       const std::string& failed_dir) {
  fail(ErrorKind::kBuild, build_error_message(device, text, status, log, failed_dir));
}

}  // namespace ocl::runtime
