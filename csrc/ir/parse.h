// csrc/ir/parse.h: graphs from text.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// Reads the text of Graph::str(). ConfigError with the line number if the text is no graph.
Graph parse_graph(const std::string& text);

}  // namespace ocl::ir
