// csrc/support/os.h: services that differ between operating systems, implemented in os_linux.cpp and os_windows.cpp. Paths are
// UTF-8 on every system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ocl::os {

/// Reserves a range of `bytes` addresses that cannot be read or written. Returns nullptr if the system refuses.
void* reserve_addresses(size_t bytes) noexcept;
void release_addresses(void* address, size_t bytes) noexcept;

/// Returns zeroed, page-aligned memory, in huge pages where possible, or nullptr if there is none.
void* allocate_pages(size_t bytes) noexcept;
void free_pages(void* address, size_t bytes) noexcept;
/// Returns how many bytes of memory programs could still allocate, including caches that the system would drop. 0 if unknown.
int64_t available_memory_bytes() noexcept;
/// Returns the numbers of the cores on which this process may run. If the system limits its time on them further, as for a
/// container, returns as many of them as that time keeps busy.
std::vector<uint64_t> usable_cores();

/// Names of files that differ between systems.
struct FileNames {
  std::vector<const char*> opencl_libraries;  // OpenCL loaders, and drivers that take their place. The usual one comes first.
  const char* nvidia_management;              // NVIDIA's management library (NVML).
  const char* nvidia_driver;                  // NVIDIA's driver library (CUDA's driver API).
  const char* program_suffix;                 // What the file name of a program ends in, such as ".exe".
};
extern const FileNames kFileNames;

/// Returns the folder or file in which the system's OpenCL loader finds .icd files: that of OCL_ICD_VENDORS, or the usual
/// folder. "" on Windows, where the loader asks the registry.
std::string icd_list();

/// Opens a library for the rest of the process. Libraries that it needs are looked for in its own folder too. If that
/// fails, returns nullptr and puts the reason into `problem`.
void* open_library(const std::string& path, std::string& problem);
/// Returns the address of a symbol, or nullptr if there is none. If `library` is nullptr, searches the libraries whose symbols
/// the whole process sees. On Windows only the program itself is such a library.
void* library_symbol(void* library, const char* name) noexcept;

/// A folder whose contents only this user and the system's administrators can change, or the reason why it is not safe.
struct PrivateFolder {
  std::string path;     // Absolute, without symbolic links.
  std::string problem;  // One line. "" if the folder is safe.
};
/// Creates the missing parts of `path` for this user alone and checks the whole path. `problem` is set if a folder belongs
/// to another user, is writable for others, or could be exchanged by another user. Symbolic links are followed, and their
/// targets are checked too. Where others may create entries of their own, as in /tmp with its sticky bit and in C:\, the
/// next entry must belong to this user or an administrator.
PrivateFolder private_folder(const std::string& path);
/// Returns why a file in a private folder cannot be trusted: it is no regular file, belongs to another user, or others
/// can write to it. "" if the file is safe or missing. On Linux, a safe file also loses read permission for others (0600).
std::string private_file_problem(const std::string& path);
/// Like private_file_problem, but creates an empty file if there is none.
std::string make_private_file(const std::string& path);
/// Writes a file that only this user can read. Returns false if that fails, or if the path is there and is no regular file.
bool write_private_file(const std::string& path, const std::string& contents) noexcept;
/// Returns the first line of a file, without its end. "" if the file cannot be read.
std::string first_line(const std::string& path);

/// Restores environment variables in its destructor. Some libraries cut the value of a variable in place while they
/// read it; processes started later would see only the rest.
class KeepVariables {
 public:
  explicit KeepVariables(std::vector<std::string> names);
  ~KeepVariables();
  KeepVariables(const KeepVariables&) = delete;
  KeepVariables& operator=(const KeepVariables&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

/// Closes an open file by its descriptor.
void close_descriptor(int descriptor) noexcept;

/// Returns the width in characters of the terminal that stderr writes to; 0 if stderr is no terminal, or the terminal cannot
/// erase a line.
int terminal_columns() noexcept;
/// While an object of this class lives, the process's standard error output is discarded. Some compilers print "1 error
/// generated." there for a program that is built only to find out whether it builds. Messages of other threads are lost too, so
/// the object must not live long.
class SilentErrors {
 public:
  SilentErrors() noexcept;
  ~SilentErrors();
  SilentErrors(const SilentErrors&) = delete;
  SilentErrors& operator=(const SilentErrors&) = delete;

 private:
  int kept_ = -1;  // a second handle of the standard error output
};

int process_id() noexcept;
/// Returns the system's number of this thread, as debuggers and traces show it.
int64_t thread_id() noexcept;
/// Returns the CPU time of this thread so far, in seconds.
double thread_seconds() noexcept;
/// True in a child made by fork(), if the parent had called watch_forks(). Costs one load. Never true on Windows.
bool is_forked_child() noexcept;
void watch_forks() noexcept;
/// True once the process has begun to end. Destructors of libraries may run from then on; see end_of_process in
/// runtime/device/device.cpp.
bool is_ending() noexcept;
void set_ending() noexcept;
/// Ends the process at once, without destructors. Those of OpenCL libraries may wait for threads that have ended.
[[noreturn]] void end_process(int status) noexcept;

/// Holds an exclusive lock on a file, also between processes, until destroyed. held() is false if the file cannot be
/// made.
class FileLock {
 public:
  explicit FileLock(const std::string& path) noexcept;
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool held() const noexcept { return handle_ >= 0; }

 private:
  intptr_t handle_ = -1;
};

/// Locks on single bytes of a file, between processes. The system releases them when the process ends. Locks of one object do
/// not exclude each other. A forked child shares its parent's locks, so it needs an object of its own. Not thread-safe.
class ByteLocks {
 public:
  enum class Taken : uint8_t { kYes, kNo, kUnsupported };  // kUnsupported: there is no file, or its file system has no locks.

  explicit ByteLocks(const std::string& path) noexcept;
  ~ByteLocks();
  ByteLocks(const ByteLocks&) = delete;
  ByteLocks& operator=(const ByteLocks&) = delete;
  /// Takes the lock on the byte at `position` if no other process has it. Does not wait.
  Taken take(uint64_t position) noexcept;
  void release(uint64_t position) noexcept;

 private:
  intptr_t handle_ = -1;
  std::set<uint64_t> held_;  // Bytes that this object has locked, where the system would refuse a second lock.
};

}  // namespace ocl::os
