// csrc/support/child.cpp: how a message becomes bytes, on every system.
#include "csrc/support/child.h"

#include <cstring>

#include "csrc/support/hash.h"

namespace ocl::os {
namespace {

constexpr uint64_t kMagic = 0x316c6b776c636fULL;    // "ocwkl1", the first bytes of each message.
constexpr uint64_t kMostBytes = uint64_t{1} << 32;  // Largest message in bytes. A larger size is garbage.

struct Header {
  uint64_t magic = kMagic, bytes = 0, checksum = 0;
};

std::string packed(const Message& message) {
  std::string all;
  for (const std::string& part : message) {
    const uint64_t bytes = part.size();
    all.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    all += part;
  }
  return all;
}

bool unpack(const std::string& all, Message& message) {
  message.clear();
  for (size_t at = 0; at < all.size();) {
    uint64_t bytes = 0;
    if (all.size() - at < sizeof(bytes)) return false;
    std::memcpy(&bytes, all.data() + at, sizeof(bytes));
    at += sizeof(bytes);
    if (all.size() - at < bytes) return false;
    message.emplace_back(all, at, bytes);
    at += bytes;
  }
  return true;
}

}  // namespace

bool Channel::send(const Message& message) noexcept {
  const std::string body = packed(message);
  const Header header{kMagic, body.size(), hash128(body).low};
  std::string all(reinterpret_cast<const char*>(&header), sizeof(header));
  all += body;
  return send_bytes(all);
}

Received Channel::receive(Message& message, std::chrono::milliseconds limit) {
  const bool limited = limit.count() >= 0;
  const auto deadline = std::chrono::steady_clock::now() + (limited ? limit : std::chrono::milliseconds(0));
  Header header;
  Received state = read(&header, sizeof(header), deadline, limited);
  if (state != Received::kMessage) return state;
  if (header.magic != kMagic || header.bytes > kMostBytes) return Received::kGarbage;
  std::string body(header.bytes, '\0');
  state = read(body.data(), body.size(), deadline, limited);
  if (state != Received::kMessage) return state;
  return hash128(body).low == header.checksum && unpack(body, message) ? Received::kMessage : Received::kGarbage;
}

}  // namespace ocl::os
