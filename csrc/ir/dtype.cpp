// csrc/ir/dtype.cpp: names, sizes and promotion of element types.
#include "csrc/ir/dtype.h"

#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

struct Row {
  const char* name;
  int bytes;
  int category;  // 0: bool, 1: integer, 2: floating point.
};
constexpr Row kRows[] = {{"bool", 1, 0},   {"u8", 1, 1},     {"i8", 1, 1},         {"i16", 2, 1},       {"i32", 4, 1},
                         {"i64", 8, 1},    {"f16", 2, 2},    {"bf16", 2, 2},       {"f32", 4, 2},       {"f64", 8, 2},
                         {"f8e4m3", 1, 2}, {"f8e5m2", 1, 2}, {"f8e4m3fnuz", 1, 2}, {"f8e5m2fnuz", 1, 2}};
const Row& row(DType t) { return kRows[static_cast<int>(t)]; }

}  // namespace

int size_bytes(DType t) { return row(t).bytes; }
const char* name(DType t) { return row(t).name; }

DType parse_dtype(const std::string& text) {
  for (int i = 0; i < static_cast<int>(std::size(kRows)); ++i)
    if (text == kRows[i].name) return static_cast<DType>(i);
  fail(
      ErrorKind::kConfig,
      "'" + text + "' is no dtype: bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, f8e4m3fnuz or f8e5m2fnuz");
}

bool is_floating(DType t) { return row(t).category == 2; }
bool is_integral(DType t, bool with_bool) { return row(t).category == 1 || (with_bool && t == DType::kBool); }
bool is_f8(DType t) { return is_floating(t) && row(t).bytes == 1; }
bool is_narrow_float(DType t) { return is_floating(t) && row(t).bytes < 4; }
DType compute_type(DType t) { return is_narrow_float(t) ? DType::kF32 : t; }

int64_t wrapped(int64_t value, DType t) {
  switch (t) {
    case DType::kBool:
      return value != 0;
    case DType::kU8:
      return static_cast<uint8_t>(value);
    case DType::kI8:
      return static_cast<int8_t>(value);
    case DType::kI16:
      return static_cast<int16_t>(value);
    case DType::kI32:
      return static_cast<int32_t>(value);
    default:
      return value;
  }
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (row(a).category != row(b).category) return row(a).category > row(b).category ? a : b;
  if (is_floating(a)) return row(a).bytes == row(b).bytes ? DType::kF32 : (row(a).bytes > row(b).bytes ? a : b);
  if (row(a).bytes == row(b).bytes) return DType::kI16;  // Only u8 and i8 are left here.
  return row(a).bytes > row(b).bytes ? a : b;
}

}  // namespace ocl::ir
