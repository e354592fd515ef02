// csrc/support/build_id_linux.cpp: reads the note that `ld --build-id` leaves in an ELF file, from the loaded image.
#include <elf.h>
#include <link.h>

#include <cstring>

#include "csrc/support/build_id.h"

namespace ocl {

namespace {

/// Returns the build id in a segment of ELF notes, or "". Name and content of a note are padded to multiples of four
/// bytes.
std::string id_in(const char* notes, size_t size) {
  const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes, sizeof header);
    const size_t name = padded(header.n_namesz), whole = sizeof header + name + padded(header.n_descsz);
    if (whole > size) break;
    const char* start = notes + sizeof header;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(start, "GNU", 4) == 0) {
      static constexpr char kDigits[] = "0123456789abcdef";
      std::string id;
      for (size_t i = 0; i < header.n_descsz; ++i) {
        const auto byte = static_cast<unsigned char>(start[name + i]);
        id += {kDigits[byte / 16], kDigits[byte % 16]};
      }
      return id;
    }
    notes += whole;
    size -= whole;
  }
  return "";
}

bool holds(const dl_phdr_info& object, ElfW(Addr) address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = object.dlpi_phdr[i];
    const ElfW(Addr) begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= begin && address < begin + segment.p_memsz) return true;
  }
  return false;
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* found) {
        if (!holds(*object, reinterpret_cast<ElfW(Addr)>(&holds))) return 0;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr) & segment = object->dlpi_phdr[i];
          auto& id = *static_cast<std::string*>(found);
          if (segment.p_type == PT_NOTE && id.empty())
            id = id_in(reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz);
        }
        return 1;
      },
      &id);
  return id;
}

}  // namespace ocl
