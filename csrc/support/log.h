// csrc/support/log.h: log messages of the core. Python installs a sink that forwards them to `logging`. Without a sink,
// warnings and errors go to stderr.
#pragma once

#include <functional>
#include <string>

namespace ocl {

// The numbers are the levels of Python's logging.
enum class LogLevel { kDebug = 10, kInfo = 20, kWarning = 30, kError = 40 };

/// Receives each message. `area` is the folder of csrc/ whose code logs, such as "runtime", "cache" or "schedule". The sink is
/// called from any thread, while the log holds no lock.
using LogSink = std::function<void(LogLevel level, const char* area, const std::string& message)>;

void set_log_sink(LogSink sink);  // With an empty sink, warnings and errors go to stderr.
void set_log_level(LogLevel level);
/// True if messages of this level are wanted. Ask before building a message at some cost.
bool log_enabled(LogLevel level) noexcept;
void log_message(LogLevel level, const char* area, const std::string& message);

}  // namespace ocl
