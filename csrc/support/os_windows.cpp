// csrc/support/os_windows.cpp: services of Windows, from version 10 on. Private files and folders are in access_windows.cpp.
#include <fcntl.h>
#include <io.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "csrc/support/os.h"
#include "csrc/support/path.h"
#include "csrc/support/win32.h"

namespace ocl::os {
namespace {

std::atomic<bool> g_ending{false};

OVERLAPPED at_byte(uint64_t position) {
  OVERLAPPED place{};
  place.Offset = static_cast<DWORD>(position);
  place.OffsetHigh = static_cast<DWORD>(position >> 32);
  return place;
}

/// Opens a file for locks, and makes it if there is none. It is open to other processes, too, and no link is followed.
intptr_t open_lock_file(const std::string& path) noexcept {
  PrivateSecurity security;
  const HANDLE file =
      CreateFileW(wide(path).c_str(), GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                  security.get(), OPEN_ALWAYS, FILE_FLAG_OPEN_REPARSE_POINT, nullptr);
  BY_HANDLE_FILE_INFORMATION info{};
  if (file != INVALID_HANDLE_VALUE && GetFileInformationByHandle(file, &info) &&
      !(info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT))
    return reinterpret_cast<intptr_t>(file);
  if (file != INVALID_HANDLE_VALUE) CloseHandle(file);
  return -1;
}

HANDLE handle_of(intptr_t handle) { return reinterpret_cast<HANDLE>(handle); }

uint64_t in_file(uint64_t position) { return position % static_cast<uint64_t>(std::numeric_limits<int64_t>::max()); }

}  // namespace

const FileNames kFileNames = {{"OpenCL.dll"}, "nvml.dll", "nvcuda.dll", ".exe"};

std::string icd_list() { return ""; }

std::wstring wide(std::string_view text) {
  const int bytes = static_cast<int>(text.size());
  std::wstring result(static_cast<size_t>(MultiByteToWideChar(CP_UTF8, 0, text.data(), bytes, nullptr, 0)), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), bytes, result.data(), static_cast<int>(result.size()));
  return result;
}

std::string narrow(std::wstring_view text) {
  const int units = static_cast<int>(text.size());
  std::string result(static_cast<size_t>(WideCharToMultiByte(CP_UTF8, 0, text.data(), units, nullptr, 0, nullptr, nullptr)),
                     '\0');
  WideCharToMultiByte(CP_UTF8, 0, text.data(), units, result.data(), static_cast<int>(result.size()), nullptr, nullptr);
  return result;
}

std::string because(DWORD error) {
  wchar_t* raw = nullptr;
  const DWORD units =
      FormatMessageW(FORMAT_MESSAGE_ALLOCATE_BUFFER | FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr,
                     error, 0, reinterpret_cast<wchar_t*>(&raw), 0, nullptr);
  std::string text = units ? narrow({raw, units}) : "error";
  LocalFree(raw);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == '.' || text.back() == ' '))
    text.pop_back();
  return ": " + text + " (" + std::to_string(error) + ")";
}

void* reserve_addresses(size_t bytes) noexcept { return VirtualAlloc(nullptr, bytes, MEM_RESERVE, PAGE_NOACCESS); }

void release_addresses(void* address, size_t) noexcept {
  if (address) VirtualFree(address, 0, MEM_RELEASE);
}

// Large pages need a right that users do not have.
void* allocate_pages(size_t bytes) noexcept { return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }

void free_pages(void* address, size_t) noexcept {
  if (address) VirtualFree(address, 0, MEM_RELEASE);
}

int64_t available_memory_bytes() noexcept {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? static_cast<int64_t>(status.ullAvailPhys) : 0;
}

std::vector<uint64_t> usable_cores() {
  DWORD_PTR mine = 0, all = 0;
  std::vector<uint64_t> cores;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &mine, &all)) return cores;
  for (uint64_t core = 0; core < sizeof(mine) * 8; ++core)
    if (mine >> core & 1) cores.push_back(core);
  return cores;
}

void* open_library(const std::string& path, std::string& problem) {
  const std::filesystem::path file = path_of(path).make_preferred();
  // A name without a folder is looked for beside the program and in the system's folder, but not in the current folder or in
  // PATH.
  DWORD flags = LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
  if (file.is_absolute()) flags |= LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR;
  // No dialog box for a library that is damaged.
  DWORD before = 0;
  SetThreadErrorMode(SEM_FAILCRITICALERRORS | SEM_NOOPENFILEERRORBOX, &before);
  const HMODULE library = LoadLibraryExW(file.c_str(), nullptr, flags);
  if (!library) problem = path + because();
  SetThreadErrorMode(before, nullptr);
  return reinterpret_cast<void*>(library);
}

void* library_symbol(void* library, const char* name) noexcept {
  const HMODULE where = library ? reinterpret_cast<HMODULE>(library) : GetModuleHandleW(nullptr);
  return reinterpret_cast<void*>(GetProcAddress(where, name));
}

std::string first_line(const std::string& path) {
  std::string line;
  if (std::FILE* file = _wfopen(wide(path).c_str(), L"rbN")) {
    for (int c = std::fgetc(file); c != EOF && c != '\n'; c = std::fgetc(file)) line += static_cast<char>(c);
    (void)std::fclose(file);
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

KeepVariables::KeepVariables(std::vector<std::string> names) {
  for (std::string& name : names)
    if (const char* value = std::getenv(name.c_str())) values_.emplace_back(std::move(name), value);
}

KeepVariables::~KeepVariables() {
  for (const auto& [name, value] : values_)
    if (const char* now = std::getenv(name.c_str()); now && value != now) _putenv_s(name.c_str(), value.c_str());
}

void close_descriptor(int descriptor) noexcept { _close(descriptor); }

int terminal_columns() noexcept {
  const HANDLE terminal = GetStdHandle(STD_ERROR_HANDLE);
  DWORD mode = 0;
  CONSOLE_SCREEN_BUFFER_INFO info{};
  if (!GetConsoleMode(terminal, &mode) || !GetConsoleScreenBufferInfo(terminal, &info)) return 0;
  // Without this mode, the terminal prints escape sequences as text.
  if (!(mode & ENABLE_VIRTUAL_TERMINAL_PROCESSING) && !SetConsoleMode(terminal, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING))
    return 0;
  return info.srWindow.Right - info.srWindow.Left + 1;
}

SilentErrors::SilentErrors() noexcept {
  const int nowhere = _open("NUL", _O_WRONLY);
  if (nowhere < 0) return;
  std::fflush(stderr);
  kept_ = _dup(2);
  if (kept_ >= 0) _dup2(nowhere, 2);
  _close(nowhere);
}

SilentErrors::~SilentErrors() {
  if (kept_ < 0) return;
  std::fflush(stderr);
  _dup2(kept_, 2);
  _close(kept_);
}

int process_id() noexcept { return static_cast<int>(GetCurrentProcessId()); }

int64_t thread_id() noexcept { return GetCurrentThreadId(); }

// The system counts in steps of 1/64 second.
double thread_seconds() noexcept {
  FILETIME created{}, ended{}, kernel{}, user{};
  if (!GetThreadTimes(GetCurrentThread(), &created, &ended, &kernel, &user)) return 0;
  const auto ticks = [](const FILETIME& time) { return (uint64_t{time.dwHighDateTime} << 32) + time.dwLowDateTime; };
  return 1e-7 * static_cast<double>(ticks(kernel) + ticks(user));
}

bool is_forked_child() noexcept { return false; }
void watch_forks() noexcept {}

bool is_ending() noexcept { return g_ending.load(std::memory_order_relaxed); }
void set_ending() noexcept { g_ending.store(true, std::memory_order_relaxed); }

void end_process(int status) noexcept {
  // ExitProcess would call DllMain of every library.
  TerminateProcess(GetCurrentProcess(), static_cast<UINT>(status));
  std::abort();
}

FileLock::FileLock(const std::string& path) noexcept : handle_(open_lock_file(path)) {
  if (handle_ < 0) return;
  OVERLAPPED place = at_byte(0);
  if (LockFileEx(handle_of(handle_), LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &place)) return;
  CloseHandle(handle_of(handle_));
  handle_ = -1;
}

FileLock::~FileLock() {
  if (handle_ < 0) return;
  OVERLAPPED place = at_byte(0);
  // Closing releases the lock too, but the system may do it later.
  UnlockFileEx(handle_of(handle_), 0, 1, 0, &place);
  CloseHandle(handle_of(handle_));
}

ByteLocks::ByteLocks(const std::string& path) noexcept : handle_(open_lock_file(path)) {}

ByteLocks::~ByteLocks() {
  if (handle_ >= 0) CloseHandle(handle_of(handle_));
}

ByteLocks::Taken ByteLocks::take(uint64_t position) noexcept {
  if (handle_ < 0) return Taken::kUnsupported;
  if (held_.count(in_file(position))) return Taken::kYes;
  OVERLAPPED place = at_byte(in_file(position));
  if (LockFileEx(handle_of(handle_), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &place)) {
    held_.insert(in_file(position));
    return Taken::kYes;
  }
  const DWORD error = GetLastError();
  return error == ERROR_LOCK_VIOLATION || error == ERROR_IO_PENDING ? Taken::kNo : Taken::kUnsupported;
}

void ByteLocks::release(uint64_t position) noexcept {
  if (handle_ < 0 || !held_.erase(in_file(position))) return;
  OVERLAPPED place = at_byte(in_file(position));
  UnlockFileEx(handle_of(handle_), 0, 1, 0, &place);
}

}  // namespace ocl::os
