// csrc/worker/main.cpp: a process that compiles kernels for another one, which talks to it over the standard input.
#include <cstdlib>

#include "csrc/runtime/build_worker.h"

int main() {
  static ocl::os::Channel channel(0);
  const int status = ocl::runtime::serve_builds(channel);
  std::_Exit(status);  // without the destructors of OpenCL libraries, whose threads may still run
}
