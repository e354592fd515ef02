// csrc/support/child_windows.cpp: child processes on Windows. The channel is a named pipe that only this user can open.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "csrc/support/child.h"
#include "csrc/support/path.h"
#include "csrc/support/win32.h"

namespace ocl::os {
namespace {

constexpr DWORD kPipeBytes = 1 << 16;
constexpr DWORD kMostBytesAtOnce = 1 << 20;
constexpr UINT kKilled = 0x6f636c00;            // Exit code of a process that end() has killed.
constexpr DWORD kFirstException = 0xC0000000u;  // Exit codes from here on are those of exceptions.
constexpr DWORD kWatchMs = 50;                  // Interval at which the end of the other side is looked for.

HANDLE handle_of(intptr_t handle) { return reinterpret_cast<HANDLE>(handle); }
intptr_t number_of(HANDLE handle) { return reinterpret_cast<intptr_t>(handle); }

/// Returns the job of this process's children. The system kills them when this process ends, because then it closes the job's
/// last handle. A child that crashes opens no dialog box.
HANDLE job() {
  static const HANDLE job = [] {
    const HANDLE made = CreateJobObjectW(nullptr, nullptr);
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits{};
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION;
    if (made) SetInformationJobObject(made, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    return made;
  }();
  return job;
}

struct Pipe {
  OwnedHandle parent, child;  // Only the child's end can be inherited.
};

/// Makes the two ends of a pipe. If that fails, both are null and the system knows the error.
Pipe make_pipe() {
  static std::atomic<unsigned> count{0};
  LARGE_INTEGER now{};
  QueryPerformanceCounter(&now);
  const std::wstring name = L"\\\\.\\pipe\\torch_ocl_compile." + std::to_wstring(GetCurrentProcessId()) + L"." +
                            std::to_wstring(++count) + L"." + std::to_wstring(now.QuadPart);
  PrivateSecurity security;
  Pipe pipe;
  // The first instance: if another process has a pipe of this name, this fails.
  pipe.parent =
      OwnedHandle(CreateNamedPipeW(name.c_str(), PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
                                   PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS, 1, kPipeBytes,
                                   kPipeBytes, 0, security.get()));
  if (!pipe.parent) return {};
  SECURITY_ATTRIBUTES inherited{sizeof(SECURITY_ATTRIBUTES), nullptr, TRUE};
  pipe.child = OwnedHandle(
      CreateFileW(name.c_str(), GENERIC_READ | GENERIC_WRITE, 0, &inherited, OPEN_EXISTING, FILE_FLAG_OVERLAPPED, nullptr));
  return pipe.child ? std::move(pipe) : Pipe{};
}

OwnedHandle make_event() { return OwnedHandle(CreateEventW(nullptr, TRUE, FALSE, nullptr)); }

/// The handles that a new process inherits, and no others.
class InheritedHandles {
 public:
  explicit InheritedHandles(std::vector<HANDLE> handles) : handles_(std::move(handles)) {
    std::sort(handles_.begin(), handles_.end());
    handles_.erase(std::unique(handles_.begin(), handles_.end()), handles_.end());
    SIZE_T bytes = 0;
    InitializeProcThreadAttributeList(nullptr, 1, 0, &bytes);
    memory_.resize(bytes);
    if (!InitializeProcThreadAttributeList(list(), 1, 0, &bytes)) return;
    valid_ = UpdateProcThreadAttribute(list(), 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, handles_.data(),
                                       handles_.size() * sizeof(HANDLE), nullptr, nullptr) != 0;
    if (!valid_) DeleteProcThreadAttributeList(list());
  }
  ~InheritedHandles() {
    if (valid_) DeleteProcThreadAttributeList(list());
  }
  InheritedHandles(const InheritedHandles&) = delete;
  InheritedHandles& operator=(const InheritedHandles&) = delete;
  LPPROC_THREAD_ATTRIBUTE_LIST list() { return reinterpret_cast<LPPROC_THREAD_ATTRIBUTE_LIST>(memory_.data()); }
  bool valid() const { return valid_; }

 private:
  std::vector<HANDLE> handles_;
  std::vector<std::byte> memory_;
  bool valid_ = false;
};

}  // namespace

void Channel::close() noexcept {
  if (handle_ != -1) CloseHandle(handle_of(handle_));
  handle_ = -1;
}

std::unique_ptr<Channel> parent_channel() { return std::make_unique<Channel>(number_of(GetStdHandle(STD_INPUT_HANDLE))); }

bool Channel::send_bytes(const std::string& bytes) noexcept {
  const OwnedHandle ready = make_event();
  for (size_t done = 0; done < bytes.size();) {
    OVERLAPPED operation{};
    operation.hEvent = ready.get();
    const auto count = static_cast<DWORD>(std::min<size_t>(bytes.size() - done, kMostBytesAtOnce));
    DWORD written = 0;
    if (!WriteFile(handle_of(handle_), bytes.data() + done, count, nullptr, &operation) && GetLastError() != ERROR_IO_PENDING)
      return false;
    if (!GetOverlappedResult(handle_of(handle_), &operation, &written, TRUE) || written == 0) return false;
    done += written;
  }
  return true;
}

Received Channel::read(void* bytes, size_t count, std::chrono::steady_clock::time_point deadline, bool limited) noexcept {
  const OwnedHandle ready = make_event();
  auto* into = static_cast<char*>(bytes);
  for (size_t done = 0; done < count;) {
    DWORD wait_ms = INFINITE;
    if (limited) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
      if (left <= 0) return Received::kLate;
      wait_ms = static_cast<DWORD>(std::min<int64_t>(left, 1 << 30));
    }
    OVERLAPPED operation{};
    operation.hEvent = ready.get();
    const auto wanted = static_cast<DWORD>(std::min<size_t>(count - done, kMostBytesAtOnce));
    if (!ReadFile(handle_of(handle_), into + done, wanted, nullptr, &operation)) {
      if (GetLastError() != ERROR_IO_PENDING) return Received::kEnded;
      // A cancelled read may still have got bytes at the last moment.
      if (WaitForSingleObject(ready.get(), wait_ms) != WAIT_OBJECT_0) CancelIoEx(handle_of(handle_), &operation);
    }
    DWORD got = 0;
    if (!GetOverlappedResult(handle_of(handle_), &operation, &got, TRUE)) {
      if (GetLastError() == ERROR_OPERATION_ABORTED) continue;
      return Received::kEnded;
    }
    done += got;
  }
  return Received::kMessage;
}

void Channel::wait_for_end() noexcept {
  // A pipe has no event for its end, and to read would take bytes from the thread that receives.
  while (PeekNamedPipe(handle_of(handle_), nullptr, 0, nullptr, nullptr, nullptr)) Sleep(kWatchMs);
}

std::unique_ptr<Child> Child::start(const std::string& path, bool loud, std::string& problem) {
  Pipe pipe = make_pipe();
  if (!pipe.parent) {
    problem = "no pipe" + because();
    return nullptr;
  }
  SECURITY_ATTRIBUTES inherited{sizeof(SECURITY_ATTRIBUTES), nullptr, TRUE};
  const OwnedHandle nowhere(
      CreateFileW(L"NUL", GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, &inherited, OPEN_EXISTING, 0, nullptr));
  OwnedHandle errors;
  if (loud) {
    HANDLE copy = nullptr;
    if (DuplicateHandle(GetCurrentProcess(), GetStdHandle(STD_ERROR_HANDLE), GetCurrentProcess(), &copy, 0, TRUE,
                        DUPLICATE_SAME_ACCESS))
      errors = OwnedHandle(copy);
  }
  STARTUPINFOEXW how{};
  how.StartupInfo.cb = sizeof how;
  how.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
  how.StartupInfo.hStdInput = pipe.child.get();
  how.StartupInfo.hStdOutput = nowhere.get();
  how.StartupInfo.hStdError = errors ? errors.get() : nowhere.get();
  InheritedHandles handles({how.StartupInfo.hStdInput, how.StartupInfo.hStdOutput, how.StartupInfo.hStdError});
  how.lpAttributeList = handles.list();
  const std::wstring file = path_of(path).make_preferred().wstring();
  std::wstring command = L"\"" + file + L"\"";
  PROCESS_INFORMATION started{};
  // The child has a process group of its own, so that ^C in the terminal reaches only the parent.
  const DWORD flags =
      EXTENDED_STARTUPINFO_PRESENT | CREATE_SUSPENDED | CREATE_NEW_PROCESS_GROUP | (errors ? 0 : CREATE_NO_WINDOW);
  if (!handles.valid() || !CreateProcessW(file.c_str(), command.data(), nullptr, nullptr, TRUE, flags, nullptr, nullptr,
                                          &how.StartupInfo, &started)) {
    problem = path + because();
    return nullptr;
  }
  const OwnedHandle thread(started.hThread);
  // Without the job, a child ends when it sees that the pipe has ended.
  if (job()) AssignProcessToJobObject(job(), started.hProcess);
  ResumeThread(thread.get());
  return std::unique_ptr<Child>(new Child(number_of(started.hProcess), number_of(pipe.parent.release())));
}

bool Child::is_running() const noexcept { return process_ != 0 && WaitForSingleObject(handle_of(process_), 0) == WAIT_TIMEOUT; }

void Child::kill() noexcept {
  if (process_ != 0) TerminateProcess(handle_of(process_), kKilled);  // Does nothing if the process has ended.
}

std::string Child::end() noexcept {
  if (process_ == 0) return "gone";
  kill();
  const OwnedHandle process(handle_of(process_));
  process_ = 0;
  WaitForSingleObject(process.get(), INFINITE);
  DWORD code = 0;
  if (!GetExitCodeProcess(process.get(), &code)) return "gone";
  if (code == kKilled) return "killed";
  if (code < kFirstException) return "exit status " + std::to_string(code);
  char text[32];
  std::snprintf(text, sizeof text, "exception 0x%08lX", code);
  return text;
}

Child::~Child() { end(); }

std::string own_folder() {
  HMODULE module = nullptr;
  if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                          reinterpret_cast<LPCWSTR>(&own_folder), &module))
    return "";
  std::wstring file(32768, L'\0');
  file.resize(GetModuleFileNameW(module, file.data(), static_cast<DWORD>(file.size())));
  std::error_code error;
  const std::filesystem::path found = std::filesystem::canonical(file, error);
  return text_of((error ? std::filesystem::path(file) : found).parent_path());
}

}  // namespace ocl::os
