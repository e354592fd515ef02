// csrc/codegen/flat_index.cpp: prints the divisions and remainders that split a flat index into loop indices.
#include "csrc/codegen/flat_index.h"

namespace ocl::codegen {

const char* flat_type(const BodyPrinter& body, const IndexExpr& total) {
  return body.ranges().of(total).high < (int64_t{1} << 30) ? "int" : "long";
}

std::map<ir::Symbol, std::string> zero_loops(size_t count) {
  std::map<ir::Symbol, std::string> names;
  for (size_t k = 0; k < count; ++k) names[{SymbolKind::kLoop, static_cast<int>(k)}] = "0";
  return names;
}

std::map<ir::Symbol, std::string> write_unflatten(BodyPrinter& body, Writer& writer, const std::string& flat,
                                                  const std::string& type, const ir::Shape& sizes, size_t count,
                                                  SymbolKind kind, const std::string& suffix) {
  std::map<ir::Symbol, std::string> names;
  const std::string prefix = kind == SymbolKind::kLoop ? "i" : "r", index = body.kernel().index_type();
  const std::string narrow = index == type ? "" : "(" + index + ")";
  std::string rest = flat;
  for (size_t k = count; k-- > 0;) {
    const std::string name = prefix + std::to_string(k) + suffix, size = body.index(sizes[k]);
    const std::string divisor = size.find(' ') == std::string::npos ? size : "(" + size + ")";
    names[{kind, static_cast<int>(k)}] = name;
    if (k == 0) {
      writer.line("const $s $s = $s$s;", index, name, narrow, rest);
      break;
    }
    writer.line("const $s $s = $s($s % $s);", index, name, narrow, rest, divisor);
    if (k == 1) {
      rest = "(" + rest + " / " + divisor + ")";
    } else {
      const std::string next = body.kernel().fresh("rest");
      writer.line("const $s $s = $s / $s;", type, next, rest, divisor);
      rest = next;
    }
  }
  return names;
}

}  // namespace ocl::codegen
