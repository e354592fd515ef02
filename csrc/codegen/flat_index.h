// csrc/codegen/flat_index.h: loop indices from one flat index over several loops.
#pragma once

#include <map>
#include <string>

#include "csrc/codegen/body.h"

namespace ocl::codegen {

/// Writes `i<k><suffix>` (or `r<k>`, by `kind`) for k in [0, count) from the flat index `flat` over `sizes`; returns their
/// names.
std::map<ir::Symbol, std::string> write_unflatten(BodyPrinter& body, Writer& writer, const std::string& flat,
                                                  const std::string& type, const ir::Shape& sizes, size_t count,
                                                  ir::SymbolKind kind, const std::string& suffix = "");
/// "int", or "long" if a flat index up to `total` (and a step beyond) may not fit.
const char* flat_type(const BodyPrinter& body, const ir::IndexExpr& total);
/// The first `count` loops i*, each at its only index 0.
std::map<ir::Symbol, std::string> zero_loops(size_t count);

}  // namespace ocl::codegen
