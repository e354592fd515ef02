// csrc/python/interruptible.cpp: see interruptible.h.
#include "csrc/python/interruptible.h"

#include <chrono>
#include <future>
#include <utility>

#include "csrc/python/pch.h"
#include "csrc/runtime/build/build_progress.h"
#include "csrc/runtime/opencl/background.h"

namespace ocl::python {
namespace {

constexpr std::chrono::milliseconds kBetweenChecks{50};

/// True in the thread whose signal handlers are called.
bool is_main_thread() {
  const py::module_ threading = py::module_::import("threading");
  return threading.attr("get_ident")().equal(threading.attr("main_thread")().attr("ident"));
}

}  // namespace

void run_interruptibly(std::function<void()> work) {
  const bool main = is_main_thread();
  const py::gil_scoped_release release;
  if (!main) return work();
  const runtime::WaitsForBuilds waits;
  std::future<void> done = runtime::run_in_background(std::move(work), /*awaited=*/true);
  while (done.wait_for(kBetweenChecks) == std::future_status::timeout) {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  done.get();
}

}  // namespace ocl::python
