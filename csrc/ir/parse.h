// csrc/ir/parse.h: graphs and index expressions from text.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// Reads the text of Graph::str(). ConfigError with the line number if the text is no graph.
Graph parse_graph(const std::string& text);
/// Reads the text of IndexExpr::str(). ConfigError if the text is no expression.
IndexExpr parse_index(const std::string& text);

}  // namespace ocl::ir
