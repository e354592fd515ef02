// tests/cpp/test_runtime_device_linux.cpp: listing and selection of devices. Both happen once, so each case runs in a forked
// process.
#include <doctest/doctest.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/support/log.h"
#include "tests/cpp/runtime_devices.h"

using namespace ocl;
using namespace ocl::runtime;
namespace fs = std::filesystem;

namespace {

/// Runs `body` in a forked child and returns its result. If it throws, returns "error: " with the number of the error's
/// kind.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      text = body();
    } catch (const Error& error) {
      text = "error " + std::to_string(static_cast<int>(error.kind())) + ": " + error.what();
    }
    for (size_t at = 0; at < text.size();) {
      const ssize_t wrote = write(ends[1], text.data() + at, text.size() - at);
      if (wrote <= 0) _exit(1);
      at += static_cast<size_t>(wrote);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_MESSAGE(WIFEXITED(status), "the child was killed by signal ", WTERMSIG(status));
  return text;
}

std::string listing() {
  std::string text;
  for (const DeviceSummary& device : list_devices())
    text += device.type + "|" + device.platform_name + "|" + device.name + "\n";
  return text;
}

std::string listing_of(const std::string& selection, const std::vector<std::string>& libraries = test_vendor_libraries()) {
  return in_child([&] {
    configure_devices(selection, libraries);
    return listing();
  });
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> list;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) list.push_back(line);
  return list;
}

std::string error_of(ErrorKind kind) { return "error " + std::to_string(static_cast<int>(kind)) + ": "; }

/// Returns the first library that the .icd files of the test's folders name; "" if there is none.
std::string some_vendor_library() {
  for (const std::string& folder : test_vendor_libraries()) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      std::ifstream file(entry.path());
      std::string line;
      std::getline(file, line);
      const fs::path moved = fs::path(folder) / "../../../lib" / fs::path(line).filename();
      if (fs::exists(line)) return line;
      if (fs::exists(moved)) return fs::canonical(moved).string();
    }
  }
  return "";
}

}  // namespace

// These cases come first: after this process has used OpenCL, its forked children cannot use it.

TEST_CASE("GPUs come first, then accelerators, then CPUs; emulators are left out") {
  const std::vector<std::string> devices = lines(listing_of(""));
  const auto rank = [](const std::string& line) { return line.rfind("GPU", 0) == 0 ? 0 : line.rfind("CPU", 0) == 0 ? 2 : 1; };
  CHECK(std::is_sorted(devices.begin(), devices.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); }));
  for (const std::string& line : devices) CHECK(line.find("mulation") == std::string::npos);
}

TEST_CASE("without a device the error names a runtime that there is for this processor") {
  const std::string text = in_child([] {
    setenv("OCL_ICD_VENDORS", "/nowhere/", 1);
    configure_devices("", {});
    return Device::get(0).name();
  });
  utsname machine{};
  uname(&machine);
  const bool x86 = std::string(machine.machine) == "x86_64";
  CHECK(text.rfind(error_of(ErrorKind::kConfig), 0) == 0);
  CHECK((text.find("pip install torch-ocl-compile[cpu]") != std::string::npos) == x86);
  CHECK((text.find("apt install pocl-opencl-icd") != std::string::npos) == !x86);
}

TEST_CASE("a selection picks and orders by index and by name") {
  const std::vector<std::string> all = lines(listing_of(""));
  if (all.size() < 2) {
    MESSAGE("fewer than two devices: not tested");
    return;
  }
  CHECK(lines(listing_of("1,0")) == std::vector<std::string>{all[1], all[0]});
  CHECK(lines(listing_of(" 1 ")) == std::vector<std::string>{all[1]});
  CHECK(lines(listing_of("1,1,,1")) == std::vector<std::string>{all[1]});
  CHECK(lines(listing_of(" , ")) == all);
  std::string platform = all[1].substr(4, all[1].find('|', 4) - 4);
  for (char& c : platform) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::vector<std::string> named = lines(listing_of(platform + ",0"));
  CHECK(named.front() == all[1]);
  CHECK(named.back() == all[0]);
}

TEST_CASE("a part that matches nothing is warned of, a selection that matches nothing is an error") {
  const std::vector<std::string> all = lines(listing_of(""));
  if (all.empty()) {
    MESSAGE("no device: not tested");
    return;
  }
  const std::string some = in_child([&] {
    std::string warnings;
    set_log_sink([&](LogLevel, const char*, const std::string& message) { warnings += message; });
    configure_devices("no such device,0", test_vendor_libraries());
    return listing() + warnings;
  });
  CHECK(some.find(all[0]) != std::string::npos);
  CHECK(some.find("'no such device'") != std::string::npos);
  for (const char* selection : {"no such device", "77", "-1"}) {
    const std::string none = in_child([&] {
      set_log_sink([](LogLevel, const char*, const std::string&) {});
      configure_devices(selection, test_vendor_libraries());
      return std::to_string(Device::count());
    });
    CHECK(none.rfind(error_of(ErrorKind::kConfig), 0) == 0);
    CHECK(none.find(selection) != std::string::npos);
    // The message lists the devices that exist.
    CHECK(none.find(all[0].substr(all[0].rfind('|') + 1)) != std::string::npos);
  }
}

TEST_CASE("a runtime is found by its library, its .icd file, a folder of them, and an .icd file of another machine") {
  const std::string library = some_vendor_library();
  if (library.empty()) {
    MESSAGE("no runtime outside of the system's list: not tested");
    return;
  }
  const std::string expected = listing_of("", {library});
  const std::string without = listing_of("", {});
  CHECK(expected != without);
  char name[] = "/tmp/ocl_vendor_XXXXXX";
  const fs::path prefix = mkdtemp(name);
  fs::create_directories(prefix / "etc/OpenCL/vendors");
  fs::create_directories(prefix / "lib");
  fs::create_symlink(library, prefix / "lib" / fs::path(library).filename());
  const fs::path icd = prefix / "etc/OpenCL/vendors/runtime.icd";
  std::ofstream(icd) << library << "\n";
  CHECK(listing_of("", {icd.string()}) == expected);
  CHECK(listing_of("", {icd.parent_path().string()}) == expected);
  // A runtime is listed once, even if it is named several times.
  CHECK(listing_of("", {icd.string(), library, icd.parent_path().string()}) == expected);
  std::ofstream(icd) << "/opt/built/somewhere/else/lib/" << fs::path(library).filename().string() << "\r\n";
  CHECK(lines(listing_of("", {icd.string()})).size() == lines(expected).size());
  fs::remove_all(prefix);
}

TEST_CASE("what cannot be a runtime is a line for doctor, and the others still work") {
  const std::string system = listing_of("", {});
  for (const char* path : {"/nowhere/libnothing.so", "libm.so.6", "/nowhere/x.icd"}) {
    const std::string text = in_child([&] {
      configure_devices("", {path});
      std::string all = listing();
      for (const std::string& problem : device_problems()) all += "problem " + problem + "\n";
      return all;
    });
    CHECK(text.rfind(system, 0) == 0);
    if (std::string(path).find(".icd") == std::string::npos)
      CHECK(text.find(std::string("problem ") + path) != std::string::npos);
  }
}

TEST_CASE("an index that does not exist names the devices that do") {
  for (const char* index : {"99", "-1", "1000000"}) {
    const std::string text = in_child([&] {
      configure_test_devices();
      return Device::get(std::stoi(index)).name();
    });
    CHECK(text.rfind(error_of(ErrorKind::kConfig), 0) == 0);
    for (const std::string& line : lines(listing_of("")))
      CHECK((text.find(line.substr(line.rfind('|') + 1)) != std::string::npos || std::getenv("TORCH_OCL_DEVICES")));
  }
}

TEST_CASE("devices stay what they are once in use, and do not survive a fork") {
  const std::string text = in_child([] {
    configure_devices("", test_vendor_libraries());
    if (Device::count() == 0) return std::string("none");
    // The selection may change, because no device is in use yet.
    configure_devices("0", test_vendor_libraries());
    if (Device::count() != 1) return std::string("selection had no effect");
    Device& device = Device::get(0);
    if (&device != &Device::get(0)) return std::string("made twice");
    configure_devices("0", test_vendor_libraries());
    std::string problems;
    try {
      configure_devices("", test_vendor_libraries());
      problems += "changed while in use. ";
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) problems += "wrong kind. ";
    }
    void* block = device.allocator().allocate(100);
    device.allocator().record_stream(block, 0);
    const std::string child = in_child([&] {
      // Destructors of tensors free blocks in the child, too; this must not use the device.
      device.allocator().free(block);
      return Device::get(0).name();
    });
    if (child.rfind(error_of(ErrorKind::kDevice), 0) != 0) problems += "a forked child got: " + child;
    return problems.empty() ? "good" : problems;
  });
  CHECK((text == "good" || text == "none"));
}

TEST_CASE("capabilities are plausible") {
  for_each_device([](Device& device) {
    const Caps& caps = device.caps();
    CHECK((caps.vector_floats == 4 || caps.vector_floats == 8 || caps.vector_floats == 16));
    CHECK(caps.units >= 1);
    CHECK(caps.global_bytes >= caps.max_alloc_bytes / 4);
    CHECK(caps.max_alloc_bytes >= 1 << 26);
    CHECK(caps.base_align_bytes >= 128);
    CHECK((caps.base_align_bytes & (caps.base_align_bytes - 1)) == 0);
    CHECK(caps.max_group_size >= 1);
    CHECK(caps.max_kernel_arg_bytes >= 256);
    CHECK(caps.local_bytes >= 1024);
    CHECK(device.index() < Device::count());
  });
}
