// tests/cpp/test_cache_access_windows.cpp: the cache is used only if nobody else can change its file or its folders.
// Wine stores an access control list as Unix permissions, so only a part of this is tested there.
#include <aclapi.h>
#include <doctest/doctest.h>
#include <sddl.h>
#include <windows.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "csrc/cache/kernel_cache.h"
#include "csrc/support/os.h"
#include "csrc/support/path.h"
#include "tests/cpp/cache_folder.h"

using ocl::path_of;
using ocl::cache::KernelCache;
using namespace cache_test;

namespace {

bool is_wine() { return GetProcAddress(GetModuleHandleW(L"ntdll.dll"), "wine_get_version") != nullptr; }

// Full access for the owner, who is this user, for administrators and for the system.
constexpr wchar_t kOwn[] = L"D:P(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)(A;OICI;FA;;;OW)(A;OICI;FA;;;CO)";

/// Sets the access control list of a file or folder to kOwn and one more entry.
void allow(const std::string& path, const wchar_t* entry) {
  PSECURITY_DESCRIPTOR descriptor = nullptr;
  HANDLE token = nullptr;
  REQUIRE(OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token));
  std::vector<char> info(1024);
  DWORD bytes = 0;
  REQUIRE(GetTokenInformation(token, TokenUser, info.data(), static_cast<DWORD>(info.size()), &bytes));
  CloseHandle(token);
  LPWSTR user = nullptr;
  REQUIRE(ConvertSidToStringSidW(reinterpret_cast<TOKEN_USER*>(info.data())->User.Sid, &user));
  const std::wstring list = kOwn + (L"(A;OICI;FA;;;" + std::wstring(user) + L")") + entry;
  LocalFree(user);
  REQUIRE(ConvertStringSecurityDescriptorToSecurityDescriptorW(list.c_str(), SDDL_REVISION_1, &descriptor, nullptr));
  PACL acl = nullptr;
  BOOL present = FALSE, by_default = FALSE;
  REQUIRE(GetSecurityDescriptorDacl(descriptor, &present, &acl, &by_default));
  std::wstring name = path_of(path).make_preferred().wstring();
  REQUIRE(SetNamedSecurityInfoW(name.data(), SE_FILE_OBJECT, DACL_SECURITY_INFORMATION | PROTECTED_DACL_SECURITY_INFORMATION,
                                nullptr, nullptr, acl, nullptr) == ERROR_SUCCESS);
  LocalFree(descriptor);
}

}  // namespace

TEST_CASE("folders and files of the cache are this user's alone") {
  Folder folder;
  const std::string file = folder.path + "/a/b/kernels.db";
  KernelCache cache(file, kBudget);
  cache.store("kernels", "k", "v");
  CHECK(cache.find("kernels", "k") == "v");
  CHECK(ocl::os::private_folder(folder.path + "/a").problem == "");
  CHECK(ocl::os::private_folder(folder.path + "/a/b").problem == "");
  for (const char* suffix : {"", "-wal", "-shm"}) {
    CHECK(fs::exists(path_of(file + suffix)));
    CHECK(ocl::os::private_file_problem(file + suffix) == "");
  }
}

TEST_CASE("a folder that others can change is not used") {
  Folder folder;
  const std::string inner = folder.path + "/inner", file = inner + "/kernels.db";
  fs::create_directory(path_of(inner));
  allow(inner, L"(A;OICI;FRFX;;;WD)");
  CHECK(is_used(folder, file, ""));  // Everyone may read the folder.
  for (const wchar_t* entry : {L"(A;;FA;;;WD)", L"(A;;GA;;;WD)", L"(A;OICI;FRFWFX;;;WD)"}) {
    allow(inner, entry);
    CHECK(!is_used(folder, file, "can write in the folder "));
  }
  if (!is_wine()) {
    // Entries with a single right: to add files, to change the list, to delete files, and an inherited right to write.
    for (const wchar_t* entry : {L"(A;;0x2;;;BU)", L"(A;;WD;;;AU)", L"(A;;0x40;;;BU)", L"(A;OIIO;FW;;;WD)"}) {
      allow(inner, entry);
      CHECK(!is_used(folder, file, "can write in the folder "));
    }
  }
  allow(inner, L"");
  CHECK(is_used(folder, file, ""));
}

TEST_CASE("a folder that others could exchange is not used") {
  Folder folder;
  const std::string inner = folder.path + "/inner", file = inner + "/kernels.db";
  fs::create_directory(path_of(inner));
  allow(inner, L"");
  allow(folder.path, L"(A;;FA;;;WD)");
  CHECK(!is_used(folder, file, "can write in the folder "));
  if (!is_wine()) {
    // Others may make entries of their own, as in C:\, but not delete ours.
    allow(folder.path, L"(A;;0x1200ae;;;WD)");
    CHECK(is_used(folder, file, ""));
  }
  allow(folder.path, L"");
  CHECK(is_used(folder, file, ""));
}

TEST_CASE("a file that others can write to is not used, nor a folder in its place") {
  Folder folder;
  allow(folder.path, L"");
  CHECK(is_used(folder, folder.file(), ""));
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    const std::string file = folder.file() + suffix;
    for (const char* other : {"", "-wal", "-shm", "-journal"}) fs::remove(path_of(folder.file() + other));
    std::ofstream(path_of(file)).flush();
    allow(file, L"(A;;FA;;;WD)");
    CHECK(!is_used(folder, folder.file(), "can write to the file "));
    fs::remove(path_of(file));
    fs::create_directory(path_of(file));
    CHECK(!is_used(folder, folder.file(), " is no regular file"));
    fs::remove(path_of(file));
  }
  CHECK(is_used(folder, folder.file(), ""));
}

TEST_CASE("links lead to the folder, and never to the file") {
  Folder folder;
  const std::string real = folder.path + "/real";
  fs::create_directory(path_of(real));
  allow(folder.path, L"");
  allow(real, L"");
  constexpr DWORD kFlags = 0x2;  // SYMBOLIC_LINK_FLAG_ALLOW_UNPRIVILEGED_CREATE
  // Wine's function reports success, but makes no link.
  if (is_wine() || !CreateSymbolicLinkW(path_of(folder.path + "/link").c_str(), path_of(real).c_str(),
                                        SYMBOLIC_LINK_FLAG_DIRECTORY | kFlags)) {
    MESSAGE("no symbolic links here: not tested");
    return;
  }
  CHECK(is_used(folder, folder.path + "/link/kernels.db", ""));
  CHECK(fs::exists(path_of(real + "/kernels.db")));
  if (CreateSymbolicLinkW(path_of(folder.path + "/kernels.db").c_str(), path_of(real + "/kernels.db").c_str(), kFlags))
    CHECK(!is_used(folder, folder.path + "/kernels.db", " is a symbolic link"));
}
