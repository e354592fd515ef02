// csrc/worker/main.cpp: the program of a build worker. It compiles kernels for its parent process, which sends requests
// over standard input.
#include "csrc/runtime/build/build_worker.h"
#include "csrc/support/os.h"

int main() {
  // Never destroyed, because a thread watches it until the process ends.
  static ocl::os::Channel* const channel = ocl::os::parent_channel().release();
  ocl::os::end_process(ocl::runtime::serve_builds(*channel));
}
