// csrc/support/os_linux.cpp: the system's services on Linux and other POSIX systems.
#if !defined(_WIN32)
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "csrc/support/os.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace ocl::os {
namespace {

std::atomic<bool> g_forked_child{false}, g_ending{false};

/// "libx.so.1" out of "libx.so.1: cannot open shared object file: No such file or directory"; "" for another message.
std::string missing_library(const std::string& message) {
  const size_t end = message.find(": cannot open shared object file");
  if (end == std::string::npos) return "";
  const std::string name = message.substr(0, end);
  return name.find('/') == std::string::npos ? name : "";
}

}  // namespace

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
  madvise(address, bytes, MADV_HUGEPAGE);  // a wish: fewer page faults at first use and fewer TLB misses after
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

void* open_library(const std::string& path, std::string& problem) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (int sibling = 0; sibling < 32; ++sibling) {  // each round opens one more library that the last one missed
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* message = dlerror();
    problem = message ? message : "dlopen failed";
    std::string missing = missing_library(problem);
    bool opened = false;
    for (int depth = 0; depth < 8 && !missing.empty() && !folder.empty(); ++depth) {  // a sibling may miss a sibling
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

std::string user_cache_dir() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/') return cache;
  if (const char* home = std::getenv("HOME"); home && *home == '/') return std::string(home) + "/.cache";
  return "/tmp/cache-" + std::to_string(getuid());
}

int process_id() noexcept { return static_cast<int>(getpid()); }
bool is_forked_child() noexcept { return g_forked_child.load(std::memory_order_relaxed); }

bool is_ending() noexcept { return g_ending.load(std::memory_order_relaxed); }
void set_ending() noexcept { g_ending.store(true, std::memory_order_relaxed); }

void watch_forks() noexcept {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { g_forked_child.store(true, std::memory_order_relaxed); }); });
}

FileLock::FileLock(const std::string& path) noexcept {
  const int file = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (flock(file, LOCK_EX) == 0)
    handle_ = file;
  else
    close(file);
}

FileLock::~FileLock() {
  if (handle_ >= 0) close(static_cast<int>(handle_));
}

}  // namespace ocl::os
#endif
