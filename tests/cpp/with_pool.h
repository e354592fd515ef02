// tests/cpp/with_pool.h: settings of the pool of build workers for one test.
#pragma once

#include <chrono>
#include <string>

#include "csrc/runtime/build/build_pool.h"
#include "csrc/support/os.h"
#include "tests/cpp/other_process.h"

inline std::string program_of_tests(const std::string& name) {
  return ocl::os::own_folder() + "/" + name + ocl::os::kFileNames.program_suffix;
}

/// Applies settings for one test, and restores the earlier ones in its destructor. `mode` is the way in which the
/// stand-in worker fails (stand_in_worker.cpp); "" uses the real worker.
class WithPool {
 public:
  explicit WithPool(int workers, const std::string& mode = "", std::chrono::milliseconds longest = std::chrono::seconds(60))
      : before_(ocl::runtime::build_pool_settings()) {
    other_process::set_variable("OCL_STAND_IN", mode);
    ocl::runtime::set_build_pool({workers, longest, mode.empty() ? "" : program_of_tests("ocl_stand_in_worker")});
  }
  ~WithPool() {
    ocl::runtime::set_build_pool(before_);
    other_process::set_variable("OCL_STAND_IN", "");
  }

 private:
  ocl::runtime::BuildPoolSettings before_;
};
