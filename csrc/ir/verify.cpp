// csrc/ir/verify.cpp: the rules that a graph must satisfy at each level, as tables of a rule's text and its check.
#include "csrc/ir/verify.h"

#include <algorithm>
#include <functional>
#include <set>

#include "csrc/ir/facts.h"
#include "csrc/ir/graph.h"
#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

bool is_buffer(const Graph& g, BufferId id) { return id >= 0 && id < static_cast<int>(g.buffers.size()); }
const Buffer& buffer(const Graph& g, BufferId id) { return g.buffers[id]; }
size_t rank(const Graph& g, BufferId id) { return buffer(g, id).sizes.size(); }

/// True if e uses only sizes of the graph, loops of the node, and values before `position` of its body.
bool legal_symbols(const IndexExpr& e, int symbols, size_t loops, size_t reduce_loops, int position) {
  if (e.op() == IndexOp::kSymbol) {
    const Symbol s = e.symbol();
    const int limit[] = {symbols, static_cast<int>(loops), static_cast<int>(reduce_loops), position};
    return s.index >= 0 && s.index < limit[static_cast<int>(s.kind)];
  }
  return std::all_of(e.args().begin(), e.args().end(),
                     [&](const IndexExpr& arg) { return legal_symbols(arg, symbols, loops, reduce_loops, position); });
}

bool legal_symbols(const Shape& exprs, int symbols, size_t loops = 0, size_t reduce_loops = 0, int position = 0) {
  return std::all_of(exprs.begin(), exprs.end(),
                     [&](const IndexExpr& e) { return legal_symbols(e, symbols, loops, reduce_loops, position); });
}

using OpCheck = bool (*)(const Graph&, const Node&, const Op&, int position);
struct OpRule {
  const char* rule;
  OpCheck holds;
};

DType type_of(const Node& n, int value) { return n.body.ops[value].dtype; }

constexpr OpRule kOpRules[] = {
    {"an operand precedes its op",
     [](const Graph&, const Node&, const Op& op, int position) {
       return std::all_of(op.args.begin(), op.args.end(), [&](int arg) { return arg >= 0 && arg < position; });
     }},
    {"an op has as many operands as its row says; a load may have a mask",
     [](const Graph&, const Node&, const Op& op, int) {
       return op.code < OpCode::kCount &&
              (static_cast<int>(op.args.size()) == facts(op.code).arity || (op.code == OpCode::kLoad && op.args.size() == 1));
     }},
    {"a load reads a buffer of the graph with a coordinate per dimension",
     [](const Graph& g, const Node&, const Op& op, int) {
       return op.code != OpCode::kLoad || (is_buffer(g, op.buffer) && op.index.size() == rank(g, op.buffer));
     }},
    {"a load gives the buffer's compute type",
     [](const Graph& g, const Node&, const Op& op, int) {
       return op.code != OpCode::kLoad || op.dtype == compute_type(buffer(g, op.buffer).dtype);
     }},
    {"a mask is bool",
     [](const Graph&, const Node& n, const Op& op, int) {
       return op.code != OpCode::kLoad || op.args.empty() || type_of(n, op.args[0]) == DType::kBool;
     }},
    {"an index op has one expression and an integer type",
     [](const Graph&, const Node&, const Op& op, int) {
       return op.code != OpCode::kIndex || (op.index.size() == 1 && is_integral(op.dtype, false));
     }},
    {"indices use loops of the node, sizes of the graph and earlier integer values",
     [](const Graph& g, const Node& n, const Op& op, int position) {
       if (!legal_symbols(op.index, g.symbols, n.sizes.size(), n.reduce_sizes.size(), position)) return false;
       const std::function<bool(const IndexExpr&)> integers = [&](const IndexExpr& e) {
         if (e.op() == IndexOp::kSymbol && e.symbol().kind == SymbolKind::kValue)
           return is_integral(type_of(n, e.symbol().index), true);
         return std::all_of(e.args().begin(), e.args().end(), integers);
       };
       return std::all_of(op.index.begin(), op.index.end(), integers);
     }},
    {"a constant is a float or an integer as its dtype",
     [](const Graph&, const Node&, const Op& op, int) {
       return op.code != OpCode::kConstant || op.constant.is_float == is_floating(op.dtype);
     }},
    {"floats of 8 and 16 bits appear only at casts",
     [](const Graph&, const Node&, const Op& op, int) {
       return op.code == OpCode::kCast || op.dtype == compute_type(op.dtype);
     }},
    {"operands and value have the types of the op's row",
     [](const Graph&, const Node& n, const Op& op, int) {
       if (op.code <= OpCode::kCast) return true;
       std::vector<DType> operands;
       for (const int arg : op.args) operands.push_back(compute_type(type_of(n, arg)));
       const OpTypes types = op_types(op.code, operands);
       return types.operands == operands && types.value == op.dtype;
     }},
};

using NodeCheck = bool (*)(const Graph&, const Node&);
struct NodeRule {
  const char* rule;
  NodeCheck holds;
};

bool is_loops(const Node& n) { return n.kind == NodeKind::kMap || is_reduction(n); }

bool is_mask(const Node& n, int value) {
  return value == kNone || (value >= 0 && value < static_cast<int>(n.body.ops.size()) && type_of(n, value) == DType::kBool);
}

/// True if the coordinates of the store determine each loop i*: they are the loop, or the digits into which loop_order splits
/// it.
bool has_all_loops(const Graph& g, const Node& n, const Store& s) {
  for (int i = 0; i < static_cast<int>(n.sizes.size()); ++i) {
    IndexExpr sum = 0;
    for (const IndexExpr& coordinate : s.index)
      if (const auto weight = digit_weight(coordinate, {SymbolKind::kLoop, i})) sum = sum + coordinate * *weight;
    if (!n.sizes[i].is_const(1) && simplify(sum, g.ranges()) != IndexExpr::loop(i)) return false;
  }
  return true;
}

constexpr NodeRule kNodeRules[] = {
    {"only loops and attention have a body, only loops stores, only the others operands and outputs",
     [](const Graph&, const Node& n) {
       if (is_loops(n)) return n.operands.empty() && n.outputs.empty();
       return (n.body.ops.empty() || n.kind == NodeKind::kAttention) && n.stores.empty();
     }},
    {"a node writes something", [](const Graph&, const Node& n) { return n.kind == NodeKind::kCall || !writes(n).empty(); }},
    {"loop sizes use symbols of the graph only",
     [](const Graph& g, const Node& n) {
       return legal_symbols(n.sizes, g.symbols) && legal_symbols(n.reduce_sizes, g.symbols);
     }},
    {"stores go to buffers of the graph with a coordinate per dimension",
     [](const Graph& g, const Node& n) {
       return std::all_of(n.stores.begin(), n.stores.end(),
                          [&](const Store& s) { return is_buffer(g, s.buffer) && s.index.size() == rank(g, s.buffer); });
     }},
    {"store coordinates use loops, sizes, and values of a map or scan; of a reduction only outer loops",
     [](const Graph& g, const Node& n) {
       // Map and Scan evaluate the coordinates for each element of r*, so they may use r* and v*.
       const bool each = n.kind != NodeKind::kReduce;
       return std::all_of(n.stores.begin(), n.stores.end(), [&](const Store& s) {
         return legal_symbols(s.index, g.symbols, n.sizes.size(), each ? n.reduce_sizes.size() : 0,
                              each ? static_cast<int>(n.body.ops.size()) : 0);
       });
     }},
    {"masks of stores and the reset of a scan are bool values of the body; a reduction has neither",
     [](const Graph&, const Node& n) {
       return is_mask(n, n.reset) && (n.reset == kNone || n.kind == NodeKind::kScan) &&
              std::all_of(n.stores.begin(), n.stores.end(), [&](const Store& s) {
                return is_mask(n, s.mask) && (s.mask == kNone || n.kind != NodeKind::kReduce);
              });
     }},
    {"a map keeps maxima of i32 only; a scan adds in the computing type, to elements that differ in all loops i*",
     [](const Graph& g, const Node& n) {
       return std::all_of(n.stores.begin(), n.stores.end(), [&](const Store& s) {
         const DType dtype = buffer(g, s.buffer).dtype;
         if (s.mode == StoreMode::kMaximum) return n.kind == NodeKind::kMap && dtype == DType::kI32;
         return s.mode == StoreMode::kWrite ||
                (n.kind == NodeKind::kScan && dtype == compute_type(dtype) && dtype != DType::kBool && has_all_loops(g, n, s));
       });
     }},
    {"a scan has one loop, and is whole",
     [](const Graph&, const Node& n) {
       return n.kind != NodeKind::kScan || (n.reduce_sizes.size() == 1 && n.stage == ReductionStage::kWhole);
     }},
    {"a store stays inside its buffer where its coordinates are constants, unless a loop is empty",
     [](const Graph& g, const Node& n) {
       for (const Shape* loops : {&n.sizes, &n.reduce_sizes})
         for (const IndexExpr& size : *loops)
           if (size.is_const(0) && (n.kind != NodeKind::kReduce || loops == &n.sizes)) return true;
       return std::all_of(n.stores.begin(), n.stores.end(), [&](const Store& s) {
         for (size_t d = 0; d < s.index.size(); ++d) {
           const IndexExpr& size = buffer(g, s.buffer).sizes[d];
           if (s.index[d].is_const() && size.is_const() && size.constant() > 0 &&
               (s.index[d].constant() < 0 || s.index[d].constant() >= size.constant()))
             return false;
         }
         return true;
       });
     }},
    {"a map stores values of its body with the buffer's compute type",
     [](const Graph& g, const Node& n) {
       if (n.kind != NodeKind::kMap) return true;
       return std::all_of(n.stores.begin(), n.stores.end(), [&](const Store& s) {
         return s.value >= 0 && s.value < static_cast<int>(n.body.ops.size()) &&
                compute_type(type_of(n, s.value)) == compute_type(buffer(g, s.buffer).dtype);
       });
     }},
    {"a reduction has a body value per input of its row, or per accumulator when it merges",
     [](const Graph&, const Node& n) {
       if (!is_reduction(n)) return true;
       if (n.reduction >= ReductionCode::kCount) return false;
       const ReductionFacts& row = facts(n.reduction);
       const int wanted = n.stage == ReductionStage::kFinal ? row.accumulators : row.inputs;
       return static_cast<int>(n.reduced.size()) == wanted && std::all_of(n.reduced.begin(), n.reduced.end(), [&](int value) {
                return value >= 0 && value < static_cast<int>(n.body.ops.size());
              });
     }},
    {"a reduction stores results, or accumulators when partial",
     [](const Graph&, const Node& n) {
       if (!is_reduction(n)) return true;
       const ReductionFacts& row = facts(n.reduction);
       const int count = n.stage == ReductionStage::kPartial ? row.accumulators : row.results;
       return std::all_of(n.stores.begin(), n.stores.end(), [&](const Store& s) { return s.value >= 0 && s.value < count; });
     }},
    {"operands and outputs are buffers of the graph, operands with a coordinate per dimension",
     [](const Graph& g, const Node& n) {
       return std::all_of(n.operands.begin(), n.operands.end(),
                          [&](const View& v) {
                            return is_buffer(g, v.buffer) && v.coords.size() == rank(g, v.buffer) &&
                                   legal_symbols(v.sizes, g.symbols) && legal_symbols(v.coords, g.symbols, v.sizes.size());
                          }) &&
              std::all_of(n.outputs.begin(), n.outputs.end(), [&](BufferId id) { return is_buffer(g, id); });
     }},
    {"a contraction multiplies a [b, m, k] with b [b, k, n]",
     [](const Graph&, const Node& n) {
       if (n.kind != NodeKind::kContract) return true;
       if (n.operands.size() != 2 || n.outputs.size() != 1 || n.sizes.size() != 3 || n.reduce_sizes.size() != 1) return false;
       return n.operands[0].sizes == Shape{n.sizes[0], n.sizes[1], n.reduce_sizes[0]} &&
              n.operands[1].sizes == Shape{n.sizes[0], n.reduce_sizes[0], n.sizes[2]};
     }},
    {"a convolution has two operands and one output of rank 4, and may have a bias and statistics of its channels",
     [](const Graph& g, const Node& n) {
       return n.kind != NodeKind::kConvolve ||
              ((n.operands.size() == 2 || (n.operands.size() == 3 && n.convolve.kind == ConvolveKind::kForward &&
                                           n.operands[2].sizes == Shape{n.sizes[1]})) &&
               n.sizes.size() == 4 && n.operands[0].sizes.size() == 4 && n.operands[1].sizes.size() == 4 &&
               (n.outputs.size() == 1 ||
                (n.outputs.size() == 2 && n.convolve.kind == ConvolveKind::kForward &&
                 buffer(g, n.outputs[1]).sizes.size() == 3 && buffer(g, n.outputs[1]).sizes[0].is_const(3) &&
                 buffer(g, n.outputs[1]).sizes[2] == n.sizes[1])));
     }},
    {"a pack turns a batch of matrices into [b, panels, parts, elements]",
     [](const Graph&, const Node& n) {
       if (n.kind != NodeKind::kPack) return true;
       return n.operands.size() == 1 && n.outputs.size() == 1 && n.sizes.size() == 4 && n.operands[0].sizes.size() == 3 &&
              n.operands[0].sizes[0] == n.sizes[0];
     }},
    {"attention has the operands of its kind, and outputs of their sizes",
     [](const Graph& g, const Node& n) {
       if (n.kind != NodeKind::kAttention) return true;
       const AttentionAttrs& a = n.attention;
       const bool forward = a.kind == AttentionKind::kForward;
       const size_t fixed = forward ? 3 : 6;
       if (n.operands.size() != fixed + a.masked + (a.dropout > 0) + (a.blocks > 0) || a.blocks % kMaskBlock != 0) return false;
       for (size_t i = 0; i < n.operands.size(); ++i) {
         const bool state = a.dropout > 0 && i == fixed + a.masked, rows = i == 5;
         if (n.operands[i].sizes.size() != (state ? 1 : !forward && rows ? 3 : 4)) return false;
       }
       const Shape &q = n.operands[0].sizes, &k = n.operands[1].sizes, &v = n.operands[2].sizes;
       std::vector<Shape> sizes = {q};
       if (forward) sizes = {{q[0], q[1], q[2], v[3]}, {2, q[0], q[1], q[2]}};
       if (a.kind == AttentionKind::kKeyValue) sizes = {k, v};
       if (a.kind == AttentionKind::kGradients) sizes = {q, k, v};
       if (n.outputs.size() != sizes.size() || n.sizes != sizes[0]) return false;
       for (size_t i = 0; i < sizes.size(); ++i)
         if (buffer(g, n.outputs[i]).sizes != sizes[i]) return false;
       return true;
     }},
    {"an fft transforms f32 or f64 [o, n, p, q] with a known n into [o, n * p * q * 2]; n of the result depends on its form",
     [](const Graph& g, const Node& n) {
       if (n.kind != NodeKind::kFft) return true;
       if (n.operands.empty() || n.operands.size() > 2 || n.outputs.size() != 1 || n.sizes.size() != 2) return false;
       const Shape& x = n.operands[0].sizes;
       const DType type = buffer(g, n.outputs[0]).dtype;
       if (x.size() != 4 || !x[1].is_const() || (type != DType::kF32 && type != DType::kF64) || n.sizes[0] != x[0])
         return false;
       const bool whole = n.fft.form == FftForm::kComplex;
       const int64_t results = fft_results(n.fft.form, x[1].constant());
       if (!whole && (n.operands.size() != 2 || !x[2].is_const(1) || !x[3].is_const(1) || n.fft.root != 0 || results < 1))
         return false;
       return n.sizes[1] == simplify(x[2] * x[3] * (2 * results), g.ranges()) &&
              std::all_of(n.operands.begin(), n.operands.end(),
                          [&](const View& operand) { return operand.sizes == x && buffer(g, operand.buffer).dtype == type; });
     }},
    {"a sort takes i32 or i64 keys [rows, n] and the other operands of its step, and has the results of its step",
     [](const Graph& g, const Node& n) {
       if (n.kind != NodeKind::kSort) return true;
       const SortAttrs& s = n.sort;
       const size_t required = s.step == SortStep::kMove ? 2 : 1, given = n.operands.size();
       if (given < required || given > required + 1 || n.outputs.empty() || s.block <= 0) return false;
       const Shape& keys = n.operands[0].sizes;
       const DType type = buffer(g, n.operands[0].buffer).dtype;
       if (keys.size() != 2 || (type != DType::kI32 && type != DType::kI64)) return false;
       const IndexExpr blocks = ceildiv(keys[1], s.block);
       if (s.step == SortStep::kCount) return n.outputs.size() == 1 && n.sizes == Shape{keys[0], kDigits, blocks};
       const IndexExpr columns = s.step == SortStep::kMove ? keys[1] : simplify(blocks * s.keep, g.ranges());
       return n.outputs.size() == 2 && n.sizes == Shape{keys[0], columns} && buffer(g, n.outputs[0]).dtype == type &&
              buffer(g, n.outputs[1]).sizes == n.sizes && buffer(g, n.outputs[1]).dtype == DType::kI32;
     }},
    {"the output of a contraction, convolution, fft or sort has its sizes",
     [](const Graph& g, const Node& n) {
       if (n.kind != NodeKind::kContract && n.kind != NodeKind::kConvolve && n.kind != NodeKind::kFft &&
           n.kind != NodeKind::kSort)
         return true;
       return buffer(g, n.outputs[0]).sizes == n.sizes;
     }},
};

using GraphCheck = bool (*)(const Graph&, Level);
struct GraphRule {
  const char* rule;
  GraphCheck holds;
};

constexpr GraphRule kGraphRules[] = {
    {"there is a range per symbol",
     [](const Graph& g, Level) { return static_cast<int>(g.symbol_ranges.size()) == g.symbols; }},
    {"input i of the list is the buffer with input = i",
     [](const Graph& g, Level) {
       for (size_t i = 0; i < g.inputs.size(); ++i)
         if (!is_buffer(g, g.inputs[i]) || buffer(g, g.inputs[i]).role != BufferRole::kInput ||
             buffer(g, g.inputs[i]).input != static_cast<int>(i))
           return false;
       return true;
     }},
    {"inputs have strides",
     [](const Graph& g, Level) {
       return std::all_of(g.inputs.begin(), g.inputs.end(), [&](BufferId id) { return buffer(g, id).strides.has_value(); });
     }},
    {"strides, where given, are one per dimension",
     [](const Graph& g, Level) {
       return std::all_of(g.buffers.begin(), g.buffers.end(),
                          [](const Buffer& b) { return !b.strides || b.strides->size() == b.sizes.size(); });
     }},
    {"buffer sizes use symbols of the graph only",
     [](const Graph& g, Level) {
       return std::all_of(g.buffers.begin(), g.buffers.end(), [&](const Buffer& b) {
         return legal_symbols(b.sizes, g.symbols) && (!b.strides || legal_symbols(*b.strides, g.symbols));
       });
     }},
    {"an output is a buffer with a stride per dimension, or the whole buffer",
     [](const Graph& g, Level) {
       return std::all_of(g.outputs.begin(), g.outputs.end(), [&](const Output& o) {
         if (!is_buffer(g, o.buffer)) return false;
         const Shape& sizes = buffer(g, o.buffer).sizes;
         return o.strides.size() == o.sizes.size() ||
                (o.strides.empty() && o.offset.is_const(0) && (o.sizes == sizes || o.sizes == squeezed(sizes, sizes)));
       });
     }},
    {"nothing is read that no node before wrote",
     [](const Graph& g, Level) {
       std::set<BufferId> written(g.inputs.begin(), g.inputs.end());
       for (const Node& n : g.nodes) {
         for (const BufferId id : reads(n))
           if (!written.count(id)) return false;
         for (const BufferId id : writes(n)) written.insert(id);
       }
       return std::all_of(g.outputs.begin(), g.outputs.end(), [&](const Output& o) { return written.count(o.buffer) > 0; });
     }},
    {"a call waits only for an earlier call",
     [](const Graph& g, Level) {
       std::set<int> calls;
       for (const Node& n : g.nodes) {
         if (n.waits_for != kNone && (n.kind != NodeKind::kCall || !calls.count(n.waits_for))) return false;
         if (n.kind == NodeKind::kCall) calls.insert(n.call);
       }
       return true;
     }},
    {"every buffer that a node touches has strides once scheduled",
     [](const Graph& g, Level level) {
       if (level < Level::kScheduled) return true;
       for (const Node& n : g.nodes)
         for (const auto& ids : {reads(n), writes(n)})
           for (const BufferId id : ids)
             if (!buffer(g, id).strides) return false;
       return true;
     }},
};

[[noreturn]] void broken(const Graph& g, const std::string& rule, const std::string& where) {
  fail(ErrorKind::kInternal, "the graph breaks the rule \"" + rule + "\" " + where + "\n" + g.str());
}

}  // namespace

void verify(const Graph& graph, Level level) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string where = "at node " + std::to_string(i) +
                              (node.origin.op.empty() ? "" : " (" + node.origin.op + ", " + node.origin.source + ")");
    for (int position = 0; position < static_cast<int>(node.body.ops.size()); ++position) {
      const Op& op = node.body.ops[position];
      for (const OpRule& rule : kOpRules)
        if (!rule.holds(graph, node, op, position)) broken(graph, rule.rule, where + ", v" + std::to_string(position));
    }
    for (const NodeRule& rule : kNodeRules)
      if (!rule.holds(graph, node)) broken(graph, rule.rule, where);
  }
  for (const GraphRule& rule : kGraphRules)
    if (!rule.holds(graph, level)) broken(graph, rule.rule, "in the graph");
}

}  // namespace ocl::ir
