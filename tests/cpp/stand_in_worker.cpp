// tests/cpp/stand_in_worker.cpp: a build worker for tests. It fails in the way that OCL_STAND_IN names, for each source
// text that contains "deadly", and works otherwise.
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "csrc/runtime/build/build_worker.h"
#include "csrc/support/os.h"

int main() {
  const char* given = std::getenv("OCL_STAND_IN");
  const std::string mode = given ? given : "";
  static ocl::os::Channel* const channel = ocl::os::parent_channel().release();
  if (mode == "no start") return 3;
  const auto fails = [&](const std::string& text) {
    if (text.find("deadly") == std::string::npos) return;
    if (mode == "crash") std::abort();
    if (mode == "crash optimised" && text.find("-cl-opt-disable") == std::string::npos) std::abort();
    if (mode == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
    if (mode == "garbage" && channel->send_bytes(std::string(100, 'x'))) ocl::os::end_process(0);
  };
  ocl::os::end_process(ocl::runtime::serve_builds(*channel, fails));
}
