// csrc/ir/parse.h: graphs and index expressions from text.
#pragma once

#include "csrc/ir/graph.h"
#include "csrc/support/archive.h"

namespace ocl::ir {

/// Reads the text of Graph::str(). ConfigError with the line number if the text is no graph.
Graph parse_graph(const std::string& text);
/// Reads the text of IndexExpr::str(). ConfigError if the text is no expression.
IndexExpr parse_index(const std::string& text);

/// Writes or reads an expression, or a graph, as a value of an archive.
void pass(Archive& archive, IndexExpr& expression);
void pass(Archive& archive, Graph& graph);

}  // namespace ocl::ir
