// csrc/support/os_linux.cpp: services of Linux and other POSIX systems.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>

#include "csrc/support/os.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace ocl::os {
namespace {

std::atomic<bool> g_forked_child{false}, g_ending{false};

/// Returns "libx.so.1" for the message "libx.so.1: cannot open shared object file: No such file or directory", and ""
/// for another.
std::string missing_library(const std::string& message) {
  const size_t end = message.find(": cannot open shared object file");
  if (end == std::string::npos) return "";
  const std::string name = message.substr(0, end);
  return name.find('/') == std::string::npos ? name : "";
}

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr int kMaxLinks = 40;  // The limit of Linux.

bool is_mine(const struct stat& entry) { return entry.st_uid == geteuid(); }

/// True if the owner is this user, root or the owner of "/". In a user namespace, root may have another number.
bool is_trusted(const struct stat& entry) {
  struct stat root{};
  return is_mine(entry) || entry.st_uid == 0 || (stat("/", &root) == 0 && entry.st_uid == root.st_uid);
}

std::string owner_of(const struct stat& entry) { return " belongs to user " + std::to_string(entry.st_uid); }
std::string because() { return std::string(": ") + std::strerror(errno); }

/// Returns why others could exchange what is in a folder, or "". `sticky_is_safe`: the sticky bit is protection enough.
std::string folder_problem(const std::string& path, const struct stat& entry, bool sticky_is_safe) {
  if (!is_trusted(entry)) return "the folder " + path + owner_of(entry);
  if ((entry.st_mode & kOthersWrite) && !(sticky_is_safe && (entry.st_mode & S_ISVTX)))
    return "others can write in the folder " + path + " (chmod go-w)";
  return "";
}

/// Follows a path from the root, along symbolic links, as the system does.
class Walk {
 public:
  PrivateFolder to(const std::filesystem::path& path) {
    push(path);
    struct stat entry{};
    if (lstat("/", &entry) != 0) return {here_.string(), "/ cannot be read" + because()};
    std::string problem = folder_problem("/", entry, true);
    while (problem.empty() && !ahead_.empty()) problem = step(entry);
    if (problem.empty()) problem = folder_problem(here_.string(), entry, false);
    if (problem.empty() && !is_mine(entry)) problem = "the folder " + here_.string() + owner_of(entry);
    return {here_.string(), problem};
  }

 private:
  /// Follows one more component of the path. `entry` is the current folder before the call, and the next one after it.
  std::string step(struct stat& entry) {
    const std::string name = ahead_.front();
    ahead_.pop_front();
    if (name == "..") {
      here_ = here_.parent_path();
      return lstat(here_.c_str(), &entry) == 0 ? "" : here_.string() + " cannot be read" + because();
    }
    const std::filesystem::path next = here_ / name;
    struct stat found{};
    if (lstat(next.c_str(), &found) != 0) {
      if (errno != ENOENT) return next.string() + " cannot be read" + because();
      if (mkdir(next.c_str(), 0700) != 0 && errno != EEXIST)
        return "the folder " + next.string() + " cannot be made" + because();
      if (lstat(next.c_str(), &found) != 0) return next.string() + " cannot be read" + because();
    }
    // In a sticky folder, anyone can create entries of their own.
    if ((entry.st_mode & kOthersWrite) && !is_trusted(found)) return next.string() + owner_of(found);
    if (S_ISLNK(found.st_mode)) {
      std::error_code error;
      const std::filesystem::path target = std::filesystem::read_symlink(next, error);
      if (error || ++links_ > kMaxLinks) return "the symbolic link " + next.string() + " leads nowhere";
      push(target);
      return lstat(here_.c_str(), &entry) == 0 ? "" : here_.string() + " cannot be read" + because();
    }
    if (!S_ISDIR(found.st_mode)) return next.string() + " is no folder";
    here_ = next;
    entry = found;
    return folder_problem(here_.string(), entry, true);
  }

  void push(const std::filesystem::path& path) {
    if (path.is_absolute()) here_ = "/";
    std::deque<std::string> components;
    for (const std::filesystem::path& component : path.relative_path())
      if (!component.empty() && component != ".") components.push_back(component.string());
    ahead_.insert(ahead_.begin(), components.begin(), components.end());
  }

  std::filesystem::path here_ = "/";
  std::deque<std::string> ahead_;
  int links_ = 0;
};

}  // namespace

const FileNames kFileNames = {{"libOpenCL.so.1",                     // The loader of a distribution.
                               "libOpenCL.so",                       // The same on Android, and on boards.
                               "/vendor/lib64/libOpenCL.so",         // Android with Adreno, or with Mali.
                               "/system/vendor/lib64/libOpenCL.so",  // Older Android.
                               "/vendor/lib64/egl/libGLES_mali.so",  // Mali's driver for everything on Android.
                               "/system/vendor/lib64/egl/libGLES_mali.so", "libGLES_mali.so",
                               "libmali.so",                  // The same on boards with Linux.
                               "/vendor/lib64/libPVROCL.so",  // PowerVR.
                               "libPVROCL.so"},
                              "libnvidia-ml.so.1",
                              "libcuda.so.1",
                              ""};

std::string icd_list() {
  const char* given = std::getenv("OCL_ICD_VENDORS");
  return given && *given ? given : "/etc/OpenCL/vendors";
}

void* reserve_addresses(size_t bytes) noexcept {
  void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void release_addresses(void* address, size_t bytes) noexcept {
  if (address) munmap(address, bytes);
}

void* allocate_pages(size_t bytes) noexcept {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
#ifdef MADV_HUGEPAGE
  // Huge pages are optional: they reduce page faults at first use, and TLB misses later.
  madvise(address, bytes, MADV_HUGEPAGE);
#endif
  return address;
}

void free_pages(void* address, size_t bytes) noexcept {
  if (address) munmap(address, bytes);
}

int64_t available_memory_bytes() noexcept {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (!file) return 0;
  char line[128];
  long long kib = 0;
  while (kib == 0 && std::fgets(line, sizeof(line), file)) (void)std::sscanf(line, "MemAvailable: %lld kB", &kib);
  std::fclose(file);
  return static_cast<int64_t>(kib) << 10;
}

namespace {

/// Returns how many cores a control group's limit of time keeps busy; 0 if `folder` sets no limit.
double cores_of_group(const std::string& folder) {
  double quota = 0, period = 0;
  if (std::sscanf(first_line(folder + "/cpu.max").c_str(), "%lf %lf", &quota, &period) != 2) {
    quota = std::atof(first_line(folder + "/cpu.cfs_quota_us").c_str());  // version 1; -1: no limit
    period = std::atof(first_line(folder + "/cpu.cfs_period_us").c_str());
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

/// Returns the smallest limit of this process's control group and those around it; 0 if there is none.
double cores_of_groups() {
  double least = 0;
  std::FILE* file = std::fopen("/proc/self/cgroup", "re");
  char line[4096], controllers[256], path[3072];
  while (file && std::fgets(line, sizeof(line), file)) {
    const bool second = std::sscanf(line, "0::%3071s", path) == 1;
    if (!second && std::sscanf(line, "%*d:%255[^:]:%3071s", controllers, path) != 2) continue;
    if (!second && ("," + std::string(controllers) + ",").find(",cpu,") == std::string::npos) continue;
    const std::string root = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    for (std::string group = path;; group.erase(group.rfind('/'))) {
      const double cores = cores_of_group(root + group);
      if (cores > 0 && (least == 0 || cores < least)) least = cores;
      if (group.rfind('/') == std::string::npos) break;
    }
  }
  if (file) std::fclose(file);
  return least;
}

}  // namespace

std::vector<uint64_t> usable_cores() {
  std::vector<uint64_t> cores;
  for (size_t most = 1024; cores.empty() && most <= size_t{1} << 20; most *= 4) {  // The system may know more than it is given.
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(most), [](cpu_set_t* all) { CPU_FREE(all); });
    if (!set || sched_getaffinity(0, CPU_ALLOC_SIZE(most), set.get()) != 0) continue;
    for (size_t core = 0; core < most; ++core)
      if (CPU_ISSET_S(core, CPU_ALLOC_SIZE(most), set.get())) cores.push_back(core);
  }
  if (const double limit = cores_of_groups(); limit > 0 && limit < static_cast<double>(cores.size()))
    cores.resize(static_cast<size_t>(std::ceil(limit)));
  return cores;
}

void* open_library(const std::string& path, std::string& problem) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  // Each round opens one more library that the last attempt missed.
  for (int sibling = 0; sibling < 32; ++sibling) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* message = dlerror();
    problem = message ? message : "dlopen failed";
    std::string missing = missing_library(problem);
    bool opened = false;
    // The missing library may lie in the same folder, and may itself miss another one there.
    for (int depth = 0; depth < 8 && !missing.empty() && !folder.empty(); ++depth) {
      if (dlopen((folder / missing).c_str(), RTLD_NOW | RTLD_GLOBAL)) {
        opened = true;
        break;
      }
      message = dlerror();
      const std::string next = missing_library(message ? message : "");
      missing = next == missing ? "" : next;
    }
    if (!opened) return nullptr;
  }
  return nullptr;
}

void* library_symbol(void* library, const char* name) noexcept { return dlsym(library, name); }

PrivateFolder private_folder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return {path, path + " cannot be read: " + error.message()};
  return Walk().to(absolute);
}

std::string private_file_problem(const std::string& path) {
  struct stat entry{};
  if (lstat(path.c_str(), &entry) != 0) return errno == ENOENT ? "" : path + " cannot be read" + because();
  if (!S_ISREG(entry.st_mode)) return path + (S_ISLNK(entry.st_mode) ? " is a symbolic link" : " is no regular file");
  if (!is_mine(entry)) return "the file " + path + owner_of(entry);
  if (entry.st_mode & kOthersWrite) return "others can write to the file " + path + " (delete it)";
  // A failure of chmod does not matter, because nothing in the file is secret.
  if (entry.st_mode & (S_IRGRP | S_IROTH)) chmod(path.c_str(), entry.st_mode & 0700);
  return "";
}

std::string make_private_file(const std::string& path) {
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0)
    close(file);
  else if (errno != EEXIST)
    return "the file " + path + " cannot be made" + because();
  return private_file_problem(path);
}

bool write_private_file(const std::string& path, const std::string& contents) noexcept {
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (file < 0) return false;
  struct stat entry{};
  bool good = fstat(file, &entry) == 0 && S_ISREG(entry.st_mode);
  for (size_t done = 0; good && done < contents.size();) {
    const ssize_t count = write(file, contents.data() + done, contents.size() - done);
    if (count < 0 && errno == EINTR) continue;
    good = count > 0;
    done += good ? static_cast<size_t>(count) : 0;
  }
  return close(file) == 0 && good;
}

std::string first_line(const std::string& path) {
  std::string line;
  if (std::FILE* file = std::fopen(path.c_str(), "re")) {
    for (int c = std::fgetc(file); c != EOF && c != '\n'; c = std::fgetc(file)) line += static_cast<char>(c);
    (void)std::fclose(file);
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

namespace {

/// Ends the process without running destructors, because the destructors of OpenCL libraries wait for threads that exist only
/// in the parent. A child registers this function after the fork, so exit() calls it before the functions that the parent has
/// registered. Python has ended by then.
void end_forked_child(int status, void*) {
  std::fflush(nullptr);
  _exit(status);
}

void begin_forked_child() {
  g_forked_child.store(true, std::memory_order_relaxed);
  on_exit(end_forked_child, nullptr);
}

}  // namespace

KeepVariables::KeepVariables(std::vector<std::string> names) {
  for (std::string& name : names)
    if (const char* value = std::getenv(name.c_str())) values_.emplace_back(std::move(name), value);
}

KeepVariables::~KeepVariables() {
  for (const auto& [name, value] : values_)
    if (const char* now = std::getenv(name.c_str()); now && value != now) setenv(name.c_str(), value.c_str(), 1);
}

void close_descriptor(int descriptor) noexcept { close(descriptor); }

int terminal_columns() noexcept {
  constexpr int kUnknown = 80;
  const char* kind = std::getenv("TERM");
  if (isatty(STDERR_FILENO) == 0 || kind == nullptr || std::strcmp(kind, "dumb") == 0) return 0;
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kUnknown;
}

SilentErrors::SilentErrors() noexcept {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  std::fflush(stderr);
  kept_ = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  if (kept_ >= 0) dup2(nowhere, STDERR_FILENO);
  close(nowhere);
}

SilentErrors::~SilentErrors() {
  if (kept_ < 0) return;
  std::fflush(stderr);
  dup2(kept_, STDERR_FILENO);
  close(kept_);
}

int process_id() noexcept { return static_cast<int>(getpid()); }

int64_t thread_id() noexcept {
  static thread_local const int64_t id = syscall(SYS_gettid);
  return id;
}

double thread_seconds() noexcept {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

bool is_forked_child() noexcept { return g_forked_child.load(std::memory_order_relaxed); }

bool is_ending() noexcept { return g_ending.load(std::memory_order_relaxed); }
void set_ending() noexcept { g_ending.store(true, std::memory_order_relaxed); }
void end_process(int status) noexcept { std::_Exit(status); }

void watch_forks() noexcept {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, begin_forked_child); });
}

FileLock::FileLock(const std::string& path) noexcept {
  const int file = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return;
  if (flock(file, LOCK_EX) == 0)
    handle_ = file;
  else
    close(file);
}

FileLock::~FileLock() {
  if (handle_ >= 0) close(static_cast<int>(handle_));
}

namespace {

/// Sets the lock `type` on a byte of an open file. Returns 0, or errno.
int set_byte_lock(intptr_t file, short type, uint64_t position) noexcept {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(position % static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  lock.l_len = 1;
  // A lock of the open file, not of the process: other code of the process may open and close the file.
  return fcntl(static_cast<int>(file), F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

}  // namespace

ByteLocks::ByteLocks(const std::string& path) noexcept
    : handle_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600)) {}

ByteLocks::~ByteLocks() {
  if (handle_ >= 0) close(static_cast<int>(handle_));
}

ByteLocks::Taken ByteLocks::take(uint64_t position) noexcept {
  if (handle_ < 0) return Taken::kUnsupported;
  const int error = set_byte_lock(handle_, F_WRLCK, position);
  if (error == 0) return Taken::kYes;
  return error == EAGAIN || error == EACCES ? Taken::kNo : Taken::kUnsupported;
}

void ByteLocks::release(uint64_t position) noexcept {
  if (handle_ >= 0) set_byte_lock(handle_, F_UNLCK, position);
}

}  // namespace ocl::os
