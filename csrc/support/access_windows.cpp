// csrc/support/access_windows.cpp: private files and folders on Windows, by their access control lists.
#include <aclapi.h>
#include <sddl.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <memory>
#include <vector>

#include "csrc/support/os.h"
#include "csrc/support/path.h"
#include "csrc/support/win32.h"

namespace ocl::os {
namespace {

namespace fs = std::filesystem;

constexpr char kTrustedInstaller[] = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464";

// Rights that let others exchange a file or a folder, and rights to create entries in a folder. The rights of a file to write
// and to append have the same bits as those of a folder to add a file and a folder.
constexpr DWORD kExchange = FILE_DELETE_CHILD | DELETE | WRITE_DAC | WRITE_OWNER | GENERIC_ALL;
constexpr DWORD kAdd = FILE_WRITE_DATA | FILE_APPEND_DATA | GENERIC_WRITE;
constexpr DWORD kChange = kExchange | kAdd | FILE_WRITE_EA | FILE_WRITE_ATTRIBUTES;

struct LocalFreed {
  void operator()(void* memory) const noexcept { LocalFree(memory); }
};
template <class T>
using Local = std::unique_ptr<T, LocalFreed>;

std::string text_of_sid(PSID sid) {
  LPWSTR raw = nullptr;
  if (!sid || !ConvertSidToStringSidW(sid, &raw)) return "";
  const Local<wchar_t> text(raw);
  return narrow(text.get());
}

/// Returns "DOMAIN\name" of a security identifier, or its number if it has no name.
std::string name_of(PSID sid) {
  std::array<wchar_t, 256> name{}, domain{};
  DWORD name_size = static_cast<DWORD>(name.size()), domain_size = static_cast<DWORD>(domain.size());
  SID_NAME_USE kind{};
  if (!LookupAccountSidW(nullptr, sid, name.data(), &name_size, domain.data(), &domain_size, &kind)) return text_of_sid(sid);
  return (domain[0] ? narrow(domain.data()) + "\\" : "") + narrow(name.data());
}

/// Returns one part of this process's token, as TOKEN_USER or TOKEN_OWNER. Empty if the system does not tell.
std::vector<std::byte> token_part(TOKEN_INFORMATION_CLASS part) {
  HANDLE raw = nullptr;
  if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw)) return {};
  const OwnedHandle token(raw);
  DWORD bytes = 0;
  GetTokenInformation(token.get(), part, nullptr, 0, &bytes);
  std::vector<std::byte> info(bytes);
  if (!GetTokenInformation(token.get(), part, info.data(), bytes, &bytes)) return {};
  return info;
}

std::string current_user() {
  const std::vector<std::byte> info = token_part(TokenUser);
  return info.empty() ? "" : text_of_sid(reinterpret_cast<const TOKEN_USER*>(info.data())->User.Sid);
}

/// Returns who owns the files that this process makes: the user, or all administrators together.
std::string current_owner() {
  const std::vector<std::byte> info = token_part(TokenOwner);
  return info.empty() ? "" : text_of_sid(reinterpret_cast<const TOKEN_OWNER*>(info.data())->Owner);
}

struct Trust {
  std::string user = current_user(), owner = current_owner();
  bool is_mine(const std::string& sid) const { return !sid.empty() && (sid == user || sid == owner); }
  /// True for this user and for those who may do everything on the machine.
  bool is_trusted(const std::string& sid) const {
    constexpr std::array<const char*, 5> kAlways = {"S-1-5-18" /* the system */, "S-1-5-32-544" /* administrators */,
                                                    "S-1-3-0" /* the creator of a new file */,
                                                    "S-1-3-4" /* the owner of a file */, kTrustedInstaller};
    return is_mine(sid) || std::any_of(kAlways.begin(), kAlways.end(), [&](const char* always) { return sid == always; });
  }
};

struct Entry {
  std::string kind;  // "file" or "folder", for messages.
  std::string path;
};

/// Returns why others own a file or folder, or have one of `rights` to it; "" if neither. `inherited`: rights to
/// entries that will be created in the folder count, too. `must_be_mine`: an owner who is an administrator is a
/// problem.
std::string access_problem(const Entry& entry, DWORD rights, bool inherited, bool must_be_mine) {
  static const Trust trust;
  const std::string where = "the " + entry.kind + " " + entry.path;
  PSID owner = nullptr;
  PACL list = nullptr;
  PSECURITY_DESCRIPTOR raw = nullptr;
  std::wstring path = wide(entry.path);
  const DWORD error = GetNamedSecurityInfoW(path.data(), SE_FILE_OBJECT, OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION,
                                            &owner, nullptr, &list, nullptr, &raw);
  if (error != ERROR_SUCCESS) return where + " does not say who may change it" + because(error);
  const Local<void> descriptor(raw);
  const std::string owner_sid = text_of_sid(owner);
  if (must_be_mine ? !trust.is_mine(owner_sid) : !trust.is_trusted(owner_sid)) return where + " belongs to " + name_of(owner);
  if (!list) return where + " has no access control list: everyone can change it";
  for (DWORD i = 0; i < list->AceCount; ++i) {
    void* item = nullptr;
    if (!GetAce(list, i, &item)) return where + " does not say who may change it" + because();
    const auto* header = static_cast<const ACE_HEADER*>(item);
    if (header->AceType == ACCESS_DENIED_ACE_TYPE) continue;
    if ((header->AceFlags & INHERIT_ONLY_ACE) && !inherited) continue;
    if (header->AceType != ACCESS_ALLOWED_ACE_TYPE)
      return where + " has an entry in its access control list of an unknown kind";
    const auto* allowed = static_cast<const ACCESS_ALLOWED_ACE*>(item);
    auto* sid = const_cast<DWORD*>(&allowed->SidStart);
    if ((allowed->Mask & rights) && !trust.is_trusted(text_of_sid(sid)))
      return name_of(sid) + (entry.kind == "file" ? " can write to the file " : " can write in the folder ") + entry.path +
             (entry.kind == "file" ? " (delete it)" : " (icacls shows who else)");
  }
  return "";
}

/// Returns the path of a folder that exists, absolute and without links. "" if it cannot be opened.
std::wstring final_path(const fs::path& folder) {
  const OwnedHandle opened(CreateFileW(folder.c_str(), FILE_READ_ATTRIBUTES,
                                       FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr, OPEN_EXISTING,
                                       FILE_FLAG_BACKUP_SEMANTICS, nullptr));
  if (!opened) return L"";
  std::wstring path(32768, L'\0');
  path.resize(GetFinalPathNameByHandleW(opened.get(), path.data(), static_cast<DWORD>(path.size()), FILE_NAME_NORMALIZED));
  constexpr std::wstring_view kLong = L"\\\\?\\", kShare = L"\\\\?\\UNC\\";
  if (path.starts_with(kShare)) return L"\\\\" + path.substr(kShare.size());
  if (path.starts_with(kLong)) return path.substr(kLong.size());
  return path;
}

bool is_folder(const fs::path& path) {
  const DWORD attributes = GetFileAttributesW(path.c_str());
  return attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY);
}

/// Returns why others could exchange what is in a folder or below it; "" if they cannot. They may create entries of their own.
std::string way_problem(const fs::path& folder) {
  fs::path here = folder.root_path();
  // The root of a drive cannot be deleted or renamed.
  std::string problem = access_problem({"folder", text_of(here)}, kExchange & ~DELETE, false, false);
  for (const fs::path& part : folder.relative_path()) {
    if (!problem.empty()) break;
    here /= part;
    problem = access_problem({"folder", text_of(here)}, kExchange, false, false);
  }
  return problem;
}

}  // namespace

PrivateSecurity::PrivateSecurity() noexcept {
  attributes_.nLength = sizeof attributes_;
  const std::string user = current_user();
  if (user.empty()) return;
  // Protected from the folder above (P); files and folders inherit (OICI) full access (FA).
  const std::string text = "D:P(A;OICI;FA;;;" + user + ")(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)";
  ConvertStringSecurityDescriptorToSecurityDescriptorW(wide(text).c_str(), SDDL_REVISION_1, &attributes_.lpSecurityDescriptor,
                                                       nullptr);
}

PrivateSecurity::~PrivateSecurity() { LocalFree(attributes_.lpSecurityDescriptor); }

PrivateFolder private_folder(const std::string& path) {
  std::error_code error;
  fs::path here = fs::absolute(path_of(path), error);
  if (error) return {path, path + " cannot be read: " + error.message()};
  here = here.lexically_normal();
  if (!here.has_filename()) here = here.parent_path();
  std::deque<fs::path> missing;
  while (!is_folder(here) && here.has_relative_path()) {
    if (GetFileAttributesW(here.c_str()) != INVALID_FILE_ATTRIBUTES) return {text_of(here), text_of(here) + " is no folder"};
    missing.push_front(here.filename());
    here = here.parent_path();
  }
  // From here on, only the path without links is used, so it does not matter who could change a link.
  const std::wstring found = final_path(here);
  if (found.empty()) return {text_of(here), text_of(here) + " cannot be read" + because()};
  here = found;
  std::string problem = way_problem(here);
  PrivateSecurity security;
  for (const fs::path& part : missing) {
    if (!problem.empty()) break;
    here /= part;
    if (!CreateDirectoryW(here.c_str(), security.get()) && GetLastError() != ERROR_ALREADY_EXISTS)
      problem = "the folder " + text_of(here) + " cannot be made" + because();
    else
      problem = access_problem({"folder", text_of(here)}, kExchange, false, false);
  }
  if (problem.empty()) problem = access_problem({"folder", text_of(here)}, kChange, true, true);
  return {text_of(here), problem};
}

std::string private_file_problem(const std::string& path) {
  const DWORD attributes = GetFileAttributesW(wide(path).c_str());
  if (attributes == INVALID_FILE_ATTRIBUTES) {
    const DWORD error = GetLastError();
    return error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND ? "" : path + " cannot be read" + because(error);
  }
  if (attributes & FILE_ATTRIBUTE_REPARSE_POINT) return path + " is a symbolic link";
  if (attributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE)) return path + " is no regular file";
  return access_problem({"file", path}, kChange, false, true);
}

std::string make_private_file(const std::string& path) {
  PrivateSecurity security;
  const OwnedHandle file(CreateFileW(wide(path).c_str(), GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, security.get(),
                                     CREATE_NEW, FILE_FLAG_OPEN_REPARSE_POINT, nullptr));
  if (!file && GetLastError() != ERROR_FILE_EXISTS) return "the file " + path + " cannot be made" + because();
  return private_file_problem(path);
}

bool write_private_file(const std::string& path, const std::string& contents) noexcept {
  PrivateSecurity security;
  const OwnedHandle file(CreateFileW(wide(path).c_str(), GENERIC_WRITE | FILE_READ_ATTRIBUTES, FILE_SHARE_READ, security.get(),
                                     OPEN_ALWAYS, FILE_FLAG_OPEN_REPARSE_POINT, nullptr));
  if (!file || GetFileType(file.get()) != FILE_TYPE_DISK) return false;
  BY_HANDLE_FILE_INFORMATION info{};
  if (!GetFileInformationByHandle(file.get(), &info)) return false;
  if (info.dwFileAttributes & (FILE_ATTRIBUTE_REPARSE_POINT | FILE_ATTRIBUTE_DIRECTORY)) return false;
  if (!SetEndOfFile(file.get())) return false;
  for (size_t done = 0; done < contents.size();) {
    const auto count = static_cast<DWORD>(std::min<size_t>(contents.size() - done, size_t{1} << 30));
    DWORD written = 0;
    if (!WriteFile(file.get(), contents.data() + done, count, &written, nullptr) || written == 0) return false;
    done += written;
  }
  return true;
}

}  // namespace ocl::os
