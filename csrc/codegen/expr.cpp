// csrc/codegen/expr.cpp: spells types, constants and index expressions in OpenCL C.
#include "csrc/codegen/expr.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>

#include "csrc/support/error.h"

namespace ocl::codegen {

namespace {

/// Returns the type of a value. The row is that of DType.
const char* scalar_name(DType dtype) {
  static constexpr const char* kNames[] = {"int",   "uchar", "char",   "short", "int",   "long",  "float",
                                           "float", "float", "double", "float", "float", "float", "float"};
  static_assert(std::size(kNames) == static_cast<size_t>(DType::kF8E5M2Fnuz) + 1);
  return kNames[static_cast<int>(dtype)];
}

enum Precedence { kSum = 1, kProduct = 2, kAtom = 3 };

struct IndexPrinter {
  const ir::Ranges& ranges;
  const IndexSpelling& spelling;

  std::string number(int64_t value) const {
    if (value >= std::numeric_limits<int32_t>::min() + 1LL && value <= std::numeric_limits<int32_t>::max())
      return std::to_string(value);
    return std::to_string(value) + "L";
  }
  const char* type() const { return spelling.wide ? "long" : "int"; }
  // Returns an operand of min or max. Both operands need equal types, so a number gets a cast. (In unrolled loops,
  // numbers replace symbols.)
  std::string typed(const IndexExpr& e) const {
    const std::string text = print(e, kSum);
    const bool number =
        std::none_of(text.begin(), text.end(), [](char c) { return std::isalpha(static_cast<unsigned char>(c)); });
    return number || spelling.mixed ? std::string("(") + type() + ")" + print(e, kAtom) : text;
  }
  std::string wrap(const std::string& text, int own, int least) const { return own < least ? "(" + text + ")" : text; }

  /// Returns the constant factor of a product. With it, sums are printed as "a - 4*b".
  int64_t factor(const IndexExpr& e) const {
    if (e.is_const()) return e.constant();
    if (e.op() == IndexOp::kMul)
      for (const IndexExpr& arg : e.args())
        if (arg.is_const()) return arg.constant();
    return 1;
  }
  std::string print(const IndexExpr& e, int least) const {
    switch (e.op()) {
      case IndexOp::kConst:
        return wrap(number(e.constant()), e.constant() < 0 ? kSum : kAtom, least);
      case IndexOp::kSymbol:
        return spelling.name(e.symbol());
      case IndexOp::kAdd: {
        std::string text;
        for (int round = 0; round < 2; ++round)  // Constants are printed last.
          for (const IndexExpr& arg : e.args()) {
            if (arg.is_const() != (round == 1)) continue;
            const bool minus = factor(arg) < 0 && !text.empty();
            text += text.empty() ? "" : minus ? " - " : " + ";
            text += print(minus ? -1 * arg : arg, minus ? kProduct : kSum);
          }
        return wrap(text, kSum, least);
      }
      case IndexOp::kMul: {
        std::string text, constant;
        for (const IndexExpr& arg : e.args()) {
          if (arg.is_const()) {
            constant = print(arg, kAtom);
            continue;
          }
          text += text.empty() ? "" : " * ";
          text += print(arg, kAtom);
        }
        if (!constant.empty()) text += " * " + constant;
        return wrap(text, kProduct, least);
      }
      case IndexOp::kFloorDiv:
      case IndexOp::kMod: {
        const IndexExpr &a = e.args()[0], &b = e.args()[1];
        const bool division = e.op() == IndexOp::kFloorDiv;
        if (ranges.known_nonnegative(a) && ranges.known_nonnegative(b))
          return wrap(print(a, kProduct) + (division ? " / " : " % ") + print(b, kAtom), kProduct, least);
        return std::string(division ? "op_index_floordiv_" : "op_index_mod_") + (spelling.wide ? "i64(" : "i32(") +
               print(a, kSum) + ", " + print(b, kSum) + ")";
      }
      case IndexOp::kMin:
      case IndexOp::kMax:
        return std::string(e.op() == IndexOp::kMin ? "min(" : "max(") + typed(e.args()[0]) + ", " + typed(e.args()[1]) + ")";
    }
    fail(ErrorKind::kInternal, "unknown index operation in " + e.str());
  }
};

}  // namespace

std::string type_name(Type type) { return scalar_name(type.dtype) + (type.width > 1 ? std::to_string(type.width) : ""); }

const char* storage_name(DType dtype) {
  if (dtype == DType::kBool || ir::is_f8(dtype)) return "uchar";
  return dtype == DType::kF16 ? "half" : dtype == DType::kBF16 ? "ushort" : scalar_name(dtype);
}

std::string type_suffix(Type type) {
  const DType dtype = type.dtype == DType::kBool ? DType::kI32 : ir::compute_type(type.dtype);
  return ir::name(dtype) + (type.width > 1 ? "x" + std::to_string(type.width) : std::string());
}

int lane_bytes(DType dtype) { return dtype == DType::kBool ? 4 : ir::size_bytes(ir::compute_type(dtype)); }

std::string extreme(DType dtype, bool highest) {
  switch (dtype) {
    case DType::kBool:
      return highest ? "1" : "0";
    case DType::kU8:
      return highest ? "UCHAR_MAX" : "0";
    case DType::kI8:
      return highest ? "CHAR_MAX" : "CHAR_MIN";
    case DType::kI16:
      return highest ? "SHRT_MAX" : "SHRT_MIN";
    case DType::kI32:
      return highest ? "INT_MAX" : "INT_MIN";
    case DType::kI64:
      return highest ? "LONG_MAX" : "LONG_MIN";
    default:
      return highest ? "INFINITY" : "-INFINITY";
  }
}

std::string literal(const Literal& literal) {
  const ir::Scalar& scalar = literal.value;
  const DType dtype = ir::compute_type(literal.dtype);
  if (dtype == DType::kBool) return (scalar.is_float ? scalar.f != 0 : scalar.i != 0) ? "1" : "0";
  if (ir::is_floating(dtype)) {
    double value = scalar.is_float ? scalar.f : static_cast<double>(scalar.i);
    if (dtype == DType::kF32) value = static_cast<float>(value);
    // NAN and INFINITY are floats, which makes a call with doubles ambiguous.
    const std::string type = dtype == DType::kF64 ? "(double)" : "";
    if (std::isnan(value)) return type + "NAN";
    if (std::isinf(value)) return type + (value > 0 ? "INFINITY" : "-INFINITY");
    char text[64];
    if (std::fabs(value) < 1e6 && value == std::floor(value))  // Small integers are exact and easy to read in decimal.
      std::snprintf(text, sizeof text, "%.1f%s", value, dtype == DType::kF32 ? "f" : "");
    else
      std::snprintf(text, sizeof text, "%a%s", value, dtype == DType::kF32 ? "f" : "");
    return text;
  }
  const int64_t value = ir::wrapped(scalar.is_float ? static_cast<int64_t>(scalar.f) : scalar.i, dtype);
  if (dtype == DType::kI64) return value == INT64_MIN ? "LONG_MIN" : std::to_string(value) + "L";
  if (dtype == DType::kI32 && value == INT32_MIN) return "INT_MIN";
  return std::to_string(value);
}

std::string lane_suffix(int lane) { return std::string(".s") + "0123456789abcdef"[lane]; }

std::string index_text(const IndexExpr& e, const ir::Ranges& ranges, const IndexSpelling& spelling) {
  return IndexPrinter{ranges, spelling}.print(e, kSum);
}

}  // namespace ocl::codegen
