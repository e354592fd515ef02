// csrc/ir/names.h: what the scheduler and code generation use of the IR without `ir::`.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir::names {

using ir::BufferId;
using ir::DType;
using ir::Graph;
using ir::IndexExpr;
using ir::IndexOp;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::Op;
using ir::OpCode;
using ir::Symbol;
using ir::SymbolKind;

}  // namespace ocl::ir::names
