// csrc/support/os.h: what differs between operating systems; one source file per system implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

/// A folder whose contents only this user and root can change, or why it is not one.
struct PrivateFolder {
  std::string path;     // absolute, without symbolic links
  std::string problem;  // one line; "" if all is well
};
/// Makes what is missing of `path`, for this user alone (0700). A problem: it belongs to someone else, group or world can write
/// in it, or someone else could put another folder in its place. Symbolic links on the way to it are followed, and held to the
/// same; in a folder with the sticky bit, such as /tmp, an entry has to be this user's or root's.
PrivateFolder private_folder(const std::string& path);
/// Why a file in a private folder is not to be trusted: it is no regular file (a symbolic link, a pipe), belongs to someone
/// else, or others can write to it. "" if it is not there, or all is well; others can then no longer read it (0600).
std::string private_file_problem(const std::string& path);
/// The same for a file that is to be there: makes an empty one where there is none.
std::string make_private_file(const std::string& path);
/// Writes a file for this user alone. False when it cannot be written, or is there and is no regular file.
bool write_private_file(const std::string& path, const std::string& contents) noexcept;

/// Gives environment variables back the values that they had, once it ends: some libraries cut a value in place while they read
/// it, and every process started afterwards would see the rest.
class KeepVariables {
 public:
  explicit KeepVariables(std::vector<std::string> names);
  ~KeepVariables();
  KeepVariables(const KeepVariables&) = delete;
  KeepVariables& operator=(const KeepVariables&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

/// Characters in a line of the terminal that stderr is; 0: it is none, or one that cannot erase a line.
int terminal_columns() noexcept;

int process_id() noexcept;
/// CPU time of this thread so far.
double thread_seconds() noexcept;
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
