// csrc/runtime/build/build_progress.cpp: a thread writes the line of progress, so that it appears even while the first kernel
// is built.
#include "csrc/runtime/build/build_progress.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "csrc/runtime/opencl/background.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

constexpr std::chrono::seconds kFirst{2};
constexpr std::chrono::milliseconds kBetween{200};
constexpr char kErase[] = "\r\033[K";  // to the start of the line, and clear it

std::atomic<bool> g_enabled{true};
std::atomic<bool> g_busy{false};  // True if some batch has the line.
std::atomic<int> g_waiting{0};    // Number of WaitsForBuilds.

void write_line(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

void show_build_progress(bool shown) { g_enabled = shown; }

WaitsForBuilds::WaitsForBuilds() noexcept { ++g_waiting; }
WaitsForBuilds::~WaitsForBuilds() { --g_waiting; }

struct BuildProgress::Line {
  const char* what;
  size_t kernels, processes;
  bool background = in_background();
  std::atomic<size_t> done{0};
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::thread thread;

  std::string text() const {
    const std::string where = processes == 0   ? "in this process"
                              : processes == 1 ? "in 1 process"
                                               : "in " + std::to_string(processes) + " processes";
    return "torch_ocl_compile: " + std::to_string(done) + " of " + std::to_string(kernels) + " kernels " + what + ", " + where;
  }

  void run() {
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, kFirst, [this] { return ended; })) return;
    std::string shown;
    do {
      // A line that is as long as the terminal is wide would wrap, and could not be erased.
      const bool wanted = !background || g_waiting > 0;
      const std::string now = wanted ? text().substr(0, static_cast<size_t>(os::terminal_columns() - 1)) : "";
      if (now != shown) write_line(kErase + now);
      shown = now;
    } while (!changed.wait_for(lock, kBetween, [this] { return ended; }));
    if (!shown.empty()) write_line(kErase);
  }
};

BuildProgress::BuildProgress(const char* what, size_t kernels, size_t processes) {
  if (!g_enabled || os::terminal_columns() == 0 || g_busy.exchange(true)) return;
  try {
    line_ = std::make_unique<Line>();
    line_->what = what;
    line_->kernels = kernels;
    line_->processes = processes;
    line_->thread = std::thread([line = line_.get()] { line->run(); });
  } catch (const std::system_error&) {  // No thread could be started, so there is no line.
    line_.reset();
    g_busy = false;
  }
}

BuildProgress::~BuildProgress() {
  if (!line_) return;
  {
    const std::lock_guard lock(line_->mutex);
    line_->ended = true;
  }
  line_->changed.notify_all();
  line_->thread.join();
  g_busy = false;
}

void BuildProgress::add(size_t kernels) {
  if (line_) line_->done += kernels;
}

}  // namespace ocl::runtime
