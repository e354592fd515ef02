// csrc/support/log.cpp: where messages of the core go, and from which level on.
#include "csrc/support/log.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>

namespace ocl {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};
std::mutex g_mutex;

// Never destroyed, because a driver's threads may still log while the process ends.
std::shared_ptr<LogSink>& sink() {
  static auto* sink = new std::shared_ptr<LogSink>();
  return *sink;
}

const char* level_name(LogLevel level) {
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  return kNames[static_cast<int>(level) / 10 - 1];
}

}  // namespace

void set_log_sink(LogSink new_sink) {
  auto next = new_sink ? std::make_shared<LogSink>(std::move(new_sink)) : nullptr;
  std::lock_guard lock(g_mutex);
  sink().swap(next);
}

void set_log_level(LogLevel level) { g_level.store(static_cast<int>(level), std::memory_order_relaxed); }
bool log_enabled(LogLevel level) noexcept { return static_cast<int>(level) >= g_level.load(std::memory_order_relaxed); }

void log_message(LogLevel level, const char* area, const std::string& message) {
  if (!log_enabled(level)) return;
  std::shared_ptr<LogSink> current;
  {
    std::lock_guard lock(g_mutex);
    current = sink();
  }
  if (current)
    (*current)(level, area, message);
  else
    std::fprintf(stderr, "torch_ocl_compile.%s: %s: %s\n", area, level_name(level), message.c_str());
}

}  // namespace ocl
