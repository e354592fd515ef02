// csrc/worker/main.cpp: the program of a build worker. It compiles kernels for its parent process, which sends requests
// over standard input.
#include <cstdlib>

#include "csrc/runtime/build_worker.h"

int main() {
  static ocl::os::Channel channel(0);
  const int status = ocl::runtime::serve_builds(channel);
  // _Exit skips the destructors of OpenCL libraries, whose threads may still run.
  std::_Exit(status);
}
