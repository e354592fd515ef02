// csrc/support/build_id_windows.cpp: reads the identifier that the linker leaves for debuggers (`ld --build-id`, `link
// /DEBUG`), from the loaded image.
#include <cstdint>
#include <cstring>

#include "csrc/support/build_id.h"
#include "csrc/support/win32.h"

namespace ocl {
namespace {

/// The head of a record of the debug directory that names a .pdb file. The identifier belongs to one run of the linker.
struct CodeView {
  char signature[4];  // "RSDS"
  uint8_t identifier[16];
  uint32_t age;
};

}  // namespace

std::string build_id() {
  HMODULE module = nullptr;
  if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                          reinterpret_cast<LPCWSTR>(&build_id), &module))
    return "";
  const auto* image = reinterpret_cast<const std::byte*>(module);
  IMAGE_DOS_HEADER dos;
  std::memcpy(&dos, image, sizeof dos);
  IMAGE_NT_HEADERS headers;
  std::memcpy(&headers, image + dos.e_lfanew, sizeof headers);
  const IMAGE_DATA_DIRECTORY table = headers.OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_DEBUG];
  for (DWORD at = 0; at + sizeof(IMAGE_DEBUG_DIRECTORY) <= table.Size; at += sizeof(IMAGE_DEBUG_DIRECTORY)) {
    IMAGE_DEBUG_DIRECTORY entry;
    std::memcpy(&entry, image + table.VirtualAddress + at, sizeof entry);
    if (entry.Type != IMAGE_DEBUG_TYPE_CODEVIEW || entry.SizeOfData < sizeof(CodeView)) continue;
    CodeView record;
    std::memcpy(&record, image + entry.AddressOfRawData, sizeof record);
    if (std::memcmp(record.signature, "RSDS", sizeof record.signature) != 0) continue;
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string id;
    for (const uint8_t byte : record.identifier) id += {kDigits[byte / 16], kDigits[byte % 16]};
    return id + "-" + std::to_string(record.age);
  }
  return "";
}

}  // namespace ocl
