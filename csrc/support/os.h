// csrc/support/os.h: what differs between operating systems; one source file per system implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ocl::os {

/// Reserves `bytes` of addresses that nothing can read or write. nullptr when the system refuses.
void* reserve_addresses(size_t bytes) noexcept;
void release_addresses(void* address, size_t bytes) noexcept;

/// Zeroed, page-aligned memory straight from the system, in huge pages where it offers them. nullptr when it has none.
void* allocate_pages(size_t bytes) noexcept;
void free_pages(void* address, size_t bytes) noexcept;
/// Memory that the system could give to programs now, caches that it would drop included; 0 where it does not tell.
int64_t available_memory_bytes() noexcept;

/// Opens a library for the life of the process; its sibling libraries (same folder) are opened first where it does not find
/// them itself. nullptr with the reason in `problem` otherwise.
void* open_library(const std::string& path, std::string& problem);
void* library_symbol(void* library, const char* name) noexcept;

/// The folder where this user's caches live, without a trailing slash: $XDG_CACHE_HOME or ~/.cache on Linux.
std::string user_cache_dir();

int process_id() noexcept;
/// True in a child made by fork() from a process that had called watch_forks() before. Costs one load.
bool is_forked_child() noexcept;
void watch_forks() noexcept;
/// True from the end of the process on, when the libraries' own destructors may run: see end_of_process in runtime/device.cpp.
bool is_ending() noexcept;
void set_ending() noexcept;

/// Holds a file's lock, between processes too, while it lives; `held()` is false when the file cannot be made.
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

}  // namespace ocl::os
