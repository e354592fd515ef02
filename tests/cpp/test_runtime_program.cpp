// tests/cpp/test_runtime_program.cpp: what is compiled, what comes from memory or from a stored binary, and how
// failures are reported.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "csrc/runtime/build/compiles_at_launch.h"
#include "csrc/runtime/build/program.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/support/group_refused.h"
#include "csrc/support/path.h"
#include "tests/cpp/built_kernels.h"
#include "tests/cpp/runtime_devices.h"
#include "tests/cpp/temporary_folder.h"

using namespace ocl;
using namespace ocl::runtime;

namespace {

const std::string kPrelude = "#define SCALE 2.0f\ninline float scaled(float x) { return SCALE * x; }\n";

/// Returns the text of a kernel that computes y[0] = 2 * `value`. `tag` makes it differ from the texts of other tests.
KernelText text_of(const std::string& name, const std::string& value, const std::string& tag,
                   const std::string& prelude = kPrelude) {
  return {
      name,
      prelude + "//@kernel\n__kernel void " + name + "(__global float* y) { y[0] = scaled(" + value + "f); }  // " + tag + "\n",
      "group 4 of the forward graph: aten.relu (model.py:61)",
      {1, 1, 1}};
}

BuildCounters operator-(const BuildCounters& a, const BuildCounters& b) {
  return {a.built - b.built,           a.from_binary - b.from_binary,
          a.rejected - b.rejected,     a.build_seconds - b.build_seconds,
          a.by_workers - b.by_workers, a.unkept - b.unkept};
}

std::string error_of(Device& device, const std::vector<KernelText>& texts, const std::string& failed_dir = "") {
  try {
    build_programs(device, texts, {}, failed_dir);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kBuild);
    return error.what();
  }
  return "";
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("kernels with one prelude share a program, and each is the right one") {
  for_each_device([](Device& device) {
    std::vector<KernelText> texts;
    for (int i = 0; i < 20; ++i) texts.push_back(text_of("shared_" + std::to_string(i), std::to_string(i) + ".5", "share"));
    texts.push_back(text_of("other_prelude", "7.0", "share", "inline float scaled(float x) { return 3.0f * x; }\n"));
    texts.push_back({"alone", "__kernel void alone(__global float* y) { y[0] = 9.0f; }", "", {1, 1, 1}});
    texts.push_back(
        {"defines",
         kPrelude + "//@kernel\n#define ADD 1.0f\n__kernel void defines(__global float* y) { y[0] = scaled(ADD); }\n",
         "",
         {1, 1, 1}});
    texts.push_back(texts[3]);
    const BuildCounters before = build_counters();
    const auto programs = build_programs(device, texts, {}, "");
    const BuildCounters counted = build_counters() - before;
    REQUIRE(programs.size() == texts.size());
    CHECK(counted.built == 23);
    CHECK(counted.build_seconds > 0);
    std::set<Program*> distinct;
    for (const auto& program : programs) distinct.insert(program.get());
    // There are five programs: with 16 kernels, with 4, and three with one kernel each.
    CHECK(distinct.size() == 2 + 3);
    CHECK(programs[3] == programs.back());
    for (int i = 0; i < 20; ++i) CHECK(run(device, *programs[i], texts[i].name) == 2 * (static_cast<float>(i) + 0.5f));
    CHECK(run(device, *programs[20], "other_prelude") == 21.0f);
    CHECK(run(device, *programs[21], "alone") == 9.0f);
    CHECK(run(device, *programs[22], "defines") == 2.0f);
    const auto again = build_programs(device, texts, {}, "");
    CHECK(again == programs);
    CHECK((build_counters() - before).built == 23);
    CHECK_THROWS_AS(programs[21]->create_kernel("shared_1"), Error);
  });
}

TEST_CASE("equal names with different texts are different kernels") {
  for_each_device([](Device& device) {
    const std::vector<KernelText> texts = {text_of("twin", "1.0", "twin"), text_of("twin", "2.0", "twin"),
                                           text_of("twin_3", "3.0", "twin")};
    const auto programs = build_programs(device, texts, {}, "");
    CHECK(run(device, *programs[0], "twin") == 2.0f);
    CHECK(run(device, *programs[1], "twin") == 4.0f);
    CHECK(run(device, *programs[2], "twin_3") == 6.0f);
  });
}

TEST_CASE("kernels that do not go together are built alone") {
  for_each_device([](Device& device) {
    std::vector<KernelText> texts;
    for (const std::string value : {"1", "2", "3"})
      texts.push_back({"clash_" + value,
                       kPrelude + "//@kernel\ninline float helper(float x) { return x + " + value +
                           "; }\n__kernel void clash_" + value + "(__global float* y) { y[0] = helper(scaled(1.0f)); }\n",
                       "",
                       {1, 1, 1}});
    const auto programs = build_programs(device, texts, {}, "");
    for (int i = 0; i < 3; ++i) CHECK(run(device, *programs[i], texts[i].name) == 3.0f + static_cast<float>(i));
  });
}

TEST_CASE("a failure names the kernel, says where and why, and saves source and log") {
  for_each_device([](Device& device) {
    const std::filesystem::path folder = path_of(new_folder("ocl_failed"));
    std::vector<KernelText> texts = {text_of("fine_1", "1.0", "fail"), text_of("broken_kernel", "undeclared_v9 + 1.0", "fail"),
                                     text_of("fine_2", "2.0", "fail")};
    texts[1].where = "group 7 of the backward graph: aten.sum (model.py:62)";
    const std::string message = error_of(device, texts, (folder / "failed").string());
    for (const std::string& part :
         {std::string("kernel broken_kernel does not build on '"), device.name(),
          std::string("(CL_BUILD_PROGRAM_FAILURE, -11)"),
          std::string("\n  where: group 7 of the backward graph: aten.sum (model.py:62)\n  log:   "),
          std::string("undeclared_v9"),
          std::string("\n  do:    source and full log are in ") + (folder / "failed/broken_kernel/").string(),
          std::string("doctor")})
      CHECK_MESSAGE(message.find(part) != std::string::npos, message);
    CHECK(content(folder / "failed/broken_kernel/source.cl") == texts[1].text);
    CHECK(content(folder / "failed/broken_kernel/log.txt").find("undeclared_v9") != std::string::npos);
    CHECK(!std::filesystem::exists(folder / "failed/fine_1"));
    // If the source cannot be saved, the message is that of the failed build, without a folder.
    CHECK(error_of(device, {texts[1]}).find("source and full log") == std::string::npos);
    CHECK(error_of(device, {texts[1]}, "/proc/nowhere").find("broken_kernel") != std::string::npos);
    KernelText misnamed = text_of("written", "1.0", "fail");
    misnamed.name = "asked";
    CHECK(error_of(device, {misnamed}).find("asked") != std::string::npos);
#if !defined(_WIN32)  // Windows has no such permissions.
    // Nothing is saved in a folder that other users can write to: they could have put links there.
    std::filesystem::permissions(folder / "failed", std::filesystem::perms::all);
    CHECK(error_of(device, {texts[1]}, (folder / "failed").string()).find("source and full log") == std::string::npos);
#endif
    const auto good = build_programs(device, {texts[0], texts[2]}, {}, "");
    CHECK(run(device, *good[1], "fine_2") == 4.0f);
    std::filesystem::remove_all(folder);
  });
}

TEST_CASE("a warm start builds nothing") {
  for_each_device([](Device& device) {
    Store store;
    std::vector<KernelText> texts;
    for (int i = 0; i < 5; ++i) texts.push_back(text_of("warm_" + std::to_string(i), std::to_string(i) + ".0", "warm"));
    build_programs(device, texts, store.functions(), "");
    // Removes the entries that say whether binaries of this device are kept.
    std::erase_if(store.entries, [](const auto& entry) { return entry.second.size() == 1; });
    // The entries are the binary of one program, and five keys of kernels that refer to it.
    CHECK(store.entries.size() == (keeps_binaries(device) ? 6 : 0));
    if (!keeps_binaries(device)) return;
    forget_programs();
    const BuildCounters before = build_counters();
    store.finds = 0;
    const auto programs = build_programs(device, texts, store.functions(), "");
    const BuildCounters counted = build_counters() - before;
    CHECK(counted.built == 0);
    CHECK(counted.from_binary == 5);
    CHECK(counted.rejected == 0);
    CHECK(store.finds == 6);
    for (int i = 0; i < 5; ++i) CHECK(run(device, *programs[i], texts[i].name) == 2.0f * static_cast<float>(i));
    // Two kernels of the stored program, together with a new kernel.
    forget_programs();
    const auto mixed = build_programs(device, {texts[4], text_of("new_one", "8.0", "warm"), texts[0]}, store.functions(), "");
    CHECK((build_counters() - before).built == 1);
    CHECK(run(device, *mixed[0], "warm_4") == 8.0f);
    CHECK(run(device, *mixed[1], "new_one") == 16.0f);
    CHECK(mixed[0] == mixed[2]);
    // Another text with the same kernel name has another key.
    forget_programs();
    const auto changed = build_programs(device, {text_of("warm_0", "100.0", "warm")}, store.functions(), "");
    CHECK(run(device, *changed[0], "warm_0") == 200.0f);
  });
}

TEST_CASE("a kernel that another process is building is waited for, not built") {
  for_each_device([](Device& device) {
    const std::vector<KernelText> texts = {text_of("waited_for", "1.0", "claim"), text_of("claimed", "2.0", "claim")};
    Store other, ours;
    build_programs(device, {texts[0]}, other.functions(), "");
    if (!keeps_binaries(device)) return;
    forget_programs();
    std::set<std::string> claims;
    int refusals = 0;
    BinaryStore functions = ours.functions();
    functions.claim = [&](const std::string& key) {
      if (other.entries.contains(key) && refusals < 3) return ++refusals, false;
      // The other process has built it.
      if (other.entries.contains(key)) ours.entries.insert(other.entries.begin(), other.entries.end());
      return claims.insert(key).second;
    };
    functions.release = [&](const std::string& key) { CHECK(claims.erase(key) == 1); };
    const BuildCounters before = build_counters();
    const auto programs = build_programs(device, texts, functions, "");
    CHECK(refusals == 3);
    CHECK((build_counters() - before).built == 1);
    CHECK((build_counters() - before).from_binary == 1);
    CHECK(claims.empty());
    for (size_t i = 0; i < 2; ++i) CHECK(run(device, *programs[i], texts[i].name) == 2.0f * static_cast<float>(i + 1));
  });
}

TEST_CASE("a kernel with too large work-groups is refused, which is remembered, and others are kept") {
  for_each_device([](Device& device) {
    Store store;
    const size_t items = static_cast<size_t>(device.caps().max_group_size) * 2;
    KernelText large = text_of("large", "3.0", "refused"), fixed = text_of("fixed", "5.0", "refused");
    const KernelText small = text_of("small", "4.0", "refused");
    large.local = fixed.local = {items, 1, 1};
    // Some drivers do not build a kernel that requires too large work-groups.
    const std::string required = "__attribute__((reqd_work_group_size(" + std::to_string(items) + ", 1, 1))) ";
    fixed.text.insert(fixed.text.find("void fixed"), required);
    for (int attempt = 0; attempt < 2; ++attempt) {
      forget_programs();
      const BuildCounters before = build_counters();
      std::map<size_t, size_t> granted;
      try {
        build_programs(device, {small, large, fixed, large}, store.functions(), "");
      } catch (const GroupRefused& refused) {
        granted = refused.most_items;
        CHECK(std::string(refused.what()).find(std::to_string(items) + " work-items, but ") != std::string::npos);
      }
      CHECK(granted.size() == 3);
      for (const auto& [text, most] : granted) CHECK((text > 0 && most > 0 && most < items));
      if (attempt == 1) CHECK((build_counters() - before).built == (keeps_binaries(device) ? 0 : 1));
    }
    CHECK(run(device, *build_programs(device, {small}, store.functions(), "")[0], "small") == 8.0f);
    // Of a kernel that moves registers between its work-items, the driver's number is not believed.
    KernelText moving = text_of("moving", "6.0", "refused");
    moving.local = large.local;
    moving.text += "// setmaxnreg\n";
    CHECK_NOTHROW(build_programs(device, {moving}, store.functions(), ""));
  });
}

TEST_CASE("claims end when a kernel does not build") {
  for_each_device([](Device& device) {
    Store store;
    std::set<std::string> claims;
    size_t claimed = 0;
    BinaryStore functions = store.functions();
    functions.claim = [&](const std::string& key) { return ++claimed, claims.insert(key).second; };
    functions.release = [&](const std::string& key) { claims.erase(key); };
    const KernelText broken = {"broken", "__kernel void broken(__global float* y) { y[0] = nothing; }", "", {1, 1, 1}};
    CHECK_THROWS_AS(build_programs(device, {text_of("whole", "1.0", "claims end"), broken}, functions, ""), Error);
    CHECK(claimed == (keeps_binaries(device) ? 2 : 0));
    CHECK(claims.empty());
  });
}

TEST_CASE("a stored binary that does not load is rejected, built anew and replaced") {
  for_each_device([](Device& device) {
    const std::vector<KernelText> texts = {text_of("reject_1", "1.0", "reject"), text_of("reject_2", "2.0", "reject")};
    Store good;
    build_programs(device, texts, good.functions(), "");
    if (!keeps_binaries(device)) return;
    const auto spoil = [&](const std::function<void(std::string&)>& change) {
      Store store = good;
      for (auto& [key, value] : store.entries)
        if (value.size() > 1 && value[0] != '@') change(value);
      forget_programs();
      const BuildCounters before = build_counters();
      const auto programs = build_programs(device, texts, store.functions(), "");
      CHECK(run(device, *programs[0], "reject_1") == 2.0f);
      CHECK(run(device, *programs[1], "reject_2") == 4.0f);
      return std::pair{build_counters() - before, store};
    };
    const auto [garbage, repaired] = spoil([](std::string& binary) { binary = "this is no binary"; });
    CHECK(garbage.rejected == 2);
    CHECK(garbage.built == 2);
    for (const auto& [key, value] : repaired.entries) CHECK(value != "this is no binary");
    // An empty binary: the store does not find it, as if it had been evicted.
    CHECK(spoil([](std::string& binary) { binary.clear(); }).first.built == 2);
    // The binary of another program is intact, but lacks these kernels.
    Store other;
    build_programs(device, {text_of("reject_other", "1.0", "reject")}, other.functions(), "");
    std::string foreign;
    for (const auto& [key, value] : other.entries)
      if (value.size() > 1 && value[0] != '@') foreign = value;
    CHECK(spoil([&](std::string& binary) { binary = foreign; }).first.rejected == 2);
  });
}

TEST_CASE("threads that ask for the same text build it once") {
  for_each_device([](Device& device) {
    const BuildCounters before = build_counters();
    std::vector<std::thread> threads;
    std::vector<std::shared_ptr<Program>> programs(4);
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] { programs[t] = build_programs(device, {text_of("threaded", "4.0", "thread")}, {}, "")[0]; });
    for (std::thread& thread : threads) thread.join();
    for (const auto& program : programs) CHECK(program == programs[0]);
    CHECK((build_counters() - before).built == 1);
  });
}

TEST_CASE("a process keeps the programs that are in use and a few more") {
  for_each_device([](Device& device) {
    forget_programs();
    const int64_t before = Live<Program>::count();
    const auto built = [&](int i) {
      const std::string number = std::to_string(i), name = "kept_" + number;
      return build_programs(device, {text_of(name, number + ".0", "kept", "// " + number + "\n" + kPrelude)}, {}, "")[0];
    };
    std::vector<std::shared_ptr<Program>> used;
    for (int i = 0; i < 100; ++i) used.push_back(built(i));
    CHECK(Live<Program>::count() == before + 100);
    const BuildCounters counters = build_counters();
    CHECK(built(3) == used[3]);
    CHECK((build_counters() - counters).built == 0);
    used.clear();
    CHECK(Live<Program>::count() == before + 64);
    CHECK(run(device, *built(99), "kept_99") == 198.0f);  // This program is one of the latest.
    CHECK((build_counters() - counters).built == 0);
    CHECK(run(device, *built(4), "kept_4") == 8.0f);  // This program is not one of the latest.
    CHECK((build_counters() - counters).built == 1);
    for (int i = 100; i < 140; ++i) built(i);
    CHECK(Live<Program>::count() == before + 64);
    forget_programs();
    CHECK(Live<Program>::count() == before);
  });
}

TEST_CASE("a CPU's program is kept in the form that its binary gives, which is smaller") {
  for_each_device([](Device& device) {
    const std::vector<KernelText> texts = {text_of("form_1", "1.0", "form"), text_of("form_2", "2.0", "form")};
    Store store;
    forget_programs();
    const auto programs = build_programs(device, texts, store.functions(), "");
    if (!device.caps().is_cpu || !keeps_binaries(device)) return;
    size_t source_bytes = 0;
    REQUIRE(clGetProgramInfo(programs[0]->get(), CL_PROGRAM_SOURCE, 0, nullptr, &source_bytes) == CL_SUCCESS);
    CHECK(source_bytes <= 1);
    CHECK(run(device, *programs[0], "form_1") == 2.0f);
    CHECK(run(device, *programs[1], "form_2") == 4.0f);
  });
}
