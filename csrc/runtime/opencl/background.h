// csrc/runtime/opencl/background.h: threads that build and check kernels while the program goes on. They end with the process.
#pragma once

#include <chrono>
#include <functional>
#include <future>

namespace ocl::runtime {

/// Runs `work` in a thread of its own. If the system has no thread left, waiting for the future runs it. A future may be
/// dropped; its thread goes on. `awaited`: somebody waits for the work from the start.
std::future<void> run_in_background(std::function<void()> work, bool awaited = false);

/// True in the threads of run_in_background.
bool in_background() noexcept;
/// True where somebody waits for the work: in other threads, and for awaited work.
bool is_awaited() noexcept;
/// Throws in a thread of run_in_background once the process is ending. Call it before work on a device.
void check_not_ending();
/// True once end_background has found such threads.
bool is_ending() noexcept;

/// Calls `stop` when the process is ending, so that threads that wait for something else go on. There is one such function.
void set_stop(void (*stop)() noexcept) noexcept;
/// Ends the threads, because the process is ending. Returns when they have ended, at the latest at the deadline.
void end_background(std::chrono::steady_clock::time_point deadline) noexcept;

}  // namespace ocl::runtime
