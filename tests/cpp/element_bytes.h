// tests/cpp/element_bytes.h: converts numbers to elements of any dtype in memory, and back.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "csrc/ir/dtype.h"

namespace codegen_test {

using namespace ocl;
using ir::DType;

inline uint16_t to_half(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  const uint32_t sign = (u >> 16) & 0x8000;
  const int exponent = static_cast<int>((u >> 23) & 255) - 112;
  if (exponent <= 0) return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::lrint(std::fabs(x) * 16777216.0f)));
  if (exponent >= 31) return static_cast<uint16_t>(sign | 0x7c00);
  uint32_t bits = (static_cast<uint32_t>(exponent) << 10) | ((u >> 13) & 0x3ff);
  const uint32_t rest = u & 0x1fff;
  if (rest > 0x1000 || (rest == 0x1000 && (bits & 1))) ++bits;
  return static_cast<uint16_t>(sign | bits);
}
inline float from_half(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  const float value = exponent == 0    ? std::ldexp(static_cast<float>(mantissa), -24)
                      : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                       : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return h & 0x8000 ? -value : value;
}
inline uint16_t to_bf16(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
inline float from_bf16(uint16_t b) {
  const uint32_t u = static_cast<uint32_t>(b) << 16;
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}

inline double rounded(double x, DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return from_half(to_half(static_cast<float>(x)));
    case DType::kBF16:
      return from_bf16(to_bf16(static_cast<float>(x)));
    case DType::kF32:
      return static_cast<float>(x);
    case DType::kF64:
      return x;
    case DType::kBool:
      return x != 0;
    case DType::kU8:
      return static_cast<uint8_t>(static_cast<int64_t>(x));
    case DType::kI8:
      return static_cast<int8_t>(static_cast<int64_t>(x));
    default:
      return std::trunc(x);
  }
}

template <typename T>
void pack_as(const std::vector<double>& from, std::vector<char>& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const T x = static_cast<T>(from[i]);
    std::memcpy(to.data() + i * sizeof(T), &x, sizeof(T));
  }
}
template <typename T>
void unpack_as(const std::vector<char>& from, std::vector<double>& to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T x;
    std::memcpy(&x, from.data() + i * sizeof(T), sizeof(T));
    to[i] = static_cast<double>(x);
  }
}
inline std::vector<char> pack(const std::vector<double>& values, DType dtype) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(ir::size_bytes(dtype)));
  std::vector<double> bits(values.size());
  switch (dtype) {
    case DType::kF16:
      for (size_t i = 0; i < bits.size(); ++i) bits[i] = to_half(static_cast<float>(values[i]));
      pack_as<uint16_t>(bits, bytes);
      break;
    case DType::kBF16:
      for (size_t i = 0; i < bits.size(); ++i) bits[i] = to_bf16(static_cast<float>(values[i]));
      pack_as<uint16_t>(bits, bytes);
      break;
    case DType::kF32:
      pack_as<float>(values, bytes);
      break;
    case DType::kF64:
      pack_as<double>(values, bytes);
      break;
    case DType::kBool:
    case DType::kU8:
      pack_as<uint8_t>(values, bytes);
      break;
    case DType::kI8:
      pack_as<int8_t>(values, bytes);
      break;
    case DType::kI16:
      pack_as<int16_t>(values, bytes);
      break;
    case DType::kI32:
      pack_as<int32_t>(values, bytes);
      break;
    case DType::kI64:
      pack_as<int64_t>(values, bytes);
      break;
  }
  return bytes;
}
inline void unpack(const std::vector<char>& bytes, DType dtype, std::vector<double>& values) {
  switch (dtype) {
    case DType::kF16:
      unpack_as<uint16_t>(bytes, values);
      for (double& v : values) v = from_half(static_cast<uint16_t>(v));
      break;
    case DType::kBF16:
      unpack_as<uint16_t>(bytes, values);
      for (double& v : values) v = from_bf16(static_cast<uint16_t>(v));
      break;
    case DType::kF32:
      unpack_as<float>(bytes, values);
      break;
    case DType::kF64:
      unpack_as<double>(bytes, values);
      break;
    case DType::kBool:
    case DType::kU8:
      unpack_as<uint8_t>(bytes, values);
      break;
    case DType::kI8:
      unpack_as<int8_t>(bytes, values);
      break;
    case DType::kI16:
      unpack_as<int16_t>(bytes, values);
      break;
    case DType::kI32:
      unpack_as<int32_t>(bytes, values);
      break;
    case DType::kI64:
      unpack_as<int64_t>(bytes, values);
      break;
  }
}

}  // namespace codegen_test
