// csrc/ir/parse.h: graphs from text.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// Throws ConfigError with a line number on text that is no graph.
Graph parse_graph(const std::string& text);

}  // namespace ocl::ir
