// csrc/runtime/build/compiler_crash.cpp: see compiler_crash.h.
#include "csrc/runtime/build/compiler_crash.h"

#include "csrc/runtime/build/build_error.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/runtime/device/device.h"
#include "csrc/support/compiler_crash.h"
#include "csrc/support/log.h"

namespace ocl::runtime {
namespace {

// An entry that begins with this character says how the compiler's process ended.
constexpr char kDeath[] = "!";

}  // namespace

bool CompilerCrashes::is_crash(size_t index, const std::string& entry) {
  if (!entry.starts_with(kDeath)) return false;
  crashed_[index] = {entry.substr(1), true};
  return true;
}

void CompilerCrashes::first(size_t index, const std::string& how, const std::string& failed_dir) {
  if (!is_caused_by_text(how))
    raise_build_error(device_, texts_[index], CL_BUILD_PROGRAM_FAILURE, "the compiler's process ended twice: " + how,
                      failed_dir);
  first_[index] = how;
}

void CompilerCrashes::second(size_t index, const std::string& how, const std::string& again) {
  const bool remembered = store_.store && is_caused_by_text(again);
  if (remembered) store_.store(keys_[index], kDeath + how);
  crashed_[index] = {how, remembered};
}

void CompilerCrashes::warn(size_t index, const std::string& how) const {
  const KernelText& text = texts_[index];
  log_message(LogLevel::kWarning, "runtime",
              "the compiler of " + device_.describe() + " ended on kernel " + text.name + " (" + how +
                  "); the kernel is compiled without optimisation and may be slow" +
                  (text.where.empty() ? "" : "\n  where: " + text.where));
}

void CompilerCrashes::raise(const std::string& failed_dir) const {
  if (crashed_.empty()) return;
  std::vector<size_t> kernels;  // All texts of the crashed kernels: equal texts have equal keys.
  for (const auto& [index, crash] : crashed_)
    for (size_t i = 0; i < keys_.size(); ++i)
      if (keys_[i] == keys_[index]) kernels.push_back(i);
  const auto& [index, crash] = *crashed_.begin();
  const char* next = crash.remembered ? "; this kernel is not tried again until `python -m torch_ocl_compile cache clear`" : "";
  throw CompilerCrash(build_error_message(device_, texts_[index], CL_BUILD_PROGRAM_FAILURE,
                                          "the compiler's process ended twice: " + crash.how + next, failed_dir),
                      std::move(kernels));
}

}  // namespace ocl::runtime
