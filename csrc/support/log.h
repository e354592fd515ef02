// csrc/support/log.h: messages of the core. Python installs a sink, so that its `logging` gets them; without one, warnings and
// errors go to stderr.
#pragma once

#include <functional>
#include <string>

namespace ocl {

enum class LogLevel { kDebug = 10, kInfo = 20, kWarning = 30, kError = 40 };  // the numbers of Python's logging

/// `area` is the folder that speaks: "runtime", "cache", "schedule". Called from any thread, without locks of ours held by the
/// log.
using LogSink = std::function<void(LogLevel level, const char* area, const std::string& message)>;

void set_log_sink(LogSink sink);  // {} brings stderr back
void set_log_level(LogLevel level);
/// Ask before building a message that costs something.
bool log_enabled(LogLevel level) noexcept;
void log_message(LogLevel level, const char* area, const std::string& message);

}  // namespace ocl
