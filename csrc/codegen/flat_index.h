// csrc/codegen/flat_index.h: splits one flat index over several loops into loop indices.
#pragma once

#include <map>
#include <string>

#include "csrc/codegen/body_printer.h"

namespace ocl::codegen {

/// Prints variables `i<k><suffix>` (or `r<k>...`, by `kind`) for k in [0, count), computed from the flat index `flat`
/// over loops of the given sizes. Returns the names of the variables.
std::map<ir::Symbol, std::string> write_unflatten(BodyPrinter& body, Writer& writer, const std::string& flat,
                                                  const std::string& type, const ir::Shape& sizes, size_t count,
                                                  ir::SymbolKind kind, const std::string& suffix = "");
/// Returns the type of a flat index: "int", or "long" if `total` plus one step may not fit.
const char* flat_type(const BodyPrinter& body, const ir::IndexExpr& total);
/// Maps each of the first `count` loops i* to the text "0", which generated code then uses in place of the loop's variable.
/// For loops of extent 1.
std::map<ir::Symbol, std::string> zero_loops(size_t count);

}  // namespace ocl::codegen
