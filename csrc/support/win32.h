// csrc/support/win32.h: what the files of this folder for Windows share. No other file includes it, because windows.h defines
// macros such as `near`.
#pragma once

#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#include <string>
#include <string_view>
#include <utility>

namespace ocl::os {

/// UTF-8 to UTF-16 and back.
std::wstring wide(std::string_view text);
std::string narrow(std::wstring_view text);
/// Returns ": " and the system's text of an error, in one line.
std::string because(DWORD error = GetLastError());

/// Owns a handle, as CreateFile and CreateEvent return them.
class OwnedHandle {
 public:
  OwnedHandle() = default;
  explicit OwnedHandle(HANDLE raw) noexcept : raw_(raw == INVALID_HANDLE_VALUE ? nullptr : raw) {}
  OwnedHandle(OwnedHandle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  OwnedHandle& operator=(OwnedHandle&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  OwnedHandle(const OwnedHandle&) = delete;
  OwnedHandle& operator=(const OwnedHandle&) = delete;
  ~OwnedHandle() {
    if (raw_) CloseHandle(raw_);
  }
  HANDLE get() const noexcept { return raw_; }
  HANDLE release() noexcept { return std::exchange(raw_, nullptr); }
  explicit operator bool() const noexcept { return raw_ != nullptr; }

 private:
  HANDLE raw_ = nullptr;
};

/// What new files, folders and pipes of this user get: full access for the user, administrators and the system, and none for
/// others. Nothing is inherited from the folder above.
class PrivateSecurity {
 public:
  PrivateSecurity() noexcept;
  ~PrivateSecurity();
  PrivateSecurity(const PrivateSecurity&) = delete;
  PrivateSecurity& operator=(const PrivateSecurity&) = delete;
  /// Returns nullptr if the system did not tell who the user is.
  SECURITY_ATTRIBUTES* get() noexcept { return attributes_.lpSecurityDescriptor ? &attributes_ : nullptr; }

 private:
  SECURITY_ATTRIBUTES attributes_{};
};

}  // namespace ocl::os
